"""State and options of the search for the posterior of a field model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, Backend, to_numpy
from invgp.core.field.field_inference import FieldInfo, FieldState
from invgp.core.field.field_sampling import FieldDraws
from invgp.inference.field_learning import FieldLearning
from invgp.inference.field_model import FieldModel, KnownOutputs
from invgp.inference.search_state import UNFINISHED, SearchResult
from invgp.posterior import EmulatorReport
from invgp.problem import FEWEST_FIELD_RUNS, Floats, Problem


@dataclass(frozen=True)
class FieldOptions:
    """Tuning of the search for the posterior of a field model.

    Attributes
    ----------
    fewest_first, most_first : int
        Fewest and most runs of the first batch.
    first_share : float
        Largest part of `inference.max_runs` in the first batch.
    fewest_later : int
        Fewest runs of later batches.
    fewest_informative : int
        Runs of the first batch and fewest of later ones, if the simulators give Jacobians or there is a coarse model.
    coarse_share : float
        Largest part of the budget of a coarse model that is used before the first runs of the fine one.
    coarse_per_fine : int
        Further runs of a coarse model with each run of the fine one.
    growth : float
        Runs of the next batch, relative to all runs so far.
    narrower_spreads : tuple of float
        Factors on the spread of the samples, tried in turn if the simulator fails too often.
    tempered_share : float
        Part of a batch of runs from a distribution that is wider than the posterior.
    converged : float
        Largest movement of the posterior by the last batch, in standard deviations, at convergence.
    few_runs : float
        Largest part of the variance that more runs would remove, at convergence, if the posterior is Gaussian.
    few_runs_of_draws : float
        The same for draws. A long tail with few draws adds much to the spread.
    verified : float
        Largest error of the regression at draws at convergence, in posterior standard deviations of informed
        directions.
    draws_converged : float
        Largest movement of the draws by the last batch, in standard deviations, at convergence.
    compared : int
        Most nodes at which draws before and after a batch are compared.
    learnable : float
        Part of the variance due to few runs above which hyperparameters are not learnt.
    same : float
        Change of all log hyperparameters below which the posterior is not updated.
    gaussian_nodes, nodes : int
        Hyperparameters from their posterior over which the posterior is averaged, if it is Gaussian and if it is not.
    refining_steps : int
        Steps of slice sampling at the end, for a Gaussian posterior.
    predicted : int
        Samples for the predicted outputs of a Gaussian posterior.
    fewest_effective : int
        Independent draws below which the chains are made longer.
    most_held : int
        Most inducing points of all processes in the file, which contains the square of this number.
    largest_k_hat : float
        Pareto k of the weights of a Gaussian posterior above which a note is added.
    most_from_few_runs : float
        Part of the variance due to few runs above which a note is added.
    largest_r_hat : float
        R-hat above which a note is added.
    least_probable : float
        Probability of a mode below which it is not mentioned.
    """

    fewest_first: int = 24
    most_first: int = 100
    first_share: float = 0.4
    fewest_later: int = 16
    fewest_informative: int = FEWEST_FIELD_RUNS
    coarse_share: float = 0.5
    coarse_per_fine: int = 8
    growth: float = 0.3
    narrower_spreads: tuple[float, ...] = (1.0, 0.5, 0.2)
    tempered_share: float = 1.0 / 3.0
    converged: float = 0.05
    few_runs: float = 0.05
    few_runs_of_draws: float = 0.02
    verified: float = 0.2
    draws_converged: float = 0.15
    compared: int = 200
    learnable: float = 0.5
    same: float = 0.01
    gaussian_nodes: int = 64
    nodes: int = 24
    refining_steps: int = 200
    predicted: int = 256
    fewest_effective: int = 1000
    most_held: int = 4000
    largest_k_hat: float = 0.7
    most_from_few_runs: float = 0.1
    largest_r_hat: float = 1.05
    least_probable: float = 0.01

    def first_batch(self, variables: int, max_runs: int | None, *, informative: bool = False) -> int:
        """Return the number of runs of the first batch; `informative` ones have Jacobians or correct a coarse model."""
        if informative:
            return self.fewest_informative
        wanted = min(max(self.fewest_first, variables // 2), self.most_first)
        return wanted if max_runs is None else min(wanted, max(FEWEST_FIELD_RUNS, round(self.first_share * max_runs)))

    def next_batch(self, runs: int, *, informative: bool = False) -> int:
        """Return the number of runs of the batch after `runs` runs."""
        return max(self.fewest_informative if informative else self.fewest_later, round(self.growth * runs))


@dataclass(frozen=True)
class FieldStreams:
    """One random stream per purpose: the number of realizations, for example, must not change the posterior.

    Attributes
    ----------
    asking : numpy.random.Generator
        Runs from the Gaussian posterior.
    points : numpy.random.Generator
        Points for averages over the posterior.
    slices, refining : numpy.random.Generator
        Slice sampling of the regression, after a batch and at the end.
    realizations : numpy.random.Generator
        Draws for the file.
    predicting : numpy.random.Generator
        Draws for the predicted outputs.
    sampling : numpy.random.Generator
        Draws from the exact posterior.
    picking : numpy.random.Generator
        Draws at which the simulator is run.
    coarse : numpy.random.Generator
        Draws at which a coarse model is run.
    """

    asking: np.random.Generator
    points: np.random.Generator
    slices: np.random.Generator
    refining: np.random.Generator
    realizations: np.random.Generator
    predicting: np.random.Generator
    sampling: np.random.Generator
    picking: np.random.Generator
    coarse: np.random.Generator

    @staticmethod
    def of(seed: int | Sequence[int]) -> FieldStreams:
        """Return the streams of a seed.

        Parameters
        ----------
        seed : int or sequence of int
            Random seed.

        Returns
        -------
        FieldStreams
        """
        return FieldStreams(*np.random.default_rng(seed).spawn(9))


@dataclass(frozen=True)
class FieldSearch:
    """Everything that is constant during the search for the posterior of a field model.

    Attributes
    ----------
    problem : Problem
    backend : Backend
        Array library and device.
    seed : int
        Random seed.
    streams : FieldStreams
        Random streams of the seed.
    learning : FieldLearning
        Learnt hyperparameters.
    options : FieldOptions
    """

    problem: Problem
    backend: Backend
    seed: int
    streams: FieldStreams
    learning: FieldLearning
    options: FieldOptions

    @property
    def samples_exactly(self) -> bool:
        """Whether the result are draws from the exact posterior of the regression, not a Gaussian."""
        return self.problem.inference.posterior == "sampled"

    def missing_counts(self, outputs: Floats) -> NDArray[np.intp] | None:
        """Count the runs without each output (N, P); None if no run lacks an observed output.

        Parameters
        ----------
        outputs : array, shape (n, N, P)
            Outputs of all runs; NaN where missing.
        """
        counts = np.isnan(outputs).sum(axis=0)
        return counts if counts[~np.isnan(self.problem.survey.Y)].any() else None

    def build(self, problem: Problem, outputs: Floats) -> FieldModel:
        """Build the model of a problem with other hyperparameters, given the outputs (n, N, P) of all runs."""
        return FieldModel.build(problem, self.backend, self.missing_counts(outputs), self.streams.points.spawn(1)[0])


@dataclass(frozen=True)
class Verification:
    """Error of the regression at new runs from the posterior, before it is fitted to them.

    Attributes
    ----------
    error : float
        Root mean square error in posterior standard deviations of the directions that the data inform: in such a
        direction, one standard deviation changes the whitened data by about one standard deviation of the noise.
    report : EmulatorReport or None
        Error at each site, in standard deviations of the noise.
    """

    error: float = np.inf
    report: EmulatorReport | None = None

    @staticmethod
    def from_runs(
        model: FieldModel,
        state: FieldState,
        w: Floats,
        outputs: Floats,
        known: KnownOutputs,
    ) -> Verification:
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
        known : KnownOutputs
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


@dataclass(frozen=True)
class DrawnPosterior:
    """Draws from the exact posterior of the regression after a batch, and how far the batch moved them.

    Attributes
    ----------
    draws : FieldDraws
    mean, std : array
        Moments of the draws at some nodes.
    few_runs : float
        Fraction of the variance of the predicted data that is due to the uncertainty of the regression at the draws.
    movement : float
        Movement since the batch before, in standard deviations; infinite for the first draws.
    same_modes : bool
        Whether there are several modes, all of which the draws before had too. Their weights vary by chance from batch
        to batch, so that the movement says little.
    """

    draws: FieldDraws
    mean: Floats
    std: Floats
    few_runs: float
    movement: float = np.inf
    same_modes: bool = False


@dataclass(frozen=True)
class CoarseRuns:
    """Runs of a coarse model.

    Attributes
    ----------
    w : array, shape (n, R)
        Variables.
    latents : array, shape (n, G, Q)
        Latents on the grid, if hyperparameters are learnt; otherwise empty.
    outputs : array, shape (n, N, P)
    """

    w: Floats
    latents: Floats
    outputs: Floats

    def append(self, w: Floats, latents: Floats, outputs: Floats) -> CoarseRuns:
        """Return these runs and others."""
        pairs = (self.w, w), (self.latents, latents), (self.outputs, outputs)
        return CoarseRuns(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class FieldSearchState:
    """Everything that a search has found so far. Each part of the search takes a state and returns a new one.

    Attributes
    ----------
    model : FieldModel
        Model at the present hyperparameters.
    inference : FieldState
        State of its inference.
    theta : array, shape (H,)
        Learnt hyperparameters.
    latents : array, shape (n, G, Q)
        Latents on the grid of all valid runs, if hyperparameters are learnt; otherwise empty.
    outputs : array, shape (n, N, P)
        Outputs of these runs; NaN where missing.
    slopes : array, shape (n, N, P, R), or None
        Derivatives of these outputs by the variables, if the simulators give Jacobians.
    info : FieldInfo or None
        Result of the last batch; None before the first.
    has_learned : bool
        Whether the hyperparameters were learnt.
    learning_converged : bool
        Whether the last batch hardly changed the hyperparameters, or none are learnt.
    drawn : DrawnPosterior or None
        Draws from the present posterior; None if it is Gaussian, or not yet informative.
    last_drawn : DrawnPosterior or None
        The latest draws, maybe of an earlier batch.
    verification : Verification
    result : SearchResult
    coarse : CoarseRuns or None
        Runs of a coarse model, if it is used.
    coarse_failure : str
        Why a coarse model is not used.
    """

    model: FieldModel
    inference: FieldState
    theta: Floats
    latents: Floats
    outputs: Floats
    slopes: Floats | None = None
    info: FieldInfo | None = None
    has_learned: bool = False
    learning_converged: bool = False
    drawn: DrawnPosterior | None = None
    last_drawn: DrawnPosterior | None = None
    verification: Verification = Verification()
    result: SearchResult = UNFINISHED
    coarse: CoarseRuns | None = None
    coarse_failure: str = ""

    @property
    def few_runs(self) -> float | None:
        """Fraction of the variance, where the data inform it, that is due to the small number of runs.

        It refers to the draws, if there are any: a Gaussian extends beyond a curved posterior. None before the first
        runs.
        """
        if self.drawn is not None:
            return self.drawn.few_runs
        return None if self.info is None else self.info.few_runs

    @property
    def known(self) -> KnownOutputs:
        """The outputs of all runs."""
        return KnownOutputs(self.outputs, self.slopes, None if self.coarse is None else self.coarse.outputs)

    @property
    def variables(self) -> Floats:
        """Variables (n, R) of all runs."""
        return to_numpy(self.inference.w)

    def whitened_coarse_runs(self) -> tuple[Array, Array] | None:
        """Return variables (n, R) and whitened outputs (n, D) of the runs of the coarse model; None without it."""
        if self.coarse is None:
            return None
        both = self.coarse.w, self.model.whitening(self.coarse.outputs)
        return self.model.backend.asarray(both[0]), self.model.backend.asarray(both[1])

    def moments(self) -> tuple[Floats, Floats]:
        """Return mean (G, Q) and covariance (G, Q, Q) of the latent processes at each node, of the Gaussian."""
        field, q = self.model.field, self.inference.q
        omitted = field.omitted_variance()[:, :, None] * np.eye(len(field.std))
        return field.latents(to_numpy(q.mean)[None])[0], field.covariance(to_numpy(q.covariance)) + omitted
