"""Products of Hermite polynomials of standardised inputs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from invgp.core.backend import Array, array_namespace, backend_of
from invgp.emulation.training_runs import Integers
from invgp.problem import Floats

DEGREES = ("constant", "linear", "quadratic", "cubic", "quartic")  # names of the first degrees


@dataclass(frozen=True)
class Basis:
    """All products of Hermite polynomials up to a degree, each with a limited number of different inputs.

    The polynomials are orthonormal for standard normal inputs. With powers of the inputs, which are nearly dependent,
    fits of high degrees would lose digits. In physics most terms of high degree contain at most two quantities. A basis
    without the other terms needs fewer runs.

    Parameters
    ----------
    inputs : int
        Number of inputs, I.
    degree : int
        Largest degree, at least 1.
    interaction : int
        Largest number of different inputs in one product.
    """

    inputs: int
    degree: int
    interaction: int

    @property
    def name(self) -> str:
        """Name of the basis, for users."""
        pairs = " in pairs" if self.interaction < min(self.degree, self.inputs) else ""
        if self.degree < len(DEGREES):
            return f"{DEGREES[self.degree]} polynomial{pairs}"
        return f"polynomial of degree {self.degree}{pairs}"

    def __len__(self) -> int:
        together = range(min(self.interaction, self.inputs) + 1)
        return sum(math.comb(self.inputs, k) * math.comb(self.degree, k) for k in together)

    @cached_property
    def powers(self) -> Integers:
        """Degrees (F, I) of the inputs in each product, sorted by their sum; the first is the constant."""
        found = []
        for degree in range(self.degree + 1):
            for numbers in itertools.combinations_with_replacement(range(self.inputs), degree):
                if len(set(numbers)) <= self.interaction:
                    found.append(np.bincount(np.asarray(numbers, dtype=np.intp), minlength=self.inputs))
        return np.asarray(found, dtype=np.intp)

    @cached_property
    def _numbers(self) -> dict[tuple[int, ...], int]:
        """Number of each product, by its degrees."""
        return {tuple(row): k for k, row in enumerate(self.powers.tolist())}

    @cached_property
    def _products(self) -> list[tuple[slice, slice, int, int]]:
        """How successive products follow from earlier ones: their numbers, those of the earlier, and the factor.

        The factor is a polynomial of one input that the earlier products do not contain: its degree, and the input.
        """
        found: list[tuple[slice, slice, int, int]] = []
        for k, row in enumerate(self.powers.tolist()):
            if k == 0:
                continue
            i = next(i for i, power in enumerate(row) if power)
            parent = self._numbers[(*row[:i], 0, *row[i + 1 :])]
            if found and found[-1][2:] == (row[i], i) and found[-1][1].stop == parent:
                found[-1] = (slice(found[-1][0].start, k + 1), slice(found[-1][1].start, parent + 1), row[i], i)
            else:
                found.append((slice(k, k + 1), slice(parent, parent + 1), row[i], i))
        return found

    @cached_property
    def _divisors(self) -> list[tuple[Integers, Integers, Floats]]:
        """For each input: products that contain it, those of one degree less in it, and the factors of derivatives.

        The derivative of the normalised polynomial of degree n is that of degree n - 1 times the root of n.
        """
        found = []
        for i in range(self.inputs):
            rows = np.flatnonzero(self.powers[:, i])
            lower = self.powers[rows] - np.eye(self.inputs, dtype=np.intp)[i]
            numbers = np.asarray([self._numbers[tuple(row)] for row in lower.tolist()], dtype=np.intp)
            found.append((rows, numbers, np.sqrt(self.powers[rows, i])))
        return found

    def __call__(self, x: Array) -> Array:
        """Evaluate the products (F, B) at inputs (B, I), on any array library."""
        xp, backend = array_namespace(x), backend_of(x)
        inputs = xp.matrix_transpose(x)
        tables = [xp.ones_like(inputs), inputs]
        for n in range(1, self.degree):
            tables.append((inputs * tables[n] - math.sqrt(n) * tables[n - 1]) / math.sqrt(n + 1))
        features = xp.empty((len(self), x.shape[0]), dtype=x.dtype, device=backend.device)
        features[0, :] = tables[0][0, :]
        for own, earlier, power, i in self._products:
            features[own, :] = features[earlier, :] * tables[power][i, :]
        return features

    def differentiate(self, coefficients: Floats) -> Floats:
        """Return the coefficients of the derivatives of polynomials with respect to each input.

        Parameters
        ----------
        coefficients : array, shape (F, P)

        Returns
        -------
        array, shape (I, G, P)
            Of the first G products, which are those below the largest degree.
        """
        lower = int(np.count_nonzero(self.powers.sum(axis=1) < self.degree))
        found = np.zeros((self.inputs, lower, coefficients.shape[1]))
        for slope, (rows, numbers, factors) in zip(found, self._divisors, strict=True):
            slope[numbers] = factors[:, None] * coefficients[rows]
        return found

    def pull_back(self, features: Array, cotangents: Array) -> Array:
        """Multiply cotangents (F, B) of the features (F, B) by their derivatives: a gradient (B, I)."""
        xp, backend = array_namespace(features), backend_of(features)
        gradient = []
        for rows, numbers, factors in self._divisors:
            own, lower = (xp.asarray(part.astype(np.int32), device=backend.device) for part in (rows, numbers))
            slopes = xp.take(features, lower, axis=0) * backend.asarray(factors)[:, None]
            gradient.append(xp.sum(slopes * xp.take(cotangents, own, axis=0), axis=0))
        return xp.stack(gradient, axis=1)


def bases(inputs: int, most_features: int, highest_degree: int = 4) -> list[Basis]:
    """Return the candidate bases with at most `most_features` products, the smallest first."""
    pairs, degrees = min(2, inputs), range(1, highest_degree + 1)
    wanted = {(degree, interaction) for degree in degrees for interaction in (pairs, min(degree, inputs))}
    found = [Basis(inputs, degree, interaction) for degree, interaction in wanted if interaction <= degree]
    return sorted((basis for basis in found if len(basis) <= most_features), key=lambda b: (len(b), b.degree))
