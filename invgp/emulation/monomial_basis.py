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
