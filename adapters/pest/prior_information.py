"""Prior information of a PEST control file: linear equations of parameters or of their logarithms to base 10."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ..quantities import did_you_mean
from ..readers.text import parse_number
from .control_sections import ControlSections

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][+-]?\d+)?"
_TERM = re.compile(
    rf"(?P<sign>[+-]?)\s*(?:(?P<factor>{_NUMBER})\s*\*)?\s*"
    r"(?:log\s*\(\s*(?P<log>[^\s()]+)\s*\)|(?P<plain>\S+))\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Term:
    """A term of an equation: a factor times a parameter, or times its logarithm to base 10."""

    factor: float
    parameter: str
    log: bool


@dataclass(frozen=True)
class PriorEquation:
    """An equation of prior information.

    Parameters
    ----------
    name : str
        Label, in lower case.
    terms : tuple of Term
        Their sum is observed.
    value : float
        Its value.
    weight : float
        Weight of the residual.
    group : str
        Observation group, in lower case; it starts with ``regul`` for regularisation.
    """

    name: str
    terms: tuple[Term, ...]
    value: float
    weight: float
    group: str

    @property
    def factors(self) -> dict[str, float]:
        """Sum of the factors of each parameter."""
        found: dict[str, float] = {}
        for term in self.terms:
            found[term.parameter] = found.get(term.parameter, 0.0) + term.factor
        return found

    @property
    def log(self) -> bool:
        """Whether all terms are logarithms."""
        return all(term.log for term in self.terms)


def read_equations(sections: ControlSections, parameters: Collection[str]) -> tuple[PriorEquation, ...]:
    """Read the prior information of a control file; `AdapterError` if an equation is invalid."""
    found: list[PriorEquation] = []
    for position, label, equation, weight, group in _parts(sections):
        left, equals, right = equation.partition("=")
        if not equals:
            raise sections.error(position, f"the prior information {label!r}: has no '='")
        try:
            terms = tuple(_terms(left, parameters))
            value, factor = parse_number(right.strip(), "its value"), parse_number(weight, "its weight")
        except ValueError as error:
            raise sections.error(position, f"the prior information {label!r}: {error}") from error
        found.append(PriorEquation(label.lower(), terms, value, factor, group.lower()))
    return tuple(found)


def _parts(sections: ControlSections) -> Iterator[tuple[int, str, str, str, str]]:
    """Yield line, label, equation, weight and group."""
    whole: list[tuple[int, str]] = []
    for position, line in sections.lines("prior information"):
        if line.startswith("&") and whole:
            start, before = whole.pop()
            whole.append((start, f"{before} {line[1:]}"))
        else:
            whole.append((position, line))
    for position, line in whole:
        left, equals, right = line.partition("=")
        label, _, equation = left.strip().partition(" ")
        value, weight, group = (*right.split()[:3], "", "", "")[:3]
        yield position, label, f"{equation}{equals}{value}", weight, group
    for position, _ in sections.lines("prior information external")[:1]:
        for row in sections.table_rows("prior information"):
            yield position, row.get("pilbl", ""), row.get("equation", ""), row.get("weight", ""), row.get("obgnme", "")


def _terms(text: str, parameters: Collection[str]) -> Iterator[Term]:
    place, text = 0, text.strip()
    while place < len(text):
        match = _TERM.match(text, place)
        if match is None or match.end() == place:
            raise ValueError(f"{text[place:][:60]!r} is no term such as '1.0 * log(k1)'")
        name = (match["log"] or match["plain"]).lower()
        if name not in parameters:
            raise ValueError(f"{name!r} is no parameter; {did_you_mean(name, parameters)}")
        factor = parse_number(match["factor"] or "1", "a factor")
        yield Term(-factor if match["sign"] == "-" else factor, name, match["log"] is not None)
        place = match.end()
