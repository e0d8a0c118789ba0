"""Settings of the parts of a `SAVIGP`, which a grid search changes by names such as ``method__epochs``.

As in scikit-learn, a name follows the path to a setting: ``kernel__k1__length_scale`` is that of the first kernel of a
sum, a product or a tuple, ``kernel__kernel__length_scale`` that of a kernel on some input dimensions.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from invgp.core.kernels import Product, Sum

NESTED = ("method", "kernel", "likelihood")


def settings_of(part: Any) -> dict[str, Any]:
    """Return the settings of a method, kernel, likelihood or optimiser by name, and those of its parts.

    Parameters
    ----------
    part : Any
        The object; a value without settings that can be changed has none.

    Returns
    -------
    dict of str to Any
    """
    own = _own_settings(part)
    inner = {f"{name}__{below}": one for name, value in own.items() for below, one in settings_of(value).items()}
    return own | inner


def with_settings(name: str, part: Any, changes: dict[str, Any]) -> Any:
    """Return a copy of a part with other settings.

    Parameters
    ----------
    name : str
        Name of the part, for messages.
    part : Any
        The object.
    changes : dict of str to Any
        New values by name, also of settings of parts of the part.

    Raises
    ------
    ValueError
        A setting is unknown or its value is invalid.
    """
    known, below = _own_settings(part), dict[str, dict[str, Any]]()
    values = dict(known)
    for path, value in changes.items():
        first, nested, rest = path.partition("__")
        if first not in known:
            choices = ", ".join(known) or f"none; pass other objects as {name}"
            raise ValueError(f"{name}__{first} must be a setting of {part!r}: {choices}")
        if nested:
            below.setdefault(first, {})[rest] = value
        else:
            values[first] = value
    for first, inner in below.items():
        values[first] = with_settings(f"{name}__{first}", values[first], inner)
    return _rebuild(part, values)


def _own_settings(part: Any) -> dict[str, Any]:
    """Return the settings of an object by name, without those of its parts."""
    parameters: Any = getattr(part, "__dataclass_params__", None)
    if isinstance(part, type):
        return {}
    if isinstance(part, Sum | Product):
        return _own_settings(part.parts)
    if isinstance(part, tuple | list) and any(_own_settings(one) for one in part):
        return {f"k{number}": one for number, one in enumerate(part, start=1)}
    if hasattr(part, "arguments"):
        return dict(part.arguments())
    if parameters is not None and parameters.init:
        return {one.name: getattr(part, one.name) for one in fields(part)}
    return {}


def _rebuild(part: Any, values: dict[str, Any]) -> Any:
    if isinstance(part, Sum | Product):
        return type(part)(tuple(values.values()))
    if isinstance(part, tuple | list):
        return type(part)(values.values())
    if hasattr(part, "arguments"):
        return type(part)(**{one: value for one, value in values.items() if value is not None})
    return replace(part, **values)
