"""Estimate of the numerical noise of a simulator, from a few runs on short lines.

An iterative solver or an adaptive mesh makes the outputs rough: they change by small amounts between inputs that hardly
differ. No emulator can follow this, whatever the number of runs. On a line that is short compared with the posterior, a
smooth output is nearly a quadratic polynomial, and what is left of it is noise. Moré and Wild (2011, SIAM Journal on
Scientific Computing 33, 1292-1314) estimate computational noise from differences along such lines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.problem import Floats


@dataclass(frozen=True)
class SolverNoiseOptions:
    """Design of the lines.

    Parameters
    ----------
    lines : int
        Number of lines, at different sites; fewer if there are fewer sites.
    points : int
        Runs per line.
    spacing : float
        Distance between the runs of a line, in posterior standard deviations.
    degree : int
        Degree of the polynomial that stands for the smooth part.
    """

    lines: int = 3
    points: int = 6
    spacing: float = 0.02
    degree: int = 2


def place_lines(
    mean: Floats, factor: Floats, rng: np.random.Generator, options: SolverNoiseOptions = SolverNoiseOptions()
) -> tuple[Floats, NDArray[np.intp]]:
    """Place short lines through the posterior means of some sites, in random directions.

    Parameters
    ----------
    mean : array, shape (N, Q)
        Posterior mean of the latents at each site.
    factor : array, shape (N, Q, Q)
        Cholesky factor of the posterior covariance of each site.
    rng : numpy.random.Generator
    options : SolverNoiseOptions

    Returns
    -------
    latents : array, shape (S, B, Q)
        Points of the lines; line k is `latents[:, k]`.
    sites : array of int, shape (B,)
    """
    sites = rng.permutation(len(mean))[: options.lines]
    normals = rng.standard_normal((len(sites), mean.shape[1]))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    steps = options.spacing * (np.arange(options.points) - 0.5 * (options.points - 1))
    along = (factor[sites] @ normals[..., None])[..., 0]
    return mean[sites] + steps[:, None, None] * along, sites


def estimate_solver_noise(outputs: Floats, options: SolverNoiseOptions = SolverNoiseOptions()) -> Floats:
    """Estimate the standard deviation (P,) of the noise of each output from runs on lines.

    Parameters
    ----------
    outputs : array, shape (S, B, P)
        Outputs at the points of `place_lines`; NaN for failed runs.
    options : SolverNoiseOptions

    Returns
    -------
    array, shape (P,), in the units of the outputs
        Median over the lines, so that a jump on one of them does not count; 0 if no line is complete.
    """
    steps = np.linspace(-1.0, 1.0, outputs.shape[0])
    basis = np.polynomial.legendre.legvander(steps, options.degree)
    remainder = np.eye(len(steps)) - basis @ np.linalg.pinv(basis)
    freedom = len(steps) - basis.shape[1]
    complete = np.isfinite(outputs).all(axis=(0, 2))
    if not complete.any():
        return np.zeros(outputs.shape[2])
    left = np.einsum("rs,sbp->rbp", remainder, outputs[:, complete])
    return np.asarray(np.median(np.linalg.norm(left, axis=0), axis=0) / math.sqrt(freedom))
