"""A second search where the first posterior leaves data unexplained: it may be the wrong one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from invgp.core.backend import Array, array_namespace
from invgp.core.coupled.algorithm import CoupledSavigp
from invgp.core.coupled.position import Position
from invgp.core.coupled.posterior import SiteFactors
from invgp.errors import RunsFailedError
from invgp.inference.diagnostics import unexplained
from invgp.inference.inversion import BudgetSpent
from invgp.latent_model.learned_problem import with_hyperparameters
from invgp.problem import Problem

if TYPE_CHECKING:
    from invgp.inference.coupled import CoupledInversion

ATTEMPTS = 3  # from another field each
ROUGHLY = 0.1  # of the prior's precision, that each site of a second start says


def search_again_where_unexplained(inversion: CoupledInversion, status: str, *, settled: bool) -> tuple[str, bool]:
    """Start again around the sites that are not explained, with the simulator if need be; keep the better posterior.

    Parameters
    ----------
    status, settled : of the first search.
    """
    for _ in range(ATTEMPTS):
        found = inversion.found
        if found is None:
            break
        problem = with_hyperparameters(inversion.problem, found.position)
        sites = unexplained(problem, found.predicted, found.predicted_std)
        if not sites.any():
            break
        status, settled = search_again(inversion, sites, status, settled=settled)
    return status, settled


def search_again(
    inversion: CoupledInversion, sites: NDArray[np.bool_], status: str, *, settled: bool
) -> tuple[str, bool]:
    """The same around any sites (N,)."""
    first = inversion.found
    if first is None or not sites.any():
        return status, settled
    around = within_a_length_scale(with_hyperparameters(inversion.problem, first.position), sites)
    kept, algorithm = inversion.direct, inversion.algorithm(inversion.stages())
    bound, verdict = inversion.trace[-1][0], (status, settled)
    try:
        start = opened(inversion, algorithm, first.position, around)
        inversion.look_closer(around, start)
        bound = inversion.bound_of(algorithm, first.position)
        verdict = inversion.settle(algorithm, algorithm.start_from(start, known=False), inversion.answer)
    except BudgetSpent:
        verdict = inversion.out_of_runs, False
    except (RunsFailedError, np.linalg.LinAlgError):  # what was found first is as good as it was
        inversion.found = first
    if inversion.found is not first and inversion.trace[-1][0] > bound:
        return verdict
    inversion.found, inversion.direct = first, kept
    inversion.record(bound, accepted=True)
    return status, settled


def within_a_length_scale(problem: Problem, sites: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """These sites (N,), and all that lie within a length-scale of them."""
    X, near = problem.survey.X, sites.copy()
    if sites.any():
        for latent in problem.latents:
            distance, _ = KDTree(X[sites] / latent.length_scale).query(X / latent.length_scale)
            near |= distance <= 1.0
    return near


def opened(
    inversion: CoupledInversion, algorithm: CoupledSavigp, position: Position, sites: NDArray[np.bool_]
) -> Position:
    """A position at which some sites (N,) say little: roughly what they would of a field drawn from the prior.

    Raises
    ------
    numpy.linalg.LinAlgError
        Other sites take more precision away than is left.
    """
    start, where = inversion.start.trial, inversion.where
    xp, prior = where.namespace, start.prior
    normals = where.asarray(inversion.inducing.standard_normal((1, prior.latents * prior.inducing)))
    said = saying(start, start.q.site_draws(prior, normals)[0, ...], ROUGHLY)
    chosen = where.asmask(sites)
    return algorithm.position(
        SiteFactors(
            xp.where(chosen[:, None, None], said.precision, position.sites.precision),
            xp.where(chosen[:, None], said.shift, position.sites.shift),
        ),
        position.hyper,
    )


def saying(start: Position, latents: Array, share: Array | float) -> SiteFactors:
    """Sites that say that their latents are these, (N, Q), with a share (N, 1, 1) of the prior's precision."""
    xp = array_namespace(latents)
    precision = share * xp.linalg.inv(start.marginals.covariance)
    return SiteFactors(precision, (precision @ (latents - start.marginals.mean)[..., None])[..., 0])
