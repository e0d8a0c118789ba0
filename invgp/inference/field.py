"""The posterior of a field model, of which one run takes the latents on the whole grid and returns all data."""

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
from invgp.execution.simulator import Simulator, TooManyFailed
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
FEWEST_LATER = 16
FIRST_SHARE = 0.4  # of the budget
GROWTH = 0.3  # of the runs so far, that the next batch adds
MOST_HELD = 4000  # numbers of a process that predict anywhere, over all processes: their square is in the file
MOST_RUNS = 1000  # where the config sets no limit
CONVERGED = 0.05  # standard deviations that a batch of runs still moves the posterior
FEW_RUNS = 0.05  # of the variance, that more runs would take away
NARROWER = (1.0, 0.5, 0.2)  # spreads of the draws, where the simulator fails too often
LEARNABLE = 0.5  # of the variance that comes from few runs: above, the runs say too little of hyperparameters
SAME = 0.01  # change of a logarithm that is no change
REFINING_STEPS = 200  # of slice sampling, at the end
PAIRS = 64  # of points for averages
PREDICTED = 256  # samples
MOST_OPEN = 0.1  # of the variance that comes from few runs, before the person is told


class FieldInversion(Inversion):
    """A Gaussian over the leading modes of the prior, coupled across latents."""

    def __init__(self, problem: Problem, backend: Backend, simulator: Simulator, seed: int) -> None:
        super().__init__(problem, backend, simulator, seed)
        # One stream for each purpose: drawing more realizations must not change the posterior.
        streams = np.random.default_rng(seed).spawn(6)
        self.draws, self.points, self.sampling, self.refining, self.realizations, self.predicting = streams
        self.learning = FieldLearning(problem)
        self.theta = np.zeros(len(self.learning.spreads))
        self.learnt, self.asked = not self.learning, False
        self.outputs = np.empty((0, *problem.noise_std.shape))
        self.latents = np.empty((0, 0 if problem.grid is None else problem.grid.size, problem.latent_count))
        self.info: FieldInfo | None = None
        self._set_up(problem)
        self.state = self.algorithm.init()

    @classmethod
    def threads(cls, problem: Problem) -> int:  # noqa: ARG003 - of whatever size
        """One: the many small factorisations between products would have BLAS threads wait for each other."""
        return 1

    def _set_up(self, problem: Problem) -> None:
        """The algorithm for a problem with these hyperparameters."""
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
        """Data with independent noise, and what makes that of outputs so."""
        unmixing = self.whitened.unmixing
        return self.backend.asarray(self.whitened.data), None if unmixing is None else self.backend.asarray(unmixing)

    @property
    def missing_counts(self) -> NDArray[np.intp] | None:
        """How many runs lack each output, (N, P); None if they lack none that was observed."""
        counts = np.isnan(self.outputs).sum(axis=0)
        return counts if counts[~np.isnan(self.problem.survey.Y)].any() else None

    def _update_whitening(self) -> None:
        """Correlated noise of data is made independent in another way once runs lack outputs."""
        self.whitened = Whitening(self.learning.problem_at(self.theta), self.missing_counts)
        data, unmixing = self._data()
        self.algorithm = replace(self.algorithm, y=data, unmixing=unmixing)
        if self.state.regression is not None:
            known = self.outputs[: len(self.state.outputs)]
            self.state = replace(self.state, outputs=self.backend.asarray(self.whitened(known)))

    def search(self) -> SearchResult:
        """Batches of runs from the posterior so far, until neither they nor more of them would move it."""
        budget = self.problem.inference.max_runs or MOST_RUNS
        self.begin(budget)
        batch = first_batch(self.variables, self.problem.inference.max_runs)
        if self._knows_enough():
            batch = min(batch, FEWEST_LATER)
        while self.simulator.runs < budget:
            self.take(min(batch, budget - self.simulator.runs))
            batch = next_batch(self.simulator.runs)
            if self._has_converged():
                return SearchResult("the posterior has converged", converged=True)
        if self.problem.inference.max_runs is None:
            status = f"stopped at {MOST_RUNS} runs, since inference.max_runs is not set, before it converged"
        else:
            status = f"stopped at inference.max_runs = {budget} before the posterior converged"
        return SearchResult(status, converged=False)

    def _knows_enough(self) -> bool:
        """Whether runs of earlier inversions do for a first posterior; if so, they have told it."""
        latents, outputs = earlier_fields(self.problem, self.simulator.recorder, self.seed)
        if len(latents) < FEWEST_FIELD_RUNS:
            return False
        self.outputs = outputs
        if self.learning:
            self.latents = latents
        self._tell(self.state, self.field.coordinates(latents))
        return True

    def _has_converged(self) -> bool:
        return (
            self.info is not None and self.learnt and self.info.movement < CONVERGED and self.info.few_runs < FEW_RUNS
        )

    def take(self, count: int) -> None:
        """One batch of runs, and what it tells."""
        if not self.simulator.affords(count) or (self.state.regression is None and count < FEWEST_FIELD_RUNS):
            raise BudgetSpent(max(count, FEWEST_FIELD_RUNS))
        w, latents, outputs = self._runs(count)
        self.outputs = np.concatenate([self.outputs, outputs])
        if self.learning:
            self.latents = np.concatenate([self.latents, latents])
        if self.missing_counts is not None and (self.problem.noise.correlation or self.problem.noise.joins_sites):
            self._update_whitening()
        self._tell(self.state, w)
        if self.learning and self.info is not None and self.info.few_runs < LEARNABLE:
            self._learn()
        if self.info is not None:
            self.record(self.info.elbo + self.whitened.log_scale, accepted=True)

    def _tell(self, state: FieldState, w: Floats) -> None:
        """What runs at w (n, R) tell a state: the last n of all."""
        observed = self.whitened.observed
        never = np.argwhere(observed)[np.isnan(self.outputs[:, observed]).all(axis=0)]
        if never.size:
            raise RunsFailedError(
                f"no run gave the output that was observed at site {never[0, 0] + 1}: leave the datum empty in the "
                "table of sites if the simulator cannot give it"
            )
        told = self.backend.asarray(w), self.backend.asarray(self.whitened(self.outputs[-len(w) :]))
        self.state, self.info = self.algorithm.tell(state, *told, self.sampling)

    def _learn(self) -> None:
        """Hyperparameters by the evidence, and the posterior under them from the same runs."""
        theta = self.learning.fit(self.theta, self.field, self.algorithm, self.state, self.backend)
        self.asked = True
        moved = float(np.abs(theta - self.theta).max())
        self.learnt = moved < CONVERGED
        if moved < SAME:
            return
        old, state, self.theta = self.field, self.state, theta
        self._set_up(self.learning.problem_at(theta))
        turn = self.backend.asarray(old.coordinates_of(self.field))
        mean = self.backend.asarray(self.field.coordinates(old.latents(to_numpy(state.linear.mean)[None]))[0])
        start = LowRankGaussian(mean, turn.T @ state.linear.precision_factor)
        self._tell(FieldState(start.dense(), start), self.field.coordinates(self.latents))

    def _runs(self, count: int) -> tuple[Floats, Floats, Floats]:
        """Variables (n, R), latents (n, G, Q) and outputs (n, N, P) of runs that went well.

        Where too many do not, they are nearer to the mean.
        """
        for spread in NARROWER:
            w = to_numpy(self.algorithm.ask(self.state, count, self.draws, spread))
            if not self.simulator.affords(count):
                break
            try:
                latents = self.field.latents(w)
                outputs, valid = self.simulator.run_fields(latents, f"batch-{len(self.trace) + 1}")
            except TooManyFailed:
                if self.simulator.failed == self.simulator.runs:
                    break  # everywhere, and so it would nearer to the mean
                continue
            return w[valid], latents[valid], outputs[valid]
        allowed = self.problem.inference.max_failed_share
        raise RunsFailedError(
            self.simulator.failures(f"the inversion stopped at inference.max_failed_share = {allowed:g}")
        )

    def refine(self) -> FieldState:
        """Where the inference stands, with more steps of slice sampling."""
        return self.algorithm.refine(self.state, self.refining.spawn(1)[0], REFINING_STEPS)

    def solution(self, result: SearchResult) -> tuple[Problem, Solution] | None:
        """The best posterior so far with the problem that it solves, or None if there is none."""
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
        if info.few_runs > MOST_OPEN:
            notes.append(
                f"{info.few_runs:.0%} of the variance that is left where the data inform the field comes from having "
                "few runs: more runs would narrow the posterior."
            )
        if self.learning and not self.asked:
            notes.append(
                "Nothing was learnt of the hyperparameters: the runs are too few to say how data depend on them."
            )
        partial = int(np.isnan(self.outputs[:, self.whitened.observed]).any(axis=1).sum())
        if partial:
            notes.append(
                f"{partial} of {len(self.outputs)} runs gave only some of their outputs; what they lack is known from "
                "the other runs, and as far as it is not, the posterior is wider."
            )
        noise = np.asarray([self.theta[self.learning.columns["noise", name]][0] for name in self.problem.noise.learn])
        notes += noise_notes(self.problem, noise)
        return notes

    def _notes_on_modes(self) -> list[str]:
        """Whether the prior has more modes than there may be."""
        left = float(np.max(np.mean(self.field.omitted_variance() / self.field.std**2, axis=0)))
        most = max(part.stop - part.start for part in self.field.slices)
        if most < MOST_MODES or left <= 1.0 - self.problem.inference.kept_variance:
            return []
        return [
            f"{most:,} modes, the most there may be, leave {left:.2g} of the prior's variance on the grid open, more "
            "than inference.kept_variance asks for: of finer detail nothing is learnt."
        ]

    def _predictions(self, q: Gaussian, regression: AnyRegression, near: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Mean and standard deviation (N, P) of the outputs over the posterior, as the regression has them."""
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
        """Joint draws (R, G, Q) of the latents on the grid."""
        modes, rest = self.realizations.spawn(2)
        count = self.problem.output.realizations
        normals = self.backend.asarray(modes.standard_normal((count, self.variables)))
        return self.field.latents(to_numpy(state.q.samples(normals))) + self.field.draw_omitted(rest, count)


def first_batch(variables: int, max_runs: int | None) -> int:
    """Runs of the first batch."""
    wanted = min(max(FEWEST_FIRST, variables // 2), MOST_FIRST)
    return wanted if max_runs is None else min(wanted, max(FEWEST_FIELD_RUNS, round(FIRST_SHARE * max_runs)))


def next_batch(runs: int) -> int:
    """Runs of the batch that follows after so many."""
    return max(FEWEST_LATER, round(GROWTH * runs))
