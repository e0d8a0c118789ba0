"""A Gaussian posterior of the whitened variables, as init / ask / tell: the caller runs the forward model.

Each step draws runs from the posterior so far, regresses the outputs on the variables with all runs so far, and moves
the posterior by guarded natural-gradient steps to where statistical linearisation puts it. Where the forward model
bends so much that this is not the posterior's mean and covariance, they are taken from slice sampling, with the
regression for the forward model: that costs no runs. What the regression does not know counts as noise: where the runs
say nothing, the posterior keeps the spread of the prior, and a posterior that runs away from the runs is held back.
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
from invgp.core.field.evidence import LinearData
from invgp.core.field.field_gaussian import (
    Gaussian,
    LowRankGaussian,
    few_runs_share,
    movement,
    orthogonal_normals,
    shift,
)
from invgp.core.field.local_regression import Block, LocalRegression, fit_blocks
from invgp.core.field.missing_outputs import complete_blocks
from invgp.core.field.regression import Hyperparameters, Modes, Regression, fit

FIRST_ROUNDS = 2  # of filling in what runs lack, and learning how well they predict each other
STEPS = 60  # natural-gradient steps for each batch of runs
STILL = 1e-4  # standard deviations: a step that moves the posterior by less is the last
SMALLEST_STEP = 1.0 / 64.0
SLACK = 1e-9  # of the bound's size: rounding
GAUSSIAN = 0.03  # nats: a posterior whose log density differs from the Gaussian's by less needs no sampling
CHAINS = 64
MOST_FITTED = 1000  # runs of a regression, or twice its variables: beyond, the algebra takes longer than it helps

AnyRegression = Regression | LocalRegression


@dataclass(frozen=True)
class FieldState:
    """Where the inference stands: immutable, all that is needed to go on.

    Attributes
    ----------
    q : the posterior.
    linear : the posterior by linearisation alone.
    certain : the same, were the regression certain; None before any runs.
    w, outputs : (n, R) and (n, D), of all runs that went well; NaN for outputs that a run lacks.
    regression : of those that are near; None before the first.
    near : numbers of these.
    """

    q: Gaussian
    linear: LowRankGaussian
    certain: LowRankGaussian | None = None
    w: Array = None
    outputs: Array = None
    regression: AnyRegression | None = None
    near: Array = None

    @property
    def few_runs(self) -> Array:
        """(R, R), the part of the covariance by linearisation that comes from the regression's uncertainty."""
        if self.certain is None:
            raise ValueError("there were no runs yet")
        xp = array_namespace(self.linear.removed_factor)
        less, more = self.linear.removed_factor, self.certain.removed_factor
        return more @ xp.matrix_transpose(more) - less @ xp.matrix_transpose(less)


@dataclass(frozen=True)
class FieldInfo:
    """What one batch of runs found.

    Attributes
    ----------
    elbo : at the posterior, with the regression for the forward model, in nats.
    movement : of the posterior by linearisation, in its standard deviations, over the directions that the data inform.
    few_runs : the share of the posterior's variance that comes from having few runs, in the directions that the data
        inform.
    """

    elbo: float
    movement: float
    few_runs: float


@dataclass(frozen=True)
class _Local:
    """The regression about a posterior.

    Attributes
    ----------
    value, slope : (k,) and (k, R), averages over the posterior.
    error : (k,), variance of what the regression does not know.
    """

    value: Array
    slope: Array
    error: Array


@dataclass(frozen=True)
class _DataTerms:
    """What the data say about a posterior.

    Attributes
    ----------
    added : V (R, k), whose V V^T they add to the precision.
    gradient : (R,), of the expected log likelihood with respect to the mean.
    at_mean : the log likelihood of a posterior without spread.
    """

    added: Array
    gradient: Array
    at_mean: float


@dataclass(frozen=True)
class FieldInference:
    """The algorithm with everything that stays fixed while it runs.

    Parameters
    ----------
    modes : of the prior.
    y : (D,), the data in standard deviations (or scales) of their noise, which is independent.
    normals : (S, R), points at which averages without closed form are taken; each with its mirror image is best.
    degrees : of freedom of Student-t noise; None for Gaussian noise.
    blocks : of data that feel the field near them alone; none: all data feel all of it.
    unmixing : (D, D): the noise of outputs is independent after it; None where they are told so.
    """

    modes: Modes
    y: Array
    normals: Array
    degrees: float | None = None
    blocks: Sequence[Block] = ()
    unmixing: Array | None = None

    def init(self) -> FieldState:
        """Start at the prior."""
        prior = LowRankGaussian.prior(self.modes.variances)
        return FieldState(prior.dense(), prior)

    def ask(self, state: FieldState, count: int, rng: np.random.Generator, spread: float = 1.0) -> Array:
        """Variables (count, R) at which runs are wanted: orthogonal directions, lengths as of normal draws.

        Parameters
        ----------
        spread : a number below 1 keeps nearer to the posterior's mean.
        """
        backend = backend_of(self.y)
        return state.q.samples(spread * backend.asarray(orthogonal_normals(rng, count, self.normals.shape[1])))

    def tell(
        self, state: FieldState, w: Array, outputs: Array, rng: np.random.Generator, steps: int = 40
    ) -> tuple[FieldState, FieldInfo]:
        """Take in runs that went well: outputs (n, D), in units of the noise as the data, at w (n, R).

        Parameters
        ----------
        outputs : NaN for what a run lacks; some run must have it.
        steps : of slice sampling, where it is needed.
        """
        xp = array_namespace(w)
        if state.regression is not None:
            w, outputs = xp.concat([state.w, w]), xp.concat([state.outputs, outputs])
        near = self._nearest(state.q, w)
        regression = self._fit_regression(xp.take(w, near, axis=0), xp.take(outputs, near, axis=0), state)
        linear, certain, elbo = self._linearise(regression, replace(state.linear, mean=state.q.mean))
        q = self._sample_moments(regression, linear, rng, steps)
        new = FieldState(q, linear, certain, w, outputs, regression, near)
        return new, FieldInfo(elbo, movement(state.linear, linear), few_runs_share(linear, certain))

    def _fit_regression(self, w: Array, outputs: Array, state: FieldState) -> AnyRegression:
        """The regression of outputs (n, D) on w (n, R); its hyperparameters are sought from those of the last."""
        xp = array_namespace(w)
        hyper = None if state.regression is None else [part.hyper for part in state.regression.parts]
        if not bool(xp.any(xp.isnan(outputs))):
            return self._regression(w, self._independent(outputs), hyper)
        blocks = self.blocks or [Block(np.arange(outputs.shape[1]), None, self.modes)]
        points = state.q.samples(self.normals)
        for _ in range(1 if hyper else FIRST_ROUNDS):
            whole = complete_blocks(blocks, w, outputs, hyper, points, self.unmixing)
            scale = (1.0 + whole.excess) ** -0.5
            regression = self._regression(
                w, self._independent(whole.expected), hyper, self._independent(whole.drawn), scale
            )
            hyper = [part.hyper for part in regression.parts]
        return regression

    def _regression(
        self,
        w: Array,
        outputs: Array,
        hyper: list[Hyperparameters] | None,
        drawn: Array | None = None,
        scale: Array | None = None,
    ) -> AnyRegression:
        if self.blocks:
            return fit_blocks(self.blocks, w, outputs, hyper, drawn, scale)
        return fit(self.modes, w, outputs, hyper[0] if hyper else None, drawn, scale)

    def _independent(self, outputs: Array) -> Array:
        """Outputs (n, D) as the data are, with independent noise."""
        if self.unmixing is None:
            return outputs
        return outputs @ array_namespace(outputs).matrix_transpose(self.unmixing)

    def linear_data(self, state: FieldState) -> LinearData:
        """The data as a line in the variables, about the posterior by linearisation."""
        if state.regression is None:
            raise ValueError("there were no runs yet")
        local = self._local(state.regression, state.linear)
        at_prior = local.value - local.slope @ state.linear.mean
        regression, scale = state.regression, state.regression.scale
        return LinearData(
            (self._residual(regression) - at_prior @ regression.directions) / scale,
            regression.directions / scale,
            local.slope,
            self.noise_weights(regression, local, state.linear),
            local.error,
            scale**-2.0 - 1.0,
        )

    def _residual(self, regression: AnyRegression) -> Array:
        """Data (D,) less the centre of the outputs, in the scale of the regression."""
        return self.y * regression.scale - regression.centre

    def _nearest(self, q: Gaussian, w: Array) -> Array:
        """Numbers of the runs at w (n, R) that the regression uses: all, or those nearest to the posterior."""
        distances = solve_triangular(q.factor, array_namespace(w).matrix_transpose(w - q.mean))
        order = np.argsort(to_numpy(sum_of_squares(distances)), kind="stable")
        kept = np.sort(order[: max(MOST_FITTED, 2 * self.normals.shape[1])])
        return array_namespace(w).asarray(kept.astype(np.int32), device=device_of(w))

    def refine(self, state: FieldState, rng: np.random.Generator, steps: int) -> FieldState:
        """The same runs, with more steps of slice sampling."""
        if state.regression is None:
            return state
        return replace(state, q=self._sample_moments(state.regression, state.linear, rng, steps))

    def _sample_moments(
        self, regression: AnyRegression, q: LowRankGaussian, rng: np.random.Generator, steps: int
    ) -> Gaussian:
        """Mean and covariance by slice sampling, unless the regression's posterior is Gaussian as it is."""
        xp = array_namespace(q.mean)
        samples = q.samples(self.normals)
        weights = self.noise_weights(regression, self._local(regression, q), q)
        ratio = self.log_density(regression, samples, weights) + 0.5 * xp.sum(xp.square(self.normals), axis=1)
        if float(xp.std(ratio)) < GAUSSIAN:
            return q.dense()
        density = Density(regression.inner, lambda w, inner: self.log_density(regression, w, weights, inner))
        return estimate_moments(density, q, rng, CHAINS, steps)

    def log_density(self, regression: AnyRegression, w: Array, weights: Array, inner: Array | None = None) -> Array:
        """Of w (S, R) and the data, with the regression for the forward model, up to a constant: (S,).

        Parameters
        ----------
        weights : (D,), usual precisions of the noise.
        inner : (S, n), `Regression.inner` of w, where it is known already.
        """
        xp = array_namespace(w)
        z, error = regression.predictions(w, inner)
        prior = -0.5 * xp.sum(xp.square(w), axis=1)
        if self.degrees is None:
            noise = 1.0 + error
            off = regression.directions @ self._residual(regression) - z
            return prior - 0.5 * xp.sum(xp.square(off) / noise + xp.log(noise), axis=1)
        off = self._residual(regression) - z @ regression.directions
        # What the regression does not know is shared by many data: it is taken at its best, and its width counted.
        weighed = xp.square(regression.directions) @ weights
        pulled = ((off * weights) @ xp.matrix_transpose(regression.directions)) / (1.0 + error * weighed)
        tail = xp.log(1.0 + xp.square(off - (error * pulled) @ regression.directions) / self.degrees)
        penalty = error * xp.square(pulled) + xp.log(1.0 + error * weighed)
        return prior - 0.5 * ((self.degrees + 1.0) * xp.sum(tail, axis=1) + xp.sum(penalty, axis=1))

    def _linearise(
        self, regression: AnyRegression, q: LowRankGaussian
    ) -> tuple[LowRankGaussian, LowRankGaussian, float]:
        """The posterior by guarded natural-gradient steps, the same for a certain regression, and the bound."""
        here, step = self._local(regression, q), 1.0
        weights = self.noise_weights(regression, here, q)
        said = self._data_terms(regression, here, weights)
        for _ in range(STEPS):
            bound = self._bound(said, q)
            while step >= SMALLEST_STEP:
                try:
                    trial = q.step(said.added, said.gradient, step)
                    there = self._local(regression, trial)
                    new = self._data_terms(regression, there, weights)
                    if self._bound(new, trial) >= bound - SLACK * abs(bound):
                        break
                except np.linalg.LinAlgError:
                    pass
                step *= 0.5
            else:
                break
            old, q, here, said = q, trial, there, new
            if self.degrees is not None:
                weights = self.noise_weights(regression, here, q)
                said = self._data_terms(regression, here, weights)
            if shift(old, q) < STILL * step and movement(old, q) < STILL * step:
                break
            step = min(1.0, 2.0 * step)
        xp = array_namespace(weights)
        exact = replace(here, error=xp.zeros_like(here.error))
        known = self._data_terms(regression, exact, weights / xp.square(regression.scale))
        return q, q.step(known.added, known.gradient, 1.0), self._bound(said, q)

    def _local(self, regression: AnyRegression, q: LowRankGaussian) -> _Local:
        xp = array_namespace(self.y)
        value, slope = regression.average_over(q)
        _, error = regression.predictions(q.samples(self.normals))
        return _Local(value, slope, xp.mean(error, axis=0))

    def noise_weights(self, regression: AnyRegression, local: _Local, q: LowRankGaussian) -> Array:
        """(D,), precisions of the noise: 1, or what Student-t noise makes of the residuals."""
        xp = array_namespace(self.y)
        if self.degrees is None:
            return xp.ones_like(self.y)
        residual = self._residual(regression) - local.value @ regression.directions
        removed_factor = local.slope @ q.removed_factor
        covariance = local.slope @ xp.matrix_transpose(local.slope) - removed_factor @ xp.matrix_transpose(
            removed_factor
        )
        covariance = covariance + local.error * identity(covariance)
        spread = sum_of_products(regression.directions, covariance @ regression.directions)
        return (self.degrees + 1.0) / (self.degrees + xp.square(residual) + spread)

    def _data_terms(self, regression: AnyRegression, local: _Local, weights: Array) -> _DataTerms:
        """What the data say, for noise of these precisions, with the regression's error as more noise."""
        xp = array_namespace(weights)
        residual = self._residual(regression) - local.value @ regression.directions
        step_towards = regression.directions @ (weights * residual)
        if bool(xp.all(weights == 1.0)):
            information = identity(local.error[:, None] * local.error)  # directions are orthonormal
        else:
            information = (regression.directions * weights) @ xp.matrix_transpose(regression.directions)
        # With errors E, the data have the precision (Lambda^-1 + E)^-1 = root root^T.
        F = cholesky(information)
        F_transposed = xp.matrix_transpose(F)
        mixed = (F_transposed * local.error) @ F
        mixed = cholesky(identity(mixed) + mixed)
        root_transposed = solve_triangular(mixed, F_transposed)
        less = step_towards - xp.matrix_transpose(root_transposed) @ (root_transposed @ (local.error * step_towards))
        log_det = (
            2.0 * xp.sum(xp.log(xp.linalg.diagonal(mixed)))
            - xp.sum(xp.log(weights))
            - 2.0 * xp.sum(xp.log(regression.scale))
        )
        misfit = xp.sum(weights * xp.square(residual)) - xp.sum(local.error * step_towards * less)
        added = xp.matrix_transpose(root_transposed @ local.slope)
        constant = self.y.shape[0] * math.log(2.0 * math.pi)
        return _DataTerms(added, xp.matrix_transpose(local.slope) @ less, -0.5 * float(misfit + log_det + constant))

    def _bound(self, said: _DataTerms, q: LowRankGaussian) -> float:
        """Expected log likelihood less the divergence."""
        xp = array_namespace(said.added)
        spread = xp.sum(xp.square(said.added)) - xp.sum(xp.square(xp.matrix_transpose(q.removed_factor) @ said.added))
        return said.at_mean - 0.5 * float(spread) - q.kl()
