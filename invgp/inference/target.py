"""What a sampler draws from: the prior of whitened latents, and the likelihood of all data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import place, to_numpy
from invgp.core.geometry import inducing_factor
from invgp.errors import ConfigError
from invgp.inference.model import kernels_of
from invgp.inference.noise import noise_log_density
from invgp.inference.simulator import Batch
from invgp.problem import Floats, Problem

# Latent values (S, B, Q), on the scale of the Gaussian process, at sites (B,) -> outputs: a simulator, or an emulator.
Run = Callable[[Floats, NDArray[np.intp]], Batch]


class WhitenedPrior:
    """From whitened latents to the latents at the sites: f_q = mean_q + L_q v_q, with L_q L_q^T the prior covariance.

    Attributes
    ----------
    mean : (Q,).
    factor : L, (Q, N, N).
    """

    def __init__(self, problem: Problem) -> None:
        self.mean, _ = problem.prior()
        kernels, X = kernels_of(problem, place("cpu")), problem.survey.X
        try:
            self.factor: Floats = inducing_factor(kernels, np.broadcast_to(X, (len(kernels), *X.shape)))
        except np.linalg.LinAlgError as error:
            raise ConfigError(f"latents: the kernels give a covariance that cannot be factorised: {error}") from error

    def __call__(self, v: Floats) -> Floats:
        """V (S, Q N) -> f (S, N, Q)."""
        Q, N, _ = self.factor.shape
        columns = v.reshape(-1, Q, N).transpose(1, 2, 0)
        return np.asarray(self.mean + (self.factor @ columns).transpose(2, 1, 0))


class SiteLikelihood:
    """Log likelihood of all data, from runs at the sites where something was observed.

    Parameters
    ----------
    simulated : (N,), the sites for which the simulator itself is run; None for all.
    """

    def __init__(self, problem: Problem, run: Run, simulated: NDArray[np.bool_] | None = None) -> None:
        self.run, self.shape = run, problem.survey.Y.shape
        self.sites = informed_sites(problem)
        self.runs = len(self.sites) if simulated is None else int(simulated[self.sites].sum())
        self.observed = np.isfinite(problem.survey.Y[self.sites])
        self.log_density = noise_log_density(problem, place("cpu"))

    def __call__(self, f: Floats) -> Floats:
        """Log likelihood (S,) of f (S, N, Q); minus infinity where a run failed."""
        batch = self.run(f[:, self.sites, :], self.sites)
        outputs = np.zeros((len(f), *self.shape))
        whole = batch.whole(self.observed)
        outputs[:, self.sites] = np.where(whole[..., None], batch.needed(self.observed), 0.0)
        total = np.sum(to_numpy(self.log_density(outputs)), axis=1)
        return np.where(whole.all(axis=1) & ~np.isnan(total), total, -np.inf)

    def cost(self, which: NDArray[np.bool_]) -> int:
        """Runs that an evaluation of these chains takes."""
        return int(which.sum()) * self.runs


def informed_sites(problem: Problem) -> NDArray[np.intp]:
    """Numbers (B,) of the sites where something was observed: the others need no run."""
    return np.flatnonzero(~np.isnan(problem.survey.Y).all(axis=1))
