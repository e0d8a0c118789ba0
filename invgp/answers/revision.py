"""A posterior with another prior, noise or data, on the emulator of the runs that were made for the first one.

Draws of the first posterior are moved by the affine map from its Gaussian approximation to that of the revised problem,
and weighted by the ratio of the posterior densities. They keep the shape of a curved posterior. If the weights are not
reliable, the revised posterior is sampled again on the emulator, unless the runs do not cover its Gaussian
approximation: the emulator is not valid there, and the approximation is the answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from invgp.answers.emulated_problem import (
    MOST_UNCOVERED,
    EmulatedProblem,
    emulate,
    has_same_scales,
    simulated_with_data,
    stored_factors,
    transfer_runs,
    uncovered_sites,
)
from invgp.core.backend import to_numpy
from invgp.emulation.run_schedule import runs_in_a_step
from invgp.inference.emulated_draws import CHOICE, draw_if_gaussian
from invgp.inference.emulated_posterior import SamplingOptions
from invgp.inference.importance_draws import smooth_weights
from invgp.inference.optimisation import ENDED
from invgp.inference.restart import unexplained_sites
from invgp.inference.sampled import sampled_search
from invgp.inference.search_state import SampledTarget, SearchResult, SearchState
from invgp.inference.site_solution import sampled_solution
from invgp.posterior import Samples, to_dataset
from invgp.posterior.attributes import has_converged
from invgp.problem import Floats, Problem

MOVED = "draws of the earlier posterior, moved and reweighted"
APPROXIMATED = "Gaussian approximation on the emulator"
MOST_DRAWS, FEWEST_EFFECTIVE = 1000, 100  # of the earlier posterior that are moved, and effective draws that are enough
RELIABLE = 0.7  # largest Pareto k of reliable weights
FARTHEST, WIDEST = 0.5, 1.2  # change of mean, in standard deviations, and of spread, within which runs still verify
CHECKED = 64  # draws at which the runs must surround the posterior
RUNS_PER_SITE = 3  # that an inversion makes at a site, typically
# If the posterior is sampled again: fewer draws than those of an inversion.
SAMPLING = SamplingOptions(fewest_effective=400, enough_effective=2000, draws=1000)


@dataclass(frozen=True)
class Revision:
    """A revised posterior, and how far it can be trusted.

    Attributes
    ----------
    posterior : Dataset
    k_hat : float
        Pareto k of the weights of moved draws, or of those of the Gaussian approximation; NaN if there are no weights.
    doubtful : int
        Sites at which the runs do not cover the revised posterior.
    runs_needed : int
        Approximate number of runs that an inversion would make there; 0 if the revision is reliable.
    """

    posterior: xr.Dataset
    k_hat: float
    doubtful: int
    runs_needed: int


class EarlierDraws(NamedTuple):
    """Draws of the posterior that is revised.

    Attributes
    ----------
    z : array, shape (R, D)
        Coordinates in which its Gaussian approximation is standard normal.
    log_density : array, shape (R,)
        Logarithms of the posterior density on its emulator, up to the evidence.
    mode : array of int, shape (R,)
        Number of the mode of each draw, from 0.
    """

    z: Floats
    log_density: Floats
    mode: NDArray[np.intp]


class MovedDraws(NamedTuple):
    """Draws of the earlier posterior that were moved to a revised one.

    Attributes
    ----------
    v : array, shape (R, D)
        Variables of the prior.
    mode : array of int, shape (R,)
        Number of the mode of each draw, from 0.
    log_weights : array, shape (R,)
        Logarithms of their weights.
    log_evidence_change : float, nats
    """

    v: Floats
    mode: NDArray[np.intp]
    log_weights: Floats
    log_evidence_change: float


def revise_posterior(posterior: xr.Dataset, base: EmulatedProblem, problem: Problem, seed: int) -> Revision:
    """Compute the posterior of a revised problem on the emulator of an earlier one.

    Parameters
    ----------
    posterior : Dataset
        The earlier posterior.
    base : EmulatedProblem
        Its problem with the emulator.
    problem : Problem
        The revised problem, with the same simulators and latents.
    seed : int
    """
    same_sites = problem.survey.locations.shape == base.problem.survey.locations.shape and np.array_equal(
        problem.survey.locations, base.problem.survey.locations
    )
    comparable = same_sites and has_same_scales(base.problem, problem)
    runs = transfer_runs(base.state.runs, base.problem, problem)
    new = emulate(problem, runs, seed, stored_factors(posterior) if comparable else None, among_runs=True)
    near = (
        _near_earlier(base, new)
        if comparable and has_converged(posterior)
        else np.zeros(problem.survey.size, dtype=bool)
    )
    learnt = str(posterior.attrs.get("invgp_learnt", ""))
    if new.state.result == ENDED:
        return _finish(new, new.state, math.nan, near, learnt)
    earlier = earlier_draws(posterior, base) if same_sites else None
    moved = None if earlier is None else move_draws(earlier, base, new)
    samples, k_hat = (None, math.nan) if moved is None else _reweight(moved, new, posterior, seed)
    explained = new.state.result.converged and not unexplained_sites(new.model, new.state).any()
    several = "draw_mode" in posterior and bool((posterior["draw_mode"] > 1).any())
    if samples is None and _is_uncovered(base, new, near, comparable=same_sites):
        return _finish(new, new.state, k_hat, near, learnt)
    if samples is None and explained and not several:
        drawn, reliable = draw_if_gaussian(new.posterior, new.gaussian, np.random.default_rng(seed), SAMPLING)
        samples, k_hat = (drawn, drawn.k_hat) if reliable else (None, k_hat)
    if samples is not None:
        target = SampledTarget(new.gaussian, new.emulator, explained, several_modes=False)
        return _finish(new, replace(new.state, samples=samples, target=target), k_hat, near, learnt)
    # The inversion has searched for modes. In a small problem the search is cheap, and repeated.
    small = problem.survey.size * problem.latent_count <= CHOICE.searched
    options = SAMPLING if several or small else replace(SAMPLING, most_tempered=0)
    search = replace(sampled_search(new.model), options=options)
    known = None if (small and not several) or not explained else several
    state = search.sample_emulated(new.model, new.runner, new.state, several_modes=known)
    return _finish(new, state, k_hat, near, learnt)


def _is_uncovered(base: EmulatedProblem, new: EmulatedProblem, near: NDArray[np.bool_], *, comparable: bool) -> bool:
    """Return whether the runs cover the Gaussian posterior of a revision at too few sites to sample it.

    A Gaussian is wider than a curved posterior. Sites do not count where the runs did not cover that of the earlier
    posterior either.
    """
    uncovered = uncovered_sites(new.model, new.emulator, new.gaussian) & ~near
    if comparable:
        uncovered &= ~uncovered_sites(base.model, base.emulator, base.gaussian)
    return bool(uncovered.sum() > MOST_UNCOVERED * max(simulated_with_data(new.model).sum(), 1))


def _near_earlier(base: EmulatedProblem, new: EmulatedProblem) -> NDArray[np.bool_]:
    """Return a mask (N,) of the sites where the posterior hardly moved: there runs have verified the emulator."""
    (mean, covariance), (new_mean, new_covariance) = (
        (to_numpy(part) for part in one.gaussian.marginals) for one in (base, new)
    )
    variance, new_variance = (np.diagonal(part, axis1=1, axis2=2) for part in (covariance, new_covariance))
    moved = np.abs(new_mean - mean) > FARTHEST * np.sqrt(variance)
    return np.asarray(~(moved | (new_variance > WIDEST**2 * variance)).any(axis=1))


_EARLIER: WeakKeyDictionary[EmulatedProblem, EarlierDraws | None] = WeakKeyDictionary()


def earlier_draws(posterior: xr.Dataset, base: EmulatedProblem) -> EarlierDraws | None:
    """Return the draws in a file with their densities; None if it has no converged ones, or no dense prior.

    They are kept for the next revision of the same posterior.
    """
    if base not in _EARLIER:
        _EARLIER[base] = _compute_earlier(posterior, base)
    return _EARLIER[base]


def _compute_earlier(posterior: xr.Dataset, base: EmulatedProblem) -> EarlierDraws | None:
    prior, learnt = base.gaussian.prior, str(posterior.attrs.get("invgp_hyperparameters", ""))
    if "whitened_sample" not in posterior or learnt or not prior.dense:
        return None
    names = [f"{name}_r_hat" for name in str(posterior.attrs["invgp_latents"]).split()]
    if any(float(posterior[name].max()) > SamplingOptions().largest_r_hat for name in names if name in posterior):
        return None
    whitened = np.asarray(posterior["whitened_sample"].values, dtype=np.float64)
    if whitened.shape[1:] != (prior.latent_count, prior.inducing_count):
        return None
    step = math.ceil(len(whitened) / MOST_DRAWS)
    v = whitened[::step].reshape(-1, prior.latent_count * prior.inducing_count)
    centre, root = to_numpy(base.gaussian.q.mean).ravel(), to_numpy(base.gaussian.q.root)
    z = solve_triangular(root, (v - centre).T, lower=True, trans="T").T
    modes = posterior["draw_mode"].values[::step] - 1 if "draw_mode" in posterior else np.zeros(len(v))
    return EarlierDraws(z, _log_density(base, v), modes.astype(np.intp))


def move_draws(earlier: EarlierDraws, base: EmulatedProblem, new: EmulatedProblem) -> MovedDraws | None:
    """Move draws to a revised posterior; None if its prior is not dense."""
    if not new.gaussian.prior.dense:
        return None
    centre, root = to_numpy(new.gaussian.q.mean).ravel(), to_numpy(new.gaussian.q.root)
    moved = centre + earlier.z @ root
    ratio = _log_density(new, moved) - earlier.log_density
    determinant = 0.5 * (float(base.gaussian.q.log_determinant) - float(new.gaussian.q.log_determinant))
    ratio = np.where(np.isfinite(ratio), ratio, -np.inf)
    evidence = float(logsumexp(ratio)) - math.log(len(ratio)) + determinant
    return MovedDraws(moved, earlier.mode, ratio, evidence)


def _log_density(emulated: EmulatedProblem, v: Floats) -> Floats:
    """Compute the log density (R,) of the posterior on the emulator at variables v (R, D)."""
    target, backend = emulated.posterior.target, emulated.model.backend
    step = max(SamplingOptions().rows_at_once // target.prior.site_count, 1)
    return np.concatenate(
        [to_numpy(target.log_density_value(backend.asarray(v[i : i + step]))) for i in range(0, len(v), step)]
    )


def _reweight(
    moved: MovedDraws, new: EmulatedProblem, posterior: xr.Dataset, seed: int
) -> tuple[Samples | None, float]:
    """Select moved draws by their weights; None instead if the weights are not reliable. Also return the Pareto k."""
    if not np.isfinite(moved.log_weights).any():
        return None, math.inf
    smoothed, k_hat = smooth_weights(moved.log_weights)
    shares = np.exp(smoothed - logsumexp(smoothed))
    effective = float(1.0 / np.sum(shares**2))
    if k_hat > RELIABLE or effective < min(FEWEST_EFFECTIVE, len(shares)):
        return None, k_hat
    count, rng = len(shares), np.random.default_rng(seed)
    places = (rng.random() + np.arange(count)) / count
    chosen = rng.permutation(np.minimum(np.searchsorted(np.cumsum(shares), places), count - 1))
    v = moved.v[chosen]
    latents = new.posterior.latents(v)
    size = latents.shape[1:]
    before = float(posterior.attrs.get("invgp_log_evidence", np.nan))
    error = float(posterior.attrs.get("invgp_log_evidence_error", np.nan))
    samples = Samples(
        latents,
        np.arange(count) * 4 // count,
        moved.mode[chosen],
        MOVED,
        k_hat,
        np.ones(size),
        np.full(size, effective),
        before + moved.log_evidence_change,
        math.hypot(error, 1.0 / math.sqrt(effective)),
        new.posterior.inducing_variables(v),
    )
    return samples, k_hat


def _finish(new: EmulatedProblem, state: SearchState, k_hat: float, near: NDArray[np.bool_], learnt: str) -> Revision:
    """Return the dataset of a revision, with the sites at which its emulator is doubtful, and what was learnt."""
    model, samples, problem = new.model, state.samples, new.problem
    if samples is None:
        uncovered, agreed = uncovered_sites(model, new.emulator, new.gaussian), True
    else:
        few = samples.latents[samples.thin(CHECKED)]
        trusted = new.emulator.trusted_sites(few, model.all_sites, problem.inference.emulator_error)
        uncovered = ~trusted & simulated_with_data(model)
        agreed = bool(samples.r_hat.max() <= SamplingOptions().largest_r_hat)
    doubtful = int(np.count_nonzero(uncovered & ~near))
    needed = max(RUNS_PER_SITE * doubtful, runs_in_a_step(problem)) if doubtful else 0
    if doubtful:
        least = "at least " if state.result == ENDED else ""
        status = f"the runs do not cover the revised posterior at {least}{doubtful:,} of {problem.survey.size:,} sites"
    else:
        status = "revised without new runs" if agreed else "stopped before the chains of draws agreed"
    state = replace(state, result=SearchResult(status, converged=not doubtful and agreed))
    found = sampled_solution(model, new.runner, state, replace(SAMPLING, least_effective=FEWEST_EFFECTIVE))
    if found is None:
        raise ValueError("there is no posterior")
    dataset = to_dataset(*found).assign_attrs(
        invgp_runs_from_ledger=0,
        invgp_runs_at_once=0.0,
        invgp_revision_method=APPROXIMATED if samples is None else samples.method,
        invgp_revision_k_hat=k_hat,
        invgp_revision_doubtful_sites=doubtful,
        invgp_revision_runs_needed=needed,
        **({"invgp_learnt": learnt} if learnt else {}),
    )
    return Revision(dataset, k_hat, doubtful, needed)
