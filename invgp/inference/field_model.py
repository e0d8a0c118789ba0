"""A field model at given hyperparameters: modes of the prior, whitened data and Jacobians, and the algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, Backend, to_numpy
from invgp.core.field.field_gaussian import mirrored_normals
from invgp.core.field.field_inference import FieldInference, FieldState
from invgp.core.field.field_sampling import RegressionTarget
from invgp.core.field.jacobians import VirtualRuns
from invgp.core.field.missing_outputs import fill_missing
from invgp.core.field.regression import Modes, Regression
from invgp.core.field.regression_likelihood import AnyRegression
from invgp.core.field.two_fidelities import CoarseTrend
from invgp.latent_model.grid_modes import Field, Neighbourhood, neighbourhoods
from invgp.latent_model.noise_density import Whitening
from invgp.latent_model.prior_field import field_of
from invgp.problem import Floats, Part, Problem

PAIRS = 64  # antithetic pairs of points for averages over the posterior
LINEAR = 0.1  # noise standard deviations: a regression that is curved by less over the prior has no other modes


class KnownOutputs(NamedTuple):
    """Outputs of all runs, from which the regression predicts those that were not observed too.

    Attributes
    ----------
    outputs : array, shape (n, N, P)
        NaN where missing.
    slopes : array, shape (n, N, P, R), or None
        Their derivatives by the variables, if the simulators give Jacobians.
    coarse : array, shape (n', N, P), or None
        Outputs of the runs of a coarse model.
    """

    outputs: Floats
    slopes: Floats | None = None
    coarse: Floats | None = None


@dataclass(frozen=True)
class FieldModel:
    """A field model at given hyperparameters.

    Attributes
    ----------
    problem : Problem
        Problem with these hyperparameters.
    backend : Backend
        Array library and device.
    field : Field
        Latents on the grid as a function of the variables.
    whitening : Whitening
        Transformation of data and outputs to independent noise.
    neighbourhoods : list of Neighbourhood
        Groups of sites whose data depend only on the field near them; empty without localisation.
    algorithm : FieldInference
        Inference of the variables.
    """

    problem: Problem
    backend: Backend
    field: Field
    whitening: Whitening
    neighbourhoods: list[Neighbourhood]
    algorithm: FieldInference

    @staticmethod
    def build(
        problem: Problem, backend: Backend, missing_counts: NDArray[np.intp] | None, rng: np.random.Generator
    ) -> FieldModel:
        """Build the model of a problem.

        Parameters
        ----------
        problem : Problem
        backend : Backend
        missing_counts : array of int, shape (N, P), or None
            Number of runs without each output; None if no run lacks an observed output.
        rng : numpy.random.Generator
            Random numbers of the points for averages over the posterior.
        """
        field = field_of(problem, backend)
        whitening = Whitening(problem, missing_counts)
        sizes = [basis.size for basis in field.bases]
        groups = tuple(sum(sizes[problem.latent_slices[latent.name]]) for latent in problem.latents)
        modes = Modes(backend.namespace.concat([basis.variances for basis in field.bases]), groups)
        normals = backend.asarray(mirrored_normals(rng, PAIRS, sum(sizes)))
        cells = neighbourhoods(problem, field, backend)
        algorithm = FieldInference(
            modes,
            backend.asarray(whitening.data),
            normals,
            whitening.degrees,
            tuple(cell.block for cell in cells),
            None if whitening.unmixing is None else backend.asarray(whitening.unmixing),
        )
        return FieldModel(problem, backend, field, whitening, cells, algorithm)

    @property
    def variables(self) -> int:
        """Number of variables, R."""
        return sum(basis.size for basis in self.field.bases)

    def whiten_again(self, missing_counts: NDArray[np.intp] | None) -> FieldModel:
        """Return the model with data and outputs whitened in the order that the missing outputs require."""
        whitening = Whitening(self.problem, missing_counts)
        unmixing = None if whitening.unmixing is None else self.backend.asarray(whitening.unmixing)
        algorithm = replace(self.algorithm, y=self.backend.asarray(whitening.data), unmixing=unmixing)
        return replace(self, whitening=whitening, algorithm=algorithm)

    def is_gaussian(self, state: FieldState) -> bool:
        """Return whether the posterior of the regression is the Gaussian of the state, everywhere in the prior."""
        if state.regression is None:
            return True
        target = RegressionTarget.from_state(self.algorithm, state)
        return (
            self.algorithm.is_nearly_gaussian(target.regression, state.linear, target.weights)
            and target.curvature(self.algorithm.normals) < LINEAR
        )

    def whitened_error(self, state: FieldState, w: Floats, outputs: Floats) -> Floats:
        """Compute the error of the regression at new runs, for whitened data.

        Parameters
        ----------
        state : FieldState
            State whose regression does not contain these runs.
        w : array, shape (n, R)
            Variables of the runs.
        outputs : array, shape (n, N, P)
            Their outputs; NaN where missing.

        Returns
        -------
        array, shape (n, D), in standard deviations of the noise
            NaN where a missing output contributes.
        """
        if state.regression is None:
            raise ValueError("there are no runs yet")
        values = self.whitening(outputs)
        if self.whitening.unmixing is not None:
            values = values @ self.whitening.unmixing.T
        return np.asarray(values - to_numpy(state.regression.mean(self.backend.asarray(w))))

    def few_runs_shares(self, state: FieldState, w: Floats) -> Floats:
        """Compute the fraction (S,) of the variance in informed directions that is due to the regression.

        In such a direction, the data have a variance of about 1 over the posterior, and the uncertainty adds to it.

        Parameters
        ----------
        state : FieldState
        w : array, shape (S, R)
            Draws of the variables from the posterior.
        """
        if state.regression is None:
            raise ValueError("there are no runs yet")
        error = to_numpy(state.regression.predictions(self.backend.asarray(w))[1])
        return np.asarray(np.sum(error / (1.0 + error), axis=1) / max(state.linear.informed_directions, 1.0))

    def predict(self, state: FieldState, w: Floats, runs: KnownOutputs) -> Floats:
        """Compute the expected outputs (S, N, P) at w (S, R) by the regression.

        Parameters
        ----------
        state : FieldState
        w : array, shape (S, R)
        runs : KnownOutputs
            Outputs of all runs.
        """
        if state.regression is None:
            raise ValueError("there are no runs yet")
        outputs, slopes = runs.outputs, runs.slopes
        known = outputs[to_numpy(state.fitted_runs)]
        virtual, trend = state.regression.parts[0].virtual, state.regression.parts[0].trend
        if virtual is not None and slopes is not None:
            return self._predict_with_slopes(state.regression, virtual, w, known, slopes[to_numpy(state.fitted_runs)])
        if isinstance(trend, CoarseTrend) and runs.coarse is not None:
            of_coarse = runs.coarse[to_numpy(state.coarse_runs)]
            points = self.backend.asarray(w)
            at_runs, at_points = (
                trend.factor * _predict_from_runs(trend.coarse, at, of_coarse)
                for at in (state.regression.parts[0].w, points)
            )
            return at_points + _predict_from_runs(state.regression.parts[0], points, known - at_runs)
        weights = state.regression.run_weights(self.backend.asarray(w))
        groups = [cell.sites for cell in self.neighbourhoods] or [np.arange(outputs.shape[1])]
        values = np.empty((len(w), *outputs.shape[1:]))
        for sites, part, of_runs in zip(groups, state.regression.parts, weights, strict=True):
            own = known[:, sites]
            filled = fill_missing(own.reshape(len(own), -1), to_numpy(part.covariance)).reshape(own.shape)
            centre = filled.mean(axis=0)
            values[:, sites] = centre + np.tensordot(to_numpy(of_runs), filled - centre, axes=1)
        return values

    def _predict_with_slopes(
        self, regression: AnyRegression, virtual: VirtualRuns, w: Floats, outputs: Floats, slopes: Floats
    ) -> Floats:
        """Compute the expected outputs (S, N, P) by a regression with a trend, from the fitted runs."""
        flat = outputs.reshape(len(outputs), -1)
        runs = len(outputs)
        _, left, trend = (
            to_numpy(part)
            for part in virtual.extend(
                regression.parts[0].w[:runs, :],
                self.backend.asarray(flat),
                self.backend.asarray(slopes.reshape(*flat.shape, -1)),
            )
        )
        centre = left.mean(axis=0)
        weights = to_numpy(regression.run_weights(self.backend.asarray(w))[0])
        values = w @ trend.T + centre + weights @ (left - centre)
        return np.asarray(values.reshape(len(w), *outputs.shape[1:]))


def _predict_from_runs(regression: Regression, w: Array, outputs: Floats) -> Floats:
    """Compute the expected outputs (S, N, P) at w (S, R) by a regression without a trend, from those of its runs."""
    centre = outputs.mean(axis=0)
    weights = to_numpy(regression.run_weights(w)[0])
    return np.asarray(centre + np.tensordot(weights, outputs - centre, axes=1))


STEP = 1e-4  # prior standard deviations: step of the differences through links and units
NUMBERS_AT_ONCE = 2**24  # latents in one block of variables, to limit memory


def compute_slopes(
    problem: Problem, field: Field, latents: Floats, jacobians: Sequence[tuple[Part, Floats, Floats]]
) -> Floats:
    """Convert Jacobians of simulators to derivatives of the observations by the variables of the modes.

    Parameters
    ----------
    problem : Problem
    field : Field
        Modes of the latents.
    latents : array, shape (n, G, Q)
        Latent processes of the runs.
    jacobians : sequence of (Part, array, array)
        For each simulator: its source, the outputs (n, O) of the runs, and their Jacobians (n, O, I), in its units.

    Returns
    -------
    array, shape (n, N, P, R)
        In the units of the observations; NaN for outputs of no simulator.
    """
    R = sum(basis.size for basis in field.bases)
    slopes = np.full((len(latents), *problem.noise_std.shape, R), np.nan)
    step = max(NUMBERS_AT_ONCE // latents[0].size, 1)
    centre = field.latents(np.zeros((1, R)))
    for first in range(0, R, step):
        numbers = np.arange(first, min(first + step, R))
        modes = field.latents(np.eye(R)[numbers]) - centre  # (r, G, Q)
        for run, at in enumerate(latents):
            both = [problem.to_physical(at + sign * STEP * modes) for sign in (1.0, -1.0)]
            for part, outputs, jacobian in jacobians:
                rows = [part.problem.field_to_simulator(values) for values in both]
                by_variable = (rows[0] - rows[1]) @ jacobian[run].T / (2.0 * STEP)  # (r, O)
                found = _convert(part.problem, outputs[run], by_variable)
                slopes[run][np.ix_(part.sites, part.columns, numbers)] = np.moveaxis(found, 0, -1)
    return slopes


def _convert(problem: Problem, outputs: Floats, slopes: Floats) -> Floats:
    """Convert derivatives (r, O) of outputs (O,) of a simulator to those (r, N, P) of the observations."""
    largest = np.abs(slopes).max()
    step = 1e-4 * max(float(np.abs(outputs).max()), 1e-300) / largest if largest > 0.0 else 1.0
    both = [problem.field_from_simulator(outputs + sign * step * slopes) for sign in (1.0, -1.0)]
    return np.asarray((both[0] - both[1]) / (2.0 * step))


def whiten_slopes(whitening: Whitening, slopes: Floats) -> Floats | None:
    """Scale derivatives (n, N, P, R) as outputs are scaled: (n, D, R); None if an observed output has none."""
    if np.isnan(slopes[:, whitening.observed]).any():
        return None
    n, R = slopes.shape[0], slopes.shape[-1]
    flat = np.moveaxis(np.nan_to_num(slopes), -1, 1).reshape(n * R, *slopes.shape[1:3])
    return np.asarray(whitening(flat).reshape(n, R, -1).swapaxes(1, 2))
