"""Whitening of the data of a field model: independent noise with standard deviation 1."""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from invgp.core.backend import Backend
from invgp.latent_model.noise_density import data_covariance, noise_scale
from invgp.latent_model.problem_prior import gaussian_noise
from invgp.problem import Floats, Problem


class Whitening:
    """Transformation of data and outputs to independent noise with standard deviation 1.

    Missing data are left out.

    Parameters
    ----------
    problem : Problem
    missing_counts : array of int, shape (N, P), optional
        Number of runs without each output; None if no run lacks an observed output.

    Attributes
    ----------
    observed : array of bool, shape (N, P)
    data : array, shape (D,)
        Whitened data.
    unmixing : array, shape (D, D), or None
        Removes the correlations of the scaled outputs; None if scaled outputs are independent.
    degrees : float or None
        Degrees of freedom of Student-t noise; None for Gaussian noise.
    log_scale : float
        Log density of the data minus that of the whitened data.
    """

    def __init__(self, problem: Problem, missing_counts: NDArray[np.intp] | None = None) -> None:
        y = problem.survey.Y
        self.observed: NDArray[np.bool_] = ~np.isnan(y)
        self.degrees = problem.noise.degrees if problem.noise.kind == "student-t" else None
        self.unmixing: Floats | None = None
        if problem.noise.correlates_sites or (missing_counts is not None and problem.noise.correlation):
            covariance = data_covariance(problem)
            self.std = np.sqrt(np.diagonal(covariance))
            # Each datum is whitened given the data before it, so outputs that runs lack must come last.
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
        """Scale outputs, and whiten them unless `unmixing` is to be applied later.

        Parameters
        ----------
        outputs : array, shape (S, N, P)
            NaN where missing.

        Returns
        -------
        array, shape (S, D)
            NaN where a missing output contributes.
        """
        if self.unmixing is not None:
            return np.asarray(outputs[:, self.observed] / self.std)
        missing = np.isnan(outputs) & self.observed
        values = np.where(self.observed & ~missing, outputs, 0.0)
        whitened = (self.matrices @ values[..., None])[..., 0]
        if missing.any():
            whitened[((self.matrices != 0.0) @ missing[..., None])[..., 0]] = np.nan
        return np.asarray(whitened[:, self.observed])
