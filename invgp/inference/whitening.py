"""The data of a field model in standard deviations of their noise, and independent."""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from invgp.core.backend import Place
from invgp.inference.model import gaussian_noise
from invgp.inference.noise import data_covariance, noise_scale
from invgp.problem import Floats, Problem


class Whitening:
    """Data in standard deviations of their noise, without those that are missing.

    Parameters
    ----------
    gaps : whether runs may lack outputs: those that they have must not be mixed with these before they are known.

    Attributes
    ----------
    data : (D,), independent.
    mixing : lower triangular (D, D): outputs become independent as the data are by its inverse; None if they are.
    degrees : of freedom of Student-t noise; None for Gaussian noise.
    log_scale : the log density of the data is that of the whitened ones plus this.
    """

    def __init__(self, problem: Problem, *, gaps: bool = False) -> None:
        y = problem.survey.Y
        self.observed: NDArray[np.bool_] = ~np.isnan(y)
        self.degrees = problem.noise.degrees if problem.noise.kind == "student-t" else None
        self.mixing: Floats | None = None
        if problem.noise.joins_sites or (gaps and problem.noise.correlation):
            covariance = data_covariance(problem)
            self.std = np.sqrt(np.diagonal(covariance))
            self.mixing = np.asarray(np.linalg.cholesky(covariance / np.outer(self.std, self.std)), dtype=np.float64)
            self.log_scale = -float(np.sum(np.log(self.std * np.diagonal(self.mixing))))
        elif self.degrees is None:
            noise = gaussian_noise(problem, Place(np, "cpu"))
            self.matrices = np.asarray(noise.whitening)
            self.log_scale = float(np.sum(noise.log_normaliser)) + 0.5 * math.log(2.0 * math.pi) * self.observed.sum()
        else:
            scale = noise_scale(problem)
            self.matrices = np.eye(y.shape[1]) / scale[:, None, :]
            self.log_scale = -float(np.sum(np.log(scale[self.observed])))
        self.data = self(y[None])[0]
        if self.mixing is not None:
            self.data = scipy.linalg.solve_triangular(self.mixing, self.data, lower=True)

    def __call__(self, outputs: Floats) -> Floats:
        """Outputs (S, N, P), NaN where they are missing -> (S, D), NaN where something in them is."""
        if self.mixing is not None:
            return np.asarray(outputs[:, self.observed] / self.std)
        missing = np.isnan(outputs) & self.observed
        values = np.where(self.observed & ~missing, outputs, 0.0)
        whitened = (self.matrices @ values[..., None])[..., 0]
        if missing.any():
            whitened[((self.matrices != 0.0) @ missing[..., None])[..., 0]] = np.nan
        return np.asarray(whitened[:, self.observed])
