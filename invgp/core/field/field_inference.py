"""Inference of a Gaussian posterior of the whitened variables, as init / ask / tell: the caller runs the forward model.

Each step draws runs from the present posterior, fits a regression of the outputs on the variables to all runs so far,
and updates the posterior by guarded natural-gradient steps with statistical linearisation of the regression. If the
regression is so nonlinear that the result differs from the mean and covariance of the posterior, slice sampling with
the regression estimates them, which needs no runs. The variance of the regression counts as noise: in directions
without information from runs the posterior keeps the spread of the prior, and it cannot move far from the runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from invgp.core.backend import (
    Array,
    array_namespace,
    backend_of,
    cholesky,
    device_of,
    identity,
    solve_triangular,
    sum_of_products,
    sum_of_squares,
    to_numpy,
)
from invgp.core.field.elliptical_slices import Density, estimate_moments
from invgp.core.field.field_evidence import LinearisedData
from invgp.core.field.field_gaussian import (
    Gaussian,
    LowRankGaussian,
    few_runs_share,
    mean_movement,
    movement,
    orthogonal_normals,
)
from invgp.core.field.local_regression import Block, fit_blocks
from invgp.core.field.missing_outputs import complete_blocks
from invgp.core.field.regression import KernelParameters, Modes, Regression, fit_regression
from invgp.core.field.regression_likelihood import AnyRegression, RegressionLikelihood
from invgp.core.field.two_fidelities import CoarseTrend, fit_correction


@dataclass(frozen=True)
class FieldInferenceOptions:
    """Tuning of the inference.

    Attributes
    ----------
    first_completion_rounds : int
        Rounds of replacing missing outputs and fitting hyperparameters, in the first regression.
    max_steps : int
        Natural-gradient steps after each batch of runs.
    step_tolerance : float, standard deviations
        The last step moves the posterior by less.
    smallest_step : float
        The steps end when one would have to be shorter.
    rounding_slack : float
        Relative decrease of the bound that is attributed to rounding.
    gaussian_tolerance : float, nats
        There is no sampling if the standard deviation of the difference between the log density and that of the
        Gaussian is less.
    slice_chains : int
        Chains of slice sampling.
    max_fitted_runs : int
        Largest number of runs in a regression, if it is more than twice the number of variables.
    """

    first_completion_rounds: int = 2
    max_steps: int = 60
    step_tolerance: float = 1e-4
    smallest_step: float = 1.0 / 64.0
    rounding_slack: float = 1e-9
    gaussian_tolerance: float = 0.03
    slice_chains: int = 64
    max_fitted_runs: int = 1000


@dataclass(frozen=True)
class FieldState:
    """Immutable state of the inference, complete for continuing it.

    Attributes
    ----------
    q : Gaussian
        Posterior of the variables.
    linear : LowRankGaussian
        Posterior by statistical linearisation.
    error_free : LowRankGaussian or None
        The same if the regression had no error; None before the first runs.
    w : Array, shape (n, R)
        Variables of all valid runs.
    outputs : Array, shape (n, D)
        Outputs of these runs; NaN for missing outputs.
    regression : Regression or LocalRegression or None
        Regression of the outputs on the variables; None before the first runs.
    fitted_runs : Array of int
        Indices of the runs that the regression uses.
    slopes : Array, shape (n, D, R), or None
        Jacobians of these runs; None if they have none.
    coarse_runs : Array of int, or None
        Indices of the runs of a coarse model that its regression uses; None without a coarse model.
    """

    q: Gaussian
    linear: LowRankGaussian
    error_free: LowRankGaussian | None = None
    w: Array = None
    outputs: Array = None
    regression: AnyRegression | None = None
    fitted_runs: Array = None
    slopes: Array | None = None
    coarse_runs: Array | None = None

    @property
    def few_runs(self) -> Array:
        """Part (R, R) of the covariance by linearisation that is due to the uncertainty of the regression.

        Raises
        ------
        ValueError
            If there are no runs yet.
        """
        if self.error_free is None:
            raise ValueError("there are no runs yet")
        xp = array_namespace(self.linear.removed_factor)
        less, more = self.linear.removed_factor, self.error_free.removed_factor
        return more @ xp.matrix_transpose(more) - less @ xp.matrix_transpose(less)


@dataclass(frozen=True)
class FieldInfo:
    """Result of one batch of runs.

    Attributes
    ----------
    elbo : float, nats
        Bound at the posterior by linearisation, with the regression in place of the forward model.
    movement : float, standard deviations
        Movement of the posterior by linearisation, over the directions that the data inform.
    few_runs : float
        Fraction of the posterior variance, in the directions that the data inform, that is due to the small number of
        runs.
    """

    elbo: float
    movement: float
    few_runs: float


@dataclass(frozen=True)
class _AveragedRegression:
    """Regression averaged over a posterior.

    Attributes
    ----------
    value, slope : Array, shapes (k,) and (k, R)
        Averages of the expectation of z and of its derivative.
    error : Array, shape (k,)
        Average variance of the regression.
    """

    value: Array
    slope: Array
    error: Array


@dataclass(frozen=True)
class _DataTerms:
    """Terms of the bound that depend on the data.

    Attributes
    ----------
    precision_factor : Array, shape (R, k)
        V. The data add V V^T to the precision.
    gradient : Array, shape (R,)
        Gradient of the expected log likelihood with respect to the mean.
    at_mean : float
        Log likelihood without the contribution of the posterior covariance.
    """

    precision_factor: Array
    gradient: Array
    at_mean: float


@dataclass(frozen=True)
class FieldInference:
    """Inference for field models.

    The object contains everything that is constant during the inference. `init`, `ask` and `tell` are functions of an
    immutable `FieldState`.

    Parameters
    ----------
    modes : Modes
        Modes of the prior.
    y : Array, shape (D,), standard deviations (or scales) of the noise
        Data with independent noise.
    normals : Array, shape (S, R)
        Standard normal points for averages without a closed form, preferably in pairs of opposite sign.
    degrees : float or None
        Degrees of freedom of Student-t noise; None for Gaussian noise.
    blocks : sequence of Block
        Blocks of data that depend only on the field near them; empty if all data depend on the whole field.
    unmixing : Array, shape (D, D), or None
        Matrix that converts outputs to data with independent noise; None if the outputs have been converted already.
    options : FieldInferenceOptions
        Tuning.
    """

    modes: Modes
    y: Array
    normals: Array
    degrees: float | None = None
    blocks: Sequence[Block] = ()
    unmixing: Array | None = None
    options: FieldInferenceOptions = FieldInferenceOptions()

    @property
    def likelihood(self) -> RegressionLikelihood:
        """The likelihood of the data, with a regression in place of the forward model."""
        return RegressionLikelihood(self.y, self.degrees)

    def init(self) -> FieldState:
        """Return the state at the prior."""
        prior = LowRankGaussian.prior(self.modes.variances)
        return FieldState(prior.to_dense(), prior)

    def ask(self, state: FieldState, count: int, rng: np.random.Generator, spread: float = 1.0) -> Array:
        """Draw the variables (count, R) of the next runs from the posterior, in orthogonal whitened directions.

        Parameters
        ----------
        state : FieldState
            Present state.
        count : int
            Number of runs.
        rng : numpy.random.Generator
            Random numbers.
        spread : float
            Factor on the distances from the posterior mean.
        """
        backend = backend_of(self.y)
        return state.q.samples(spread * backend.asarray(orthogonal_normals(rng, count, self.normals.shape[1])))

    def tell(
        self,
        state: FieldState,
        w: Array,
        outputs: Array,
        rng: np.random.Generator,
        steps: int = 40,
        slopes: Array | None = None,
        coarse: tuple[Array, Array] | None = None,
    ) -> tuple[FieldState, FieldInfo]:
        """Update the state with valid runs.

        Parameters
        ----------
        state : FieldState
            Present state.
        w : Array, shape (n, R)
            Variables of the runs.
        outputs : Array, shape (n, D), standard deviations of the noise
            Outputs of the runs; NaN for missing outputs. Each output must be present in some run.
        rng : numpy.random.Generator
            Random numbers of slice sampling.
        steps : int
            Number of steps of slice sampling, if it is needed.
        slopes : Array, shape (n, D, R), or None
            Jacobians of the outputs by the variables. They are used if all runs have them, no output is missing and
            there are no blocks.
        coarse : pair of Array, shapes (n', R) and (n', D), or None
            Variables and outputs of all runs of a coarse model. Then no output may be missing, and there must be no
            blocks.

        Returns
        -------
        FieldState
            Next state.
        FieldInfo
            Result of the batch.
        """
        xp, latest = array_namespace(w), w.shape[0]
        if state.regression is not None:
            w, outputs = xp.concat([state.w, w]), xp.concat([state.outputs, outputs])
            slopes = None if slopes is None or state.slopes is None else xp.concat([state.slopes, slopes])
        fitted_runs = self._nearest_runs(state.q, w)
        fitted = [part if part is None else xp.take(part, fitted_runs, axis=0) for part in (w, outputs, slopes)]
        recent = max(int(np.count_nonzero(to_numpy(fitted_runs) >= w.shape[0] - latest)), 1)
        coarse_runs = None
        if coarse is None:
            regression = self._fit_regression(fitted[0], fitted[1], state, fitted[2], recent)
        else:
            coarse_runs = self._nearest_runs(state.q, coarse[0])
            of_coarse = [xp.take(part, coarse_runs, axis=0) for part in coarse]
            regression = self._fit_two_fidelities(fitted[0], fitted[1], of_coarse[0], of_coarse[1], state)
        linear, error_free, elbo = self._linearise(regression, replace(state.linear, mean=state.q.mean))
        q = self._sample_moments(regression, linear, rng, steps)
        new = FieldState(q, linear, error_free, w, outputs, regression, fitted_runs, slopes, coarse_runs)
        return new, FieldInfo(elbo, movement(state.linear, linear), few_runs_share(linear, error_free))

    def _fit_regression(
        self, w: Array, outputs: Array, state: FieldState, slopes: Array | None, latest: int
    ) -> AnyRegression:
        """Fit the regression of outputs (n, D) on w (n, R), and replace missing outputs.

        Jacobians (n, D, R) are used with complete outputs and without blocks. The last batch has `latest` runs.
        The search for the hyperparameters starts from those of the previous regression.
        """
        xp = array_namespace(w)
        hyper = None if state.regression is None else [part.hyper for part in state.regression.parts]
        if not bool(xp.any(xp.isnan(outputs))):
            if slopes is not None and not self.blocks:
                turned = slopes if self.unmixing is None else self.unmixing @ slopes
                outputs, start = self._decorrelate_noise(outputs), None if hyper is None else hyper[0]
                return fit_regression(self.modes, w, outputs, start, slopes=turned, latest=latest)
            return self._fit_complete_outputs(w, self._decorrelate_noise(outputs), hyper)
        blocks = self.blocks or [Block(np.arange(outputs.shape[1]), None, self.modes)]
        points = state.q.samples(self.normals)
        for _ in range(1 if hyper else self.options.first_completion_rounds):
            completed = complete_blocks(blocks, w, outputs, hyper, points, self.unmixing)
            scale = (1.0 + completed.excess) ** -0.5
            regression = self._fit_complete_outputs(
                w, self._decorrelate_noise(completed.expected), hyper, self._decorrelate_noise(completed.drawn), scale
            )
            hyper = [part.hyper for part in regression.parts]
        return regression

    def _fit_two_fidelities(
        self, w: Array, outputs: Array, coarse_w: Array, coarse_outputs: Array, state: FieldState
    ) -> Regression:
        """Fit the regression of fine runs at w (n, R), given coarse runs at other variables (n', R)."""
        former = state.regression if isinstance(state.regression, Regression) else None
        trend = None if former is None else former.trend
        start = trend.coarse.hyper if isinstance(trend, CoarseTrend) else None
        coarse = fit_regression(self.modes, coarse_w, self._decorrelate_noise(coarse_outputs), start)
        hyper = None if former is None else former.hyper
        return fit_correction(self.modes, w, self._decorrelate_noise(outputs), coarse, hyper)

    def _fit_complete_outputs(
        self,
        w: Array,
        outputs: Array,
        hyper: list[KernelParameters] | None,
        drawn: Array | None = None,
        scale: Array | None = None,
    ) -> AnyRegression:
        """Fit a regression to complete outputs, for all data or for each block."""
        if self.blocks:
            return fit_blocks(self.blocks, w, outputs, hyper, drawn, scale)
        return fit_regression(self.modes, w, outputs, hyper[0] if hyper else None, drawn, scale)

    def _decorrelate_noise(self, outputs: Array) -> Array:
        """Convert outputs (n, D) to the data with independent noise."""
        if self.unmixing is None:
            return outputs
        return outputs @ array_namespace(outputs).matrix_transpose(self.unmixing)

    def linearised_data(self, state: FieldState) -> LinearisedData:
        """Linearise the data as a function of the variables around the posterior by linearisation.

        Parameters
        ----------
        state : FieldState
            The present state.

        Returns
        -------
        LinearisedData

        Raises
        ------
        ValueError
            If there are no runs yet.
        """
        if state.regression is None:
            raise ValueError("there are no runs yet")
        averaged = self.average_regression(state.regression, state.linear)
        at_prior = averaged.value - averaged.slope @ state.linear.mean
        regression, scale = state.regression, state.regression.scale
        return LinearisedData(
            (self.likelihood.residual(regression) - at_prior @ regression.directions) / scale,
            regression.directions / scale,
            averaged.slope,
            self.noise_weights(regression, averaged, state.linear),
            averaged.error,
            scale**-2.0 - 1.0,
        )

    def _nearest_runs(self, q: Gaussian, w: Array) -> Array:
        """Select the runs at w (n, R) that the regression uses: all of them, or those nearest to the posterior."""
        distances = solve_triangular(q.factor, array_namespace(w).matrix_transpose(w - q.mean))
        order = np.argsort(to_numpy(sum_of_squares(distances)), kind="stable")
        kept = np.sort(order[: max(self.options.max_fitted_runs, 2 * self.normals.shape[1])])
        return array_namespace(w).asarray(kept.astype(np.int32), device=device_of(w))

    def refine(self, state: FieldState, rng: np.random.Generator, steps: int) -> FieldState:
        """Estimate the posterior again from the same runs, with another number of steps of slice sampling.

        Parameters
        ----------
        state : FieldState
            The present state.
        rng : numpy.random.Generator
            Random stream of the slices.
        steps : int
            Number of steps of each chain.

        Returns
        -------
        FieldState
        """
        if state.regression is None:
            return state
        return replace(state, q=self._sample_moments(state.regression, state.linear, rng, steps))

    def is_nearly_gaussian(self, regression: AnyRegression, q: LowRankGaussian, weights: Array) -> bool:
        """Return whether the posterior of the regression is q, but for `gaussian_tolerance` of the options.

        Parameters
        ----------
        regression : Regression or LocalRegression
            Regression in place of the forward model.
        q : LowRankGaussian
            Posterior by linearisation.
        weights : Array, shape (D,)
            Typical precisions of the noise; see `RegressionLikelihood.log_density`.
        """
        xp = array_namespace(q.mean)
        ratio = self.likelihood.log_density(regression, q.samples(self.normals), weights)
        return float(xp.std(ratio + 0.5 * xp.sum(xp.square(self.normals), axis=1))) < self.options.gaussian_tolerance

    def _sample_moments(
        self, regression: AnyRegression, q: LowRankGaussian, rng: np.random.Generator, steps: int
    ) -> Gaussian:
        """Estimate mean and covariance by slice sampling, unless the posterior of the regression is nearly Gaussian."""
        weights = self.noise_weights(regression, self.average_regression(regression, q), q)
        if self.is_nearly_gaussian(regression, q, weights):
            return q.to_dense()
        density = Density(
            regression.inner_products,
            lambda w, inner_products: self.likelihood.log_density(regression, w, weights, inner_products),
        )
        return estimate_moments(density, q, rng, self.options.slice_chains, steps)

    def _linearise(
        self, regression: AnyRegression, q: LowRankGaussian
    ) -> tuple[LowRankGaussian, LowRankGaussian, float]:
        """Compute the posterior by natural-gradient steps, the same without regression error, and the bound."""
        here, step = self.average_regression(regression, q), 1.0
        weights = self.noise_weights(regression, here, q)
        terms = self._data_terms(regression, here, weights)
        for _ in range(self.options.max_steps):
            bound = self._bound(terms, q)
            while step >= self.options.smallest_step:
                try:
                    trial = q.step(terms.precision_factor, terms.gradient, step)
                    there = self.average_regression(regression, trial)
                    new = self._data_terms(regression, there, weights)
                    if self._bound(new, trial) >= bound - self.options.rounding_slack * abs(bound):
                        break
                except np.linalg.LinAlgError:
                    pass
                step *= 0.5
            else:
                break
            old, q, here, terms = q, trial, there, new
            if self.degrees is not None:
                weights = self.noise_weights(regression, here, q)
                terms = self._data_terms(regression, here, weights)
            if (
                mean_movement(old, q) < self.options.step_tolerance * step
                and movement(old, q) < self.options.step_tolerance * step
            ):
                break
            step = min(1.0, 2.0 * step)
        xp = array_namespace(weights)
        exact = replace(here, error=xp.zeros_like(here.error))
        error_free_terms = self._data_terms(regression, exact, weights / xp.square(regression.scale))
        return q, q.step(error_free_terms.precision_factor, error_free_terms.gradient, 1.0), self._bound(terms, q)

    def average_regression(self, regression: AnyRegression, q: LowRankGaussian) -> _AveragedRegression:
        """Average the regression over a posterior.

        Parameters
        ----------
        regression : Regression or LocalRegression
        q : LowRankGaussian
            Posterior of the variables.
        """
        xp = array_namespace(self.y)
        value, slope = regression.average_over(q)
        _, error = regression.predictions(q.samples(self.normals))
        return _AveragedRegression(value, slope, xp.mean(error, axis=0))

    def noise_weights(self, regression: AnyRegression, averaged: _AveragedRegression, q: LowRankGaussian) -> Array:
        """Compute the precisions (D,) of the noise: 1, or for Student-t noise their expectation given the residuals.

        Parameters
        ----------
        regression : Regression or LocalRegression
        averaged : regression averaged over `q`
        q : LowRankGaussian
            Posterior of the variables.

        Returns
        -------
        Array, shape (D,)
        """
        xp = array_namespace(self.y)
        if self.degrees is None:
            return xp.ones_like(self.y)
        residual = self.likelihood.residual(regression) - averaged.value @ regression.directions
        removed_factor = averaged.slope @ q.removed_factor
        covariance = averaged.slope @ xp.matrix_transpose(averaged.slope) - removed_factor @ xp.matrix_transpose(
            removed_factor
        )
        covariance = covariance + averaged.error * identity(covariance)
        spread = sum_of_products(regression.directions, covariance @ regression.directions)
        return (self.degrees + 1.0) / (self.degrees + xp.square(residual) + spread)

    def _data_terms(self, regression: AnyRegression, averaged: _AveragedRegression, weights: Array) -> _DataTerms:
        """Compute the data terms for noise of the given precisions (D,) plus the regression error."""
        xp = array_namespace(weights)
        residual = self.likelihood.residual(regression) - averaged.value @ regression.directions
        score = regression.directions @ (weights * residual)
        if bool(xp.all(weights == 1.0)):
            information = identity(averaged.error[:, None] * averaged.error)  # directions are orthonormal
        else:
            information = (regression.directions * weights) @ xp.matrix_transpose(regression.directions)
        # With errors E, the data have the precision (Lambda^-1 + E)^-1 = root root^T.
        F = cholesky(information)
        F_transposed = xp.matrix_transpose(F)
        error_factor = (F_transposed * averaged.error) @ F
        error_factor = cholesky(identity(error_factor) + error_factor)
        root_transposed = solve_triangular(error_factor, F_transposed)
        effective_score = score - xp.matrix_transpose(root_transposed) @ (root_transposed @ (averaged.error * score))
        log_det = (
            2.0 * xp.sum(xp.log(xp.linalg.diagonal(error_factor)))
            - xp.sum(xp.log(weights))
            - 2.0 * xp.sum(xp.log(regression.scale))
        )
        misfit = xp.sum(weights * xp.square(residual)) - xp.sum(averaged.error * score * effective_score)
        precision_factor = xp.matrix_transpose(root_transposed @ averaged.slope)
        constant = self.y.shape[0] * math.log(2.0 * math.pi)
        return _DataTerms(
            precision_factor,
            xp.matrix_transpose(averaged.slope) @ effective_score,
            -0.5 * float(misfit + log_det + constant),
        )

    def _bound(self, terms: _DataTerms, q: LowRankGaussian) -> float:
        """Compute the bound: expected log likelihood minus KL divergence, in nats."""
        xp = array_namespace(terms.precision_factor)
        spread = xp.sum(xp.square(terms.precision_factor)) - xp.sum(
            xp.square(xp.matrix_transpose(q.removed_factor) @ terms.precision_factor)
        )
        return terms.at_mean - 0.5 * float(spread) - q.kl()
