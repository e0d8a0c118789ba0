"""PEST template files: a space between delimiters, such as ``~depth   ~``, is replaced by a number of this width."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..flat_names import file_names, flatten_values, spellings
from ..protocol import Quantity
from ..quantities import Label, column_name, columns_of, did_you_mean
from ..templates import TemplateError, Values

_DIGITS = 17  # most digits of a float
_LARGEST = 1e16  # written without an exponent
_ONE_DIGIT = 0.5  # relative error beyond which not even the first digit is right


def fit_number(number: float, width: int) -> str | None:
    """Write a number in a field of fixed width.

    A finite number has a decimal point, because a Fortran program that reads ``F10.3`` would insert one. Of all texts
    that fit, the nearest to the number is used, of those one with a digit before the point, and of those the shortest.

    Parameters
    ----------
    number : float
    width : int
        Width of the field in characters.

    Returns
    -------
    str or None
        None if not even one digit fits.
    """
    if not math.isfinite(number):
        text = repr(number)
        return text if len(text) <= width else None
    if number == 0.0:
        return "0.0" if width >= 3 else None
    fitting = [text for text in _write_texts(number) if len(text) <= width]
    # Some programs require a digit before the point.
    best = min(
        fitting, key=lambda text: (abs(float(text) - number), text.lstrip("-")[0] == ".", len(text)), default=None
    )
    if best is None or abs(float(best) - number) > _ONE_DIGIT * abs(number):
        return None
    return best


def _write_texts(number: float) -> Iterator[str]:
    for digits in range(_DIGITS):
        mantissa, _, exponent = f"{number:.{digits}e}".partition("e")
        scaled = f"{_add_point(mantissa)}e{int(exponent)}"
        yield from _drop_zero(scaled)
    if abs(number) < _LARGEST:
        for digits in range(_DIGITS + 1):
            yield from _drop_zero(_add_point(f"{number:.{digits}f}"))
    yield _add_point_to_mantissa(repr(number))


def _add_point(text: str) -> str:
    return text if "." in text else f"{text}."


def _add_point_to_mantissa(text: str) -> str:
    mantissa, e, exponent = text.partition("e")
    return f"{_add_point(mantissa)}{e}{exponent}"


def _drop_zero(text: str) -> Iterator[str]:
    """Yield the text, and the text without a zero before the point."""
    yield text
    if text.startswith(("0.", "-0.")) and text not in ("0.", "-0."):
        yield text.replace("0.", ".", 1)


@dataclass(frozen=True)
class Space:
    """A parameter space of a template.

    Parameters
    ----------
    name : str
        Name of the parameter, in lower case.
    width : int
        Width in characters, including the delimiters.
    line : int
        Line number, from 1.
    """

    name: str
    width: int
    line: int


@dataclass(frozen=True)
class Parameter:
    """The value of a parameter, as the model reads it.

    It is ``value * scale + offset``, or ``input * ratio * scale + offset`` with an input of the run.

    Parameters
    ----------
    value : float
        Value if `source` is empty.
    source : str
        Name of the parameter whose value is an input of the run.
    ratio : float
        Ratio to the value of the source; 1 unless the parameter is tied.
    scale, offset : float
        Conversion from the value in PEST to the value that the model reads.
    """

    value: float
    source: str = ""
    ratio: float = 1.0
    scale: float = 1.0
    offset: float = 0.0

    def compute(self, numbers: Mapping[str, float]) -> float:
        """Return the number that the model reads, from the inputs of a run by all of their names."""
        value = numbers[self.source] * self.ratio if self.source else self.value
        return value * self.scale + self.offset


def named_parameters(inputs: Sequence[Quantity]) -> dict[str, Parameter]:
    """Return the parameters of the inputs with names of their own, by name in lower case."""
    return {
        name.lower(): Parameter(0.0, column_name(*column).lower())
        for quantity in inputs
        if quantity.names is not None
        for name, column in zip(quantity.names, columns_of([quantity]), strict=True)
    }


@dataclass(frozen=True)
class PestTemplate:
    """The text of a ``.tpl`` file.

    Numbers are right-aligned in their space. A parameter that occurs several times has the same text everywhere, which
    fits its narrowest space.

    Parameters
    ----------
    text : str
        The template; the first line is ``ptf`` and the delimiter.
    parameters : mapping of str to Parameter
        By name, in lower case. Any other name is the name of an input, see `spellings`.

    Raises
    ------
    TemplateError
        The text is invalid; the message names the line.
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
        """Names of the parameters that the template writes, in lower case."""
        return tuple(self._widths)

    def check(self, inputs: Sequence[Quantity]) -> None:
        """Raise `TemplateError` if the name of a space is neither a parameter nor a number of `inputs`."""
        known = {name for names in file_names(inputs).values() for name in names}
        for part in self._parts:
            if isinstance(part, Space) and part.name not in known and part.name not in self.parameters:
                raise TemplateError(f"line {part.line}: {part.name!r} names no input; {did_you_mean(part.name, known)}")
        for name in sorted(self.sources):
            owners = [column_name(*column) for column in columns_of(inputs) if name in spellings(*column)]
            if len(owners) > 1:
                raise TemplateError(f"{name!r} may be {owners[0]} or {owners[1]}; write it in full, as {owners[0]!r}")

    def columns(self, inputs: Sequence[Quantity]) -> set[tuple[str, Label]]:
        """Return the columns of `inputs` that the template writes."""
        sources = self.sources
        return {column for column in columns_of(inputs) if not sources.isdisjoint(spellings(*column))}

    def render(self, values: Values) -> str:
        """Return the text with the numbers of a run.

        Raises
        ------
        TemplateError
            A number does not fit in its space.
        """
        numbers = flatten_values(values)
        texts = {name: self._text(name, numbers) for name in self._widths}
        return "".join(part if isinstance(part, str) else texts[part.name].rjust(part.width) for part in self._parts)

    def _text(self, name: str, numbers: Mapping[str, float]) -> str:
        parameter = self.parameters.get(name)
        number = numbers[name] if parameter is None else parameter.compute(numbers)
        text = fit_number(number, self._widths[name])
        if text is None:
            raise TemplateError(f"{name!r} is {number!r}, of which no digit fits in {self._widths[name]} characters")
        return text

    @property
    def sources(self) -> set[str]:
        """Names of the inputs that the template writes, in lower case."""
        sources = {name: self.parameters[name].source for name in self._widths if name in self.parameters}
        return {sources.get(name, name) for name in self._widths} - {""}


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
