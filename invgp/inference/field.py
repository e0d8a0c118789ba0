"""Inversion of a field model: one run takes the latents on the whole grid and returns all data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Backend, cholesky, to_numpy
from invgp.core.field.field_gaussian import Gaussian, LowRankGaussian
from invgp.core.field.field_inference import FieldInfo, FieldState
from invgp.core.field.field_sampling import FieldDraws
from invgp.emulation.run_schedule import most_runs
from invgp.errors import RunsFailedError
from invgp.execution.simulator import TooManyFailures
from invgp.inference.diagnostics import diagnose
from invgp.inference.earlier_runs import earlier_fields
from invgp.inference.field_draws import (
    GAUSSIAN_DRAWS,
    LONG,
    LONGER,
    MOST_VARIABLES,
    SEVERAL_MODES,
    SHORT,
    Node,
    draw_variables,
    draw_with_prior,
    gaussian_k_hat,
    has_several_modes,
    pick,
    to_samples,
)
from invgp.inference.field_learning import FieldLearning
from invgp.inference.field_model import FieldModel
from invgp.inference.notes import noise_notes
from invgp.inference.prior_conflict import stop_at_prior_conflict
from invgp.inference.runner import BudgetSpent, Runner
from invgp.inference.search_state import UNFINISHED, SearchResult
from invgp.latent_model.changed_prior import ChangedPrior
from invgp.latent_model.grid_modes import MOST_MODES, Field
from invgp.posterior import EmulatorReport, Samples, Solution
from invgp.problem import FEWEST_FIELD_RUNS, Floats, Problem

FEWEST_FIRST, MOST_FIRST = 24, 100  # runs of the first batch
FEWEST_LATER = 16  # runs of later batches
FIRST_SHARE = 0.4  # largest part of `inference.max_runs` in the first batch
GROWTH = 0.3  # runs of the next batch, relative to all runs so far
MOST_HELD = 4000  # most inducing points of all processes in the file, which contains the square of this number
CONVERGED = 0.05  # largest movement of the posterior by the last batch, in standard deviations
FEW_RUNS = 0.05  # largest part of the variance that more runs would remove, at convergence
NARROWER_SPREADS = (
    1.0,
    0.5,
    0.2,
)  # factors on the spread of the samples, tried in turn if the simulator fails too often
LEARNABLE = 0.5  # part of the variance due to few runs above which hyperparameters are not learnt
SAME = 0.01  # change of all log hyperparameters below which the posterior is not updated
LARGEST_K_HAT = 0.7  # Pareto k of the weights of a Gaussian posterior above which a note is added
# Hyperparameters from their posterior over which the posterior is averaged, if it is Gaussian and if it is not.
GAUSSIAN_NODES, NODES = 64, 24
REFINING_STEPS = 200  # steps of slice sampling at the end, for a Gaussian posterior
PREDICTED = 256  # samples for the predicted outputs of a Gaussian posterior
MOST_FROM_FEW_RUNS = 0.1  # part of the variance due to few runs above which a note is added
FEWEST_EFFECTIVE = 1000  # independent draws below which the chains are made longer
TEMPERED_SHARE = 1.0 / 3.0  # part of a batch of runs from a distribution that is wider than the posterior
VERIFIED = 0.2  # largest error of the regression at draws, in posterior standard deviations of informed directions
DRAWS_CONVERGED = 0.15  # largest movement of the draws by the last batch, in standard deviations
COMPARED = 200  # most nodes at which draws before and after a batch are compared
LARGEST_R_HAT = 1.05  # above which a note is added
LEAST_PROBABLE = 0.01  # probability of a mode below which it is not mentioned


@dataclass(frozen=True)
class FieldOutcome:
    """Outcome of the search for the posterior of a field model."""

    result: SearchResult = UNFINISHED


def prepare_field(problem: Problem, backend: Backend, runner: Runner, seed: int) -> tuple[FieldInversion, FieldOutcome]:
    """Return the inversion of a field model, and its state before the search."""
    return FieldInversion(problem, backend, runner, seed), FieldOutcome()


def search_field(inversion: FieldInversion, _runner: Runner, _state: FieldOutcome) -> FieldOutcome:
    """Search for the posterior."""
    return FieldOutcome(inversion.search())


def field_solution(inversion: FieldInversion, _runner: Runner, state: FieldOutcome) -> tuple[Problem, Solution] | None:
    """Return the posterior and its problem; None if there is none yet."""
    return inversion.solution(state.result)


class FieldInversion:
    """Inversion with a posterior of the leading modes of the prior, coupled across latents.

    Batches of runs come from a Gaussian approximation of the posterior until a regression of the outputs is
    informative. Then they come from draws from the exact posterior of the regression, and from a wider distribution.
    """

    def __init__(self, problem: Problem, backend: Backend, runner: Runner, seed: int) -> None:
        self.problem, self.backend, self.runner, self.seed = problem, backend, runner, seed
        self.simulator, self.trace = runner.simulator, runner.trace
        runner.keep(FieldOutcome())
        # One random stream per purpose: the number of realizations must not change the posterior.
        streams = np.random.default_rng(seed).spawn(8)
        self.asking, self.points, self.slices, self.refining, self.realizations, self.predicting = streams[:6]
        self.sampling, self.picking = streams[6:]
        self.learning = FieldLearning(problem)
        self.theta = np.zeros(len(self.learning.spreads))
        self.learning_converged, self.has_learned = not self.learning, False
        self.outputs = np.empty((0, *problem.noise_std.shape))
        self.latents = np.empty((0, 0 if problem.grid is None else problem.grid.size, problem.latent_count))
        self.info: FieldInfo | None = None
        self.model = self._build(problem)
        self.state = self.model.algorithm.init()
        self.draws: FieldDraws | None = None  # of the present posterior, unless it is Gaussian
        self.drawn_moments: tuple[Floats, Floats] | None = None
        self.draws_movement = np.inf
        self.verification = Verification(np.inf, None)

    @property
    def samples_exactly(self) -> bool:
        """Whether the result are draws from the exact posterior of the regression, not a Gaussian."""
        return self.problem.inference.posterior == "sampled"

    def _build(self, problem: Problem) -> FieldModel:
        return FieldModel.build(problem, self.backend, self.missing_counts, self.points.spawn(1)[0])

    @property
    def missing_counts(self) -> NDArray[np.intp] | None:
        """Number of runs (N, P) without each output; None if no run lacks an observed output."""
        counts = np.isnan(self.outputs).sum(axis=0)
        return counts if counts[~np.isnan(self.problem.survey.Y)].any() else None

    def _update_whitening(self) -> None:
        """Whiten data and outputs again, since correlated noise with missing outputs needs another order."""
        self.model = self.model.whiten_again(self.missing_counts)
        if self.state.regression is not None:
            known = self.outputs[: len(self.state.outputs)]
            self.state = replace(self.state, outputs=self.backend.asarray(self.model.whitening(known)))

    def search(self) -> SearchResult:
        """Make batches of runs from the current posterior until it has converged or the budget is used."""
        budget = most_runs(self.problem)
        self.runner.begin(budget)
        batch = first_batch(self.model.variables, self.problem.inference.max_runs)
        if self._knows_enough():
            batch = min(batch, FEWEST_LATER)
        while self.simulator.runs < budget:
            self.run_batch(min(batch, budget - self.simulator.runs))
            batch = next_batch(self.simulator.runs)
            if self._has_converged():
                return SearchResult("the posterior has converged", converged=True)
        if self.problem.inference.max_runs is None:
            status = f"stopped at {budget} runs, since inference.max_runs is not set, before it converged"
        else:
            status = f"stopped at inference.max_runs = {budget} before the posterior converged"
        return SearchResult(status, converged=False)

    def _knows_enough(self) -> bool:
        """Update the posterior with runs of earlier inversions; return whether there were enough of them."""
        latents, outputs = earlier_fields(self.problem, self.simulator.recorder, self.seed)
        if len(latents) < FEWEST_FIELD_RUNS:
            return False
        self.outputs = outputs
        if self.learning:
            self.latents = latents
        self._update(self.state, self.model.field.coordinates(latents))
        self._draw()
        return True

    def _has_converged(self) -> bool:
        if self.info is None or not self.learning_converged or self.info.few_runs >= FEW_RUNS:
            return False
        if self.draws is None:
            return self.info.movement < CONVERGED
        # The weights of several modes vary by chance from batch to batch.
        steady = self.draws_movement < DRAWS_CONVERGED or has_several_modes(self.draws)
        return self.verification.error < VERIFIED and steady

    def run_batch(self, count: int) -> None:
        """Make one batch of runs, and update posterior and hyperparameters with it."""
        if not self.simulator.can_afford(count) or (self.state.regression is None and count < FEWEST_FIELD_RUNS):
            raise BudgetSpent(max(count, FEWEST_FIELD_RUNS))
        from_prior = self.runner.simulator.runs == 0 and self.state.regression is None
        w, near, latents, outputs = self._runs(count)
        if from_prior:
            stop_at_prior_conflict(
                self.problem, outputs, np.ones(outputs.shape[:2], dtype=bool), np.arange(self.problem.survey.size)
            )
        if self.state.regression is not None and near.any():
            self.verification = Verification.from_runs(self.model, self.state, w[near], outputs[near], self.outputs)
        self.outputs = np.concatenate([self.outputs, outputs])
        if self.learning:
            self.latents = np.concatenate([self.latents, latents])
        if self.missing_counts is not None and (self.problem.noise.correlation or self.problem.noise.correlates_sites):
            self._update_whitening()
        self._update(self.state, w)
        if self.learning and self.info is not None and self.info.few_runs < LEARNABLE:
            self._learn()
        self._draw()
        if self.info is not None:
            self.runner.record(self.info.elbo + self.model.whitening.log_scale, accepted=True)

    def _update(self, state: FieldState, w: Floats) -> None:
        """Update a state with the last n runs, at variables w (n, R)."""
        observed = self.model.whitening.observed
        never = np.argwhere(observed)[np.isnan(self.outputs[:, observed]).all(axis=0)]
        if never.size:
            raise RunsFailedError(
                f"no run gave the output that was observed at site {never[0, 0] + 1}: leave the datum empty in the "
                "table of sites if the simulator cannot give it"
            )
        outputs = self.backend.asarray(self.model.whitening(self.outputs[-len(w) :]))
        self.state, self.info = self.model.algorithm.tell(state, self.backend.asarray(w), outputs, self.slices)

    def _draw(self) -> None:
        """Draw from the present posterior, if it is informative and not Gaussian."""
        self.draws = None
        if not self.samples_exactly or self.info is None or self.info.few_runs >= LEARNABLE:
            return
        if self.model.is_gaussian(self.state):
            return
        self.draws = draw_variables(self.model, self.state, self.sampling.spawn(1)[0], SHORT)
        stride = max(self.latents.shape[1] // COMPARED, 1)
        values = self.model.field.latents(flatten(self.draws.w), nodes=slice(None, None, stride))
        old, (mean, std) = self.drawn_moments, (values.mean(axis=0), values.std(axis=0))
        self.drawn_moments = mean, std
        if old is not None:
            moved = np.mean(((mean - old[0]) / std) ** 2), np.mean(np.log(std / old[1]) ** 2)
            self.draws_movement = float(np.sqrt(max(moved)))

    def _learn(self) -> None:
        """Maximise the evidence over the hyperparameters, and update the posterior from the same runs."""
        theta = self.learning.fit(self.theta, self._hyperparameter_cost())
        self.has_learned = True
        moved = float(np.abs(theta - self.theta).max())
        self.learning_converged = moved < CONVERGED
        if moved < SAME:
            return
        old, state, self.theta = self.model.field, self.state, theta
        self.model = self._build(self.learning.problem_at(theta))
        start = self._start(self.model.field, old, state)
        self._update(start, self.model.field.coordinates(self.latents))

    def _hyperparameter_cost(self) -> Callable[[Floats], float]:
        return self.learning.negative_log_density(
            self.theta, self.model.field, self.model.algorithm, self.state, self.backend
        )

    def _start(self, field: Field, old: Field, state: FieldState) -> FieldState:
        """Return a state without runs for another basis of the latents, at the posterior of a state."""
        turn = self.backend.asarray(old.coordinates_of(field))
        mean = self.backend.asarray(field.coordinates(old.latents(to_numpy(state.linear.mean)[None]))[0])
        start = LowRankGaussian(mean, turn.T @ state.linear.precision_factor)
        return FieldState(start.dense(), start)

    def _ask(self, count: int, spread: float) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the variables (count, R) of the next runs, and which of them (count,) are from the posterior.

        If there are draws from the exact posterior, the others are from a wider distribution.
        """
        if self.draws is None:
            w = self.model.algorithm.ask(self.state, count, self.asking, spread)
            return to_numpy(w), np.ones(count, dtype=np.bool_)
        wide = round(TEMPERED_SHARE * count)
        near = pick(flatten(self.draws.w), count - wide, self.picking)
        centre = flatten(self.draws.w).mean(axis=0)
        w = np.concatenate([near, pick(self.draws.tempered, wide, self.picking)])
        return centre + spread * (w - centre), np.arange(count) < len(near)

    def _runs(self, count: int) -> tuple[Floats, NDArray[np.bool_], Floats, Floats]:
        """Run the simulator at new variables, and return the successful runs.

        If too many runs fail, samples closer to the mean are tried.

        Returns
        -------
        w : array, shape (n, R)
        near : array of bool, shape (n,)
            Runs from the posterior, not from a wider or a narrower distribution.
        latents : array, shape (n, G, Q)
        outputs : array, shape (n, N, P)
        """
        for spread in NARROWER_SPREADS:
            w, near = self._ask(count, spread)
            if not self.simulator.can_afford(count):
                break
            try:
                latents = self.model.field.latents(w)
                outputs, valid = self.simulator.run_fields(latents, f"batch-{len(self.trace) + 1}")
            except TooManyFailures:
                if self.simulator.failed == self.simulator.runs:
                    break  # all runs fail, so samples closer to the mean would fail too
                continue
            return w[valid], (near & (spread == 1.0))[valid], latents[valid], outputs[valid]
        raise self.runner.too_many_failures()

    def moments(self) -> Gaussian:
        """Return the mean and the covariance of the variables, from draws unless the posterior is Gaussian."""
        samples, _ = self._samples()
        return self._refined() if samples is None else self._gaussian_of(samples)

    def _refined(self) -> Gaussian:
        """Return the Gaussian posterior, from more steps of slice sampling unless the exact one is Gaussian."""
        return self.model.algorithm.refine(self.state, self.refining.spawn(1)[0], REFINING_STEPS).q

    def solution(self, result: SearchResult) -> tuple[Problem, Solution] | None:
        """Return the posterior and its problem; None if there is none yet."""
        info = self.info
        if info is None or self.state.regression is None:
            return None
        problem, field = self.learning.problem_at(self.theta), self.model.field
        samples, predictions = self._samples()
        few = np.diagonal(field.covariance(to_numpy(self.state.few_runs)), axis1=1, axis2=2) / field.std**2
        if samples is None:
            q = self._refined()
            mean = field.latents(to_numpy(q.mean)[None])[0]
            covariance = field.covariance(to_numpy(q.covariance))
            covariance = covariance + field.omitted_variance()[:, :, None] * np.eye(len(field.std))
            predictions = self._gaussian_predictions(q)
            draws = self._gaussian_draws(q)
        else:
            mean, covariance = samples.moments()
            draws = samples.latents[samples.thin(problem.stored_draws)]
            q = self._gaussian_of(samples)
            if field.pivots <= MOST_HELD:
                samples = replace(samples, whitened=field.whitened(problem, samples.latents))
        predicted, predicted_std = predictions.mean(axis=0), predictions.std(axis=0)
        return problem, Solution(
            mean=mean,
            covariance=covariance,
            draws=draws,
            processes=field.processes(problem, q) if field.pivots <= MOST_HELD else None,
            predicted=predicted,
            predicted_std=predicted_std,
            elbo=np.asarray([bound for bound, _ in self.trace]),
            runs=np.asarray([runs for _, runs in self.trace], dtype=np.int64),
            runs_total=self.simulator.runs,
            runs_failed=self.simulator.failed,
            seed=self.seed,
            status=result.status,
            converged=result.converged,
            diagnostics=diagnose(
                problem,
                predicted,
                predicted_std,
                np.empty(0),
                self._notes(info, samples),
                converged=result.converged,
            ),
            emulator=self.verification.report,
            few_runs_std=np.sqrt(np.maximum(few, 0.0)),
            samples=samples,
        )

    def _samples(self) -> tuple[Samples | None, Floats]:
        """Return draws from the exact posterior and their outputs (S, N, P); None if the posterior is Gaussian."""
        rng = self.sampling.spawn(1)[0]
        if not self.samples_exactly:
            return None, np.empty(0)
        if self.has_learned:
            thetas, nodes = self._nodes(rng)
            samples, predictions = to_samples(nodes, self.outputs, self.realizations.spawn(1)[0])
            drawn = np.repeat(thetas, len(samples.latents) // len(nodes), axis=0)
            hyperparameters = self.learning.parameters.describe(drawn, self.theta)
            return replace(samples, hyperparameters=hyperparameters), predictions
        if self.model.is_gaussian(self.state):
            return None, np.empty(0)
        several = self.draws is not None and has_several_modes(self.draws)
        for options in (SEVERAL_MODES,) if several else (LONG, LONGER):
            draws = draw_variables(self.model, self.state, rng, options)
            samples, predictions = to_samples(
                [Node(self.model, self.state, draws)], self.outputs, self.realizations.spawn(1)[0]
            )
            if samples.effective.min() >= FEWEST_EFFECTIVE or self.verification.error >= VERIFIED:
                break
        return samples, predictions

    def _nodes(self, rng: np.random.Generator) -> tuple[Floats, list[Node]]:
        """Draw hyperparameters (K, H) from their posterior, and the variables at each of them."""
        sampling, drawing = rng.spawn(2)
        count, nodes = GAUSSIAN_NODES if self.model.is_gaussian(self.state) else NODES, []
        thetas = self.learning.sample(self.theta, self._hyperparameter_cost(), count, sampling)
        for theta in thetas:
            problem = self.learning.problem_at(theta)
            model, state = self._with_noise_of(problem)
            prior = ChangedPrior.build(model.field, model.problem, problem, self.backend)
            nodes.append(draw_with_prior(model, state, prior, drawing.spawn(1)[0], GAUSSIAN_DRAWS // count))
        return thetas, nodes

    def _with_noise_of(self, problem: Problem) -> tuple[FieldModel, FieldState]:
        """Return the present model and state with the noise of a problem."""
        if not self.problem.noise.learn:
            return self.model, self.state
        model = self._build(replace(self.model.problem, noise=problem.noise))
        outputs = self.backend.asarray(model.whitening(self.outputs))
        start = FieldState(self.state.q, self.state.linear)
        state, _ = model.algorithm.tell(start, self.state.w, outputs, self.slices)
        return model, state

    def _gaussian_of(self, samples: Samples) -> Gaussian:
        """Return a Gaussian of the variables with the mean and covariance of draws."""
        w = self.model.field.coordinates(samples.latents)
        trust = 1.0 / (1.0 + self.model.variables / len(w))
        covariance = trust * np.cov(w.T).reshape(w.shape[1], -1) + (1.0 - trust) * to_numpy(self.state.q.covariance)
        covariance = self.backend.asarray(covariance)
        return Gaussian(self.backend.asarray(w.mean(axis=0)), covariance, cholesky(covariance))

    def _notes(self, info: FieldInfo, samples: Samples | None) -> list[str]:
        notes = self._notes_on_modes() + self._notes_on_sampling(samples)
        if info.few_runs > MOST_FROM_FEW_RUNS:
            notes.append(
                f"{info.few_runs:.0%} of the remaining variance, where the data inform the field, is due to the small "
                "number of runs: more runs would narrow the posterior."
            )
        if self.learning and not self.has_learned:
            notes.append(
                "The hyperparameters were not learnt: there are too few runs to determine how the data depend on them."
            )
        partial = int(np.isnan(self.outputs[:, self.model.whitening.observed]).any(axis=1).sum())
        if partial:
            notes.append(
                f"{partial} of {len(self.outputs)} runs gave only some of their outputs; the missing ones are "
                "estimated from the other runs, and the posterior includes the uncertainty of this estimate."
            )
        noise = np.asarray(
            [self.theta[self.learning.parameters.columns["noise", name]][0] for name in self.problem.noise.learn]
        )
        notes += noise_notes(self.problem, noise)
        return notes

    def _notes_on_sampling(self, samples: Samples | None) -> list[str]:
        if samples is None:
            return self._notes_on_shape()
        notes = []
        if self.verification.error >= VERIFIED:
            notes.append(
                f"The regression that replaces the simulator is off by {self.verification.error:.2g} posterior "
                "standard deviations at new runs: mean and spread may be wrong by as much, and more runs are needed."
            )
        if samples.r_hat.max() > LARGEST_R_HAT:
            notes.append(
                f"The draws have not converged (R-hat up to {samples.r_hat.max():.2f}): means and spreads are doubtful."
            )
        shares = np.bincount(samples.mode) / len(samples.mode)
        shares = shares[shares >= LEAST_PROBABLE]
        if len(shares) > 1:
            listed = ", ".join(f"{share:.0%}" for share in shares[:3])
            notes.append(
                f"The posterior has {len(shares)} modes, with probabilities {listed}"
                f"{' and others' if len(shares) > 3 else ''}: means and standard deviations summarise all of them; "
                "look at the draws of each mode."
            )
        if self.model.variables > MOST_VARIABLES:
            notes.append(
                f"With {self.model.variables:,} variables, other modes of the posterior were not searched for."
            )
        if len(samples.latents) < FEWEST_EFFECTIVE:
            notes.append(
                f"The grid is so large that means and spreads come from {len(samples.latents):,} draws only: they have "
                f"a relative error of about {1.0 / np.sqrt(len(samples.latents)):.0%}."
            )
        return notes

    def _notes_on_shape(self) -> list[str]:
        """Add a note if the posterior is described by a Gaussian and is not Gaussian."""
        if self.samples_exactly or self.model.is_gaussian(self.state):
            return []
        if gaussian_k_hat(self.model, self.state, self.sampling.spawn(1)[0]) <= LARGEST_K_HAT:
            return []
        return [
            "The posterior is far from Gaussian, so that intervals and draws may be wrong: inference.posterior = "
            "'sampled' draws from the exact one without more runs."
        ]

    def _notes_on_modes(self) -> list[str]:
        """Add a note if the prior has more modes than `MOST_MODES`."""
        field = self.model.field
        left = float(np.max(np.mean(field.omitted_variance() / field.std**2, axis=0)))
        most = max(part.stop - part.start for part in field.slices)
        if most < MOST_MODES or left <= 1.0 - self.problem.inference.kept_variance:
            return []
        return [
            f"{most:,} modes, the largest number allowed, omit {left:.2g} of the prior variance on the grid, more "
            "than inference.kept_variance allows: finer detail is not inferred."
        ]

    def _gaussian_predictions(self, q: Gaussian) -> Floats:
        """Compute the outputs (S, N, P) of draws from a Gaussian posterior, by the regression."""
        normals = self.predicting.spawn(1)[0].standard_normal((PREDICTED, self.model.variables))
        return self.model.predict(self.state, to_numpy(q.samples(self.backend.asarray(normals))), self.outputs)

    def _gaussian_draws(self, q: Gaussian) -> Floats:
        """Draw joint samples (R, G, Q) of the latents on the grid from a Gaussian posterior."""
        modes, rest = self.realizations.spawn(2)
        count = self.problem.stored_draws
        normals = self.backend.asarray(modes.standard_normal((count, self.model.variables)))
        return self.model.field.latents(to_numpy(q.samples(normals))) + self.model.field.draw_omitted(rest, count)


class Verification(NamedTuple):
    """Error of the regression at new runs from the posterior, before it is fitted to them.

    Attributes
    ----------
    error : float
        Root mean square error in posterior standard deviations of the directions that the data inform: in such a
        direction, one standard deviation changes the whitened data by about one standard deviation of the noise.
    report : EmulatorReport or None
        Error at each site, in standard deviations of the noise.
    """

    error: float
    report: EmulatorReport | None

    @staticmethod
    def from_runs(model: FieldModel, state: FieldState, w: Floats, outputs: Floats, known: Floats) -> Verification:
        """Compute the errors.

        Parameters
        ----------
        model : FieldModel
        state : FieldState
            State whose regression does not contain the new runs.
        w : array, shape (n, R)
            Variables of the new runs.
        outputs : array, shape (n, N, P)
            Their outputs; NaN where missing.
        known : array, shape (n', N, P)
            Outputs of the runs of the state.
        """
        squares = model.whitened_error(state, w, outputs) ** 2
        data = squares.shape[1]
        total = data * float(np.nanmean(squares)) if np.isfinite(squares).any() else np.inf
        off = (outputs - model.predict(state, w, known)) / model.problem.noise_std
        off = np.where(np.isfinite(off) & model.whitening.observed, off, np.nan)
        counts = np.isfinite(off).sum(axis=(0, 2))
        sites = np.where(counts, np.sqrt(np.nansum(off**2, axis=(0, 2)) / np.maximum(counts, 1)), np.nan)
        report = EmulatorReport("Gaussian process regression", np.nan, sites, np.zeros(len(sites), dtype=np.bool_))
        return Verification(float(np.sqrt(total / max(state.linear.informed_directions, 1.0))), report)


def flatten(w: Floats) -> Floats:
    """Return draws (n, C, R) of all chains as rows (n C, R)."""
    return w.reshape(-1, w.shape[-1])


def first_batch(variables: int, max_runs: int | None) -> int:
    """Return the number of runs of the first batch."""
    wanted = min(max(FEWEST_FIRST, variables // 2), MOST_FIRST)
    return wanted if max_runs is None else min(wanted, max(FEWEST_FIELD_RUNS, round(FIRST_SHARE * max_runs)))


def next_batch(runs: int) -> int:
    """Return the number of runs of the batch after `runs` runs."""
    return max(FEWEST_LATER, round(GROWTH * runs))
