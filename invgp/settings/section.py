"""Base class of all tables of a configuration."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.fields import FieldInfo

from invgp.formatting import key_path, nearest_name, suggest
from invgp.settings.error_messages import WholeSentenceError, sentences


class Section(BaseModel):
    """A table of the configuration; an unknown key and a missing required key are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    described: ClassVar[str] = "a table"

    @classmethod
    def keys(cls) -> dict[str, FieldInfo]:
        """Return the fields by key: first those of the class itself, then those of its base classes."""
        names = dict.fromkeys(name for kind in cls.__mro__ for name in getattr(kind, "__annotations__", ()))
        return {name: cls.model_fields[name] for name in names if name in cls.model_fields}

    @model_validator(mode="wrap")
    @classmethod
    def _keys(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(data, cls):
            return handler(data)
        if not isinstance(data, dict):
            raise ValueError(f"must be {cls.described}")  # noqa: TRY004 - pydantic reports ValueError, not TypeError
        fields = cls.keys()
        unknown = [key for key in data if key not in fields]
        wrong = [f"{key_path(key)}: unknown key{suggest(key, list(fields))}" for key in unknown]
        # A misspelt key is one mistake, not two.
        meant = {nearest_name(key, list(fields)) for key in unknown}
        wrong += [
            f"{name}: is missing; it must be {field.description}"
            for name, field in fields.items()
            if field.is_required() and name not in data and name not in meant
        ]
        if not wrong:
            return handler(data)
        try:  # what its other keys hold may be wrong as well
            handler({key: value for key, value in data.items() if key in fields})
        except ValidationError as error:
            wrong += sentences(error, but="missing")
        raise WholeSentenceError(wrong)
