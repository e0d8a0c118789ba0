"""Text with gaps for the numbers of a run: ``depth = {depth[1]:.3f}``, ``{depth[*]:.3f}``."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .protocol import Quantity
from .quantities import Label, columns_of, did_you_mean, written

Values = Mapping[str, float | Mapping[str | int, float]]

_FIELD = re.compile(r"(?P<name>[^\[\].]+)(?:\[(?P<label>[^\[\]]+)\])?")
_LONG_NUMBER = re.compile(r"\d{4,}")
MOST_NAMED = 20  # labels in a message
_ADVICE = "a brace that is meant literally is doubled, {{ or }}"


class InputTemplate(Protocol):
    """Text for each run, from its numbers; a frozen dataclass, so that its ``repr`` tells all of it."""

    def check(self, inputs: Sequence[Quantity]) -> None:
        """Raise `TemplateError` if the template asks for what is not in `inputs`."""

    def columns(self, inputs: Sequence[Quantity]) -> set[tuple[str, Label]]:
        """Which columns of `inputs` the template writes."""

    def render(self, values: Values) -> str:
        """Write the text; raise `TemplateError` if a number cannot be written."""


class TemplateError(ValueError):
    """A template that cannot be understood, or that does not fit its inputs."""


@dataclass(frozen=True)
class Field:
    """A gap of a template.

    Parameters
    ----------
    name : name of an input.
    label : its label, as written in the template; None without one.
    spec : Python format specification; empty for the shortest text that reads back as the same float.
    line : line number, from 1.
    """

    name: str
    label: str | None
    spec: str
    line: int

    @property
    def every(self) -> bool:
        """Whether it stands for all numbers whose labels begin alike."""
        return self.label is not None and self.label.endswith("*")

    def matches(self, label: Label) -> bool:
        """Whether it stands for the number with this label."""
        if self.every and self.label is not None and label is not None:
            return str(label).startswith(self.label[:-1])
        return self.label == (None if label is None else str(label))

    def __str__(self) -> str:
        return f"line {self.line}: {{{written(self.name, self.label)}}}"


class _Formatter(string.Formatter):
    """Splits text into literals and fields, and writes floats so that they read back exactly."""

    def format_field(self, value: Any, format_spec: str) -> str:
        number = float(value)  # the repr of a NumPy float is not a number
        return format(number, format_spec) if format_spec else repr(number)


_FORMATTER = _Formatter()


@dataclass(frozen=True)
class Template:
    """Text with fields ``{name}``, ``{name[label]}`` and format specifications, ``{name[label]:.6f}``.

    ``{name[*]}`` stands for all numbers of an input, a line each; ``{name[2,*]}`` for those whose labels begin so.

    Nothing but the named number can be reached from a field: no attribute, no conversion, no nesting. A field
    stands on one line.

    Parameters
    ----------
    text : the template; ``{{`` and ``}}`` stand for literal braces.

    Raises
    ------
    TemplateError
        If a field is not of these forms; the sentence names the line.
    """

    text: str
    _parts: tuple[str | Field, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parts", tuple(_parse(self.text)))

    def _numbers(self, gap: Field, values: Values) -> list[float]:
        """All numbers that a gap stands for."""
        if not gap.every:
            return [_look_up(gap, values)]
        found = values.get(gap.name, {})
        if not isinstance(found, Mapping):
            raise TemplateError(f"{gap} has no value")
        return [number for label, number in found.items() if gap.matches(label)]

    @property
    def fields(self) -> tuple[Field, ...]:
        """The gaps, in the order of the text."""
        return tuple(part for part in self._parts if isinstance(part, Field))

    def check(self, inputs: Sequence[Quantity]) -> None:
        """Raise `TemplateError` if a field names no number of `inputs`."""
        known = {q.name: q for q in inputs}
        for gap in self.fields:
            if gap.name not in known:
                raise TemplateError(f"{gap} names no input; {did_you_mean(gap.name, known)} ({_ADVICE})")
            labels = known[gap.name].labels
            if labels is None and gap.label is not None:
                raise TemplateError(f"{gap} has a label, but {gap.name!r} is a single number: write {{{gap.name}}}")
            if labels is None:
                continue
            some = labels if len(labels) <= MOST_NAMED else (*labels[: MOST_NAMED // 2], "...", labels[-1])
            valid = ", ".join(str(label) for label in some)
            if gap.label is None:
                raise TemplateError(
                    f"{gap} needs a label, {{{gap.name}[{labels[0]}]}}; valid labels are {valid}; "
                    f"{{{gap.name}[*]}} writes all"
                )
            if not any(gap.matches(label) for label in labels):
                raise TemplateError(f"{gap} has an unknown label; valid labels are {valid}")

    def columns(self, inputs: Sequence[Quantity]) -> set[tuple[str, Label]]:
        """Which columns of `inputs` the template writes."""
        single = {(gap.name, gap.label) for gap in self.fields if not gap.every}
        every = [gap for gap in self.fields if gap.every]
        return {
            (name, label)
            for name, label in columns_of(inputs)
            if (name, None if label is None else str(label)) in single
            or any(gap.name == name and gap.matches(label) for gap in every)
        }

    def render(self, values: Values) -> str:
        """Fill the gaps.

        Parameters
        ----------
        values : for each name, a number, or a mapping from label to number; in the units of the inputs.
        """
        return "".join(
            part
            if isinstance(part, str)
            else "\n".join(_FORMATTER.format_field(number, part.spec) for number in self._numbers(part, values))
            for part in self._parts
        )


def _look_up(gap: Field, values: Values) -> float:
    if gap.name not in values:
        raise TemplateError(f"{gap} has no value")
    value = values[gap.name]
    if gap.label is None and not isinstance(value, Mapping):
        return value
    if gap.label is not None and isinstance(value, Mapping):
        for key, number in value.items():
            if str(key) == gap.label:
                return number
    raise TemplateError(f"{gap} has no value")


def _parse(text: str) -> Iterator[str | Field]:
    # Line by line, so that even a syntax error knows its line.
    for number, line in enumerate(re.findall(r"[^\n]*\n|[^\n]+", text), start=1):
        try:
            pieces = list(_FORMATTER.parse(line))
        except ValueError as error:
            raise TemplateError(f"line {number}: {error}; {_ADVICE}") from error
        for literal, name, spec, conversion in pieces:
            if literal:
                yield literal
            if name is not None:
                yield _field(name, spec or "", conversion, number)


def _field(name: str, spec: str, conversion: str | None, line: int) -> Field:
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
