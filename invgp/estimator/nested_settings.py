"""Settings of the parts of a `SAVIGP`, which a grid search changes by names such as ``method__epochs``."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

NESTED = ("method", "kernel", "likelihood")


def settings_of(part: Any) -> dict[str, Any]:
    """Return the settings of a method, kernel or likelihood by name; empty if it has none that can be changed."""
    if isinstance(part, type):
        return {}
    if hasattr(part, "arguments"):
        return dict(part.arguments())
    parameters: Any = getattr(part, "__dataclass_params__", None)
    if parameters is not None and parameters.init:
        return {one.name: getattr(part, one.name) for one in fields(part)}
    return {}


def with_settings(name: str, part: Any, changes: dict[str, Any]) -> Any:
    """Return a copy of a part with other settings.

    Raises
    ------
    ValueError
        A setting is unknown or its value is invalid.
    """
    known = settings_of(part)
    for one in changes:
        if one not in known:
            choices = ", ".join(known) or f"none; pass other objects as {name}"
            raise ValueError(f"{name}__{one} must be a setting of {part!r}: {choices}")
    if hasattr(part, "arguments"):
        given = {one: value for one, value in (known | changes).items() if value is not None}
        return type(part)(**given)
    return replace(part, **changes)
