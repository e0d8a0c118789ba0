"""The prior of the latent processes at any points: latents, kernels that processes share, and inducing points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from invgp.core.geometry import sparse_geometry
from invgp.core.kernels import Kernel
from invgp.errors import ArgumentError
from invgp.links import Link
from invgp.problem import Floats, PriorMap


class Projection(NamedTuple):
    """Relation of B points to the inducing points of a kernel.

    Attributes
    ----------
    weights : array, shape (M, B)
        W = L^-1 k(Z, X).
    conditional : array, shape (B,)
        Conditional variance given the inducing variables.
    variance : array, shape (B,)
        Prior variance.
    """

    weights: Floats
    conditional: Floats
    variance: Floats

    def select(self, points: slice) -> Projection:
        """Return the relation of some of the points."""
        return Projection(self.weights[:, points], self.conditional[points], self.variance[points])


Projections = dict[int, Projection]  # by index of the kernel


@dataclass(frozen=True)
class LatentField:
    """A latent of a posterior with its prior, on the scale of the Gaussian processes.

    Attributes
    ----------
    name : str
    link : Link
        Function from the processes to the physical quantity.
    first : int
        Index of its first process.
    mean, std : array, shape (L,)
        Prior mean of its processes, and the square root of the factor on their kernel: their standard deviation.
    kernel : Kernel
        With a nominal variance of 1.
    maps : PriorMap or None
        Prior mean and standard deviation that vary with position.
    label_correlation : array, shape (L, L), or None
        Prior correlation between its processes; None if they are independent.
    """

    name: str
    link: Link
    first: int
    mean: Floats
    std: Floats
    kernel: Kernel
    maps: PriorMap | None = None
    label_correlation: Floats | None = None

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernel of each process, with a nominal variance of 1."""
        return (self.kernel,) * self.size if self.maps is None else self.maps.scale_kernel(self.kernel)

    def mean_at(self, X: Floats) -> Floats:
        """Return the prior mean (B, L) of its processes at points X (B, D); NaN outside a map."""
        if self.maps is not None:
            return self.maps.mean_at(X, X.shape[1])
        return np.broadcast_to(self.mean, (len(X), self.size))

    @property
    def size(self) -> int:
        """Number of processes, L."""
        return len(self.mean)

    @property
    def processes(self) -> list[int]:
        """Indices of its processes."""
        return list(range(self.first, self.first + self.size))

    def prior_moments(self, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
        """Return the prior mean and std (B, L) of the physical quantity from moments (B, L) of the processes."""
        correlation = np.eye(self.size) if self.label_correlation is None else self.label_correlation
        std = np.sqrt(variance)
        return self.link.moments(mean, std[..., None] * correlation * std[..., None, :])

    def variance_ratio(
        self, variance: Floats, physical_std: Floats, prior_mean: Floats, prior_variance: Floats
    ) -> Floats:
        """Return posterior over prior variance (B, L): of the process, or of a quantity that combines processes.

        Parameters
        ----------
        variance, prior_mean, prior_variance : array, shape (B, L)
            Of the processes.
        physical_std : array, shape (B, L)
            Posterior standard deviation of the quantity.
        """
        prior = prior_variance
        if not self.link.elementwise:
            variance, prior = physical_std**2, self.prior_moments(prior_mean, prior_variance)[1] ** 2
        # The data add nothing where the prior fixes the value, such as at the centre of a linear kernel.
        return np.divide(variance, prior, out=np.ones(np.shape(variance)), where=prior > 0)


@dataclass(frozen=True)
class SharedKernel:
    """A kernel of nominal variance 1 with its inducing points, which several processes may share.

    Attributes
    ----------
    kernel : Kernel
        With a nominal variance of 1.
    Z : array, shape (M, D)
        Inducing points.
    factor : array, shape (M, M)
        L with L L^T = K_zz.
    jitter : float
        Jitter in L.
    """

    kernel: Kernel
    Z: Floats
    factor: Floats
    jitter: float

    def project(self, X: Floats) -> Projection:
        """Return the projection of points X (B, D); raise `ArgumentError` if the kernel is not defined there."""
        try:
            self.kernel.check_inputs(X)
        except ValueError as error:
            raise ArgumentError(f"grid: must have points at which the kernel is defined: {error}") from error
        found = sparse_geometry([self.kernel], self.Z[None], self.factor[None], X)
        return Projection(found.projection[0], found.residual[0], self.kernel.diagonal(X))


@dataclass(frozen=True)
class ProcessPrior:
    """Prior of the Q processes, without their means: standard deviations, and kernels with their inducing points.

    Attributes
    ----------
    std : array, shape (Q,)
        Nominal standard deviation of the processes.
    kernels : tuple of SharedKernel
        The distinct kernels.
    kernel_index : tuple of int, length Q
        Index of the kernel of each process.
    """

    std: Floats
    kernels: tuple[SharedKernel, ...]
    kernel_index: tuple[int, ...]

    def processes_with_kernel(self, number: int) -> list[int]:
        """Return the processes that have the kernel with this index."""
        return [j for j, index in enumerate(self.kernel_index) if index == number]

    def projections(self, X: Floats, processes: Sequence[int]) -> Projections:
        """Return the projections of points X (B, D) for the kernels of some processes."""
        return {number: self.kernels[number].project(X) for number in {self.kernel_index[j] for j in processes}}
