"""The fitted emulator: predictions, and an estimate of its error at each site."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from invgp.core.backend import Array, array_namespace, backend_of
from invgp.emulation.emulator_inputs import Inputs
from invgp.emulation.error_estimate import weighted_mean, weights_of_runs
from invgp.emulation.neighbours import Neighbours
from invgp.emulation.polynomial import PullBack
from invgp.emulation.residual_process import PolynomialAndProcess
from invgp.emulation.success_model import SuccessModel
from invgp.emulation.training_runs import Integers, Runs
from invgp.problem import Floats

NUMBERS_AT_ONCE = 2**16  # features or kernel values in one block of `linearise`
ROWS_AT_ONCE = 16_384  # rows that one call of the regression evaluates, to limit memory
MOST_CHECKED_SAMPLES = 32  # samples per site that `is_among_runs` compares with the runs
LARGEST_SHARE = 3.0  # largest squared error at a site that may be numerical noise, relative to its variance
FEWEST_AMONG_RUNS = 0.9  # fraction of these samples that must lie among the runs


class Surface(Protocol):
    """Regression function of the inputs (B, I) at sites (B,)."""

    @property
    def name(self) -> str:
        """Name of the regression, for users."""

    @property
    def width(self) -> int:
        """Numbers that one prediction takes: features, or runs of a process."""

    def __call__(self, x: Floats, sites: Integers) -> Floats:
        """Predict outputs (B, P), in units of the median noise standard deviation of each output."""

    def linearise(self, x: Array, sites: Integers) -> tuple[Array, PullBack]:
        """Predict outputs (B, P), and return the function that multiplies cotangents (B, P) by the derivatives.

        It returns the gradient (B, I) with respect to the inputs. The arrays may belong to any array library.
        """

    def is_outside(self, x: Floats, sites: Integers) -> NDArray[np.bool_]:
        """Return a mask (B,) of the inputs that lie outside the region of the runs."""


@dataclass(frozen=True)
class Emulator:
    """Regression of the simulator outputs on the inputs, with its cross-validation errors.

    Parameters
    ----------
    surface : Surface
        The regression function.
    inputs : Inputs
        The inputs of the regression.
    runs : Runs
        All runs so far, including those without output.
    errors : array, shape (R, P), in `unit`
        Simulator output minus the prediction of a fit without the run. NaN if the run has no such output.
    unit : array, shape (P,), in the units of the observations
        Median over the sites of the noise standard deviation of each output.
    noise : array, shape (N, P), in `unit`
        Noise standard deviation at each site. Infinite where nothing was observed.
    name : str
        Name of the regression and the stages of runs that it was fitted to, for users.
    error : float, in `unit`
        Root mean square of `errors` over the latest runs and all outputs.
    neighbours : Neighbours
        Runs near the runs of each site.
    solver_noise : array, shape (P,), in the units of the observations, or float
        Standard deviation of the numerical noise of the simulator, which is part of `errors`. The emulator averages it.
    discrepancy : array, shape (Q, P), or None
        What the latents add to the outputs of the simulator, as `Problem.discrepancy_map`. It is no part of the
        regression.
    success : SuccessModel or None
        Probability that a run succeeds; None if it does not depend on the inputs.
    relevance : array, shape (R, P), or float
        Factors on the errors of the runs in estimates of the error: less than 1 far from the data.
    """

    surface: Surface
    inputs: Inputs
    runs: Runs
    errors: Floats
    unit: Floats
    noise: Floats
    name: str
    error: float
    neighbours: Neighbours
    solver_noise: Floats | float = 0.0
    discrepancy: Floats | None = None
    success: SuccessModel | None = None
    relevance: Floats | float = 1.0

    @property
    def held_out_error(self) -> Floats:
        """Cross-validation errors (R, P), in noise standard deviations of the site of each run.

        NaN where the run has no output, 0 where the site has no observation.
        """
        return self.errors / self.noise[self.runs.sites]

    def predict(self, latents: Floats, sites: Integers) -> Floats:
        """Predict the outputs.

        Parameters
        ----------
        latents : array, shape (S, B, Q), on the scale of the Gaussian processes
        sites : array of int, shape (B,)
            Number of each site, from 0.

        Returns
        -------
        array, shape (S, B, P), in the units of the observations
        """
        samples, batch, _ = latents.shape
        outputs = np.empty((samples, batch, len(self.unit)))
        step = max(ROWS_AT_ONCE // max(samples, 1), 1)
        for i in range(0, batch, step):
            part = slice(i, i + step)
            answers = self.surface(*self._rows(latents[:, part], sites[part]))
            np.multiply(answers.reshape(samples, -1, len(self.unit)), self.unit, out=outputs[:, part])
        return outputs if self.discrepancy is None else outputs + latents @ self.discrepancy

    def predict_elsewhere(self, latents: Floats, nearest: Integers, columns: Mapping[str, Floats]) -> Floats:
        """Predict the outputs at places that are no sites.

        Parameters
        ----------
        latents : array, shape (S, B, Q), on the scale of the Gaussian processes
        nearest : array of int, shape (B,)
            Number of the nearest site, whose regression is used if each site has its own.
        columns : mapping of str to array, shape (B,)
            Coordinates and covariates of the places.

        Returns
        -------
        array, shape (S, B, P), in the units of the observations
        """
        inputs = self.inputs.with_columns(columns)
        samples, batch, processes = latents.shape
        outputs = np.empty((samples, batch, len(self.unit)))
        step = max(ROWS_AT_ONCE // max(samples, 1), 1)
        for i in range(0, batch, step):
            part = np.arange(i, min(i + step, batch))
            x = inputs.rows(latents[:, part].reshape(-1, processes), np.tile(part, samples))
            answers = self.surface(x, np.tile(nearest[part], samples))
            outputs[:, part] = answers.reshape(samples, len(part), -1) * self.unit
        return outputs

    def is_outside_elsewhere(
        self, latents: Floats, nearest: Integers, columns: Mapping[str, Floats]
    ) -> NDArray[np.bool_]:
        """Return a mask (S, B) of the latents outside the region of the runs; arguments as `predict_elsewhere`."""
        samples, batch, processes = latents.shape
        places = np.tile(np.arange(batch), samples)
        x = self.inputs.with_columns(columns).rows(latents.reshape(-1, processes), places)
        return self.surface.is_outside(x, np.tile(nearest, samples)).reshape(samples, batch)

    @property
    def has_spread(self) -> bool:
        """Whether the regression has a standard deviation of its own, as a Gaussian process has."""
        return isinstance(self.surface, PolynomialAndProcess)

    def spread(self, latents: Floats, sites: Integers) -> Floats:
        """Compute the standard deviation (S, B, P) of the regression at latents (S, B, Q); 0 if it has none."""
        if not isinstance(self.surface, PolynomialAndProcess):
            return np.zeros((*latents.shape[:2], len(self.unit)))
        x, _ = self._rows(latents, sites)
        return self.surface.spread(x).reshape(*latents.shape[:2], -1) * self.unit

    def linearise(self, latents: Array, sites: Integers) -> tuple[Array, PullBack]:
        """Predict the outputs, and return the function that multiplies cotangents by the derivatives.

        Parameters
        ----------
        latents : Array, shape (S, B, Q), on the scale of the Gaussian processes
        sites : array of int, shape (B,)

        Returns
        -------
        outputs : Array, shape (S, B, P), in the units of the observations
        pull_back : callable
            Cotangents (S, B, P) of the outputs -> gradient (S, B, Q) with respect to the latents.
        """
        xp, backend = array_namespace(latents), backend_of(latents)
        samples, batch, processes = latents.shape
        unit, tiled = backend.asarray(self.unit), np.tile(sites, samples)
        rows = xp.reshape(latents, (samples * batch, processes))
        x = self.inputs.rows_of(rows, tiled)
        # Small blocks stay in the cache, and their memory is used again.
        step, parts = max(NUMBERS_AT_ONCE // self.surface.width, 64), []
        for i in range(0, samples * batch, step):
            parts.append(self.surface.linearise(x[i : i + step, :], tiled[i : i + step]))
        outputs = xp.concat([y for y, _ in parts]) * unit
        added = None if self.discrepancy is None else backend.asarray(self.discrepancy)
        if added is not None:
            outputs = outputs + rows @ added

        def pull_back(cotangents: Array) -> Array:
            flat = xp.reshape(cotangents, (samples * batch, -1))
            scaled = flat * unit
            gradients = [pull(scaled[k * step : (k + 1) * step, :]) for k, (_, pull) in enumerate(parts)]
            gradient = self.inputs.pull_back(xp.concat(gradients), processes)
            if added is not None:
                gradient = gradient + flat @ xp.matrix_transpose(added)
            return xp.reshape(gradient, latents.shape)

        return xp.reshape(outputs, (samples, batch, -1)), pull_back

    def log_success(self, latents: Array, sites: Integers) -> tuple[Array, PullBack] | None:
        """Compute the log probability that a run succeeds; None if it does not depend on the latents.

        Parameters
        ----------
        latents : Array, shape (S, B, Q), on the scale of the Gaussian processes
        sites : array of int, shape (B,)

        Returns
        -------
        value : Array, shape (S, B)
        pull_back : callable
            Cotangents (S, B) -> gradient (S, B, Q) with respect to the latents.
        """
        if self.success is None:
            return None
        xp, (samples, batch, processes) = array_namespace(latents), latents.shape
        rows = xp.reshape(latents, (samples * batch, processes))
        value, pull = self.success.log_probability(self.inputs.rows_of(rows, np.tile(sites, samples)))

        def pull_back(cotangents: Array) -> Array:
            gradient = pull(xp.reshape(cotangents, (samples * batch,)))
            return xp.reshape(self.inputs.pull_back(gradient, processes), latents.shape)

        return xp.reshape(value, (samples, batch)), pull_back

    def with_solver_noise(self, noise: Floats) -> Emulator:
        """Return the same emulator with another estimate (P,) of the numerical noise of the simulator."""
        return replace(self, solver_noise=noise)

    @property
    def smooth_error(self) -> float:
        """The part of `error` that is not numerical noise of the simulator, in `unit`."""
        return math.sqrt(max(self.error**2 - float(np.mean((self.solver_noise / self.unit) ** 2)), 0.0))

    def site_error(self, sites: Integers) -> Floats:
        """Estimate the error (B,) at sites (B,): the largest over the outputs, in noise standard deviations.

        Numerical noise of the simulator does not count.

        The estimate is a weighted root mean square over the newest runs of the site and the runs nearest to them. A
        site without runs has the estimate of the nearest site with runs.
        """
        return np.asarray(self.output_error(sites)[0].max(axis=-1))

    def output_error(self, sites: Integers) -> tuple[Floats, Floats]:
        """Estimate the error of each output at sites (B,), in noise standard deviations; 0 if not observed.

        Returns
        -------
        smooth : array, shape (B, P)
            Error of the emulator, which neighbouring sites share.
        rough : array, shape (B, P)
            Numerical noise of the simulator, which differs from run to run.
        """
        squares = weighted_mean(self._weights[sites], (self.relevance * self.errors) ** 2)
        # The squares are means over few runs, and vary by chance.
        noise = np.minimum(LARGEST_SHARE * (self.solver_noise / self.unit) ** 2, squares)
        observed = ~np.isinf(self.noise[sites])
        smooth, rough = (
            np.sqrt(np.where(observed, part / self.noise[sites] ** 2, 0.0)) for part in (squares - noise, noise)
        )
        return smooth, rough

    def is_among_runs(self, latents: Floats, sites: Integers) -> NDArray[np.bool_]:
        """Return a mask (B,): whether the latent values (S, B, Q) of a site lie in the region of the runs.

        Outside this region the error is unknown.
        """
        few = latents[: min(MOST_CHECKED_SAMPLES, len(latents))]
        among = ~self.surface.is_outside(*self._rows(few, sites))
        return np.asarray(np.mean(among.reshape(len(few), -1), axis=0) >= FEWEST_AMONG_RUNS)

    def trusted_sites(self, latents: Floats, sites: Integers, largest_error: float) -> NDArray[np.bool_]:
        """Return a mask of the sites where the emulator is accurate enough.

        Parameters
        ----------
        latents : array, shape (S, B, Q)
            Latent values at which the emulator is to be used.
        sites : array of int, shape (B,)
        largest_error : float, in noise standard deviations

        Returns
        -------
        array of bool, shape (B,)
            True if the values lie among the runs and the estimated error is at most `largest_error`.
        """
        return (self.site_error(sites) <= largest_error) & self.is_among_runs(latents, sites)

    @cached_property
    def _weights(self) -> csr_array:
        return weights_of_runs(self.runs, self.neighbours)

    def _rows(self, latents: Floats, sites: Integers) -> tuple[Floats, Integers]:
        samples, _, processes = latents.shape
        tiled = np.tile(sites, samples)
        return self.inputs.rows(latents.reshape(-1, processes), tiled), tiled
