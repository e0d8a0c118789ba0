"""The data of a field model in standard deviations of their noise, and independent."""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from invgp.core.backend import Backend
from invgp.latent_model.noise_density import data_covariance, noise_scale
from invgp.latent_model.prior import gaussian_noise
from invgp.problem import Floats, Problem


class Whitening:
    """Data in standard deviations of their noise, without those that are missing.

    Parameters
    ----------
    lacking : (N, P), how many runs lack each output; None if none does.

    Attributes
    ----------
    data : (D,), independent.
    unmixing : (D, D): outputs become independent as the data are by it; None if they are.
    degrees : of freedom of Student-t noise; None for Gaussian noise.
    log_scale : the log density of the data is that of the whitened ones plus this.
    """

    def __init__(self, problem: Problem, missing_counts: NDArray[np.intp] | None = None) -> None:
        y = problem.survey.Y
        self.observed: NDArray[np.bool_] = ~np.isnan(y)
        self.degrees = problem.noise.degrees if problem.noise.kind == "student-t" else None
        self.unmixing: Floats | None = None
        if problem.noise.joins_sites or (missing_counts is not None and problem.noise.correlation):
            covariance = data_covariance(problem)
            self.std = np.sqrt(np.diagonal(covariance))
            # A datum is freed of the noise that it shares with those before it: what runs lack must come last.
            order = (
                np.arange(len(self.std))
                if missing_counts is None
                else np.argsort(missing_counts[self.observed], kind="stable")
            )
            within = np.ix_(order, order)
            factor = np.linalg.cholesky((covariance / np.outer(self.std, self.std))[within])
            self.unmixing = np.empty_like(factor)
            self.unmixing[within] = scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True)
            self.log_scale = -float(np.sum(np.log(self.std)) + np.sum(np.log(np.diagonal(factor))))
        elif self.degrees is None:
            noise = gaussian_noise(problem, Backend(np, "cpu"))
            self.matrices = np.asarray(noise.whitening)
            self.log_scale = float(np.sum(noise.log_normaliser)) + 0.5 * math.log(2.0 * math.pi) * self.observed.sum()
        else:
            scale = noise_scale(problem)
            self.matrices = np.eye(y.shape[1]) / scale[:, None, :]
            self.log_scale = -float(np.sum(np.log(scale[self.observed])))
        self.data = self(y[None])[0]
        if self.unmixing is not None:
            self.data = self.unmixing @ self.data

    def __call__(self, outputs: Floats) -> Floats:
        """Outputs (S, N, P), NaN where they are missing -> (S, D), NaN where something in them is."""
        if self.unmixing is not None:
            return np.asarray(outputs[:, self.observed] / self.std)
        missing = np.isnan(outputs) & self.observed
        values = np.where(self.observed & ~missing, outputs, 0.0)
        whitened = (self.matrices @ values[..., None])[..., 0]
        if missing.any():
            whitened[((self.matrices != 0.0) @ missing[..., None])[..., 0]] = np.nan
        return np.asarray(whitened[:, self.observed])
