"""Monomials of standardised inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np

from invgp.problem import Floats

DEGREES = {1: "linear", 2: "quadratic", 3: "cubic", 4: "quartic"}


@dataclass(frozen=True)
class Basis:
    """All monomials up to a degree, each in at most so many different inputs.

    In physics most terms of high degree tie two quantities; without the others fewer runs are enough.

    Parameters
    ----------
    inputs : number of inputs, I.
    degree : one of `DEGREES`.
    together : how many different inputs one monomial may have.
    """

    inputs: int
    degree: int
    together: int

    @cached_property
    def terms(self) -> tuple[tuple[int, ...], ...]:
        """The inputs that each monomial multiplies; the constant first, then by degree."""
        return tuple(
            term
            for degree in range(self.degree + 1)
            for term in combinations_with_replacement(range(self.inputs), degree)
            if len(set(term)) <= self.together
        )

    @cached_property
    def _steps(self) -> tuple[tuple[int, int], ...]:
        """Of each monomial but the constant, the number of the one it grows from, and the input that it adds."""
        number = {term: i for i, term in enumerate(self.terms)}
        return tuple((number[term[:-1]], term[-1]) for term in self.terms[1:])

    @property
    def name(self) -> str:
        """In words."""
        pairs = " in pairs" if self.together < min(self.degree, self.inputs) else ""
        return f"{DEGREES[self.degree]} polynomial{pairs}"

    def __len__(self) -> int:
        return len(self.terms)

    def __call__(self, x: Floats) -> Floats:
        """Inputs (B, I) -> monomials (F, B)."""
        columns = np.ascontiguousarray(x.T)
        features = np.empty((len(self), len(x)))
        features[0] = 1.0
        for i, (smaller, added) in enumerate(self._steps, start=1):
            np.multiply(features[smaller], columns[added], out=features[i])
        return features


def bases(inputs: int, most_features: int) -> list[Basis]:
    """The bases worth trying, the smallest first."""
    pairs = min(2, inputs)
    wanted = {(degree, together) for degree in DEGREES for together in (pairs, min(degree, inputs))}
    found = [Basis(inputs, degree, together) for degree, together in wanted if together <= degree]
    return sorted((basis for basis in found if len(basis) <= most_features), key=lambda b: (len(b), b.degree))
