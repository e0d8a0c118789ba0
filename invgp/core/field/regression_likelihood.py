"""The likelihood of the data of a field model, with a regression in place of the forward model.

The variance of the regression counts as noise. For Student-t noise, the regression error is set to its approximate mode
(Laplace approximation).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from invgp.core.backend import Array, array_namespace
from invgp.core.field.local_regression import LocalRegression
from invgp.core.field.regression import Regression

AnyRegression = Regression | LocalRegression


@dataclass(frozen=True)
class RegressionLikelihood:
    """The likelihood of the variables of a field under a regression.

    Parameters
    ----------
    y : Array, shape (D,), standard deviations (or scales) of the noise
        Data with independent noise.
    degrees : float or None
        Degrees of freedom of Student-t noise; None for Gaussian noise.
    """

    y: Array
    degrees: float | None = None

    def residual(self, regression: AnyRegression) -> Array:
        """Compute the scaled data (D,) minus the centre of the regression.

        Parameters
        ----------
        regression : Regression or LocalRegression

        Returns
        -------
        Array, shape (D,)
        """
        return self.y * regression.scale - regression.centre

    def log_density(
        self, regression: AnyRegression, w: Array, weights: Array, inner_products: Array | None = None
    ) -> Array:
        """Compute the joint log density (S,) of w and the data under the regression, up to a constant.

        Parameters
        ----------
        regression : Regression or LocalRegression
            Regression in place of the forward model.
        w : Array, shape (S, R)
            Variables.
        weights : Array, shape (D,)
            Typical precisions of the noise; used only for Student-t noise.
        inner_products : Array, shape (S, n), or None
            `Regression.inner_products` of w, if it has been computed already.
        """
        xp = array_namespace(w)
        z, error = regression.predictions(w, inner_products)
        prior = -0.5 * xp.sum(xp.square(w), axis=1)
        if self.degrees is None:
            noise = 1.0 + error
            off = regression.directions @ self.residual(regression) - z
            return prior - 0.5 * xp.sum(xp.square(off) / noise + xp.log(noise), axis=1)
        off = self.residual(regression) - z @ regression.directions
        # The regression error is common to many data. It is set to its approximate mode, with a penalty for its prior
        # density and the log determinant of its precision (Laplace approximation).
        weighted = xp.square(regression.directions) @ weights
        scaled_mode = ((off * weights) @ xp.matrix_transpose(regression.directions)) / (1.0 + error * weighted)
        tail = xp.log(1.0 + xp.square(off - (error * scaled_mode) @ regression.directions) / self.degrees)
        penalty = error * xp.square(scaled_mode) + xp.log(1.0 + error * weighted)
        return prior - 0.5 * ((self.degrees + 1.0) * xp.sum(tail, axis=1) + xp.sum(penalty, axis=1))

    def log_likelihood(
        self, regression: AnyRegression, w: Array, weights: Array, trust: float = 0.0
    ) -> tuple[Array, Array]:
        """Compute the log likelihood (S,) under the regression, up to a constant, and its gradient (S, R).

        Parameters
        ----------
        regression, w, weights
            As of `log_density`.
        trust : float
            1 to ignore the uncertainty of the regression, 0 to treat it as noise.
        """
        xp = array_namespace(w)
        z, error, by_w = regression.predictions_with_derivatives(w)
        doubt = 1.0 - trust
        error = doubt * error

        def chain_rule(by_z: Array, by_error: Array) -> Array:
            return by_w(by_z, doubt * by_error)

        if self.degrees is None:
            noise = 1.0 + error
            off = regression.directions @ self.residual(regression) - z
            scaled = off / noise
            value = -0.5 * xp.sum(off * scaled + xp.log(noise), axis=1)
            return value, chain_rule(scaled, 0.5 * (xp.square(scaled) - 1.0 / noise))
        directions = regression.directions
        off = self.residual(regression) - z @ directions
        weighted = xp.square(directions) @ weights
        shrunk = 1.0 + error * weighted
        scaled_mode = ((off * weights) @ xp.matrix_transpose(directions)) / shrunk
        left = off - (error * scaled_mode) @ directions
        tail = xp.log(1.0 + xp.square(left) / self.degrees)
        penalty = error * xp.square(scaled_mode) + xp.log(shrunk)
        value = -0.5 * ((self.degrees + 1.0) * xp.sum(tail, axis=1) + xp.sum(penalty, axis=1))
        by_left = -(self.degrees + 1.0) * left / (self.degrees + xp.square(left))
        by_mode = -(by_left @ xp.matrix_transpose(directions))
        by_scaled_mode = error * (by_mode - scaled_mode)
        by_error = (
            scaled_mode * by_mode
            - 0.5 * xp.square(scaled_mode)
            - (0.5 + by_scaled_mode * scaled_mode) * weighted / shrunk
        )
        by_off = by_left + ((by_scaled_mode / shrunk) @ directions) * weights
        return value, chain_rule(-(by_off @ xp.matrix_transpose(directions)), by_error)

    def log_constant(self, regression: AnyRegression) -> float:
        """Compute the logarithm of the likelihood of the whitened data minus `log_likelihood`, in nats.

        Parameters
        ----------
        regression : Regression or LocalRegression

        Returns
        -------
        float
        """
        xp = array_namespace(self.y)
        log_scale, data = float(xp.sum(xp.log(regression.scale))), int(self.y.shape[0])
        if self.degrees is None:
            residual = self.residual(regression)
            left = xp.sum(xp.square(residual)) - xp.sum(xp.square(regression.directions @ residual))
            return log_scale - 0.5 * float(left) - 0.5 * data * math.log(2.0 * math.pi)
        each = math.lgamma(0.5 * (self.degrees + 1.0)) - math.lgamma(0.5 * self.degrees)
        return log_scale + data * (each - 0.5 * math.log(self.degrees * math.pi))
