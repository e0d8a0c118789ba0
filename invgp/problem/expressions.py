"""Expressions of latents, such as `thickness = depth[2] - depth[1]`.

An expression is parsed and never executed as code. It can contain numbers, latents, their labels in brackets,
+ - * / **, `abs`, `exp`, `log`, `log10`, `sqrt`, `minimum`, `maximum`, and numbers with a unit: `quantity(100, "m")`.
Units are propagated: the second operand of a sum is converted to the unit of the first. Temperatures are in K.
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
from numpy.typing import NDArray

from invgp.errors import ArgumentError, ConfigError
from invgp.formatting import join_names, shorten, suggest
from invgp.units import conversion, is_unit

Floats = NDArray[np.float64]
Values = Mapping[str, Floats]  # physical values (..., L) of each latent, in its unit
PATTERN = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\[([^\]]*)\])?\s*=(?!=)(.*)", re.DOTALL)
LONGEST_EXPRESSION = 10_000  # characters of an expression
LONGEST_QUOTE = 200  # of them in a sentence
DEEPEST_NESTING = 100
LARGEST_NUMBER = int(sys.float_info.max)
FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {"exp": np.exp, "log": np.log, "log10": np.log10}
SELECTIONS: dict[str, Callable[[Floats, Floats], Floats]] = {"minimum": np.minimum, "maximum": np.maximum}


@dataclass(frozen=True)
class ExpressionLatent:
    """A latent for use in an expression.

    Attributes
    ----------
    name, unit : str
    dimension : str or None
        Dimension of the labels.
    labels : tuple of int or str, or None
    linear : bool
        Whether it is the Gaussian process itself (identity link).
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
    evaluate : callable
        Function of the physical values of the latents; returns an array (...,), or (..., L) along `dimension`.
    unit : str
    degree : int
        0 for a constant, 1 for a linear function of Gaussian processes, 2 for any other function.
    dimension : str or None
        Dimension of the labels.
    """

    evaluate: Callable[[Values], Floats]
    unit: str
    degree: int = 0
    dimension: str | None = None


@dataclass(frozen=True)
class DerivedExpression:
    """A valid expression with a name.

    Attributes
    ----------
    name, text, unit : str
    dimension : str or None
        Dimension of the labels.
    latents : tuple of str
        Latents in the expression.
    linear : bool
        Whether it is linear in Gaussian processes.
    evaluate : callable
        Function of the physical values of the latents.
    """

    name: str
    text: str
    unit: str
    dimension: str | None
    latents: tuple[str, ...]
    linear: bool
    evaluate: Callable[[Values], Floats]


def parse_expression(text: str, expression_latents: Sequence[ExpressionLatent]) -> DerivedExpression:
    """Parse an expression.

    Parameters
    ----------
    text : str
        ``name = expression`` or ``name [unit] = expression``.
    expression_latents : sequence of ExpressionLatent

    Returns
    -------
    DerivedExpression

    Raises
    ------
    ConfigError
        The text cannot be parsed, or names, units or dimensions do not match.
    """
    parts = PATTERN.fullmatch(text) if len(text) <= LONGEST_EXPRESSION else None
    if parts is None:
        raise ArgumentError(
            f"derive: must be 'name = expression' or 'name [unit] = expression', of at most "
            f"{LONGEST_EXPRESSION:,} characters, was {shorten(repr(text), LONGEST_QUOTE)}"
        )
    name, unit, body = parts[1], (parts[2] or "").strip(), parts[3].strip()
    if name in {latent.name for latent in expression_latents}:
        raise ArgumentError(f"derive: must give a new name, was {name!r}, which is a latent")
    return _parse(name, body, unit, expression_latents, "derive", text)


def parse_quantity(name: str, text: str, unit: str, latents: Sequence[ExpressionLatent], key: str) -> DerivedExpression:
    """Parse the right-hand side of an expression.

    Parameters
    ----------
    name : str
        Name of the quantity.
    text : str
        Such as ``"depth[2] - depth[1]"``.
    unit : str
        Unit of the result; empty for that of the expression.
    latents : sequence of ExpressionLatent
    key : str
        Key of the configuration, for messages.

    Returns
    -------
    DerivedExpression

    Raises
    ------
    ConfigError
        The text cannot be parsed, or names, units or dimensions do not match.
    """
    if len(text) > LONGEST_EXPRESSION:
        raise ArgumentError(f"{key}: must have at most {LONGEST_EXPRESSION:,} characters, had {len(text):,}")
    return _parse(name, text.strip(), unit, latents, key, text)


def _parse(
    name: str, body: str, unit: str, latents: Sequence[ExpressionLatent], key: str, text: str
) -> DerivedExpression:
    known = {latent.name: latent for latent in latents}
    try:
        tree = ast.parse(body, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ArgumentError(
            f"{key}: must be an expression that can be read, was {shorten(repr(body), LONGEST_QUOTE)}"
        ) from None
    parser = _Parser(known, text, key)
    term = parser.term(tree.body)
    if not parser.used_latents:
        raise ArgumentError(f"{key}: must name a latent ({', '.join(known)}), was {shorten(repr(text), LONGEST_QUOTE)}")
    if unit:
        term = parser.convert(term, unit)
    used = tuple(latent.name for latent in latents if latent.name in parser.used_latents)

    def evaluate(values: Values) -> Floats:
        with np.errstate(all="ignore"):  # undefined values become NaN
            return term.evaluate(values)

    return DerivedExpression(name, body, term.unit, term.dimension, used, term.degree < 2, evaluate)


@dataclass
class _Parser:
    """Converts a syntax tree to terms, and records the latents in it."""

    known: Mapping[str, ExpressionLatent]
    text: str
    key: str

    def __post_init__(self) -> None:
        self.used_latents: set[str] = set()
        self.depth = 0

    def term(self, node: ast.expr) -> Term:
        """Return the term of a node. A term without latents is computed once and must be finite."""
        if self.depth == DEEPEST_NESTING:
            raise self._error(f"it must not have more than {DEEPEST_NESTING} operations within each other")
        self.depth += 1
        term = self._parse_node(node)
        self.depth -= 1
        if term.degree:
            return term
        with np.errstate(all="ignore"):
            value = term.evaluate({})
        if not np.isfinite(value):
            raise self._error(f"{shorten(ast.unparse(node))!r} is not a finite number")
        return replace(term, evaluate=lambda _: value)

    def _parse_node(self, node: ast.expr) -> Term:
        match node:
            case ast.Name(id=name):
                return self._latent(name)
            case ast.Subscript(value=ast.Name(id=name), slice=label):
                return self._select_label(name, label)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return self._power(self.term(left), right)
            case ast.BinOp(left=left, op=operator, right=right):
                return self._combine(self.term(left), operator, self.term(right))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._call(name, arguments)
        return self._number(node)

    def _number(self, node: ast.expr) -> Term:
        """Return the term of a number, or of an expression with a sign."""
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                value = float(number) if abs(number) <= LARGEST_NUMBER else math.inf
                return Term(lambda _: np.asarray(value), "1")
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                inner, factor = self.term(operand), -1.0 if isinstance(sign, ast.USub) else 1.0
                return Term(lambda v: factor * inner.evaluate(v), inner.unit, inner.degree, inner.dimension)
        raise self._error(f"{shorten(ast.unparse(node))!r} is not allowed")

    def convert(self, term: Term, unit: str) -> Term:
        """Return the same term in another unit."""
        if not is_unit(unit):
            raise self._error(f"{unit!r} is not a unit that UDUNITS knows")
        how = conversion(term.unit, unit)
        if how is None:
            raise self._error(f"{term.unit!r} cannot be converted to {unit!r}")
        return Term(lambda v: term.evaluate(v) * how.factor + how.offset, unit, term.degree, term.dimension)

    def _to_absolute(self, term: Term) -> Term:
        """Return a temperature in K; one with another zero, such as degC, can be neither added nor multiplied."""
        how = conversion(term.unit, "K")
        return self.convert(term, "K") if how is not None and how.offset else term

    def _latent(self, name: str) -> Term:
        if name not in self.known:
            raise self._error(f"there is no latent {name!r}{suggest(name, list(self.known))}")
        self.used_latents.add(name)
        latent = self.known[name]
        degree = 1 if latent.linear else 2
        if latent.dimension is None:
            return self._to_absolute(Term(lambda v: v[name][..., 0], latent.unit, degree))
        return self._to_absolute(Term(lambda v: v[name], latent.unit, degree, latent.dimension))

    def _select_label(self, name: str, label: ast.expr) -> Term:
        whole = self._latent(name)
        labels = self.known[name].labels
        if labels is None:
            raise self._error(f"{name!r} has no labels")
        # Text may be written without quotes, as on a command line.
        chosen = label.value if isinstance(label, ast.Constant) else label.id if isinstance(label, ast.Name) else None
        if chosen is None or chosen not in labels:
            raise self._error(f"{name!r} has no label {shorten(ast.unparse(label))}; it has {join_names(labels)}")
        column = labels.index(chosen)
        return replace(whole, evaluate=lambda v: whole.evaluate(v)[..., column], dimension=None)

    def _combine(self, left: Term, operator: ast.operator, right: Term) -> Term:
        left, right, dimension = self._align(left, right)
        match operator:
            case ast.Add() | ast.Sub():
                right, sign = self.convert(right, left.unit), 1.0 if isinstance(operator, ast.Add) else -1.0
                degree = max(left.degree, right.degree)
                return Term(lambda v: left.evaluate(v) + sign * right.evaluate(v), left.unit, degree, dimension)
            case ast.Mult():
                degree = left.degree + right.degree
                return Term(
                    lambda v: left.evaluate(v) * right.evaluate(v),
                    self._product_unit(left, right),
                    min(degree, 2),
                    dimension,
                )
            case ast.Div():
                if not right.degree and float(right.evaluate({})) == 0.0:
                    raise self._error("it divides by 0")
                degree = 2 if right.degree else left.degree
                return Term(
                    lambda v: left.evaluate(v) / right.evaluate(v),
                    self._product_unit(left, right, -1),
                    degree,
                    dimension,
                )
        raise self._error("the operators are + - * / **")

    def _power(self, base: Term, node: ast.expr) -> Term:
        exponent = self.term(node)
        if exponent.degree or exponent.unit != "1":
            raise self._error("an exponent must be a number")
        power = float(exponent.evaluate({}))
        unit = self._combine_units(lambda: Unit(base.unit) ** power, f"{base.unit!r} to the power of {power:g}")
        return Term(lambda v: base.evaluate(v) ** power, unit, 2 if base.degree else 0, base.dimension)

    def _call(self, name: str, arguments: list[ast.expr]) -> Term:
        if name == "quantity":
            return self._quantity(arguments)
        parts = [self.term(one) for one in arguments]
        degree = 2 if any(part.degree for part in parts) else 0
        match name, parts:
            case ("exp" | "log" | "log10", [one]):
                inner, function = self._without_unit(name, one), FUNCTIONS[name]
                return Term(lambda v: function(inner.evaluate(v)), "1", degree, one.dimension)
            case ("sqrt", [one]):
                return self._power(one, ast.Constant(0.5))
            case ("abs", [one]):
                return Term(lambda v: np.abs(one.evaluate(v)), one.unit, degree, one.dimension)
            case ("minimum" | "maximum", [one, other]):
                left, right, dimension = self._align(one, self.convert(other, one.unit))
                select = SELECTIONS[name]
                return Term(lambda v: select(left.evaluate(v), right.evaluate(v)), one.unit, degree, dimension)
        raise self._error(
            f"{name!r} of {len(parts)} is not known; there are abs, exp, log, log10 and sqrt of one, "
            "minimum and maximum of two"
        )

    def _without_unit(self, name: str, term: Term) -> Term:
        """Convert the argument of a function that is only defined for numbers."""
        if not Unit(term.unit).is_convertible("1"):
            raise self._error(
                f"{name} is defined for numbers, and {term.unit!r} cannot be converted to '1': divide its argument by "
                f'quantity(1, "{term.unit}")'
            )
        return self.convert(term, "1")

    def _quantity(self, arguments: list[ast.expr]) -> Term:
        match arguments:
            case [number, ast.Constant(value=str() as unit)]:
                term = self.term(number)
                if not term.degree and term.unit == "1" and is_unit(unit):
                    return self._to_absolute(Term(term.evaluate, unit))
        raise self._error('quantity is written as quantity(100, "m")')

    def _product_unit(self, left: Term, right: Term, power: int = 1) -> str:
        """Return the unit of a product or quotient; unchanged if the other factor has no unit."""
        if right.unit == "1":
            return left.unit
        if left.unit == "1" and power == 1:
            return right.unit
        words = f"{left.unit!r} {'times' if power == 1 else 'over'} {right.unit!r}"
        return self._combine_units(lambda: Unit(left.unit) * Unit(right.unit) ** power, words)

    def _combine_units(self, unit: Callable[[], Unit], words: str) -> str:
        """Return a combination of units; some, such as logarithmic units, cannot be combined."""
        try:
            with suppress_errors():  # the library would print a message
                return str(unit())
        except (ValueError, OverflowError):
            raise self._error(f"{words} is not a unit") from None

    def _align(self, left: Term, right: Term) -> tuple[Term, Term, str | None]:
        """Return both terms along their common dimension; a term without labels is the same for all labels."""
        if left.dimension and right.dimension and left.dimension != right.dimension:
            raise self._error(f"{left.dimension!r} and {right.dimension!r} are different dimensions; choose labels")
        dimension = left.dimension or right.dimension
        if dimension is None:
            return left, right, None
        return _add_label_axis(left), _add_label_axis(right), dimension

    def _error(self, why: str) -> ConfigError:
        return ArgumentError(f"{self.key}: {why}, in {shorten(repr(self.text), LONGEST_QUOTE)}")


def _add_label_axis(term: Term) -> Term:
    """Return a term with an axis of labels; a constant needs none."""
    if term.dimension or not term.degree:
        return term
    return replace(term, evaluate=lambda v: term.evaluate(v)[..., None])
