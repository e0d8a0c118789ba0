"""Posterior of a field model with the simulator itself, and its surrogate, a Gaussian process regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Backend, to_numpy
from invgp.core.field.field_inference import FieldInference
from invgp.core.field.regression import KernelParameters, Modes, Regression, fit_regression
from invgp.errors import RunsFailedError
from invgp.latent_model.noise_density import Whitening
from invgp.latent_model.prior_field import field_of
from invgp.problem import Floats, Problem
from invgp.sampling.simulated_sites import IMPOSSIBLE
from invgp.sampling.tolerant_simulator import TolerantSimulator

Integers = NDArray[np.intp]
FEWEST_RUNS, MOST_RUNS = 16, 400  # latest runs of a surrogate


class SimulatedField:
    """Posterior of a field model on its simulator; see `ExactTarget`.

    The variables are those of the modes of the prior with `inference.kept_variance` of its variance, as in an
    inversion. The omitted modes are drawn from the prior.

    Parameters
    ----------
    problem : Problem
    simulator : TolerantSimulator
    """

    blocks = 1

    def __init__(self, problem: Problem, simulator: TolerantSimulator) -> None:
        self.simulator, self.backend = simulator, Backend(np, "cpu")
        self.field, self.whitening = field_of(problem, self.backend), Whitening(problem)
        self.grid_size = 0 if problem.grid is None else problem.grid.size
        self.runs_per_field = problem.runs_per_field
        sizes = [basis.size for basis in self.field.bases]
        self.size = sum(sizes)
        groups = tuple(sum(sizes[problem.latent_slices[latent.name]]) for latent in problem.latents)
        variances = np.concatenate([to_numpy(basis.variances) for basis in self.field.bases])
        modes = Modes(self.backend.asarray(variances), groups)
        data = self.backend.asarray(self.whitening.data)
        self.inference = FieldInference(modes, data, np.zeros((2, self.size)), self.whitening.degrees)
        self.w = np.empty((0, self.size))
        self.outputs = np.empty((0, len(self.whitening.data)))
        self.parameters: KernelParameters | None = None
        self.worst: float | None = None  # log likelihood of a failed run

    @property
    def runs(self) -> int:
        """Number of simulator runs so far."""
        return self.simulator.simulator.runs

    def cost(self, blocks: Integers) -> int:
        """Return the number of runs for one evaluation.

        Parameters
        ----------
        blocks : array of int, shape (b,)
            Numbers of the blocks.

        Returns
        -------
        int
        """
        return len(blocks) * self.runs_per_field

    def latents(self, v: Floats) -> Floats:
        """Compute the latents (C, G, Q) on the grid from variables v (1, C, R).

        Parameters
        ----------
        v : array, shape (1, C, R)

        Returns
        -------
        array, shape (C, G, Q)
        """
        return self.field.latents(v[0])[:, : self.grid_size]

    def draw_latents(self, v: Floats, rng: np.random.Generator) -> Floats:
        """Compute the latents (C, G, Q) on the grid with the omitted modes drawn from the prior.

        Parameters
        ----------
        v : array, shape (1, C, R)
        rng : numpy.random.Generator

        Returns
        -------
        array, shape (C, G, Q)
        """
        return (self.field.latents(v[0]) + self.field.draw_omitted(rng, v.shape[1]))[:, : self.grid_size]

    def log_likelihood(
        self,
        v: Floats,
        blocks: Integers,  # noqa: ARG002 - one block
        *,
        near: bool = True,
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Run the simulator, and return the log likelihood and the failures (1, C); see `ExactTarget`."""
        outputs, valid = self.simulator.run_fields(self.field.latents(v[0]))
        whitened = self.whitening(np.where(valid[:, None, None], outputs, np.nan))
        if self.whitening.unmixing is not None:
            whitened = whitened @ self.whitening.unmixing.T
        complete = np.asarray(np.isfinite(whitened).all(axis=1))
        values = self._log_density(np.where(complete[:, None], whitened, 0.0))
        if near:
            self.w = np.concatenate([self.w, v[0][complete]])[-MOST_RUNS:]
            self.outputs = np.concatenate([self.outputs, whitened[complete]])[-MOST_RUNS:]
        if self.worst is None:
            if not complete.any():
                raise RunsFailedError(f"all runs at {len(complete)} draws from the prior failed")
            self.worst = float(values[complete].min()) - IMPOSSIBLE
        return np.where(complete, values, self.worst)[None], ~complete[None]

    def _log_density(self, whitened: Floats) -> Floats:
        """Compute the log density (C,) of the data, up to a constant, for whitened outputs (C, D)."""
        off, degrees = self.whitening.data - whitened, self.whitening.degrees
        if degrees is None:
            return np.asarray(-0.5 * np.sum(off**2, axis=1))
        return np.asarray(-0.5 * (degrees + 1.0) * np.sum(np.log1p(off**2 / degrees), axis=1))

    def fit_surrogate(self, power: float) -> FieldSurrogate | None:  # noqa: ARG002 - the same at any power
        """Fit a regression to the latest runs; see `ExactTarget`."""
        if len(self.w) < FEWEST_RUNS:
            return None
        modes, asarray = self.inference.modes, self.backend.asarray
        regression = fit_regression(modes, asarray(self.w), asarray(self.outputs), self.parameters)
        self.parameters = regression.hyper
        return FieldSurrogate(self.inference, regression)


@dataclass(frozen=True)
class FieldSurrogate:
    """Log likelihood of a field model with a regression in the simulator's place; see `Surrogate`."""

    inference: FieldInference
    regression: Regression

    def linearise(self, v: Floats, blocks: Integers) -> tuple[Floats, Floats]:  # noqa: ARG002 - one block
        """Compute the log likelihood (1, C) and its gradient (1, C, R)."""
        weights = np.ones(len(self.inference.y))
        value, gradient = self.inference.likelihood.log_likelihood(self.regression, v[0], weights, trust=1.0)
        return to_numpy(value)[None], to_numpy(gradient)[None]

    def information(self, v: Floats, blocks: Integers) -> Floats:  # noqa: ARG002 - one block
        """Compute the Fisher information (1, R, R), averaged over v (1, C, R)."""
        expected, variance, chain_rule = self.regression.predictions_with_derivatives(v[0])
        total = np.zeros((v.shape[2], v.shape[2]))
        for direction in range(expected.shape[1]):
            cotangents = np.zeros_like(expected)
            cotangents[:, direction] = 1.0
            slope = to_numpy(chain_rule(cotangents, np.zeros_like(variance)))
            total += slope.T @ slope / len(slope)
        return total[None]
