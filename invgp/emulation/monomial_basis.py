"""Monomials of standardised inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from invgp.core.backend import Array, array_namespace
from invgp.emulation.training_runs import Integers
from invgp.problem import Floats

if TYPE_CHECKING:
    from sklearn.preprocessing import PolynomialFeatures

DEGREES = {1: "linear", 2: "quadratic", 3: "cubic", 4: "quartic"}


@dataclass(frozen=True)
class Basis:
    """All monomials up to a degree, each with a limited number of different inputs.

    In physics most terms of high degree contain at most two quantities. A basis without the other terms needs fewer
    runs.

    Parameters
    ----------
    inputs : int
        Number of inputs, I.
    degree : int
        Largest degree, a key of `DEGREES`.
    interaction : int
        Largest number of different inputs in one monomial.
    """

    inputs: int
    degree: int
    interaction: int

    @cached_property
    def _features(self) -> PolynomialFeatures:
        from sklearn.preprocessing import PolynomialFeatures  # noqa: PLC0415 - takes a second

        return PolynomialFeatures(self.degree, order="F").fit(np.zeros((1, self.inputs)))

    @cached_property
    def _columns(self) -> Integers:
        """Numbers of the monomials that are in the basis; the first is the constant."""
        return np.flatnonzero(np.count_nonzero(self._features.powers_, axis=1) <= self.interaction)

    @property
    def name(self) -> str:
        """Name of the basis, for users."""
        pairs = " in pairs" if self.interaction < min(self.degree, self.inputs) else ""
        return f"{DEGREES[self.degree]} polynomial{pairs}"

    def __len__(self) -> int:
        return len(self._columns)

    @cached_property
    def _recursion(self) -> list[tuple[int, int]]:
        """For each monomial but the constant: the number of a monomial of one degree less, and the factor's input.

        Every divisor of a monomial of the basis is in the basis.
        """
        powers = [tuple(row) for row in self._powers.tolist()]
        numbers = {row: k for k, row in enumerate(powers)}
        steps = []
        for row in powers[1:]:
            i = next(i for i, power in enumerate(row) if power)
            steps.append((numbers[(*row[:i], row[i] - 1, *row[i + 1 :])], i))
        return steps

    @cached_property
    def _powers(self) -> Integers:
        """Powers (F, I) of the monomials, sorted by their degree."""
        return np.asarray(self._features.powers_[self._columns])

    @cached_property
    def _products(self) -> list[list[tuple[int, int, int]]]:
        """For each degree from 1: products of successive monomials of one degree less with one input.

        Each is the first and last number of the former, counted from the first of their degree, and the input.
        """
        degrees = self._powers.sum(axis=1)
        found: list[list[tuple[int, int, int]]] = [[] for _ in range(self.degree)]
        for degree, (parent, i) in zip(degrees[1:].tolist(), self._recursion, strict=True):
            group, first = found[degree - 1], parent - int(np.argmax(degrees == degree - 1))
            if group and group[-1][1:] == (first, i):
                group[-1] = (group[-1][0], first + 1, i)
            else:
                group.append((first, first + 1, i))
        return found

    def evaluate(self, x: Array) -> Array:
        """Evaluate the monomials (F, B) at inputs (B, I), on any array library."""
        xp = array_namespace(x)
        columns = [x[:, i] for i in range(self.inputs)]
        by_degree = [xp.ones_like(columns[0])[None, :]]
        for products in self._products:
            lower = by_degree[-1]
            by_degree.append(xp.concat([lower[first:last, :] * columns[i] for first, last, i in products]))
        return xp.concat(by_degree)

    def differentiate(self, coefficients: Floats) -> Floats:
        """Return the coefficients of the derivatives of polynomials with respect to each input.

        Parameters
        ----------
        coefficients : array, shape (F, P)

        Returns
        -------
        array, shape (I, G, P)
            Of the first G monomials, which are those below the largest degree.
        """
        powers = self._powers
        lower = int(np.count_nonzero(powers.sum(axis=1) < self.degree))
        numbers = {tuple(row): k for k, row in enumerate(powers.tolist())}
        found = np.zeros((self.inputs, lower, coefficients.shape[1]))
        for row, own in zip(powers, coefficients, strict=True):
            for i in np.flatnonzero(row):
                divisor = row.copy()
                divisor[i] -= 1
                found[i, numbers[tuple(divisor.tolist())]] = row[i] * own
        return found

    def pull_back(self, x: Array, monomials: Array, cotangents: Array) -> Array:
        """Multiply cotangents (F, B) of the monomials by their derivatives: a gradient (B, I) at inputs (B, I)."""
        xp = array_namespace(x)
        columns = [x[:, i] for i in range(self.inputs)]
        left = [cotangents[k, :] for k in range(len(self))]
        gradient = [xp.zeros_like(columns[0]) for _ in columns]
        for k in range(len(self) - 1, 0, -1):
            parent, i = self._recursion[k - 1]
            gradient[i] = gradient[i] + left[k] * monomials[parent, :]
            if parent:
                left[parent] = left[parent] + left[k] * columns[i]
        return xp.stack(gradient, axis=1)

    def __call__(self, x: Floats) -> Floats:
        """Evaluate the monomials (F, B) at inputs (B, I)."""
        monomials: Floats = self._features.transform(x).T[self._columns]
        return monomials


def bases(inputs: int, most_features: int) -> list[Basis]:
    """Return the candidate bases with at most `most_features` monomials, the smallest first."""
    pairs = min(2, inputs)
    wanted = {(degree, interaction) for degree in DEGREES for interaction in (pairs, min(degree, inputs))}
    found = [Basis(inputs, degree, interaction) for degree, interaction in wanted if interaction <= degree]
    return sorted((basis for basis in found if len(basis) <= most_features), key=lambda b: (len(b), b.degree))
