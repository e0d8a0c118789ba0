"""The posterior of the latent processes at any points.

The factors of the prior and posterior covariances are computed once. Each batch of points needs the covariances with
the inducing points, one triangular solve and one matrix product per process.

If there are draws from the exact posterior, the distribution at a point is a mixture with one Gaussian per draw: its
mean is interpolated from the draw at the inducing points, and its variance is the prior variance given their values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import ndtri

from invgp.maps.process_prior import LatentField, ProcessPrior, Projections
from invgp.problem import Floats

FEWEST_VALUES = 2000  # values of a process at a point from which quantiles are computed
CACHED_VALUES = 2**16  # values of a process that are computed at once


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
    mixing : array, shape (Q, Q), or None
        Matrix from the independent processes of `prior`, `centre` and draws to those of the latents; None if they are
        the same.
    """

    fields: tuple[LatentField, ...]
    prior: ProcessPrior
    centre: Floats
    roots: tuple[Floats, ...]
    groups: tuple[DrawGroup, ...] = ()
    mixing: Floats | None = None
    _root_cache: dict[tuple[int, ...], Floats] = field(default_factory=dict)

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

    def parts_of(self, processes: Sequence[int]) -> tuple[list[int], Floats]:
        """Return the independent processes of which g processes are sums, and their weights (g, p).

        Parameters
        ----------
        processes : sequence of int
            Numbers of g processes.

        Returns
        -------
        parts : list of int, length p
        weights : array, shape (g, p)
        """
        if self.mixing is None:
            return list(processes), np.eye(len(processes))
        rows = self.mixing[list(processes)]
        parts = np.flatnonzero(rows.any(axis=0))
        return parts.tolist(), rows[:, parts]

    def at(self, X: Floats, processes: Sequence[int]) -> LocatedPosterior:
        """Return the posterior of some processes at points X (B, D).

        Parameters
        ----------
        X : array, shape (B, D)
            Points, in the units of the coordinates.
        processes : sequence of int
            Numbers of the processes.

        Returns
        -------
        LocatedPosterior
        """
        processes, _ = self.parts_of(processes)
        mean = np.concatenate([own.mean_at(X) for own in self.fields], axis=-1)
        return LocatedPosterior(self, mean, tuple(prior.projections(X, processes) for prior in self.priors))

    def draw_inducing(self, rng: np.random.Generator, count: int) -> list[DrawGroup]:
        """Return `count` draws of the whitened inducing variables, in groups with the priors of `priors`.

        Draws from the exact posterior are repeated only if there are fewer than `count`.

        Parameters
        ----------
        rng : numpy.random.Generator
        count : int
            Number of draws.

        Returns
        -------
        list of DrawGroup
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
    mean : array, shape (B, Q)
        Prior mean of the processes; NaN outside a map.
    projections : tuple of Projections
        Projections of the points, for each of the priors of the posterior.
    """

    posterior: PosteriorField
    mean: Floats
    projections: tuple[Projections, ...]

    def split(self) -> Iterator[LocatedPosterior]:
        """Yield the posterior at a few points at a time, so that the values of all draws fit in the processor cache."""
        points = next(iter(self.projections[0].values())).weights.shape[1]
        step = max(CACHED_VALUES // max(self.posterior.draw_count, FEWEST_VALUES), 1)
        for start in range(0, points, step):
            part = slice(start, start + step)
            parts = ({k: own.select(part) for k, own in at.items()} for at in self.projections)
            yield LocatedPosterior(self.posterior, self.mean[part], tuple(parts))

    def moments(self, processes: Sequence[int]) -> tuple[Floats, Floats]:
        """Return the moments of g processes of a Gaussian posterior at each point.

        Parameters
        ----------
        processes : sequence of int
            Numbers of g processes.

        Returns
        -------
        mean : array, shape (B, g)
        covariance : array, shape (B, g, g)
            Between the processes at the same point.
        """
        field, prior, [at] = self.posterior, self.posterior.prior, self.projections
        parts, mixing = field.parts_of(processes)
        M, g = field.inducing, len(parts)
        R = field.root(tuple(parts))
        W = [at[prior.kernel_index[j]] for j in parts]
        std = prior.std[parts]
        mean = np.stack([field.centre[j] @ own.weights for j, own in zip(parts, W, strict=True)], axis=-1)
        covariance = np.zeros((len(mean), g, g))
        scaled = [R[:, i * M : (i + 1) * M] @ own.weights for i, own in enumerate(W)]
        for i in range(g):
            for k in range(i + 1):
                covariance[:, i, k] = covariance[:, k, i] = np.einsum("mb,mb->b", scaled[i], scaled[k])
            covariance[:, i, i] += W[i].conditional
        offset, covariance = std * mean, covariance * std[:, None] * std
        if field.mixing is not None:
            offset, covariance = offset @ mixing.T, mixing @ covariance @ mixing.T
        return self.mean[:, list(processes)] + offset, covariance

    def prior_variance(self, processes: Sequence[int]) -> Floats:
        """Return the prior variance (B, g) of g processes at each point.

        Parameters
        ----------
        processes : sequence of int
            Numbers of g processes.

        Returns
        -------
        array, shape (B, g)
        """
        prior, std, at = self.posterior.priors[0], self.posterior.prior.std, self.projections[0]
        return np.stack([std[j] ** 2 * at[prior.kernel_index[j]].variance for j in processes], axis=-1)

    def mixture(self, process: int) -> tuple[Floats, Floats]:
        """Return the distribution of a process given each draw at the inducing points.

        Parameters
        ----------
        process : int
            Number of the process.

        Returns
        -------
        mean : array, shape (B, R)
            Mean given each of R draws.
        variance : array, shape (B, R), or (B, 1) if it is the same for all draws
            Variance given each draw.
        """
        parts, [weights] = self.posterior.parts_of([process])
        if self.posterior.mixing is None:
            mean, variance = self._independent_mixture(process)
        else:
            found = [self._independent_mixture(part) for part in parts]
            mean = np.sum([w * own for w, (own, _) in zip(weights, found, strict=True)], axis=0)
            variance = np.sum([w**2 * own for w, (_, own) in zip(weights, found, strict=True)], axis=0)
        mean += self.mean[:, process : process + 1]
        return mean, variance

    def _independent_mixture(self, j: int) -> tuple[Floats, Floats]:
        """Return the moments of an independent process minus its prior mean given each draw, as `mixture`."""
        means, variances = [], []
        for group, at in zip(self.posterior.groups, self.projections, strict=True):
            prior = group.prior
            own = at[prior.kernel_index[j]]
            mean = own.weights.T @ group.whitened[:, j].T
            mean *= prior.std[j]
            means.append(mean)
            variances.append((prior.std[j] ** 2 * own.conditional)[:, None])
        if len(means) == 1:
            return means[0], variances[0]
        counts = [mean.shape[1] for mean in means]
        return np.concatenate(means, axis=1), np.repeat(np.concatenate(variances, axis=1), counts, axis=1)

    def process_draws(self, process: int) -> Floats:
        """Return draws (B, S) of a process at each point, from its mixture; see `draw_mixture`.

        Parameters
        ----------
        process : int
            Number of the process.

        Returns
        -------
        array, shape (B, S)
        """
        if self.posterior.mixing is None:
            return draw_mixture(*self.mixture(process), process)
        parts, [weights] = self.posterior.parts_of([process])
        drawn = [w * draw_mixture(*self._independent_mixture(j), j) for w, j in zip(weights, parts, strict=True)]
        return np.asarray(np.sum(drawn, axis=0) + self.mean[:, process : process + 1])


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
