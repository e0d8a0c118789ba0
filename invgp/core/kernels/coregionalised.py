"""Correlations between several outputs, whose number is an input dimension."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from invgp.core.backend import Array, array_namespace, product, to_numpy
from invgp.core.kernels.base import Kernel, KernelGradient, Linearised, as_like, as_positive


@dataclass(frozen=True, eq=False, repr=False)
class Coregionalised(Kernel):
    """The covariance B of C outputs: k(i, j) = B_ij with B = W W^T + diag(own).

    Its single input is the number of an output, from 0 to C - 1; use `Kernel.on` to select the column of X. In a
    product with a kernel of the other columns it gives the intrinsic model of coregionalisation: all outputs share
    the kernel.

    Parameters
    ----------
    weights : array, shape (C, R)
        W: weights of R shared processes in each output.
    own : float or array, shape (C,)
        Variance of each output that it does not share with others.

    References
    ----------
    Alvarez, Rosasco and Lawrence (2012), Kernels for vector-valued functions: a review, section 4.2.
    """

    kind: ClassVar[str] = "coregionalised"
    weights: Array
    own: Array = 1.0

    def __post_init__(self) -> None:
        weights = self.weights
        if isinstance(weights, list | tuple) or getattr(getattr(weights, "dtype", None), "kind", "f") in "USO":
            try:
                weights = np.asarray(weights, dtype=np.float64)
            except (TypeError, ValueError):
                weights = np.asarray(np.nan)
            weights = weights if np.isfinite(weights).all() else np.asarray(np.nan)
        if getattr(weights, "ndim", 0) != 2 or 0 in weights.shape:
            raise ValueError(f"weights must be numbers of shape (outputs, shared processes), was {self.weights!r}")
        own = as_positive("own", self.own, vector=True)
        if own.shape[0] not in (1, weights.shape[0]):
            raise ValueError(f"own must be a number or one for each of {weights.shape[0]} outputs, was {self.own!r}")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "own", array_namespace(own).broadcast_to(own, (weights.shape[0],)))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the free parameters."""
        outputs, shared = map(int, self.weights.shape)
        return ("weights",) * (outputs * shared) + ("own",) * outputs

    @property
    def parameters(self) -> Array:
        """The weights, row by row, then the logarithms of the variances of each output."""
        xp = array_namespace(self.weights)
        return xp.concat([xp.reshape(self.weights, (-1,)), xp.log(as_like(self.own, self.weights))])

    def with_parameters(self, parameters: Array) -> Self:
        """Return the kernel with other free parameters."""
        xp, (outputs, shared) = array_namespace(parameters), self.weights.shape
        weights = xp.reshape(parameters[: outputs * shared], (outputs, shared))
        return replace(self, weights=weights, own=xp.exp(parameters[outputs * shared :]))

    @property
    def covariance(self) -> Array:
        """B, shape (C, C)."""
        xp = array_namespace(self.weights)
        eye = xp.eye(self.weights.shape[0], dtype=self.weights.dtype, device=self.weights.device)
        return product(self.weights, self.weights.T) + self.own * eye

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between output numbers X1 (N, 1) and X2 (M, 1)."""
        return product(product(self._indicators(X1), self.covariance), self._indicators(X2).T)

    def diagonal(self, X: Array) -> Array:
        """Compute the variances (N,)."""
        xp = array_namespace(X)
        return self._indicators(X) @ xp.linalg.diagonal(self.covariance)

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance with its derivatives; those with respect to output numbers are 0."""
        first, second = self._indicators(X1), self._indicators(X2)

        def pull_back(cotangent: Array) -> KernelGradient:
            return self._gradient(product(first.T, product(cotangent, second)), X1)

        return Linearised(product(product(first, self.covariance), second.T), pull_back)

    def pull_back_diagonal(self, X: Array, cotangent: Array) -> KernelGradient:
        """Convert the gradient with respect to the variances (N,)."""
        xp = array_namespace(X, cotangent)
        sums = self._indicators(X).T @ cotangent
        return self._gradient(sums * xp.eye(sums.shape[0], dtype=sums.dtype, device=sums.device), X)

    def check_inputs(self, X: Array) -> None:
        """Raise `ValueError` unless all inputs X (N, 1) are numbers of outputs."""
        self._check_dimensions(X)
        numbers, count = to_numpy(X)[:, 0], self.weights.shape[0]
        wrong = numbers[~np.isin(numbers, np.arange(count))]
        if wrong.size:
            raise ValueError(
                f"a coregionalised kernel with {count} rows of weights must have the output numbers "
                f"{'0' if count == 1 else f'0 to {count - 1}'}, had {wrong[0]:g}"
            )

    def nearest_inputs(self, X: Array) -> Array:
        """Return the nearest numbers (N, 1) of outputs."""
        xp = array_namespace(X)
        return xp.clip(xp.round(X), 0.0, float(self.weights.shape[0] - 1))

    def _check_dimensions(self, X: Array) -> None:
        if X.shape[1] != 1:
            raise ValueError(f"a coregionalised kernel must be on one dimension, was on {X.shape[1]}: use kernel.on(d)")

    def _indicators(self, X: Array) -> Array:
        """Return 1 in the column (N, C) of the output of each input."""
        xp = array_namespace(X)
        self._check_dimensions(X)
        numbers = xp.arange(self.weights.shape[0], dtype=X.dtype, device=X.device)
        return xp.astype(xp.round(X) == numbers, X.dtype)

    def _gradient(self, by_covariance: Array, X: Array) -> KernelGradient:
        xp = array_namespace(by_covariance)
        by_weights = product(by_covariance + by_covariance.T, self.weights)
        by_own = self.own * xp.linalg.diagonal(by_covariance)
        return KernelGradient(xp.concat([xp.reshape(by_weights, (-1,)), by_own]), xp.zeros_like(X))
