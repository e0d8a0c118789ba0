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

    Attributes
    ----------
    data : (D,).
    degrees : of freedom of Student-t noise; None for Gaussian noise.
    log_scale : the log density of the data is that of the whitened ones plus this.
    """

    def __init__(self, problem: Problem) -> None:
        y = problem.survey.Y
        self.observed: NDArray[np.bool_] = ~np.isnan(y)
        self.degrees = problem.noise.degrees if problem.noise.kind == "student-t" else None
        self.factor: Floats | None = None
        if problem.noise.joins_sites:
            factor: Floats = np.linalg.cholesky(data_covariance(problem)).astype(np.float64)
            self.factor = factor
            self.log_scale = -float(np.sum(np.log(np.diagonal(factor))))
        elif self.degrees is None:
            noise = gaussian_noise(problem, Place(np, "cpu"))
            self.matrices = np.asarray(noise.whitening)
            self.log_scale = float(np.sum(noise.log_normaliser)) + 0.5 * math.log(2.0 * math.pi) * self.observed.sum()
        else:
            scale = noise_scale(problem)
            self.matrices = np.eye(y.shape[1]) / scale[:, None, :]
            self.log_scale = -float(np.sum(np.log(scale[self.observed])))
        self.data = self(np.where(self.observed, y, 0.0)[None])[0]

    def __call__(self, outputs: Floats) -> Floats:
        """Outputs (S, N, P) -> (S, D)."""
        if self.factor is not None:
            return np.asarray(scipy.linalg.solve_triangular(self.factor, outputs[:, self.observed].T, lower=True).T)
        return np.asarray((self.matrices @ outputs[..., None])[..., 0][:, self.observed])
