"""Quantities derived from the latents by an expression: `thickness = depth[2] - depth[1]`.

The expression is parsed, never evaluated as code: it may hold numbers, latents, their labels in brackets, + - * / **,
`abs`, `exp`, `log`, `log10`, `sqrt`, `minimum`, `maximum`, and `quantity(100, "m")` for a number with a unit. Units are
carried, and what is added is converted to the unit of what it is added to. Temperatures are in K, from absolute zero.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from cf_units import Unit, suppress_errors

from invgp.errors import ArgumentError, ConfigError
from invgp.formatting import join_names, shorten, suggest
from invgp.problem import Floats
from invgp.units import conversion, is_unit

Values = Mapping[str, Floats]  # physical values (..., L) of each latent, in its unit
FORM = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\[([^\]]*)\])?\s*=(?!=)(.*)", re.DOTALL)
LONGEST = 10_000  # characters of an expression
SHOWN = 200  # of them in a sentence
DEEPEST = 100
LARGEST = int(sys.float_info.max)
OF_ONE: dict[str, Callable[[Floats], Floats]] = {"exp": np.exp, "log": np.log, "log10": np.log10}
CHOOSE: dict[str, Callable[[Floats, Floats], Floats]] = {"minimum": np.minimum, "maximum": np.maximum}


@dataclass(frozen=True)
class Ingredient:
    """A latent as an expression sees it.

    Attributes
    ----------
    labels : along its dimension; None without one.
    linear : whether it is the Gaussian process itself.
    """

    name: str
    unit: str
    dimension: str | None
    labels: tuple[int | str, ...] | None
    linear: bool


@dataclass(frozen=True)
class Term:
    """A part of an expression.

    Attributes
    ----------
    of : physical values of the latents -> (...,), or (..., L) along `dimension`.
    degree : 0 for a constant, 1 for what is linear in Gaussian processes, 2 for anything else.
    """

    of: Callable[[Values], Floats]
    unit: str
    degree: int = 0
    dimension: str | None = None


@dataclass(frozen=True)
class Derived:
    """A named expression that makes sense."""

    name: str
    text: str
    unit: str
    dimension: str | None
    latents: tuple[str, ...]
    linear: bool
    of: Callable[[Values], Floats]


def derived(text: str, ingredients: Sequence[Ingredient]) -> Derived:
    """Parse `name = expression` or `name [unit] = expression`."""
    parts = FORM.fullmatch(text) if len(text) <= LONGEST else None
    if parts is None:
        raise ArgumentError(
            f"derive: must be 'name = expression' or 'name [unit] = expression', of at most {LONGEST:,} characters, "
            f"was {shorten(repr(text), SHOWN)}"
        )
    name, unit, body = parts[1], (parts[2] or "").strip(), parts[3].strip()
    known = {i.name: i for i in ingredients}
    if name in known:
        raise ArgumentError(f"derive: must give a new name, was {name!r}, which is a latent")
    try:
        tree = ast.parse(body, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ArgumentError(
            f"derive: must be an expression that can be read, was {shorten(repr(body), SHOWN)}"
        ) from None
    parser = _Parser(known, text)
    term = parser.term(tree.body)
    if not parser.used:
        raise ArgumentError(f"derive: must name a latent ({', '.join(known)}), was {shorten(repr(text), SHOWN)}")
    if unit:
        term = parser.converted(term, unit)
    latents = tuple(i.name for i in ingredients if i.name in parser.used)

    def values(of: Values) -> Floats:
        with np.errstate(all="ignore"):  # what comes of it is looked at
            return term.of(of)

    return Derived(name, body, term.unit, term.dimension, latents, term.degree < 2, values)


@dataclass
class _Parser:
    """Turns a tree into terms; remembers which latents it met."""

    known: Mapping[str, Ingredient]
    text: str

    def __post_init__(self) -> None:
        self.used: set[str] = set()
        self.depth = 0

    def term(self, node: ast.expr) -> Term:
        """Of any node that is allowed; what holds no latent is computed once, and must be finite."""
        if self.depth == DEEPEST:
            raise self._refused(f"it must not have more than {DEEPEST} operations within each other")
        self.depth += 1
        term = self._any(node)
        self.depth -= 1
        if term.degree:
            return term
        with np.errstate(all="ignore"):
            value = term.of({})
        if not np.isfinite(value):
            raise self._refused(f"{shorten(ast.unparse(node))!r} is not a finite number")
        return replace(term, of=lambda _: value)

    def _any(self, node: ast.expr) -> Term:
        match node:
            case ast.Name(id=name):
                return self._latent(name)
            case ast.Subscript(value=ast.Name(id=name), slice=label):
                return self._labelled(name, label)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return self._power(self.term(left), right)
            case ast.BinOp(left=left, op=operator, right=right):
                return self._combined(self.term(left), operator, self.term(right))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._call(name, arguments)
        return self._number(node)

    def _number(self, node: ast.expr) -> Term:
        """Of a number, or of anything with a sign."""
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                value = float(number) if abs(number) <= LARGEST else math.inf
                return Term(lambda _: np.asarray(value), "1")
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                inner, factor = self.term(operand), -1.0 if isinstance(sign, ast.USub) else 1.0
                return Term(lambda v: factor * inner.of(v), inner.unit, inner.degree, inner.dimension)
        raise self._refused(f"{shorten(ast.unparse(node))!r} is not allowed")

    def converted(self, term: Term, unit: str) -> Term:
        """The same in another unit."""
        if not is_unit(unit):
            raise self._refused(f"{unit!r} is not a unit that UDUNITS knows")
        how = conversion(term.unit, unit)
        if how is None:
            raise self._refused(f"{term.unit!r} cannot be converted to {unit!r}")
        return Term(lambda v: term.of(v) * how.factor + how.offset, unit, term.degree, term.dimension)

    def _absolute(self, term: Term) -> Term:
        """A temperature in K: what counts from another zero, as degC does, can be neither added nor multiplied."""
        how = conversion(term.unit, "K")
        return self.converted(term, "K") if how is not None and how.offset else term

    def _latent(self, name: str) -> Term:
        if name not in self.known:
            raise self._refused(f"there is no latent {name!r}{suggest(name, list(self.known))}")
        self.used.add(name)
        latent = self.known[name]
        degree = 1 if latent.linear else 2
        if latent.dimension is None:
            return self._absolute(Term(lambda v: v[name][..., 0], latent.unit, degree))
        return self._absolute(Term(lambda v: v[name], latent.unit, degree, latent.dimension))

    def _labelled(self, name: str, label: ast.expr) -> Term:
        whole = self._latent(name)
        labels = self.known[name].labels
        if labels is None:
            raise self._refused(f"{name!r} has no labels")
        if not (isinstance(label, ast.Constant) and label.value in labels):
            raise self._refused(f"{name!r} has no label {shorten(ast.unparse(label))}; it has {join_names(labels)}")
        column = labels.index(label.value)
        return replace(whole, of=lambda v: whole.of(v)[..., column], dimension=None)

    def _combined(self, left: Term, operator: ast.operator, right: Term) -> Term:
        left, right, dimension = self._together(left, right)
        match operator:
            case ast.Add() | ast.Sub():
                right, sign = self.converted(right, left.unit), 1.0 if isinstance(operator, ast.Add) else -1.0
                degree = max(left.degree, right.degree)
                return Term(lambda v: left.of(v) + sign * right.of(v), left.unit, degree, dimension)
            case ast.Mult():
                degree = left.degree + right.degree
                return Term(lambda v: left.of(v) * right.of(v), self._unit(left, right), min(degree, 2), dimension)
            case ast.Div():
                if not right.degree and float(right.of({})) == 0.0:
                    raise self._refused("it divides by 0")
                degree = 2 if right.degree else left.degree
                return Term(lambda v: left.of(v) / right.of(v), self._unit(left, right, -1), degree, dimension)
        raise self._refused("of operators there are + - * / **")

    def _power(self, base: Term, node: ast.expr) -> Term:
        exponent = self.term(node)
        if exponent.degree or exponent.unit != "1":
            raise self._refused("an exponent must be a number")
        power = float(exponent.of({}))
        unit = self._combination(lambda: Unit(base.unit) ** power, f"{base.unit!r} to the power of {power:g}")
        return Term(lambda v: base.of(v) ** power, unit, 2 if base.degree else 0, base.dimension)

    def _call(self, name: str, arguments: list[ast.expr]) -> Term:
        if name == "quantity":
            return self._quantity(arguments)
        parts = [self.term(one) for one in arguments]
        degree = 2 if any(part.degree for part in parts) else 0
        match name, parts:
            case ("exp" | "log" | "log10", [one]):
                inner, function = self.converted(one, "1"), OF_ONE[name]
                return Term(lambda v: function(inner.of(v)), "1", degree, one.dimension)
            case ("sqrt", [one]):
                return self._power(one, ast.Constant(0.5))
            case ("abs", [one]):
                return Term(lambda v: np.abs(one.of(v)), one.unit, degree, one.dimension)
            case ("minimum" | "maximum", [one, other]):
                left, right, dimension = self._together(one, self.converted(other, one.unit))
                choose = CHOOSE[name]
                return Term(lambda v: choose(left.of(v), right.of(v)), one.unit, degree, dimension)
        raise self._refused(
            f"{name!r} of {len(parts)} is not known; there are abs, exp, log, log10 and sqrt of one, "
            "minimum and maximum of two"
        )

    def _quantity(self, arguments: list[ast.expr]) -> Term:
        match arguments:
            case [number, ast.Constant(value=str() as unit)]:
                term = self.term(number)
                if not term.degree and term.unit == "1" and is_unit(unit):
                    return self._absolute(Term(term.of, unit))
        raise self._refused('quantity is written as quantity(100, "m")')

    def _unit(self, left: Term, right: Term, power: int = 1) -> str:
        """Of a product or quotient; as it was written, where nothing has to be combined."""
        if right.unit == "1":
            return left.unit
        if left.unit == "1" and power == 1:
            return right.unit
        words = f"{left.unit!r} {'times' if power == 1 else 'over'} {right.unit!r}"
        return self._combination(lambda: Unit(left.unit) * Unit(right.unit) ** power, words)

    def _combination(self, unit: Callable[[], Unit], words: str) -> str:
        """A unit made of others, which not every one allows: a logarithmic one is multiplied by nothing."""
        try:
            with suppress_errors():  # else the library would write a line of its own
                return str(unit())
        except (ValueError, OverflowError):
            raise self._refused(f"{words} is not a unit") from None

    def _together(self, left: Term, right: Term) -> tuple[Term, Term, str | None]:
        """Both along their common dimension: what has none is the same for all labels."""
        if left.dimension and right.dimension and left.dimension != right.dimension:
            raise self._refused(f"{left.dimension!r} and {right.dimension!r} are different dimensions; choose labels")
        dimension = left.dimension or right.dimension
        if dimension is None:
            return left, right, None
        return _along(left), _along(right), dimension

    def _refused(self, why: str) -> ConfigError:
        return ArgumentError(f"derive: {why}, in {shorten(repr(self.text), SHOWN)}")


def _along(term: Term) -> Term:
    """With an axis of labels, which a constant does without."""
    if term.dimension or not term.degree:
        return term
    return replace(term, of=lambda v: term.of(v)[..., None])
