"""The result of the search for the posterior of a field model, and the notes on it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from invgp.core.backend import cholesky, to_numpy
from invgp.core.field.field_gaussian import Gaussian
from invgp.core.field.field_inference import FieldState
from invgp.core.field.two_fidelities import CoarseTrend
from invgp.inference.diagnostics import diagnose, find_unexplained
from invgp.inference.field import hyperparameter_cost
from invgp.inference.field_draws import (
    DRAWS,
    Node,
    draw_counts,
    draw_variables,
    draw_with_prior,
    gaussian_k_hat,
    has_several_modes,
    to_samples,
)
from invgp.inference.field_model import FieldModel, whiten_slopes
from invgp.inference.field_state import FieldSearch, FieldSearchState
from invgp.inference.notes import noise_notes, prior_notes
from invgp.inference.runner import Runner
from invgp.inference.search_state import SearchResult
from invgp.latent_model.noise_density import data_covariance, draw_discrepancy
from invgp.latent_model.prior_field import MOST_MODES, ChangedPrior, predict_direct
from invgp.posterior import Samples, Solution
from invgp.problem import Floats, Problem

UNEXPLAINED = SearchResult(
    "stopped, since more runs changed nothing, but the posterior does not explain the data: check data and noise; if "
    "they are right, narrow the prior",
    converged=False,
)


def field_solution(search: FieldSearch, runner: Runner, state: FieldSearchState) -> tuple[Problem, Solution] | None:
    """Return the posterior of a state.

    Parameters
    ----------
    search : FieldSearch
        What is constant during the search.
    runner : Runner
        Makes the runs, and keeps the latest state.
    state : FieldSearchState
        Present state of the search.

    Returns
    -------
    (Problem, Solution) or None
        The problem with learnt hyperparameters, and the posterior; None if there is none yet.
    """
    if state.info is None or state.inference.regression is None:
        return None
    problem, field = search.learning.problem_at(state.theta), state.model.field
    samples, predictions = draw_samples(search, state)
    few = np.diagonal(field.covariance(to_numpy(state.inference.few_runs)), axis1=1, axis2=2) / field.std**2
    if samples is None:
        q = refine(search, state)
        mean = field.latents(to_numpy(q.mean)[None])[0]
        covariance = field.covariance(to_numpy(q.covariance))
        covariance = covariance + field.omitted_variance()[:, :, None] * np.eye(len(field.std))
        predictions = _gaussian_predictions(search, state, q)
        draws = _gaussian_draws(search, state, q)
    else:
        mean, covariance = samples.moments()
        draws = samples.latents[samples.thin(problem.stored_draws)]
        q = gaussian_of(search, state, samples)
        if field.pivots > search.options.most_held:
            samples = replace(samples, whitened=None)
        elif samples.whitened is None:
            samples = replace(samples, whitened=field.whiten(problem, samples.latents))
    discrepancy = None
    if problem.noise.discrepancy:
        found = draw_discrepancy(problem, predictions, data_covariance(problem), search.streams.predicting.spawn(1)[0])
        discrepancy, predictions = (found.mean(axis=0), found.std(axis=0)), predictions + found
        samples = None if samples is None else replace(samples, predicted=predictions)
    predicted, predicted_std = predictions.mean(axis=0), predictions.std(axis=0)
    result = state.result
    if result.converged and find_unexplained(problem, predicted, predicted_std).any():
        result = UNEXPLAINED
    grid = 0 if problem.grid is None else problem.grid.size  # the other nodes are sites of site models
    return problem, Solution(
        mean=mean[:grid],
        covariance=covariance[:grid],
        draws=draws[:, :grid],
        processes=field.processes(problem, q) if field.pivots <= search.options.most_held else None,
        predicted=predicted,
        predicted_std=predicted_std,
        elbo=np.asarray([bound for bound, _ in runner.trace]),
        runs=np.asarray([runs for _, runs in runner.trace], dtype=np.int64),
        runs_total=runner.simulator.runs,
        runs_failed=runner.simulator.failed,
        seed=search.seed,
        status=result.status,
        converged=result.converged,
        diagnostics=diagnose(
            problem,
            predicted,
            predicted_std,
            np.empty(0),
            field_notes(search, state, samples),
            converged=result.converged,
        ),
        emulator=state.verification.report,
        few_runs_std=np.sqrt(np.maximum(few[:grid], 0.0)),
        samples=None if samples is None else samples.select_points(grid),
        direct_predictions={
            part.name: predict_direct(field, problem, part.problem, q)
            for part in problem.parts
            if part.direct and part.problem.survey.observations
        },
        discrepancy=discrepancy,
    )


def field_moments(search: FieldSearch, state: FieldSearchState) -> Gaussian:
    """Return the mean and the covariance of the variables, from draws unless the posterior is Gaussian."""
    samples, _ = draw_samples(search, state)
    return refine(search, state) if samples is None else gaussian_of(search, state, samples)


def refine(search: FieldSearch, state: FieldSearchState) -> Gaussian:
    """Return the Gaussian posterior, from more steps of slice sampling unless the exact one is Gaussian."""
    rng = search.streams.refining.spawn(1)[0]
    return state.model.algorithm.refine(state.inference, rng, search.options.refining_steps).q


def draw_samples(search: FieldSearch, state: FieldSearchState) -> tuple[Samples | None, Floats]:
    """Return draws from the exact posterior and their outputs (S, N, P); None if the posterior is Gaussian."""
    rng, realizations = search.streams.sampling.spawn(1)[0], search.streams.realizations
    if not search.samples_exactly:
        return None, np.empty(0)
    if state.has_learned:
        thetas, nodes = _draw_nodes(search, state, rng)
        samples, predictions = to_samples(nodes, state.known, realizations.spawn(1)[0])
        drawn = np.repeat(thetas, draw_counts(nodes), axis=0)
        hyperparameters = search.learning.parameters.describe(drawn, state.theta)
        return replace(samples, hyperparameters=hyperparameters), predictions
    if state.model.is_gaussian(state.inference):
        return None, np.empty(0)
    several = state.drawn is not None and has_several_modes(state.drawn.draws)
    for options in (DRAWS.several_modes,) if several else (DRAWS.long, DRAWS.longer):
        draws = draw_variables(state.model, state.inference, rng, options)
        node = Node(state.model, state.inference, draws)
        samples, predictions = to_samples([node], state.known, realizations.spawn(1)[0])
        enough = samples.effective.min() >= search.options.fewest_effective
        if enough or state.verification.error >= search.options.verified:
            break
    return samples, predictions


def _draw_nodes(search: FieldSearch, state: FieldSearchState, rng: np.random.Generator) -> tuple[Floats, list[Node]]:
    """Draw hyperparameters (K, H) from their posterior, and the variables at each of them."""
    sampling, drawing = rng.spawn(2)
    options, nodes = search.options, []
    count = options.gaussian_nodes if state.model.is_gaussian(state.inference) else options.nodes
    thetas = search.learning.sample(state.theta, hyperparameter_cost(search, state), count, sampling)
    for theta in thetas:
        problem = search.learning.problem_at(theta)
        model, inference = _with_noise_of(search, state, problem)
        prior = ChangedPrior.build(model.field, model.problem, problem, search.backend)
        nodes.append(draw_with_prior(model, inference, prior, drawing.spawn(1)[0], DRAWS.gaussian_draws // count))
    return thetas, nodes


def _with_noise_of(search: FieldSearch, state: FieldSearchState, problem: Problem) -> tuple[FieldModel, FieldState]:
    """Return the model and the inference of a state with the noise of a problem."""
    if not search.problem.noise.scales:
        return state.model, state.inference
    model = search.build(replace(state.model.problem, noise=problem.noise), state.outputs)
    outputs = search.backend.asarray(model.whitening(state.outputs))
    start = FieldState(state.inference.q, state.inference.linear)
    slopes = None if state.slopes is None else whiten_slopes(model.whitening, state.slopes)
    return model, model.algorithm.tell(
        start,
        state.inference.w,
        outputs,
        search.streams.slices,
        slopes=None if slopes is None else search.backend.asarray(slopes),
        coarse=replace(state, model=model).whitened_coarse_runs(),
    )[0]


def gaussian_of(search: FieldSearch, state: FieldSearchState, samples: Samples) -> Gaussian:
    """Return a Gaussian of the variables with the mean and covariance of draws."""
    w = state.model.field.coordinates(samples.latents)
    trust = 1.0 / (1.0 + state.model.variables / len(w))
    own = to_numpy(state.inference.q.covariance)
    covariance = search.backend.asarray(trust * np.cov(w.T).reshape(w.shape[1], -1) + (1.0 - trust) * own)
    return Gaussian(search.backend.asarray(w.mean(axis=0)), covariance, cholesky(covariance))


def _gaussian_predictions(search: FieldSearch, state: FieldSearchState, q: Gaussian) -> Floats:
    """Compute the outputs (S, N, P) of draws from a Gaussian posterior, by the regression."""
    rng = search.streams.predicting.spawn(1)[0]
    normals = search.backend.asarray(rng.standard_normal((search.options.predicted, state.model.variables)))
    return state.model.predict(state.inference, to_numpy(q.samples(normals)), state.known)


def _gaussian_draws(search: FieldSearch, state: FieldSearchState, q: Gaussian) -> Floats:
    """Draw joint samples (R, G, Q) of the latents on the grid from a Gaussian posterior."""
    modes, rest = search.streams.realizations.spawn(2)
    count, field = search.problem.stored_draws, state.model.field
    normals = search.backend.asarray(modes.standard_normal((count, state.model.variables)))
    return field.latents(to_numpy(q.samples(normals))) + field.draw_omitted(rest, count)


def field_notes(search: FieldSearch, state: FieldSearchState, samples: Samples | None) -> list[str]:
    """Return all notes for users on the posterior of a state, with draws or as a Gaussian."""
    notes = _notes_on_modes(search, state) + _notes_on_sampling(search, state, samples)
    few_runs = state.few_runs
    if few_runs is not None and few_runs > search.options.most_from_few_runs:
        notes.append(
            f"{few_runs:.0%} of the remaining variance, where the data inform the field, is due to the small "
            "number of runs: more runs would narrow the posterior."
        )
    if search.learning and not state.has_learned:
        notes.append(
            "The hyperparameters were not learnt: there are too few runs to determine how the data depend on them."
        )
    notes += _notes_on_coarse_model(state)
    partial = int(np.isnan(state.outputs[:, state.model.whitening.observed]).any(axis=1).sum())
    if partial:
        notes.append(
            f"{partial} of {len(state.outputs)} runs gave only some of their outputs; the missing ones are "
            "estimated from the other runs, and the posterior includes the uncertainty of this estimate."
        )
    noise = np.asarray(
        [state.theta[search.learning.parameters.columns["noise", s.name]][0] for s in search.problem.noise.scales]
    )
    notes += noise_notes(search.problem, noise)
    return notes + prior_notes(search.problem)


def _notes_on_coarse_model(state: FieldSearchState) -> list[str]:
    """Add a note if the coarse model was not used, or if its outputs do not help to predict those of the fine one."""
    if state.coarse_failure:
        return [f"The coarse model was not used: {state.coarse_failure}."]
    regression = state.inference.regression
    trend = None if regression is None else regression.parts[0].trend
    if isinstance(trend, CoarseTrend) and trend.factor == 0.0:
        return [
            "The coarse model was not used in the last step: the runs of the fine model are predicted better alone."
        ]
    return []


def _notes_on_sampling(search: FieldSearch, state: FieldSearchState, samples: Samples | None) -> list[str]:
    if samples is None:
        return _notes_on_shape(search, state)
    notes, options = [], search.options
    if options.verified <= state.verification.error < math.inf:  # infinite without new runs
        notes.append(
            f"The regression that replaces the simulator is off by {state.verification.error:.2g} posterior "
            "standard deviations at new runs: mean and spread may be wrong by as much, and more runs are needed."
        )
    if samples.r_hat.max() > options.largest_r_hat:
        notes.append(
            f"The draws have not converged (R-hat up to {samples.r_hat.max():.2f}): means and spreads are doubtful."
        )
    shares = np.bincount(samples.mode) / len(samples.mode)
    shares = shares[shares >= options.least_probable]
    if len(shares) > 1:
        listed = ", ".join(f"{share:.0%}" for share in shares[:3])
        notes.append(
            f"The posterior has {len(shares)} modes, with probabilities {listed}"
            f"{' and others' if len(shares) > 3 else ''}: means and standard deviations summarise all of them; "
            "look at the draws of each mode."
        )
    if state.model.variables > DRAWS.most_variables:
        notes.append(f"With {state.model.variables:,} variables, other modes of the posterior were not searched for.")
    if len(samples.latents) < options.fewest_effective:
        notes.append(
            f"The grid is so large that means and spreads come from {len(samples.latents):,} draws only: they have "
            f"a relative error of about {1.0 / np.sqrt(len(samples.latents)):.0%}."
        )
    return notes


def _notes_on_shape(search: FieldSearch, state: FieldSearchState) -> list[str]:
    """Add a note if the posterior is described by a Gaussian and is not Gaussian."""
    if search.samples_exactly or state.model.is_gaussian(state.inference):
        return []
    if (
        gaussian_k_hat(state.model, state.inference, search.streams.sampling.spawn(1)[0])
        <= search.options.largest_k_hat
    ):
        return []
    return [
        "The posterior is far from Gaussian, so that intervals and draws may be wrong: inference.posterior = "
        "'sampled' draws from the exact one without more runs."
    ]


def _notes_on_modes(search: FieldSearch, state: FieldSearchState) -> list[str]:
    """Add a note if the prior has more modes than `MOST_MODES`."""
    field = state.model.field
    left = float(np.max(np.mean(field.omitted_variance() / field.std**2, axis=0)))
    most = max(part.stop - part.start for part in field.slices)
    if most < MOST_MODES or left <= 1.0 - search.problem.inference.kept_variance:
        return []
    return [
        f"{most:,} modes, the largest number allowed, omit {left:.2g} of the prior variance on the grid, more "
        "than inference.kept_variance allows: finer detail is not inferred."
    ]
