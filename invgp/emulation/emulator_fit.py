"""The choice of an emulator, by its errors at runs that were left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from invgp.emulation.emulator import Emulator, Surface
from invgp.emulation.emulator_inputs import Inputs
from invgp.emulation.hermite_basis import Basis, bases
from invgp.emulation.local_polynomials import RUNS_PER_FEATURE as LOCAL_RUNS_PER_FEATURE
from invgp.emulation.local_polynomials import fit_local
from invgp.emulation.neighbours import Neighbours
from invgp.emulation.polynomial import Polynomial, fit_polynomial
from invgp.emulation.residual_process import add_process
from invgp.emulation.training_runs import Integers, Runs
from invgp.problem import Floats, Problem

RUNS_PER_FEATURE = 1.3  # fewest
MOST_FEATURES = 640
ENOUGH_RUNS, ENOUGH_RUNS_PER_FEATURE = 4000, 20  # more cost time and change little
MOST_PROCESS_RUNS = 800  # a process costs their cube to fit,
MOST_PROCESS_PAIRS = 1_000_000  # and their number times that of the sites at each prediction
MOST_LOCAL_WORK = 10**9  # sites times the cube of the features: some seconds
JUDGES = 50  # runs, at least, that an error is measured on
FOLDS, FEWEST_SITES = 200, 20
SMALL = 0.1  # noise standard deviations: more than a polynomial is not worth its seconds
NEGLIGIBLE = 0.01  # noise standard deviations: a larger polynomial is not worth its time
HOPELESS = 1.0  # noise standard deviations: a larger error is no worse, since nobody would trust it


def fit_emulator(problem: Problem, runs: Runs, *, noise_std: Floats, rng: np.random.Generator) -> Emulator | None:
    """The regression that does best on the latest runs.

    Polynomials of degree 1 to 4 are fitted to all runs, and to those of the last stages only. If none does well, so are
    local polynomials, and a Gaussian process on top of the best. All errors are measured on runs that the fit had not
    seen; they are left out by whole sites, since the runs of one site may be alike (if there are few sites, by run).
    The runs of a stage should be drawn for each site by itself: those of a smooth field lie on a curve, which tells
    little of what is beside it.

    Parameters
    ----------
    noise_std : (N, P), standard deviation of the noise, in the observations' units.
    rng : decides which runs are left out together, and which are used if there are more than enough.

    Returns
    -------
    The emulator; None if an output has too few runs for a linear function of the inputs.
    """
    inputs, unit = Inputs.of(problem), _typical(noise_std)
    y = np.where(np.isfinite(runs.outputs), runs.outputs, np.nan) / unit
    trial = _Trial(runs, inputs.rows(runs.latents, runs.sites), y, problem.survey.X, rng)
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
        error=_root_mean_square(best.errors[trial.judges]),
        neighbours=trial.neighbours,
    )


@dataclass(frozen=True)
class _Fit:
    """A candidate.

    Parameters
    ----------
    errors : (R, P), at each run if it is left out.
    loss : what the judges make of them.
    polynomial : that the surface is or stands on, with the first stage whose runs it was fitted to; None for others.
    """

    surface: Surface
    errors: Floats
    loss: float
    name: str
    polynomial: Polynomial | None = None
    stage: int = 0


class _Trial:
    """Candidates, all judged by the latest runs.

    Parameters
    ----------
    x, y : (R, I) and (R, P), inputs and outputs of the runs.
    X : (N, D), coordinates of the sites.
    """

    def __init__(self, runs: Runs, x: Floats, y: Floats, X: Floats, rng: np.random.Generator) -> None:
        self.runs, self.x, self.y, self.X, self.rng = runs, x, y, X, rng
        self.judges = runs.latest(JUDGES)
        self.folds = _folds(runs.sites, rng)
        self.order = rng.permutation(len(runs))

    def best(self) -> _Fit | None:
        best = self._best_polynomial()
        if best is None or best.loss <= SMALL:
            return best
        return _least([best, self._with_process(best), *(self._local(degree) for degree in (1, 2))])

    def _best_polynomial(self) -> _Fit | None:
        best: _Fit | None = None
        for basis in bases(self.x.shape[1], MOST_FEATURES):
            best = _least([best, *(self._polynomial(basis, stage) for stage in _first_stages(self.runs.stage))])
            if best is None or best.loss <= NEGLIGIBLE:
                break
        return best

    def _polynomial(self, basis: Basis, stage: int) -> _Fit | None:
        candidates = self.order[(self.runs.answered & self.runs.since(stage))[self.order]]
        used = candidates[: max(ENOUGH_RUNS, ENOUGH_RUNS_PER_FEATURE * len(basis))]
        if np.isfinite(self.y[used]).sum(axis=0).min() < RUNS_PER_FEATURE * len(basis):
            return None
        surface, left_out = fit_polynomial(basis, self.x[used], self.y[used], self.folds[used])
        errors = self.y - surface(self.x, self.runs.sites)
        errors[used] = left_out
        return _Fit(surface, errors, self._loss(errors), surface.name + self._which(stage), surface, stage)

    def _with_process(self, fit: _Fit) -> _Fit | None:
        """The same polynomial with a process for the outputs that need it, on the newest of its runs."""
        candidates = self.order[(self.complete & self.runs.since(fit.stage))[self.order]]
        used = candidates[np.argsort(-self.runs.stage[candidates], kind="stable")]
        used = used[: min(MOST_PROCESS_RUNS, MOST_PROCESS_PAIRS // len(self.X))]
        if fit.polynomial is None or len(used) < RUNS_PER_FEATURE * len(fit.polynomial.basis):
            return None
        outputs = np.flatnonzero([_root_mean_square(errors) > SMALL for errors in fit.errors[used].T])
        if not len(outputs):
            return None
        surface, left_out = add_process(
            fit.polynomial, self.x[used], self.y[used], fit.errors[used], self.folds[used], outputs, self.rng
        )
        errors = fit.errors.copy()
        errors[:, outputs] = (self.y - surface(self.x, self.runs.sites))[:, outputs]
        errors[used] = left_out
        return _Fit(surface, errors, self._loss(errors), surface.name + self._which(fit.stage))

    def _local(self, degree: int) -> _Fit | None:
        basis = Basis(self.x.shape[1], degree, degree)
        neighbours = Neighbours.of(self.runs, self.x, self.complete, self.X)
        too_slow = len(self.X) * len(basis) ** 3 > MOST_LOCAL_WORK
        if too_slow or len(neighbours.numbers) < LOCAL_RUNS_PER_FEATURE * len(basis):
            return None
        surface, errors = fit_local(basis, self.y, self.runs, self.folds, neighbours)
        return _Fit(surface, errors, self._loss(errors), surface.name)

    @cached_property
    def complete(self) -> NDArray[np.bool_]:
        """Runs with all outputs, (R,)."""
        return np.asarray(np.isfinite(self.y).all(axis=1))

    @cached_property
    def neighbours(self) -> Neighbours:
        """Of each site, among the judges."""
        return Neighbours.of(self.runs, self.x, self.judges, self.X)

    def _loss(self, errors: Floats) -> float:
        """Root mean square over the judges, as if no error were larger than hopeless."""
        return _root_mean_square(np.clip(errors[self.judges], -HOPELESS, HOPELESS))

    def _which(self, stage: int) -> str:
        stages = np.unique(self.runs.stage)
        count = np.count_nonzero(stages >= stage)
        if count == len(stages):
            return ""
        return " of the last stage" if count == 1 else f" of the last {count} stages"


def _least(fits: Iterable[_Fit | None]) -> _Fit | None:
    return min((fit for fit in fits if fit), key=lambda fit: fit.loss, default=None)


def _root_mean_square(errors: Floats) -> float:
    return float(np.sqrt(np.nanmean(errors**2)))


def _typical(noise_std: Floats) -> Floats:
    """The median over the sites, (P,); 1 for an output whose noise is nowhere known."""
    known = np.isfinite(noise_std).any(axis=0)
    return np.where(known, np.nanmedian(np.where(known, noise_std, 1.0), axis=0), 1.0)


def _first_stages(stage: Integers) -> list[int]:
    """The first of the last 1, 2, 4, 8, ... stages, and the first of all."""
    stages = np.unique(stage)[::-1]
    counts = [2**k for k in range(len(stages).bit_length()) if 2**k < len(stages)]
    return [int(stages[count - 1]) for count in (*counts, len(stages)) if count]


def _folds(sites: Integers, rng: np.random.Generator) -> Integers:
    """Numbers (R,) of the folds: whole sites, if there are enough."""
    distinct, number = np.unique(sites, return_inverse=True)
    if len(distinct) < FEWEST_SITES:
        return rng.permutation(len(sites)) % FOLDS
    return (rng.permutation(len(distinct)) % FOLDS)[number]
