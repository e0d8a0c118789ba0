"""Templates of input files: text with fields such as ``{depth[1]:.3f}`` and ``{depth[*]:.3f}``."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .protocol import Quantity
from .quantities import Label, column_name, columns_of, did_you_mean

Values = Mapping[str, float | Mapping[str | int, float]]

_FIELD = re.compile(r"(?P<name>[^\[\].]+)(?:\[(?P<label>[^\[\]]+)\])?")
_LONG_NUMBER = re.compile(r"\d{4,}")
MOST_NAMED = 20  # labels in a message
_ADVICE = "a brace that is meant literally is doubled, {{ or }}"


class InputTemplate(Protocol):
    """A template that writes the text of an input file; a frozen dataclass, because its ``repr`` is in the digest."""

    def check(self, inputs: Sequence[Quantity]) -> None:
        """Raise `TemplateError` if the template has a field that is not in `inputs`."""

    def columns(self, inputs: Sequence[Quantity]) -> set[tuple[str, Label]]:
        """Return the columns of `inputs` that the template writes."""

    def render(self, values: Values) -> str:
        """Return the text; raise `TemplateError` if a number cannot be written."""


class TemplateError(ValueError):
    """A template is invalid, or does not match the inputs."""


@dataclass(frozen=True)
class Field:
    """A field of a template.

    Parameters
    ----------
    name : str
        Name of an input.
    label : str, optional
        Its label, as in the template.
    spec : str
        Python format specification; empty for the shortest text that reads back as the same float.
    line : int
        Line number, from 1.
    """

    name: str
    label: str | None
    spec: str
    line: int

    @property
    def is_wildcard(self) -> bool:
        """Whether it stands for all numbers whose labels have the same start."""
        return self.label is not None and self.label.endswith("*")

    def matches(self, label: Label) -> bool:
        """Whether the field stands for the number with this label."""
        if self.is_wildcard and self.label is not None and label is not None:
            return str(label).startswith(self.label[:-1])
        return self.label == (None if label is None else str(label))

    def __str__(self) -> str:
        return f"line {self.line}: {{{column_name(self.name, self.label)}}}"


class _Formatter(string.Formatter):
    """Parses templates, and writes floats so that they read back exactly."""

    def format_field(self, value: Any, format_spec: str) -> str:
        number = float(value)  # the repr of a NumPy float is not a number
        return format(number, format_spec) if format_spec else repr(number)


_FORMATTER = _Formatter()


@dataclass(frozen=True)
class Template:
    """Text with fields ``{name}``, ``{name[label]}`` and format specifications, ``{name[label]:.6f}``.

    ``{name[*]}`` stands for all numbers of an input, one per line; ``{name[2,*]}`` for those whose labels start with
    ``2,``. A field contains no attribute, no conversion and no nested field, and is on one line.

    Parameters
    ----------
    text : str
        The template; ``{{`` and ``}}`` are literal braces.

    Raises
    ------
    TemplateError
        A field is invalid; the message names the line.
    """

    text: str
    _parts: tuple[str | Field, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parts", tuple(_parse(self.text)))

    def _numbers(self, item: Field, values: Values) -> list[float]:
        """Return the numbers that a field stands for."""
        if not item.is_wildcard:
            return [_look_up(item, values)]
        found = values.get(item.name, {})
        if not isinstance(found, Mapping):
            raise TemplateError(f"{item} has no value")
        return [number for label, number in found.items() if item.matches(label)]

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields, in the order of the text."""
        return tuple(part for part in self._parts if isinstance(part, Field))

    def check(self, inputs: Sequence[Quantity]) -> None:
        """Raise `TemplateError` if a field does not name a number of `inputs`."""
        known = {q.name: q for q in inputs}
        for item in self.fields:
            if item.name not in known:
                raise TemplateError(f"{item} names no input; {did_you_mean(item.name, known)} ({_ADVICE})")
            labels = known[item.name].labels
            if labels is None and item.label is not None:
                raise TemplateError(f"{item} has a label, but {item.name!r} is a single number: write {{{item.name}}}")
            if labels is None:
                continue
            some = labels if len(labels) <= MOST_NAMED else (*labels[: MOST_NAMED // 2], "...", labels[-1])
            valid = ", ".join(str(label) for label in some)
            if item.label is None:
                raise TemplateError(
                    f"{item} needs a label, {{{item.name}[{labels[0]}]}}; valid labels are {valid}; "
                    f"{{{item.name}[*]}} writes all"
                )
            if not any(item.matches(label) for label in labels):
                raise TemplateError(f"{item} has an unknown label; valid labels are {valid}")

    def columns(self, inputs: Sequence[Quantity]) -> set[tuple[str, Label]]:
        """Return the columns of `inputs` that the template writes."""
        single = {(item.name, item.label) for item in self.fields if not item.is_wildcard}
        every = [item for item in self.fields if item.is_wildcard]
        return {
            (name, label)
            for name, label in columns_of(inputs)
            if (name, None if label is None else str(label)) in single
            or any(item.name == name and item.matches(label) for item in every)
        }

    def render(self, values: Values) -> str:
        """Return the text with the numbers of a run.

        Parameters
        ----------
        values : mapping
            For each input, a number, or a mapping from label to number, in the units of the inputs.
        """
        return "".join(
            part
            if isinstance(part, str)
            else "\n".join(_FORMATTER.format_field(number, part.spec) for number in self._numbers(part, values))
            for part in self._parts
        )


def _look_up(item: Field, values: Values) -> float:
    if item.name not in values:
        raise TemplateError(f"{item} has no value")
    value = values[item.name]
    if item.label is None and not isinstance(value, Mapping):
        return value
    if item.label is not None and isinstance(value, Mapping):
        for key, number in value.items():
            if str(key) == item.label:
                return number
    raise TemplateError(f"{item} has no value")


def _parse(text: str) -> Iterator[str | Field]:
    # Line by line, so that the message of a syntax error can name the line.
    for number, line in enumerate(re.findall(r"[^\n]*\n|[^\n]+", text), start=1):
        try:
            pieces = list(_FORMATTER.parse(line))
        except ValueError as error:
            raise TemplateError(f"line {number}: {error}; {_ADVICE}") from error
        for literal, name, spec, conversion in pieces:
            if literal:
                yield literal
            if name is not None:
                yield _parse_field(name, spec or "", conversion, number)


def _parse_field(name: str, spec: str, conversion: str | None, line: int) -> Field:
    shown = f"line {line}: {{{name}{'!' + conversion if conversion else ''}{':' + spec if spec else ''}}}"
    if not name or name.isdecimal():
        raise TemplateError(f"{shown} has no name; a field names an input, as {{depth}} ({_ADVICE})")
    if conversion:
        raise TemplateError(f"{shown} has a conversion; only a format specification is understood, as {{depth:.6f}}")
    match = _FIELD.fullmatch(name)
    if match is None:
        raise TemplateError(f"{shown} is neither {{name}} nor {{name[label]}}, and nothing else can be reached")
    if "{" in spec or _LONG_NUMBER.search(spec):
        raise TemplateError(f"{shown} has a nested or overlong format specification; write it out, as {{depth:.6f}}")
    try:
        format(1.0, spec)
    except ValueError as error:
        raise TemplateError(f"{shown} has a format specification that suits no float: {error}") from error
    return Field(match["name"], match["label"], spec, line)
