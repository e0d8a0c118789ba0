"""Number of inducing points that a survey needs, and the error of too few.

Inducing points omit the part of the prior variance at a site that their values do not determine. The omitted part adds
to the posterior variance, and the mean of the posterior is wrong by a similar amount. It is negligible if it is a small
share of the posterior variance at the sites, which may be far smaller than the prior variance: precise data need more
inducing points. `python tests/benchmarks/inducing_points.py` compares this share with the error.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from invgp.core.geometry import inducing_factor, sparse_geometry
from invgp.core.inducing import cluster_centres
from invgp.core.kernels import Kernel
from invgp.problem import Floats, Problem

JITTER = 1e-8  # fraction of the variance added at inducing points; their positions are fixed
MOVABLE_JITTER = 1e-6  # if their positions are learnt: the bound is then smooth when they meet


@dataclass(frozen=True)
class InducingOptions:
    """Tuning of the number of inducing points.

    Attributes
    ----------
    dense_unknowns : int
        Sites times processes up to which every site is an inducing point by default.
    most_unknowns : int
        Inducing points times processes that are chosen by default, because of the time that they take.
    reported_share, chosen_share : float
        Omitted share of the posterior variance above which it is reported, and by which the number is chosen.
    evaluated_sites : int
        Size of the random subset of the sites at which the share is computed.
    fewest_points : int
        Smallest number that is tried.
    growth : float
        Factor from one number that is tried to the next.
    """

    dense_unknowns: int = 3000
    most_unknowns: int = 4000
    reported_share: float = 0.1
    chosen_share: float = 0.05
    evaluated_sites: int = 2000
    fewest_points: int = 16
    growth: float = 1.25


DEFAULTS = InducingOptions()


def choose_inducing_count(
    problem: Problem, kernels: Sequence[Kernel], options: InducingOptions | None = None
) -> int | None:
    """Choose the number of inducing points from length-scales, extent and noise.

    Parameters
    ----------
    problem : Problem
    kernels : sequence of Kernel, length Q
        Kernels of the processes for NumPy arrays.
    options : InducingOptions, optional
        `DEFAULTS` if None.

    Returns
    -------
    int or None
        None if every site should be an inducing point.
    """
    options, N, Q = options or DEFAULTS, problem.survey.size, problem.latent_count
    if options.dense_unknowns >= N * Q:
        return None
    most = max(min(N // 2, options.most_unknowns // Q), 1)
    survey = problem.survey
    needed = needed_inducing_points(kernels, survey.X, survey.locations, _information(problem), most, options)
    if needed is None and 2 * options.most_unknowns >= N * Q:
        return None
    return most if needed is None else needed


def needed_inducing_points(
    kernels: Sequence[Kernel],
    X: Floats,
    locations: Floats,
    information: Sequence[float],
    most: int,
    options: InducingOptions | None = None,
) -> int | None:
    """Return the smallest number of inducing points that omits at most `chosen_share` of the posterior variance.

    Parameters
    ----------
    kernels : sequence of Kernel, length Q
    X : array, shape (N, D)
        Coordinates of the sites.
    locations : array, shape (N, D) or (N, 2 D)
        Sites as inputs of the kernels.
    information : sequence of float, length Q
        Mean precision of the data of one site about each process, in the unit of the kernel.
    most : int
        Largest number.
    options : InducingOptions, optional
        `DEFAULTS` if None.

    Returns
    -------
    int or None
        None if it is larger than `most`.
    """
    options, rng = options or DEFAULTS, np.random.default_rng(0)
    rows = np.sort(rng.choice(len(X), min(len(X), options.evaluated_sites), replace=False))
    # Processes with equal kernels: the one with the most precise data needs the most.
    distinct: dict[str, tuple[Kernel, float]] = {}
    for kernel, own in zip(kernels, information, strict=True):
        key = json.dumps(kernel.describe())
        distinct[key] = (kernel, max(own, distinct[key][1] if key in distinct else 0.0))
    weight = len(X) / len(rows)
    count = min(options.fewest_points, most)
    while True:
        Z = cluster_centres(X, count, np.random.default_rng(0))
        if all(
            omitted_share(k, Z, locations[rows], weight * own) <= options.chosen_share for k, own in distinct.values()
        ):
            return count
        if count == most:
            return None
        count = min(int(options.growth * count) + 1, most)


def omitted_share(kernel: Kernel, Z: Floats, X: Floats, information: float) -> float:
    """Return the share of the posterior variance at sites that inducing points omit; see `mean_share`.

    Parameters
    ----------
    kernel : Kernel
    Z : array, shape (M, D)
        Inducing points.
    X : array, shape (N, D)
        Sites, each with data of the same precision about the process.
    information : float
        This precision.
    """
    factor = inducing_factor([kernel], Z[None], JITTER)
    geometry = sparse_geometry([kernel], Z[None], factor, X)
    W, omitted = geometry.projection[0], geometry.residual[0]
    root = scipy.linalg.cholesky(np.eye(len(Z)) + information * (W @ W.T), lower=True)
    determined = np.sum(scipy.linalg.solve_triangular(root, W, lower=True) ** 2, axis=0)
    return mean_share(omitted, determined + omitted)


def mean_share(omitted: Floats, variance: Floats) -> float:
    """Return the root mean square over the sites of omitted over posterior variance, (N,) each.

    The squares give weight to a few sites that are far from the inducing points: the errors there are the largest.

    Parameters
    ----------
    omitted : array, shape (N,)
        Variance that the inducing points omit.
    variance : array, shape (N,)
        Posterior variance.

    Returns
    -------
    float
    """
    ratio = omitted / np.maximum(variance, np.finfo(np.float64).tiny)
    return float(np.sqrt(np.mean(ratio**2)))


def _information(problem: Problem) -> list[float]:
    """Estimate the precision of the data of one site about each process, in units of the kernels.

    If the simulator were linear, the variance of a datum over the survey would be the sum of the contributions of the
    processes. Each is assumed to contribute the same.
    """
    Y, std = problem.survey.Y, problem.noise_std
    known = ~np.isnan(Y)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, Y, 0.0).sum(axis=0) / count
    ratios = np.where(known, (Y - mean) / np.where(known, std, 1.0), 0.0)
    per_site = float(np.sum(ratios**2)) / len(Y)
    variance = problem.prior_moments()[1] ** 2
    return [per_site / problem.latent_count / float(own) for own in variance]
