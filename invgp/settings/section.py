"""Base class of all tables of a configuration, and messages for the errors that pydantic finds in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from invgp.formatting import did_you_mean, format_value, join_names, key_path, nearest_name, one_line, suggest

# Messages for the errors of pydantic, in terms of TOML. The braces are replaced by the limits that pydantic reports.
_WORDS = {
    "string_type": "must be text in quotes",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "finite_number": "must be a finite number",
    "literal_error": "must be {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le:,}",
    "too_short": "must hold {min_length} at least",
    "too_long": "must hold {max_length} at most",
}


_COMMANDS = ("command", "driver", "fallback")


class WholeSentenceError(ValueError):
    """Complete messages, which start with a key of the section."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__("; ".join(texts))
        self.sentences = tuple(texts)


def sentences(error: ValidationError, but: str = "") -> list[str]:
    """Return one message per error, except for errors of the type `but`."""
    return [sentence for item in error.errors() if item["type"] != but for sentence in _messages(item)]


def _messages(item: ErrorDetails) -> list[str]:
    where = _format_location(item["loc"])
    # Validators of invgp raise an error with the whole message; errors of pydantic get one from `_WORDS`.
    cause = item.get("ctx", {}).get("error")
    if isinstance(cause, WholeSentenceError):
        return [f"{where}.{text}".lstrip(".") for text in cause.sentences]
    text = str(cause) if cause else _describe_item(item)
    # For a table with too many or too few tables, show their names instead of their contents.
    names_only = item["type"] in ("too_short", "too_long") and isinstance(item["input"], dict)
    was = join_names(item["input"]) if names_only else format_value(item["input"])
    return [f"{where}: {text}, was {was}{_nearest(item)}"]


def _format_location(location: tuple[int | str, ...]) -> str:
    parts = list(location)
    if parts[:1] == ["forward"]:
        del parts[1:2]  # pydantic's name for the branch it took
    if "output_files" in parts[:2]:
        branch = parts.index("output_files") + 2
        del parts[branch : branch + 1]  # the same, for the format
    if parts[-1:] == ["[key]"]:
        parts.pop()  # the name of a table is at fault, not what the table holds
    return key_path(*parts)


def _describe_item(item: ErrorDetails) -> str:
    context: dict[str, Any] = item.get("ctx", {})
    # Limits as a person writes them: 1, not 1.0.
    context = {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in context.items()}
    if item["type"] == "list_type" and item["loc"][-1] in _COMMANDS and isinstance(item["input"], str):
        return f"must be a list of words, such as {json.dumps(item['input'].split())}"
    if item["type"] in _WORDS:
        return _WORDS[item["type"]].format(**context)
    return one_line(item["msg"]).replace("Input should", "must")


def _nearest(item: ErrorDetails) -> str:
    if item["type"] != "literal_error" or not isinstance(item["input"], str):
        return ""
    expected = str(item.get("ctx", {})["expected"])
    return did_you_mean(item["input"], [part for part in expected.split("'")[1::2] if part])


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
