"""Monomials of standardised inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from invgp.emulation.training_runs import Integers
from invgp.problem import Floats

if TYPE_CHECKING:
    from sklearn.preprocessing import PolynomialFeatures

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
    def _features(self) -> PolynomialFeatures:
        from sklearn.preprocessing import PolynomialFeatures  # noqa: PLC0415 - takes a second

        return PolynomialFeatures(self.degree, order="F").fit(np.zeros((1, self.inputs)))

    @cached_property
    def _columns(self) -> Integers:
        """Which of all monomials are in it; the first is the constant."""
        return np.flatnonzero(np.count_nonzero(self._features.powers_, axis=1) <= self.together)

    @property
    def name(self) -> str:
        """In words."""
        pairs = " in pairs" if self.together < min(self.degree, self.inputs) else ""
        return f"{DEGREES[self.degree]} polynomial{pairs}"

    def __len__(self) -> int:
        return len(self._columns)

    def __call__(self, x: Floats) -> Floats:
        """Inputs (B, I) -> monomials (F, B)."""
        monomials: Floats = self._features.transform(x).T[self._columns]
        return monomials


def bases(inputs: int, most_features: int) -> list[Basis]:
    """The bases worth trying, the smallest first."""
    pairs = min(2, inputs)
    wanted = {(degree, together) for degree in DEGREES for together in (pairs, min(degree, inputs))}
    found = [Basis(inputs, degree, together) for degree, together in wanted if together <= degree]
    return sorted((basis for basis in found if len(basis) <= most_features), key=lambda b: (len(b), b.degree))
