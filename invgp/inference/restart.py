"""Second search around sites whose data the first posterior does not explain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from invgp.core.backend import Array, array_namespace
from invgp.core.coupled.coupled_gaussian import SiteFactors
from invgp.core.coupled.coupled_savigp import CoupledSavigp
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.errors import RunsFailedError
from invgp.inference.diagnostics import find_unexplained
from invgp.inference.inversion import BudgetSpent, SearchResult
from invgp.latent_model.learned_problem import with_learned_hyperparameters
from invgp.problem import Problem

if TYPE_CHECKING:
    from invgp.inference.coupled import CoupledInversion

ATTEMPTS = 3  # most second searches, each from another random field
RESET_PRECISION = 0.1  # site precision of a second start, relative to the prior precision


def restart_where_unexplained(inversion: CoupledInversion, result: SearchResult) -> SearchResult:
    """Search again around unexplained sites, with the simulator if necessary, and keep the better posterior.

    Parameters
    ----------
    result : SearchResult
        Outcome of the first search.
    """
    for _ in range(ATTEMPTS):
        candidate = inversion.candidate
        if candidate is None:
            break
        problem = with_learned_hyperparameters(inversion.problem, candidate.posterior)
        sites = find_unexplained(problem, candidate.predicted, candidate.predicted_std)
        if not sites.any():
            break
        result = restart_around(inversion, sites, result)
    return result


def restart_around(inversion: CoupledInversion, sites: NDArray[np.bool_], result: SearchResult) -> SearchResult:
    """Search again around some sites (N,), and keep the better posterior."""
    first = inversion.candidate
    if first is None or not sites.any():
        return result
    around = sites_within_length_scale(with_learned_hyperparameters(inversion.problem, first.posterior), sites)
    kept, algorithm = inversion.direct, inversion.algorithm(inversion.stages())
    bound, second = inversion.trace[-1][0], result
    try:
        start = reset_sites(inversion, algorithm, first.posterior, around)
        inversion.use_simulator_at(around, start)
        bound = inversion.bound_of(algorithm, first.posterior)
        second = inversion.optimise(algorithm, algorithm.start_from(start, near_optimum=False), inversion.evaluator)
    except BudgetSpent:
        second = inversion.out_of_runs
    except (RunsFailedError, np.linalg.LinAlgError):  # keep the first posterior
        inversion.candidate = first
    if inversion.candidate is not first and inversion.trace[-1][0] > bound:
        return second
    inversion.candidate, inversion.direct = first, kept
    inversion.record(bound, accepted=True)
    return result


def sites_within_length_scale(problem: Problem, sites: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask (N,) of these sites (N,) and all sites within a length-scale of them."""
    X, near = problem.survey.X, sites.copy()
    if sites.any():
        for latent in problem.latents:
            distance, _ = KDTree(X[sites] / latent.length_scale).query(X / latent.length_scale)
            near |= distance <= 1.0
    return near


def reset_sites(
    inversion: CoupledInversion, algorithm: CoupledSavigp, posterior: GaussianPosterior, sites: NDArray[np.bool_]
) -> GaussianPosterior:
    """Return a posterior with weak site factors at some sites (N,), towards a field drawn from the prior.

    Raises
    ------
    numpy.linalg.LinAlgError
        The precision with these site factors is not positive definite.
    """
    start, backend = inversion.start.trial, inversion.backend
    xp, prior = backend.namespace, start.prior
    normals = backend.asarray(inversion.inducing.standard_normal((1, prior.latent_count * prior.inducing_count)))
    weak = site_factors_at(start, start.q.sample_sites(prior, normals)[0, ...], RESET_PRECISION)
    chosen = backend.asmask(sites)
    return algorithm.posterior(
        SiteFactors(
            xp.where(chosen[:, None, None], weak.precision, posterior.sites.precision),
            xp.where(chosen[:, None], weak.shift, posterior.sites.shift),
        ),
        posterior.hyper,
    )


def site_factors_at(start: GaussianPosterior, latents: Array, share: Array | float) -> SiteFactors:
    """Return site factors towards latents (N, Q), with a share (N, 1, 1) of the precision of the start."""
    xp = array_namespace(latents)
    precision = share * xp.linalg.inv(start.marginals.covariance)
    return SiteFactors(precision, (precision @ (latents - start.marginals.mean)[..., None])[..., 0])
