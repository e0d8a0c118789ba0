"""What a posterior file says of the latent processes, at any points.

Computed once: the factors of the prior's covariances and of the posterior's. For each batch of points: covariances with
the inducing inputs, one triangular solve and one product for each process that is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
import xarray as xr

from invgp.core.coupled.coupled_gaussian import CoupledGaussian, SiteFactors, gaussian_from_natural, natural_parameters
from invgp.core.coupled.prior import Prior
from invgp.core.geometry import inducing_factor, sparse_geometry
from invgp.core.kernels import CORRELATIONS, Kernel
from invgp.errors import ConfigError
from invgp.gaussian_processes import (
    ProcessPosterior,
    StoredSiteFactors,
    WhitenedGaussians,
    WhitenedInducing,
    read_process_posterior,
)
from invgp.links import LINKS, Link
from invgp.problem import Floats

Projections = dict[int, tuple[Floats, Floats]]  # by number of the shape, what `Shape.project` gives


@dataclass(frozen=True)
class Field:
    """A latent of the file: its prior on the scale of the Gaussian process, and how it hangs together with it.

    Attributes
    ----------
    first, size : its processes are numbers `first` to `first + size - 1`.
    mean, std : (L,), of its processes.
    """

    name: str
    link: Link
    first: int
    mean: Floats
    std: Floats
    kernel: str
    length_scale: Floats

    @property
    def size(self) -> int:
        """Number of processes, L."""
        return len(self.mean)

    @property
    def processes(self) -> list[int]:
        """Their numbers."""
        return list(range(self.first, self.first + self.size))

    def prior_moments(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation (L,) of the physical quantity."""
        return self.link.moments(self.mean, np.diag(self.std**2))

    def variance_ratio(self, covariance: Floats, physical_std: Floats) -> Floats:
        """Posterior over prior variance (B, L): of the process, or of a quantity that mixes processes."""
        if self.link.elementwise:
            return np.diagonal(covariance, axis1=1, axis2=2) / self.std**2
        return np.asarray((physical_std / self.prior_moments()[1]) ** 2)


@dataclass(frozen=True)
class Shape:
    """What processes of the same kernel and inducing inputs share, at unit variance.

    Attributes
    ----------
    kernel : of variance 1.
    Z : (M, D).
    factor : L with L L^T = K_zz, (M, M).
    jitter : that is in L.
    """

    kernel: Kernel
    Z: Floats
    factor: Floats
    jitter: float

    def project(self, X: Floats) -> tuple[Floats, Floats]:
        """W = L^-1 k(Z, X), (M, B), and the variance (B,) that the inducing variables leave open."""
        found = sparse_geometry([self.kernel], self.Z[None], self.factor[None], X)
        return found.projection[0], found.residual[0]


@dataclass(frozen=True)
class Belief:
    """The posterior of all processes.

    Attributes
    ----------
    fields : the latents, in order.
    mean, std : (Q,), of the prior.
    shapes, shape_of : the distinct ones, and the number of each process's, (Q,).
    centre : mean of the whitened inducing variables, (Q, M).
    roots : T with T^T T their covariance: one (Q M, Q M), or one (M, M) for each of Q independent processes.
    """

    fields: tuple[Field, ...]
    mean: Floats
    std: Floats
    shapes: tuple[Shape, ...]
    shape_of: tuple[int, ...]
    centre: Floats
    roots: tuple[Floats, ...]
    _kept: dict[tuple[int, ...], Floats] = field(default_factory=dict)

    @staticmethod
    def of(posterior: xr.Dataset) -> Belief:
        """From a file that `invgp run` wrote."""
        coordinates = posterior.attrs["invgp_coordinates"].split()
        held = read_process_posterior(posterior, coordinates)
        if held is None:
            raise ConfigError(
                "the posterior does not hold what prediction needs: it is a map, was written by an older invgp (run "
                "the inversion again; runs that its ledger knows are not repeated), or has so many modes that its own "
                "grid must do"
            )
        fields = _fields(posterior)
        X = np.stack([np.asarray(posterior[name].values, dtype=np.float64) for name in coordinates], axis=-1)
        try:
            return _believed(fields, X, held)
        except np.linalg.LinAlgError as error:
            raise ConfigError(
                "the posterior is damaged: its variable 'site_precision' gives a covariance that is not positive "
                "definite"
            ) from error

    @property
    def inducing(self) -> int:
        """M."""
        return int(self.centre.shape[1])

    def processes_of(self, number: int) -> list[int]:
        """The processes that have a shape."""
        return [j for j, shape in enumerate(self.shape_of) if shape == number]

    def projections(self, X: Floats, processes: Sequence[int]) -> Projections:
        """Of the shapes that some processes have."""
        return {number: self.shapes[number].project(X) for number in {self.shape_of[j] for j in processes}}

    def moments(self, at: Projections, processes: Sequence[int]) -> tuple[Floats, Floats]:
        """Mean (B, g) and covariance (B, g, g) of g processes at each point by itself, from the points' projections."""
        M, g = self.inducing, len(processes)
        R = self._root(tuple(processes))
        W = [at[self.shape_of[j]] for j in processes]
        std = self.std[list(processes)]
        mean = np.stack([self.centre[j] @ w for j, (w, _) in zip(processes, W, strict=True)], axis=-1)
        covariance = np.zeros((len(mean), g, g))
        seen = [R[:, i * M : (i + 1) * M] @ w for i, (w, _) in enumerate(W)]
        for i in range(g):
            for k in range(i + 1):
                covariance[:, i, k] = covariance[:, k, i] = np.einsum("mb,mb->b", seen[i], seen[k])
            covariance[:, i, i] += W[i][1]
        return self.mean[list(processes)] + std * mean, covariance * std[:, None] * std

    def draw_inducing(self, rng: np.random.Generator, count: int) -> Floats:
        """Draws (R, Q, M) of the whitened inducing variables."""
        parts = [rng.standard_normal((count, len(root))) @ root for root in self.roots]
        return np.concatenate(parts, axis=1).reshape(count, *self.centre.shape) + self.centre

    def _root(self, processes: tuple[int, ...]) -> Floats:
        """T with T^T T the covariance of these processes' inducing variables, as small as can be."""
        if processes not in self._kept:
            M = self.inducing
            if len(self.roots) > 1:
                root = scipy.linalg.block_diag(*(self.roots[j] for j in processes))
            else:
                columns = np.concatenate([self.roots[0][:, j * M : (j + 1) * M] for j in processes], axis=1)
                root = scipy.linalg.qr(columns, mode="r")[0][: columns.shape[1]]
            self._kept[processes] = root
        return self._kept[processes]


def _fields(posterior: xr.Dataset) -> tuple[Field, ...]:
    fields: list[Field] = []
    for name in posterior.attrs["invgp_latents"].split():
        about = posterior[name].attrs
        mean, std, length_scale = (
            np.atleast_1d(np.asarray(about[key], dtype=np.float64))
            for key in ("process_mean", "process_std", "length_scale")
        )
        first = fields[-1].first + fields[-1].size if fields else 0
        fields.append(Field(name, LINKS[about["link"]], first, mean, std, about["kernel"], length_scale))
    return tuple(fields)


def _believed(fields: tuple[Field, ...], X: Floats, held: ProcessPosterior) -> Belief:
    mean, std = (np.concatenate([getattr(f, part) for f in fields]) for part in ("mean", "std"))
    Q = len(mean)
    inducing = None if isinstance(held, WhitenedGaussians) else held.inducing
    jitter = held.jitter if isinstance(held, StoredSiteFactors) else 0.0
    Z = np.broadcast_to(X, (Q, *X.shape)) if inducing is None else inducing
    kernels = [Kernel(CORRELATIONS[f.kernel], np.float64(s) ** 2, f.length_scale) for f in fields for s in f.std]
    shapes, shape_of = _shapes(kernels, Z, jitter)
    if isinstance(held, WhitenedGaussians):
        centre, roots = held.mean, tuple(np.ascontiguousarray(R.T) for R in held.factor)
    elif isinstance(held, WhitenedInducing):
        centre, roots = held.mean, (held.root,)
    else:
        prior = Prior(tuple(kernels), mean, X, Z, dense=inducing is None, jitter=jitter)
        q: CoupledGaussian = gaussian_from_natural(natural_parameters(prior, SiteFactors(held.precision, held.shift)))
        centre, roots = q.mean, (q.root,)
    return Belief(fields, mean, std, shapes, shape_of, centre, roots)


def _shapes(kernels: Sequence[Kernel], Z: Floats, jitter: float) -> tuple[tuple[Shape, ...], tuple[int, ...]]:
    """The distinct shapes, and the number of each process's."""
    shapes: list[Shape] = []
    numbers: dict[tuple[str, bytes, bytes], int] = {}
    shape_of = []
    for j, kernel in enumerate(kernels):
        key = (kernel.name, kernel.length_scale.tobytes(), Z[j].tobytes())
        if key not in numbers:
            numbers[key] = len(shapes)
            unit = Kernel(kernel.correlation, np.float64(1.0), kernel.length_scale)
            factor = inducing_factor([unit], Z[j][None], jitter)[0]
            shapes.append(Shape(unit, np.ascontiguousarray(Z[j]), factor, jitter))
        shape_of.append(numbers[key])
    return tuple(shapes), tuple(shape_of)
