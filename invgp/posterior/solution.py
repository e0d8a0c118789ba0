"""What an inference found, as host arrays, and what can be said of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.problem import Floats
from invgp.processes import Processes


@dataclass(frozen=True)
class Diagnostics:
    """What can be said about a posterior without knowing the truth.

    Attributes
    ----------
    chi_square : (P,), mean squared normalised residual, over the sites; NaN with no observation.
    shape_error : (N,), how far the Gaussian is from the exact posterior of each site given all the others, in standard
        deviations: of the mean, or the logarithm of the ratio of spreads; NaN where it could not be told.
    sentences : in plain words.
    """

    chi_square: Floats
    shape_error: Floats
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class EmulatorReport:
    """How far an emulator was trusted. Errors are in standard deviations of the noise.

    Attributes
    ----------
    name : the regression.
    held_out_error : root mean square at runs that were left out of the fit.
    verification_error : (N,), root mean square at fresh runs, made after the fit; NaN at sites without.
    direct : (N,), sites where the simulator itself was run throughout.
    """

    name: str
    held_out_error: float
    verification_error: Floats
    direct: NDArray[np.bool_]


@dataclass(frozen=True)
class Solution:
    """What the inference found, as host arrays.

    Attributes
    ----------
    mean, covariance : (N, Q) and (N, Q, Q), of the latent processes at each site, on the scale of the Gaussian process.
    draws : (R, N, Q), joint over sites and latents.
    processes : the posterior in the form that predicts anywhere; None where that would be too much to hold.
    predicted, predicted_std : (N, P), of the simulator's outputs under the posterior, in the observations' units.
    elbo, runs : (I,), the bound and the runs spent so far, at each iteration.
    status, converged : why the inference ended, and whether that is where it should.
    emulator : how far the emulator was trusted; None if there was none.
    few_runs_std : (N, Q), of a field model: the part of the spread of the processes that comes from having few runs.
        Its latents live on the nodes of a grid, which then stand for the sites in `mean`, `covariance` and `draws`.
    """

    mean: Floats
    covariance: Floats
    draws: Floats
    processes: Processes | None
    predicted: Floats
    predicted_std: Floats
    elbo: Floats
    runs: NDArray[np.int64]
    runs_total: int
    runs_failed: int
    seed: int
    status: str
    converged: bool
    diagnostics: Diagnostics
    emulator: EmulatorReport | None = None
    few_runs_std: Floats | None = None

    @property
    def points(self) -> str:
        """The dimension that the latents live on."""
        return "site" if self.few_runs_std is None else "node"
