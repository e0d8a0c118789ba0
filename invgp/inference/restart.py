"""A second search where the first posterior leaves data unexplained: it may be the wrong one."""

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

ATTEMPTS = 3  # from another field each
ROUGHLY = 0.1  # of the prior's precision, that each site of a second start says


def restart_where_unexplained(inversion: CoupledInversion, result: SearchResult) -> SearchResult:
    """Start again around the sites that are not explained, with the simulator if need be; keep the better posterior.

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
    """The same around any sites (N,)."""
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
    except (RunsFailedError, np.linalg.LinAlgError):  # what was found first is as good as it was
        inversion.candidate = first
    if inversion.candidate is not first and inversion.trace[-1][0] > bound:
        return second
    inversion.candidate, inversion.direct = first, kept
    inversion.record(bound, accepted=True)
    return result


def sites_within_length_scale(problem: Problem, sites: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """These sites (N,), and all that lie within a length-scale of them."""
    X, near = problem.survey.X, sites.copy()
    if sites.any():
        for latent in problem.latents:
            distance, _ = KDTree(X[sites] / latent.length_scale).query(X / latent.length_scale)
            near |= distance <= 1.0
    return near


def reset_sites(
    inversion: CoupledInversion, algorithm: CoupledSavigp, posterior: GaussianPosterior, sites: NDArray[np.bool_]
) -> GaussianPosterior:
    """A position at which some sites (N,) say little: roughly what they would of a field drawn from the prior.

    Raises
    ------
    numpy.linalg.LinAlgError
        Other sites take more precision away than is left.
    """
    start, backend = inversion.start.trial, inversion.backend
    xp, prior = backend.namespace, start.prior
    normals = backend.asarray(inversion.inducing.standard_normal((1, prior.latent_count * prior.inducing_count)))
    said = site_factors_at(start, start.q.sample_sites(prior, normals)[0, ...], ROUGHLY)
    chosen = backend.asmask(sites)
    return algorithm.posterior(
        SiteFactors(
            xp.where(chosen[:, None, None], said.precision, posterior.sites.precision),
            xp.where(chosen[:, None], said.shift, posterior.sites.shift),
        ),
        posterior.hyper,
    )


def site_factors_at(start: GaussianPosterior, latents: Array, share: Array | float) -> SiteFactors:
    """Sites that say that their latents are these, (N, Q), with a share (N, 1, 1) of the prior's precision."""
    xp = array_namespace(latents)
    precision = share * xp.linalg.inv(start.marginals.covariance)
    return SiteFactors(precision, (precision @ (latents - start.marginals.mean)[..., None])[..., 0])
