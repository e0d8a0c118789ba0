"""The posterior of the latent processes at any points, from a posterior file.

The factors of the prior and posterior covariances are computed once. Each batch of points needs the covariances with
the inducing points, one triangular solve and one matrix product per process.

If the file has draws from the exact posterior, the distribution at a point is a mixture with one Gaussian per draw: its
mean is interpolated from the draw at the inducing points, and its variance is the prior variance given their values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.linalg
import xarray as xr
from numpy.typing import NDArray
from scipy.special import ndtri

from invgp.core.coupled.coupled_gaussian import CoupledGaussian, SiteFactors, gaussian_from_natural, natural_parameters
from invgp.core.coupled.prior import Prior
from invgp.core.geometry import inducing_factor, sparse_geometry
from invgp.core.kernels import Averaged, Kernel
from invgp.errors import ArgumentError, ConfigError
from invgp.gaussian_processes import (
    ProcessPosterior,
    StoredSiteFactors,
    WhitenedGaussians,
    WhitenedInducing,
    kernel_from_attributes,
    read_process_posterior,
    site_locations,
)
from invgp.links import LINKS, Link
from invgp.posterior.modes import draws_of_mode
from invgp.problem import Floats

FEWEST_VALUES = 2000  # values of a process at a point from which quantiles are computed
CACHED_VALUES = 2**16  # values of a process that are computed at once


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
    """

    name: str
    link: Link
    first: int
    mean: Floats
    std: Floats
    kernel: Kernel

    @property
    def size(self) -> int:
        """Number of processes, L."""
        return len(self.mean)

    @property
    def processes(self) -> list[int]:
        """Indices of its processes."""
        return list(range(self.first, self.first + self.size))

    def prior_moments(self, variance: Floats) -> tuple[Floats, Floats]:
        """Return the prior mean and std (B, L) of the physical quantity from the variances (B, L) of the processes."""
        mean, std = self.link.moments(self.mean, variance[..., None] * np.eye(self.size))
        return np.broadcast_to(mean, variance.shape), np.broadcast_to(std, variance.shape)

    def variance_ratio(self, variance: Floats, physical_std: Floats, prior_variance: Floats) -> Floats:
        """Return posterior over prior variance (B, L): of the process, or of a quantity that combines processes.

        Parameters
        ----------
        variance, prior_variance : array, shape (B, L)
            Of the processes.
        physical_std : array, shape (B, L)
            Posterior standard deviation of the quantity.
        """
        prior = prior_variance
        if not self.link.elementwise:
            variance, prior = physical_std**2, self.prior_moments(prior_variance)[1] ** 2
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
        """Return the projection of points X (B, D)."""
        found = sparse_geometry([self.kernel], self.Z[None], self.factor[None], X)
        return Projection(found.projection[0], found.residual[0], self.kernel.diagonal(X))


@dataclass(frozen=True)
class ProcessPrior:
    """Prior of the Q processes: moments, and kernels with their inducing points.

    Attributes
    ----------
    mean, std : array, shape (Q,)
        Prior mean and standard deviation of the processes.
    kernels : tuple of SharedKernel
        The distinct kernels.
    kernel_index : tuple of int, length Q
        Index of the kernel of each process.
    """

    mean: Floats
    std: Floats
    kernels: tuple[SharedKernel, ...]
    kernel_index: tuple[int, ...]

    def processes_with_kernel(self, number: int) -> list[int]:
        """Return the processes that have the kernel with this index."""
        return [j for j, index in enumerate(self.kernel_index) if index == number]

    def projections(self, X: Floats, processes: Sequence[int]) -> Projections:
        """Return the projections of points X (B, D) for the kernels of some processes."""
        return {number: self.kernels[number].project(X) for number in {self.kernel_index[j] for j in processes}}


@dataclass(frozen=True)
class DrawGroup:
    """Draws from the exact posterior that have the same prior, with given hyperparameters.

    Attributes
    ----------
    prior : ProcessPrior
    whitened : array, shape (R, Q, M)
        Draws of the whitened inducing variables.
    mode : array of int, shape (R,)
        Number of the mode of each draw, from 1.
    """

    prior: ProcessPrior
    whitened: Floats
    mode: NDArray[np.int64]


@dataclass(frozen=True)
class PosteriorField:
    """The posterior of all latent processes as functions of position.

    Attributes
    ----------
    fields : tuple of LatentField
        The latents, in order.
    prior : ProcessPrior
    centre : array, shape (Q, M)
        Mean of the whitened inducing variables of a Gaussian posterior.
    roots : tuple of array
        T with T^T T the covariance of the whitened inducing variables: one (Q M, Q M), or one (M, M) for each of Q
        independent processes.
    groups : tuple of DrawGroup
        Draws from the exact posterior; empty if the posterior is a Gaussian.
    """

    fields: tuple[LatentField, ...]
    prior: ProcessPrior
    centre: Floats
    roots: tuple[Floats, ...]
    groups: tuple[DrawGroup, ...] = ()
    _root_cache: dict[tuple[int, ...], Floats] = field(default_factory=dict)

    @staticmethod
    def from_dataset(posterior: xr.Dataset, mode: int | None = None) -> PosteriorField:
        """Return the posterior of a dataset that `invgp run` wrote.

        Parameters
        ----------
        posterior : Dataset
        mode : int, optional
            Number of a mode, from 1; by default all.

        Returns
        -------
        PosteriorField

        Raises
        ------
        ConfigError
            The dataset does not have the variables for prediction or this mode, or is damaged.
        """
        coordinates = posterior.attrs["invgp_coordinates"].split()
        stored = read_process_posterior(posterior, coordinates)
        if stored is None:
            raise ConfigError(
                "the posterior lacks the variables for prediction: it is a map, was written by an earlier version of "
                "invgp (repeat the inversion; runs in its ledger are reused), or has too many modes to store them "
                "(use its own grid)"
            )
        fields = _read_fields(posterior)
        X = site_locations(posterior, coordinates)
        if X.shape[1] > len(coordinates):
            fields = tuple(replace(f, kernel=Averaged(f.kernel, len(coordinates))) for f in fields)
        try:
            found = _build_posterior_field(fields, X, stored)
        except np.linalg.LinAlgError as error:
            raise ConfigError(
                "the posterior is damaged: its variable 'site_precision' gives a covariance that is not positive "
                "definite"
            ) from error
        return replace(found, groups=_read_groups(found, posterior, coordinates, mode))

    @property
    def process_count(self) -> int:
        """Number of processes, Q."""
        return int(self.centre.shape[0])

    @property
    def inducing(self) -> int:
        """Number of inducing points per process, M."""
        return int(self.centre.shape[1])

    @property
    def draw_count(self) -> int:
        """Number of draws from the exact posterior; 0 if the posterior is a Gaussian."""
        return sum(len(group.whitened) for group in self.groups)

    @property
    def priors(self) -> tuple[ProcessPrior, ...]:
        """The prior of each group of draws, or of the Gaussian."""
        return tuple(group.prior for group in self.groups) or (self.prior,)

    def at(self, X: Floats, processes: Sequence[int]) -> LocatedPosterior:
        """Return the posterior of some processes at points X (B, D)."""
        return LocatedPosterior(self, tuple(prior.projections(X, processes) for prior in self.priors))

    def draw_inducing(self, rng: np.random.Generator, count: int) -> list[DrawGroup]:
        """Return `count` draws of the whitened inducing variables, in groups with the priors of `priors`.

        Draws from the exact posterior are repeated only if there are fewer than `count`.
        """
        if not self.groups:
            parts = [rng.standard_normal((count, len(root))) @ root for root in self.roots]
            whitened = np.concatenate(parts, axis=1).reshape(count, *self.centre.shape) + self.centre
            return [DrawGroup(self.prior, whitened, np.ones(count, dtype=np.int64))]
        chosen = np.sort(rng.choice(self.draw_count, count, replace=count > self.draw_count))
        ends = np.cumsum([0, *(len(group.whitened) for group in self.groups)])
        found = []
        for group, (first, last) in zip(self.groups, pairwise(ends.tolist()), strict=True):
            own = chosen[(chosen >= first) & (chosen < last)] - first
            found.append(DrawGroup(group.prior, group.whitened[own], group.mode[own]))
        return found

    def thin(self, count: int, seed: int) -> PosteriorField:
        """Return the posterior with `count` of its draws, so that fewer priors are needed; itself if it has one prior.

        Parameters
        ----------
        count : int
        seed : int
            Seed of the choice.
        """
        if len(self.groups) < 2 or count >= self.draw_count:
            return self
        kept = np.zeros(self.draw_count, dtype=bool)
        kept[np.random.default_rng(seed).choice(self.draw_count, count, replace=False)] = True
        parts = np.split(kept, np.cumsum([len(group.whitened) for group in self.groups])[:-1])
        groups = (
            replace(group, whitened=group.whitened[part], mode=group.mode[part])
            for group, part in zip(self.groups, parts, strict=True)
            if part.any()
        )
        return replace(self, groups=tuple(groups))

    def root(self, processes: tuple[int, ...]) -> Floats:
        """Return a square T with T^T T the covariance of the whitened inducing variables of some processes."""
        if processes not in self._root_cache:
            M = self.inducing
            if len(self.roots) > 1:
                root = scipy.linalg.block_diag(*(self.roots[j] for j in processes))
            else:
                columns = np.concatenate([self.roots[0][:, j * M : (j + 1) * M] for j in processes], axis=1)
                root = scipy.linalg.qr(columns, mode="r")[0][: columns.shape[1]]
            self._root_cache[processes] = root
        return self._root_cache[processes]


@dataclass(frozen=True)
class LocatedPosterior:
    """The posterior of the processes at B points.

    Attributes
    ----------
    posterior : PosteriorField
    projections : tuple of Projections
        Projections of the points, for each of the priors of the posterior.
    """

    posterior: PosteriorField
    projections: tuple[Projections, ...]

    def split(self) -> Iterator[LocatedPosterior]:
        """Yield the posterior at a few points at a time, so that the values of all draws fit in the processor cache."""
        points = next(iter(self.projections[0].values())).weights.shape[1]
        step = max(CACHED_VALUES // max(self.posterior.draw_count, FEWEST_VALUES), 1)
        for start in range(0, points, step):
            part = slice(start, start + step)
            parts = ({k: own.select(part) for k, own in at.items()} for at in self.projections)
            yield LocatedPosterior(self.posterior, tuple(parts))

    def moments(self, processes: Sequence[int]) -> tuple[Floats, Floats]:
        """Return the moments of g processes of a Gaussian posterior at each point.

        Returns
        -------
        mean : array, shape (B, g)
        covariance : array, shape (B, g, g)
            Between the processes at the same point.
        """
        field, prior, [at] = self.posterior, self.posterior.prior, self.projections
        M, g = field.inducing, len(processes)
        R = field.root(tuple(processes))
        W = [at[prior.kernel_index[j]] for j in processes]
        std = prior.std[list(processes)]
        mean = np.stack([field.centre[j] @ own.weights for j, own in zip(processes, W, strict=True)], axis=-1)
        covariance = np.zeros((len(mean), g, g))
        scaled = [R[:, i * M : (i + 1) * M] @ own.weights for i, own in enumerate(W)]
        for i in range(g):
            for k in range(i + 1):
                covariance[:, i, k] = covariance[:, k, i] = np.einsum("mb,mb->b", scaled[i], scaled[k])
            covariance[:, i, i] += W[i].conditional
        return prior.mean[list(processes)] + std * mean, covariance * std[:, None] * std

    def prior_variance(self, processes: Sequence[int]) -> Floats:
        """Return the prior variance (B, g) of g processes at each point."""
        prior, std, at = self.posterior.priors[0], self.posterior.prior.std, self.projections[0]
        return np.stack([std[j] ** 2 * at[prior.kernel_index[j]].variance for j in processes], axis=-1)

    def mixture(self, process: int) -> tuple[Floats, Floats]:
        """Return the distribution of a process given each draw at the inducing points.

        Returns
        -------
        mean : array, shape (B, R)
            Mean given each of R draws.
        variance : array, shape (B, R), or (B, 1) if it is the same for all draws
            Variance given each draw.
        """
        means, variances = [], []
        for group, at in zip(self.posterior.groups, self.projections, strict=True):
            prior, j = group.prior, process
            own = at[prior.kernel_index[j]]
            mean = own.weights.T @ group.whitened[:, j].T
            mean *= prior.std[j]
            mean += prior.mean[j]
            means.append(mean)
            variances.append((prior.std[j] ** 2 * own.conditional)[:, None])
        if len(means) == 1:
            return means[0], variances[0]
        counts = [mean.shape[1] for mean in means]
        return np.concatenate(means, axis=1), np.repeat(np.concatenate(variances, axis=1), counts, axis=1)

    def process_draws(self, process: int) -> Floats:
        """Return draws (B, S) of a process at each point, from its mixture; see `draw_mixture`."""
        return draw_mixture(*self.mixture(process), process)


def draw_mixture(mean: Floats, variance: Floats, process: int) -> Floats:
    """Draw values of a process at B points from mixtures of Gaussians.

    All points have the same standard normal numbers, which are evenly spaced quantiles, so that summaries of the draws
    are smooth functions of position. Draws of different processes at one point are joint. For draws that are joint over
    the points, see `invgp.maps.joint_draws`.

    Parameters
    ----------
    mean, variance : array, shape (B, R)
        Moments given each of R draws at the inducing points; the variance can also be (B, 1).
    process : int
        Index of the process, which selects the numbers.

    Returns
    -------
    array, shape (B, S)
        S is a multiple of R.
    """
    spread = np.sqrt(np.maximum(variance, 0.0))
    return np.concatenate([mean + spread * z for z in _scores(mean.shape[1], process)], axis=1)


@lru_cache(maxsize=64)
def _scores(draws: int, process: int) -> Floats:
    """Return standard normal numbers (n, R) for n values of a process for each draw, in random order."""
    repeats = math.ceil(FEWEST_VALUES / draws)
    z = ndtri((np.arange(repeats * draws) + 0.5) / (repeats * draws))
    return np.random.default_rng([1, process]).permutation(z / z.std()).reshape(repeats, draws)


def read_draws(posterior: xr.Dataset, mode: int | None = None) -> tuple[Floats, NDArray[np.int64]] | None:
    """Return the draws (R, Q, M) of the whitened inducing variables and their modes (R,); None if the file has none.

    Parameters
    ----------
    posterior : Dataset
    mode : int, optional
        Number of a mode, from 1; by default all.

    Raises
    ------
    ConfigError
        There are no draws of this mode.
    """
    if "whitened_sample" not in posterior:
        if mode is not None:
            raise ArgumentError(f"mode: must not be given, since the posterior is a Gaussian, was {mode}")
        return None
    values = np.asarray(posterior["whitened_sample"].values, dtype=np.float64)
    modes = np.ones(len(values), dtype=np.int64)
    if "draw_mode" in posterior:
        modes = np.asarray(posterior["draw_mode"].values, dtype=np.int64)
    if mode is None:
        return values, modes
    chosen = draws_of_mode(posterior, "draw_mode", mode)
    return values[chosen], modes[chosen]


def _read_groups(
    field: PosteriorField, posterior: xr.Dataset, coordinates: Sequence[str], mode: int | None
) -> tuple[DrawGroup, ...]:
    """Return the draws of a file by their hyperparameters; one group if the hyperparameters are fixed."""
    draws = read_draws(posterior, mode)
    if draws is None:
        return ()
    if not str(posterior.attrs.get("invgp_hyperparameters", "")):
        return (DrawGroup(field.prior, *draws),)
    whitened, modes = draws
    parameters, stds = _read_hyperparameters(field, posterior, coordinates)
    if mode is not None:
        chosen = draws_of_mode(posterior, "draw_mode", mode)
        parameters, stds = [own[chosen] for own in parameters], stds[chosen]
    both = np.concatenate([*parameters, stds], axis=1)
    _, first, number = np.unique(both, axis=0, return_index=True, return_inverse=True)
    groups = []
    for k, row in enumerate(first):
        kernels: dict[tuple[int, bytes], SharedKernel] = {}
        keys = []
        for f, own in zip(field.fields, parameters, strict=True):
            for j in f.processes:
                keys.append((field.prior.kernel_index[j], own[row].tobytes()))
                if keys[-1] not in kernels:
                    kernels[keys[-1]] = _with_parameters(field.prior.kernels[keys[-1][0]], own[row])
        numbers = {key: index for index, key in enumerate(kernels)}
        prior = ProcessPrior(field.prior.mean, stds[row], tuple(kernels.values()), tuple(numbers[key] for key in keys))
        members = number.ravel() == k
        groups.append(DrawGroup(prior, whitened[members], modes[members]))
    return tuple(groups)


def _with_parameters(kernel: SharedKernel, parameters: Floats) -> SharedKernel:
    """Return a kernel with other free parameters (P,)."""
    unit = kernel.kernel.with_parameters(parameters)
    return replace(kernel, kernel=unit, factor=inducing_factor([unit], kernel.Z[None], kernel.jitter)[0])


def _read_hyperparameters(
    field: PosteriorField, posterior: xr.Dataset, coordinates: Sequence[str]
) -> tuple[list[Floats], Floats]:
    """Return free parameters (R, P) of the kernel of each latent, and standard deviations (R, Q), of all draws."""
    count = posterior.sizes["draw"]
    parameters, stds = [], []
    for f in field.fields:
        free, std = np.tile(f.kernel.parameters, (count, 1)), np.tile(f.std, (count, 1))
        for learnt, index in _parameter_variables(f, coordinates).items():
            if learnt in posterior:
                free[:, index] = np.log(posterior[learnt].values)
        shares = [name for name in _numbered(f, "share") if name in posterior]
        for learnt in (*shares[:1], f"{f.name}_std_factor_sample"):
            if learnt in posterior:
                base = np.atleast_1d(np.asarray(posterior[learnt].attrs["process_std"], dtype=np.float64))
                std = np.tile(base, (count, 1))
        if learnt in posterior:
            std = posterior[learnt].values[:, None] * std
        if shares:  # the variance of the kernel is 1 again, and the standard deviation has its factor
            variance = np.asarray([float(f.kernel.with_parameters(row).variance) for row in free])
            free[:, list(f.kernel.scale_mask)] -= np.log(variance)[:, None]
            std = np.sqrt(variance)[:, None] * std
        parameters.append(free)
        stds.append(std)
    return parameters, np.concatenate(stds, axis=1)


def _parameter_variables(field: LatentField, coordinates: Sequence[str]) -> dict[str, int]:
    """Return the variables with draws of parameters of the kernel of a latent, with the index of the parameter."""
    scales = _numbered(field, "length_scale").values()
    found = {f"{field.name}_length_scale_{name}_sample": i for name, i in zip(coordinates, scales, strict=False)}
    for name in ("share", *dict.fromkeys(field.kernel.parameter_names)):
        found |= _numbered(field, name)
    return found


def _numbered(field: LatentField, name: str) -> dict[str, int]:
    """Return the variables of all parameters of this name, or of all shares of the variance, with their indices."""
    kernel = field.kernel
    chosen = kernel.scale_mask if name == "share" else [own == name for own in kernel.parameter_names]
    indices = [int(i) for i in np.flatnonzero(chosen)]
    return {f"{field.name}_{name}_{k}_sample": i for k, i in enumerate(indices, start=1)}


def _read_fields(posterior: xr.Dataset) -> tuple[LatentField, ...]:
    fields: list[LatentField] = []
    for name in posterior.attrs["invgp_latents"].split():
        about = posterior[name].attrs
        mean, std = (np.atleast_1d(np.asarray(about[key], dtype=np.float64)) for key in ("process_mean", "process_std"))
        first = fields[-1].first + fields[-1].size if fields else 0
        fields.append(LatentField(name, LINKS[about["link"]], first, mean, std, kernel_from_attributes(about)))
    return tuple(fields)


def _build_posterior_field(fields: tuple[LatentField, ...], X: Floats, stored: ProcessPosterior) -> PosteriorField:
    mean, std = (np.concatenate([getattr(f, part) for f in fields]) for part in ("mean", "std"))
    Q = len(mean)
    inducing = None if isinstance(stored, WhitenedGaussians) else stored.inducing
    jitter = stored.jitter if isinstance(stored, StoredSiteFactors) else 0.0
    Z = np.broadcast_to(X, (Q, *X.shape)) if inducing is None else inducing
    kernels = [f.kernel.with_variance(np.float64(s) ** 2) for f in fields for s in f.std]
    shared, kernel_index = _share_kernels([f.kernel for f in fields for _ in f.std], Z, jitter)
    if isinstance(stored, WhitenedGaussians):
        centre, roots = stored.mean, tuple(np.ascontiguousarray(R.T) for R in stored.factor)
    elif isinstance(stored, WhitenedInducing):
        centre, roots = stored.mean, (stored.root,)
    else:
        prior = Prior(tuple(kernels), mean, X, Z, dense=inducing is None, jitter=jitter)
        q: CoupledGaussian = gaussian_from_natural(
            natural_parameters(prior, SiteFactors(stored.precision, stored.shift))
        )
        centre, roots = q.mean, (q.root,)
    return PosteriorField(fields, ProcessPrior(mean, std, shared, kernel_index), centre, roots)


def _share_kernels(
    kernels: Sequence[Kernel], Z: Floats, jitter: float
) -> tuple[tuple[SharedKernel, ...], tuple[int, ...]]:
    """Return the distinct kernels, of nominal variance 1, and the index of the kernel of each process."""
    shared: list[SharedKernel] = []
    numbers: dict[tuple[str, bytes], int] = {}
    kernel_index = []
    for j, kernel in enumerate(kernels):
        key = (json.dumps(kernel.describe()), Z[j].tobytes())
        if key not in numbers:
            numbers[key] = len(shared)
            factor = inducing_factor([kernel], Z[j][None], jitter)[0]
            shared.append(SharedKernel(kernel, np.ascontiguousarray(Z[j]), factor, jitter))
        kernel_index.append(numbers[key])
    return tuple(shared), tuple(kernel_index)
