"""Selection of an emulator by cross-validation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from invgp.emulation.emulator import Emulator, Surface
from invgp.emulation.emulator_inputs import Inputs
from invgp.emulation.hermite_basis import Basis, bases
from invgp.emulation.local_polynomials import RUNS_PER_FEATURE as LOCAL_RUNS_PER_FEATURE
from invgp.emulation.local_polynomials import fit_local
from invgp.emulation.log_polynomial import LOWEST, fit_logs
from invgp.emulation.neighbours import Neighbours
from invgp.emulation.piecewise import fit_pieces
from invgp.emulation.polynomial import Polynomial, fit_polynomial
from invgp.emulation.residual_process import ROUGH, SMOOTH, add_process
from invgp.emulation.success_model import fit_success
from invgp.emulation.training_runs import Integers, Runs
from invgp.problem import Floats, Problem

RUNS_PER_FEATURE = 1.3  # fewest runs per coefficient of a polynomial
USUAL_DEGREE = 4  # of polynomials; larger ones vary strongly between the outermost runs, and must be better there too
RUNS_PER_HIGH_FEATURE = 2.0  # fewest runs per coefficient of a polynomial of a higher degree
MOST_FEATURES = 640  # most coefficients of a polynomial
HIGHEST_DEGREE = 8  # of a polynomial
MOST_FAILURES = 4  # successively larger polynomials without a smaller error after which no larger one is fitted
ENOUGH_RUNS, ENOUGH_RUNS_PER_FEATURE = 4000, 20  # most runs of a fit: more cost time and hardly change it
MOST_PROCESS_RUNS = 800  # runs of a Gaussian process; the cost of its fit grows with their cube
MOST_PROCESS_PAIRS = 1_000_000  # runs times sites of a Gaussian process; limits the cost of a prediction
MOST_LOCAL_WORK = 10**9  # sites times the cube of the coefficients of local polynomials: a few seconds
FEWEST_TEST_RUNS = 50  # fewest runs on which candidates are compared
FOLDS = 200  # of the cross-validation
FEWEST_SITES = 20  # with fewer sites, folds consist of runs instead of sites
SMALL = 0.1  # error in noise standard deviations below which only polynomials are fitted
NEGLIGIBLE = 0.01  # error in noise standard deviations below which no larger polynomial is fitted, unless stated
LARGEST_SAMPLED = 10.0  # the same limit for emulators that are sampled
ROUNDING = 1e-6  # loss in noise standard deviations below which the errors of candidates are rounding
MOST_LOG_DEGREE, MOST_LOG_STAGES = 6, 4  # as below, of exponentials of polynomials
MOST_PIECE_DEGREE = 6  # of the pieces of piecewise polynomials
MOST_PIECE_STAGES = 4  # choices of the first stage of the runs of piecewise polynomials
MOST_PIECE_RUNS = 1500  # runs of a piecewise polynomial, to limit time
FAR = 5.0  # noise standard deviations from the datum beyond which errors count less, in inverse proportion
CONSISTENT = 4.0  # distance of a sum of squared residuals from its mean, in standard deviations, that fits the data
PLAUSIBLE = 4.0  # prior standard deviations up to which the inputs of a run are plausible
HOPELESS = 1.0  # noise standard deviations: larger errors count as this value, since the emulator is not used there


def fit_emulator(
    problem: Problem,
    runs: Runs,
    *,
    noise_std: Floats,
    rng: np.random.Generator,
    everywhere: bool = False,
    wanted: float = NEGLIGIBLE,
) -> Emulator | None:
    """Fit several regressions and return the one with the smallest error on the latest runs.

    If the emulator will be sampled, older runs that fit the data of their site count like the latest ones: a regression
    that contradicts such a run excludes a part of the posterior.

    The candidates are polynomials of degree 1 to 8, fitted to all runs or to the runs of the last stages. If the error
    of the best is not small, local polynomials, maxima and minima of polynomials, exponentials of polynomials, and the
    best polynomial plus a Gaussian process are fitted too. All errors are cross-validation errors. A fold consists of
    whole sites, because the runs of one site may be similar (with few sites, of single runs). The runs of a stage
    should be drawn independently for each site: the runs of a smooth field lie on a curve and contain little
    information away from it.

    Parameters
    ----------
    problem : Problem
    runs : Runs
        All runs so far.
    noise_std : array, shape (N, P), in the units of the observations
        Standard deviation of the noise.
    rng : numpy.random.Generator
        Selects the folds, and the runs of a fit if there are more than enough.
    everywhere : bool
        Whether to compare the errors on all runs instead of the latest.
    wanted : float, in noise standard deviations
        Error at which no larger polynomial is fitted.

    Returns
    -------
    Emulator or None
        None if an output has too few runs for a linear function of the inputs.
    """
    inputs, unit, discrepancy = Inputs.of(problem), _median_over_sites(noise_std), problem.discrepancy_map
    simulated = runs.outputs if discrepancy is None else runs.outputs - runs.latents @ discrepancy
    y = np.where(np.isfinite(simulated), simulated, np.nan) / unit
    trial = _EmulatorSelection(
        runs, inputs.rows(runs.latents, runs.sites), y, problem.survey.X, rng, everywhere=everywhere
    )
    trial.wanted = wanted
    trial.sampled = problem.inference.posterior == "sampled"
    if trial.sampled:
        trial.residuals = (problem.survey.Y[runs.sites] - runs.outputs) / noise_std[runs.sites]
        trial.relevance = _relevance(trial.residuals)
        trial.plausible = np.abs(trial.x).max(axis=1) <= PLAUSIBLE
        trial.in_noise = unit / noise_std[runs.sites]
        trial.compared = trial.test_runs | (_are_small(trial.residuals) & trial.plausible)
    with threadpool_limits(1):  # the matrices are small
        best = trial.best()
    if best is None:
        return None
    return Emulator(
        surface=best.surface,
        inputs=inputs,
        runs=runs,
        errors=best.errors,
        unit=unit,
        noise=np.where(np.isfinite(problem.survey.Y), noise_std / unit, np.inf),
        name=best.name,
        error=trial.test_error(best),
        neighbours=trial.neighbours,
        discrepancy=discrepancy,
        success=fit_success(trial.x, runs.has_output),
        relevance=trial.relevance,
    )


@dataclass(frozen=True)
class _CandidateFit:
    """A fitted candidate.

    Parameters
    ----------
    surface : Surface
    errors : array, shape (R, P)
        Cross-validation errors.
    loss : float
        Root mean square of the clipped errors on the test runs.
    name : str
    polynomial : Polynomial or None
        The polynomial, if the surface is one; None for other surfaces.
    stage : int
        First stage of the runs that the polynomial was fitted to.
    """

    surface: Surface
    errors: Floats
    loss: float
    name: str
    polynomial: Polynomial | None = None
    stage: int = 0


class _EmulatorSelection:
    """Fits of all candidates to the same runs, compared by their errors on the latest runs.

    Parameters
    ----------
    runs : Runs
    x, y : arrays, shape (R, I) and (R, P)
        Inputs and outputs of the runs.
    X : array, shape (N, D)
        Coordinates of the sites.
    rng : numpy.random.Generator
    everywhere : bool
        Whether candidates are compared on all runs instead of the latest.

    Attributes
    ----------
    sampled : bool
        Whether the emulator will be sampled: draws go wherever it allows them, so that large errors count.
    wanted : float, in noise standard deviations
        Loss at which no larger polynomial is fitted.
    test_runs, compared : array of bool, shape (R,)
        Latest runs, which show the error of the emulator; and runs on which candidates are compared.
    relevance : array, shape (R, P)
        Factors on the errors in comparisons.
    residuals : array, shape (R, P), or None
        Data minus outputs of the runs, in noise standard deviations; None if only `compared` counts.
    plausible : array of bool, shape (R,)
        Runs whose inputs are not far from the prior mean.
    in_noise : array, shape (R, P), or float
        Factors that convert outputs to noise standard deviations of the site of each run.
    """

    def __init__(
        self, runs: Runs, x: Floats, y: Floats, X: Floats, rng: np.random.Generator, *, everywhere: bool = False
    ) -> None:
        self.runs, self.x, self.y, self.X, self.rng = runs, x, y, X, rng
        self.sampled, self.wanted = False, NEGLIGIBLE
        self.test_runs = np.ones(len(runs), dtype=bool) if everywhere else runs.latest(FEWEST_TEST_RUNS)
        self.compared = self.test_runs
        self.relevance = np.ones_like(y)
        self.residuals: Floats | None = None
        self.plausible = np.ones(len(runs), dtype=bool)
        self.in_noise: Floats | float = 1.0
        self.folds = _folds(runs.sites, rng)
        self.order = rng.permutation(len(runs))

    def best(self) -> _CandidateFit | None:
        """Return the candidate with the smallest loss; None if no polynomial can be fitted."""
        best = self._best_polynomial()
        if best is None or best.loss <= SMALL:
            return best
        linear = None
        if self.sampled:  # draws go outside the runs, where a linear function and a process extrapolate more sensibly
            linear = self._fit_polynomial(Basis(self.x.shape[1], 1, 1), int(self.runs.stage.min()))
        return _lowest_loss(
            [
                best,
                self._fit_process(best, ROUGH),
                None if linear is None else self._fit_process(linear, SMOOTH),
                self._best_logs(best),
                *(self._fit_pieces(best, stage) for stage in _first_stages(self.runs.stage)[-MOST_PIECE_STAGES:]),
                *(self._fit_local(degree) for degree in (1, 2)),
            ]
        )

    def _best_polynomial(self) -> _CandidateFit | None:
        best: _CandidateFit | None = None
        failures = 0
        for basis in bases(self.x.shape[1], MOST_FEATURES, HIGHEST_DEGREE):
            fits = [self._fit_polynomial(basis, stage) for stage in _first_stages(self.runs.stage)]
            if basis.degree > USUAL_DEGREE and best is not None:
                fits = [fit for fit in fits if fit and self.test_error(fit) < self.test_error(best)]
            before, best = best, _lowest_loss([best, *fits])
            failures = failures + 1 if best is before else 0
            if best is None or best.loss <= self.wanted or failures == MOST_FAILURES:
                break
        return best

    def _fit_polynomial(self, basis: Basis, stage: int) -> _CandidateFit | None:
        candidates = self.order[(self.runs.has_output & self.runs.since(stage))[self.order]]
        used = candidates[: max(ENOUGH_RUNS, ENOUGH_RUNS_PER_FEATURE * len(basis))]
        each = RUNS_PER_FEATURE if basis.degree <= USUAL_DEGREE else RUNS_PER_HIGH_FEATURE
        if np.isfinite(self.y[used]).sum(axis=0).min() < each * len(basis):
            return None
        surface, left_out = fit_polynomial(basis, self.x[used], self.y[used], self.folds[used])
        errors = self.y - surface(self.x, self.runs.sites)
        errors[used] = left_out
        return _CandidateFit(
            surface, errors, self._loss(errors), surface.name + self._describe_stages(stage), surface, stage
        )

    def _fit_process(self, fit: _CandidateFit, smoothness: float) -> _CandidateFit | None:
        """Add a Gaussian process to a polynomial, for outputs with large errors, fitted to the newest of its runs."""
        candidates = self.order[(self.complete & self.runs.since(fit.stage))[self.order]]
        used = candidates[np.argsort(-self.runs.stage[candidates], kind="stable")]
        used = used[: min(MOST_PROCESS_RUNS, MOST_PROCESS_PAIRS // len(self.X))]
        if fit.polynomial is None or len(used) < RUNS_PER_FEATURE * len(fit.polynomial.basis):
            return None
        outputs = np.flatnonzero([_root_mean_square(errors) > SMALL for errors in fit.errors[used].T])
        if not len(outputs):
            return None
        surface, left_out = add_process(
            fit.polynomial,
            self.x[used],
            self.y[used],
            fit.errors[used],
            self.folds[used],
            outputs,
            self.rng,
            smoothness,
        )
        errors = fit.errors.copy()
        errors[:, outputs] = (self.y - surface(self.x, self.runs.sites))[:, outputs]
        errors[used] = left_out
        return _CandidateFit(surface, errors, self._loss(errors), surface.name + self._describe_stages(fit.stage))

    def _best_logs(self, fit: _CandidateFit) -> _CandidateFit | None:
        """Replace a polynomial by the best exponential of a polynomial at outputs that it describes better."""
        best: _CandidateFit | None = None
        if not self.sampled or fit.polynomial is None:
            return None
        candidates = bases(self.x.shape[1], MOST_FEATURES, MOST_LOG_DEGREE)
        for stage, lowest in product(_first_stages(self.runs.stage)[-MOST_LOG_STAGES:], LOWEST):
            used = self.order[(self.complete & self.runs.since(stage))[self.order]][:ENOUGH_RUNS]
            failures = 0
            for basis in candidates:
                if len(used) < RUNS_PER_FEATURE * len(basis) or failures == MOST_FAILURES:
                    break
                before, best = best, _lowest_loss([best, self._fit_logs(fit, basis, used, stage, lowest)])
                failures = failures + 1 if best is before else 0
        return best

    def _fit_logs(
        self, fit: _CandidateFit, basis: Basis, used: Integers, stage: int, lowest: float
    ) -> _CandidateFit | None:
        if fit.polynomial is None:
            return None
        data = self.x[used], self.y[used], fit.errors[used], self.folds[used]
        found = fit_logs(fit.polynomial, basis, *data, LARGEST_SAMPLED, lowest)
        if found is None:
            return None
        surface, left_out = found
        errors = fit.errors.copy()
        errors[:, surface.outputs] = (self.y - surface(self.x, self.runs.sites))[:, surface.outputs]
        errors[used] = left_out
        name = surface.name + self._describe_stages(stage)
        return _CandidateFit(surface, errors, self._loss(errors), name, None, stage)

    def _fit_pieces(self, fit: _CandidateFit, stage: int) -> _CandidateFit | None:
        """Replace a polynomial by piecewise polynomials, fitted to the runs from a stage on, at outputs with errors."""
        used = self.order[(self.complete & self.runs.since(stage))[self.order]][:MOST_PIECE_RUNS]
        if not self.sampled or fit.polynomial is None or not len(used):
            return None
        outputs = np.flatnonzero([_root_mean_square(errors) > SMALL for errors in fit.errors[used].T])
        found = fit_pieces(
            fit.polynomial,
            bases(self.x.shape[1], MOST_FEATURES, MOST_PIECE_DEGREE),
            self.x[used],
            self.y[used],
            fit.errors[used],
            self.folds[used],
            outputs,
        )
        if found is None:
            return None
        surface, left_out = found
        replaced = [each.output for each in surface.folds]
        errors = fit.errors.copy()
        errors[:, replaced] = (self.y - surface(self.x, self.runs.sites))[:, replaced]
        errors[used] = left_out
        return _CandidateFit(
            surface, errors, self._loss(errors), surface.name + self._describe_stages(stage), None, stage
        )

    def _fit_local(self, degree: int) -> _CandidateFit | None:
        basis = Basis(self.x.shape[1], degree, degree)
        neighbours = Neighbours.of(self.runs, self.x, self.complete, self.X)
        too_slow = len(self.X) * len(basis) ** 3 > MOST_LOCAL_WORK
        if too_slow or len(neighbours.numbers) < LOCAL_RUNS_PER_FEATURE * len(basis):
            return None
        surface, errors = fit_local(basis, self.y, self.runs, self.folds, neighbours)
        return _CandidateFit(surface, errors, self._loss(errors), surface.name)

    @cached_property
    def complete(self) -> NDArray[np.bool_]:
        """Mask (R,) of the runs with all outputs."""
        return np.asarray(np.isfinite(self.y).all(axis=1))

    @cached_property
    def neighbours(self) -> Neighbours:
        """Neighbours of each site among the test runs."""
        return Neighbours.of(self.runs, self.x, self.test_runs, self.X)

    def test_error(self, fit: _CandidateFit) -> float:
        """Return the root mean square of the errors of a fit over the test runs, none of them clipped."""
        return _root_mean_square((self.relevance * fit.errors)[self.test_runs])

    def _loss(self, errors: Floats) -> float:
        """Return the root mean square of the errors over the compared runs, each error clipped to a largest one."""
        largest = LARGEST_SAMPLED if self.sampled else HOPELESS
        compared = self.compared
        if self.residuals is not None:  # also runs that the candidate takes for a part of the posterior
            compared = compared | (self.plausible & _are_small(self.residuals + self.in_noise * errors))
        return _root_mean_square(np.clip((self.relevance * errors)[compared], -largest, largest))

    def _describe_stages(self, stage: int) -> str:
        stages = np.unique(self.runs.stage)
        count = np.count_nonzero(stages >= stage)
        if count == len(stages):
            return ""
        return " of the last stage" if count == 1 else f" of the last {count} stages"


def _lowest_loss(fits: Iterable[_CandidateFit | None]) -> _CandidateFit | None:
    """Return the fit with the smallest loss; of those that differ by rounding only, the one to the most stages."""
    return min((fit for fit in fits if fit), key=lambda fit: (max(fit.loss, ROUNDING), fit.stage), default=None)


def _root_mean_square(errors: Floats) -> float:
    return float(np.sqrt(np.nanmean(errors**2)))


def _median_over_sites(noise_std: Floats) -> Floats:
    """Median (P,) of the noise over the sites; 1 for an output whose noise is not known at any site."""
    known = np.isfinite(noise_std).any(axis=0)
    return np.where(known, np.nanmedian(np.where(known, noise_std, 1.0), axis=0), 1.0)


def _first_stages(stage: Integers) -> list[int]:
    """Return the first of the last 1, 2, 4, 8, ... stages, and the first of all stages."""
    stages = np.unique(stage)[::-1]
    counts = [2**k for k in range(len(stages).bit_length()) if 2**k < len(stages)]
    return [int(stages[count - 1]) for count in (*counts, len(stages)) if count]


def _are_small(residuals: Floats) -> NDArray[np.bool_]:
    """Return whether residuals (R, P) in noise standard deviations fit data; NaN where there are none."""
    count = np.isfinite(residuals).sum(axis=1)
    squares = np.sum(np.nan_to_num(residuals, posinf=0.0, neginf=0.0) ** 2, axis=1)
    return np.asarray((squares <= count + CONSISTENT * np.sqrt(2.0 * count)) & (count > 0))


def _relevance(residuals: Floats) -> Floats:
    """Return factors (R, P) on the errors at runs, by their residuals in noise standard deviations.

    They are less than 1 far from the data, where the density is zero anyway; 1 where there are no data.
    """
    return np.asarray(FAR / np.maximum(np.nan_to_num(np.abs(residuals)), FAR))


def _folds(sites: Integers, rng: np.random.Generator) -> Integers:
    """Assign each run to a fold (R,): whole sites, if there are enough."""
    distinct, number = np.unique(sites, return_inverse=True)
    if len(distinct) < FEWEST_SITES:
        return rng.permutation(len(sites)) % FOLDS
    return (rng.permutation(len(distinct)) % FOLDS)[number]
