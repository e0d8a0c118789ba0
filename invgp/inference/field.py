"""Inversion of a field model: one run takes the latents on the whole grid and returns all data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, Backend, to_numpy
from invgp.core.field.field_gaussian import Gaussian, LowRankGaussian, mirrored_normals
from invgp.core.field.field_inference import AnyRegression, FieldInference, FieldInfo, FieldState
from invgp.core.field.missing_outputs import fill_missing
from invgp.core.field.regression import Modes
from invgp.errors import RunsFailedError
from invgp.execution.simulator import Simulator, TooManyFailures
from invgp.inference.diagnostics import diagnose
from invgp.inference.earlier_runs import earlier_fields
from invgp.inference.field_learning import FieldLearning
from invgp.inference.inversion import BudgetSpent, Inversion, SearchResult
from invgp.inference.notes import noise_notes
from invgp.latent_model.data_whitening import Whitening
from invgp.latent_model.grid_modes import MOST_MODES, field_of
from invgp.latent_model.localisation import neighbourhoods
from invgp.posterior import Solution
from invgp.problem import FEWEST_FIELD_RUNS, Floats, Problem

FEWEST_FIRST, MOST_FIRST = 24, 100  # runs of the first batch
FEWEST_LATER = 16  # runs of later batches
FIRST_SHARE = 0.4  # largest part of `inference.max_runs` in the first batch
GROWTH = 0.3  # runs of the next batch, relative to all runs so far
MOST_HELD = 4000  # most inducing points of all processes in the file, which contains the square of this number
MOST_RUNS = 1000  # budget if `inference.max_runs` is not set
CONVERGED = 0.05  # largest movement of the posterior by the last batch, in standard deviations
FEW_RUNS = 0.05  # largest part of the variance that more runs would remove, at convergence
NARROWER_SPREADS = (
    1.0,
    0.5,
    0.2,
)  # factors on the spread of the samples, tried in turn if the simulator fails too often
LEARNABLE = 0.5  # part of the variance due to few runs above which hyperparameters are not learnt
SAME = 0.01  # change of all log hyperparameters below which the posterior is not updated
REFINING_STEPS = 200  # steps of slice sampling at the end
PAIRS = 64  # antithetic pairs of points for averages over the posterior
PREDICTED = 256  # samples for the predicted outputs
MOST_FROM_FEW_RUNS = 0.1  # part of the variance due to few runs above which a note is added


class FieldInversion(Inversion):
    """Inversion with a Gaussian posterior of the leading modes of the prior, coupled across latents."""

    def __init__(self, problem: Problem, backend: Backend, simulator: Simulator, seed: int) -> None:
        super().__init__(problem, backend, simulator, seed)
        # One random stream per purpose: the number of realizations must not change the posterior.
        streams = np.random.default_rng(seed).spawn(6)
        self.draws, self.points, self.sampling, self.refining, self.realizations, self.predicting = streams
        self.learning = FieldLearning(problem)
        self.theta = np.zeros(len(self.learning.spreads))
        self.learning_converged, self.has_learned = not self.learning, False
        self.outputs = np.empty((0, *problem.noise_std.shape))
        self.latents = np.empty((0, 0 if problem.grid is None else problem.grid.size, problem.latent_count))
        self.info: FieldInfo | None = None
        self._set_up(problem)
        self.state = self.algorithm.init()

    @classmethod
    def threads(cls, problem: Problem) -> int:  # noqa: ARG003 - for any size
        """Return 1: BLAS threads would slow down the many small factorisations."""
        return 1

    def _set_up(self, problem: Problem) -> None:
        """Set up modes, whitening and algorithm for a problem with current hyperparameters."""
        backend = self.backend
        self.field = field_of(problem, backend)
        self.whitened = Whitening(problem, self.missing_counts)
        sizes = [basis.size for basis in self.field.bases]
        self.variables = sum(sizes)
        groups = tuple(sum(sizes[problem.latent_slices[latent.name]]) for latent in problem.latents)
        modes = Modes(backend.namespace.concat([basis.variances for basis in self.field.bases]), groups)
        normals = backend.asarray(mirrored_normals(self.points.spawn(1)[0], PAIRS, self.variables))
        self.neighbourhoods = neighbourhoods(problem, self.field, backend)
        blocks = tuple(neighbourhood.block for neighbourhood in self.neighbourhoods)
        data, unmixing = self._data()
        self.algorithm = FieldInference(modes, data, normals, self.whitened.degrees, blocks, unmixing)

    def _data(self) -> tuple[Array, Array | None]:
        """Return the whitened data, and the matrix that whitens scaled outputs."""
        unmixing = self.whitened.unmixing
        return self.backend.asarray(self.whitened.data), None if unmixing is None else self.backend.asarray(unmixing)

    @property
    def missing_counts(self) -> NDArray[np.intp] | None:
        """Number of runs (N, P) without each output; None if no run lacks an observed output."""
        counts = np.isnan(self.outputs).sum(axis=0)
        return counts if counts[~np.isnan(self.problem.survey.Y)].any() else None

    def _update_whitening(self) -> None:
        """Whiten data and outputs again, since correlated noise with missing outputs needs another order."""
        self.whitened = Whitening(self.learning.problem_at(self.theta), self.missing_counts)
        data, unmixing = self._data()
        self.algorithm = replace(self.algorithm, y=data, unmixing=unmixing)
        if self.state.regression is not None:
            known = self.outputs[: len(self.state.outputs)]
            self.state = replace(self.state, outputs=self.backend.asarray(self.whitened(known)))

    def search(self) -> SearchResult:
        """Make batches of runs from the current posterior until it has converged or the budget is used."""
        budget = self.problem.inference.max_runs or MOST_RUNS
        self.begin(budget)
        batch = first_batch(self.variables, self.problem.inference.max_runs)
        if self._knows_enough():
            batch = min(batch, FEWEST_LATER)
        while self.simulator.runs < budget:
            self.run_batch(min(batch, budget - self.simulator.runs))
            batch = next_batch(self.simulator.runs)
            if self._has_converged():
                return SearchResult("the posterior has converged", converged=True)
        if self.problem.inference.max_runs is None:
            status = f"stopped at {MOST_RUNS} runs, since inference.max_runs is not set, before it converged"
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
        self._update(self.state, self.field.coordinates(latents))
        return True

    def _has_converged(self) -> bool:
        return (
            self.info is not None
            and self.learning_converged
            and self.info.movement < CONVERGED
            and self.info.few_runs < FEW_RUNS
        )

    def run_batch(self, count: int) -> None:
        """Make one batch of runs, and update posterior and hyperparameters with it."""
        if not self.simulator.can_afford(count) or (self.state.regression is None and count < FEWEST_FIELD_RUNS):
            raise BudgetSpent(max(count, FEWEST_FIELD_RUNS))
        w, latents, outputs = self._runs(count)
        self.outputs = np.concatenate([self.outputs, outputs])
        if self.learning:
            self.latents = np.concatenate([self.latents, latents])
        if self.missing_counts is not None and (self.problem.noise.correlation or self.problem.noise.correlates_sites):
            self._update_whitening()
        self._update(self.state, w)
        if self.learning and self.info is not None and self.info.few_runs < LEARNABLE:
            self._learn()
        if self.info is not None:
            self.record(self.info.elbo + self.whitened.log_scale, accepted=True)

    def _update(self, state: FieldState, w: Floats) -> None:
        """Update a state with the last n runs, at variables w (n, R)."""
        observed = self.whitened.observed
        never = np.argwhere(observed)[np.isnan(self.outputs[:, observed]).all(axis=0)]
        if never.size:
            raise RunsFailedError(
                f"no run gave the output that was observed at site {never[0, 0] + 1}: leave the datum empty in the "
                "table of sites if the simulator cannot give it"
            )
        outputs = self.backend.asarray(self.whitened(self.outputs[-len(w) :]))
        self.state, self.info = self.algorithm.tell(state, self.backend.asarray(w), outputs, self.sampling)

    def _learn(self) -> None:
        """Maximise the evidence over the hyperparameters, and update the posterior from the same runs."""
        theta = self.learning.fit(self.theta, self.field, self.algorithm, self.state, self.backend)
        self.has_learned = True
        moved = float(np.abs(theta - self.theta).max())
        self.learning_converged = moved < CONVERGED
        if moved < SAME:
            return
        old, state, self.theta = self.field, self.state, theta
        self._set_up(self.learning.problem_at(theta))
        turn = self.backend.asarray(old.coordinates_of(self.field))
        mean = self.backend.asarray(self.field.coordinates(old.latents(to_numpy(state.linear.mean)[None]))[0])
        start = LowRankGaussian(mean, turn.T @ state.linear.precision_factor)
        self._update(FieldState(start.dense(), start), self.field.coordinates(self.latents))

    def _runs(self, count: int) -> tuple[Floats, Floats, Floats]:
        """Run the simulator: variables (n, R), latents (n, G, Q) and outputs (n, N, P) of successful runs.

        If too many runs fail, samples closer to the mean are tried.
        """
        for spread in NARROWER_SPREADS:
            w = to_numpy(self.algorithm.ask(self.state, count, self.draws, spread))
            if not self.simulator.can_afford(count):
                break
            try:
                latents = self.field.latents(w)
                outputs, valid = self.simulator.run_fields(latents, f"batch-{len(self.trace) + 1}")
            except TooManyFailures:
                if self.simulator.failed == self.simulator.runs:
                    break  # all runs fail, so samples closer to the mean would fail too
                continue
            return w[valid], latents[valid], outputs[valid]
        allowed = self.problem.inference.max_failed_share
        raise RunsFailedError(
            self.simulator.describe_failures(f"the inversion stopped at inference.max_failed_share = {allowed:g}")
        )

    def refine(self) -> FieldState:
        """Return the current state, refined with more steps of slice sampling."""
        return self.algorithm.refine(self.state, self.refining.spawn(1)[0], REFINING_STEPS)

    def solution(self, result: SearchResult) -> tuple[Problem, Solution] | None:
        """Return the posterior and its problem; see `Inversion.solution`."""
        info = self.info
        if info is None:
            return None
        problem, field = self.learning.problem_at(self.theta), self.field
        state = self.refine()
        if state.regression is None:
            return None
        covariance = field.covariance(to_numpy(state.q.covariance))
        few = np.diagonal(field.covariance(to_numpy(state.few_runs)), axis1=1, axis2=2) / field.std**2
        covariance = covariance + field.omitted_variance()[:, :, None] * np.eye(len(field.std))
        predicted, predicted_std = self._predictions(state.q, state.regression, to_numpy(state.fitted_runs))
        return problem, Solution(
            mean=field.latents(to_numpy(state.q.mean)[None])[0],
            covariance=covariance,
            draws=self._draws(state),
            processes=self.field.processes(problem, state.q) if self.field.pivots <= MOST_HELD else None,
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
                problem, predicted, predicted_std, np.empty(0), self._notes(info), converged=result.converged
            ),
            few_runs_std=np.sqrt(np.maximum(few, 0.0)),
        )

    def _notes(self, info: FieldInfo) -> list[str]:
        notes = self._notes_on_modes()
        if info.few_runs > MOST_FROM_FEW_RUNS:
            notes.append(
                f"{info.few_runs:.0%} of the remaining variance, where the data inform the field, is due to the small "
                "number of runs: more runs would narrow the posterior."
            )
        if self.learning and not self.has_learned:
            notes.append(
                "The hyperparameters were not learnt: there are too few runs to determine how the data depend on them."
            )
        partial = int(np.isnan(self.outputs[:, self.whitened.observed]).any(axis=1).sum())
        if partial:
            notes.append(
                f"{partial} of {len(self.outputs)} runs gave only some of their outputs; the missing ones are "
                "estimated from the other runs, and the posterior includes the uncertainty of this estimate."
            )
        noise = np.asarray([self.theta[self.learning.columns["noise", name]][0] for name in self.problem.noise.learn])
        notes += noise_notes(self.problem, noise)
        return notes

    def _notes_on_modes(self) -> list[str]:
        """Add a note if the prior has more modes than `MOST_MODES`."""
        left = float(np.max(np.mean(self.field.omitted_variance() / self.field.std**2, axis=0)))
        most = max(part.stop - part.start for part in self.field.slices)
        if most < MOST_MODES or left <= 1.0 - self.problem.inference.kept_variance:
            return []
        return [
            f"{most:,} modes, the largest number allowed, omit {left:.2g} of the prior variance on the grid, more "
            "than inference.kept_variance allows: finer detail is not inferred."
        ]

    def _predictions(self, q: Gaussian, regression: AnyRegression, near: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Compute the posterior mean and standard deviation (N, P) of the outputs from the regression."""
        normals = self.backend.asarray(self.predicting.spawn(1)[0].standard_normal((PREDICTED, self.variables)))
        weights = regression.run_weights(q.samples(normals))
        everywhere = [np.arange(self.outputs.shape[1])]
        values = np.empty((PREDICTED, *self.outputs.shape[1:]))
        groups = [neighbourhood.sites for neighbourhood in self.neighbourhoods] or everywhere
        for sites, part, of_runs in zip(groups, regression.parts, weights, strict=True):
            own = self.outputs[near][:, sites]
            outputs = fill_missing(own.reshape(len(own), -1), to_numpy(part.covariance)).reshape(own.shape)
            centre = outputs.mean(axis=0)
            values[:, sites] = centre + np.tensordot(to_numpy(of_runs), outputs - centre, axes=1)
        return values.mean(axis=0), values.std(axis=0)

    def _draws(self, state: FieldState) -> Floats:
        """Draw joint samples (R, G, Q) of the latents on the grid."""
        modes, rest = self.realizations.spawn(2)
        count = self.problem.output.realizations
        normals = self.backend.asarray(modes.standard_normal((count, self.variables)))
        return self.field.latents(to_numpy(state.q.samples(normals))) + self.field.draw_omitted(rest, count)


def first_batch(variables: int, max_runs: int | None) -> int:
    """Return the number of runs of the first batch."""
    wanted = min(max(FEWEST_FIRST, variables // 2), MOST_FIRST)
    return wanted if max_runs is None else min(wanted, max(FEWEST_FIELD_RUNS, round(FIRST_SHARE * max_runs)))


def next_batch(runs: int) -> int:
    """Return the number of runs of the batch after `runs` runs."""
    return max(FEWEST_LATER, round(GROWTH * runs))
