"""PEST template files: a space between delimiters, ``~depth   ~``, takes a number that fits in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..names import flat, spellings
from ..protocol import Quantity
from ..quantities import Label, columns_of, did_you_mean, written
from ..templates import TemplateError, Values
from .numbers import fit


@dataclass(frozen=True)
class Space:
    """A parameter space of a template.

    Parameters
    ----------
    name : of the parameter, in lower case.
    width : in characters, delimiters included.
    line : line number, from 1.
    """

    name: str
    width: int
    line: int


@dataclass(frozen=True)
class Parameter:
    """Where the number of a parameter comes from: ``(value of source, or value) * scale + offset``.

    Parameters
    ----------
    value : its value if `source` is empty.
    source : name of the parameter whose value it takes from a run's inputs.
    ratio : to the source's value; 1 unless it is tied.
    scale, offset : from PEST's value to what the model reads.
    """

    value: float
    source: str = ""
    ratio: float = 1.0
    scale: float = 1.0
    offset: float = 0.0

    def number(self, numbers: Mapping[str, float]) -> float:
        """What the model reads, given the inputs of a run under all their spellings."""
        value = numbers[self.source] * self.ratio if self.source else self.value
        return value * self.scale + self.offset


@dataclass(frozen=True)
class PestTemplate:
    """The text of a ``.tpl`` file.

    Numbers are written to the right of their space. A parameter that comes several times has the same text
    everywhere, the one that fits its narrowest space.

    Parameters
    ----------
    text : the template; its first line is ``ptf`` and a delimiter.
    parameters : by name in lower case; a name that is not in it is that of an input, as `spellings` has them.

    Raises
    ------
    TemplateError
        If it is not a template; the sentence names the line.
    """

    text: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    _parts: tuple[str | Space, ...] = field(init=False, repr=False, compare=False)
    _widths: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = tuple(_parse(self.text))
        widths: dict[str, int] = {}
        for part in parts:
            if isinstance(part, Space):
                widths[part.name] = min(part.width, widths.get(part.name, part.width))
        object.__setattr__(self, "_parts", parts)
        object.__setattr__(self, "_widths", widths)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that it writes, in lower case."""
        return tuple(self._widths)

    def check(self, inputs: Sequence[Quantity]) -> None:
        """Raise `TemplateError` if a space names neither a known parameter nor a number of `inputs`."""
        known = {spelling for column in columns_of(inputs) for spelling in spellings(*column)}
        for part in self._parts:
            if isinstance(part, Space) and part.name not in known and part.name not in self.parameters:
                raise TemplateError(f"line {part.line}: {part.name!r} names no input; {did_you_mean(part.name, known)}")
        for name in sorted(self.sources):
            owners = [written(*column) for column in columns_of(inputs) if name in spellings(*column)]
            if len(owners) > 1:
                raise TemplateError(f"{name!r} may be {owners[0]} or {owners[1]}; write it in full, as {owners[0]!r}")

    def columns(self, inputs: Sequence[Quantity]) -> set[tuple[str, Label]]:
        """Which columns of `inputs` the template writes."""
        sources = self.sources
        return {column for column in columns_of(inputs) if not sources.isdisjoint(spellings(*column))}

    def render(self, values: Values) -> str:
        """Fill the spaces.

        Raises
        ------
        TemplateError
            If a number does not fit in its space.
        """
        numbers = flat(values)
        texts = {name: self._text(name, numbers) for name in self._widths}
        return "".join(part if isinstance(part, str) else texts[part.name].rjust(part.width) for part in self._parts)

    def _text(self, name: str, numbers: Mapping[str, float]) -> str:
        parameter = self.parameters.get(name)
        number = numbers[name] if parameter is None else parameter.number(numbers)
        text = fit(number, self._widths[name])
        if text is None:
            raise TemplateError(f"{name!r} is {number!r}, of which no digit fits in {self._widths[name]} characters")
        return text

    @property
    def sources(self) -> set[str]:
        """The inputs that it writes, by their flat names in lower case."""
        given = {name: self.parameters[name].source for name in self._widths if name in self.parameters}
        return {given.get(name, name) for name in self._widths} - {""}


def _parse(text: str) -> Iterator[str | Space]:
    first, *lines = re.findall(r"[^\n]*\n|[^\n]+", text) or [""]
    header = re.fullmatch(r"ptf\s+(\S)\s*", first, re.IGNORECASE)
    if header is None or header[1].isalnum():
        raise TemplateError(f"line 1: must be 'ptf' and a delimiter, as 'ptf ~'; it is {first.strip()[:60]!r}")
    for line, content in enumerate(lines, start=2):
        pieces = content.split(header[1])
        if len(pieces) % 2 == 0:
            raise TemplateError(f"line {line}: has a delimiter {header[1]!r} without its partner")
        for place, piece in enumerate(pieces):
            if place % 2 == 0:
                yield piece
                continue
            name = piece.strip().lower()
            if not name or len(name.split()) > 1:
                raise TemplateError(f"line {line}: {piece!r} between two delimiters is no name of a parameter")
            yield Space(name, len(piece) + 2, line)
