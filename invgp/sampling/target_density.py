"""Target of the sampler: prior of the whitened latents and likelihood of the data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import select_backend, to_numpy
from invgp.core.geometry import inducing_factor
from invgp.errors import ConfigError
from invgp.execution.simulator import Batch
from invgp.latent_model.noise_density import noise_log_density
from invgp.latent_model.prior import kernels_of
from invgp.problem import Floats, Problem

# A simulator or an emulator: latent values (S, B, Q), on the scale of the Gaussian processes, at sites (B,) -> outputs.
Run = Callable[[Floats, NDArray[np.intp]], Batch]


class WhitenedPrior:
    """Map from whitened latents to latents at the sites: f_q = mean_q + L_q v_q, with prior covariance L_q L_q^T.

    Attributes
    ----------
    mean : array, shape (Q,)
        Prior means.
    factor : array, shape (Q, N, N)
        Cholesky factors L_q.
    """

    def __init__(self, problem: Problem) -> None:
        self.mean, _ = problem.prior_moments()
        kernels, X = kernels_of(problem, select_backend("cpu")), problem.survey.X
        try:
            self.factor: Floats = inducing_factor(kernels, np.broadcast_to(X, (len(kernels), *X.shape)))
        except np.linalg.LinAlgError as error:
            raise ConfigError(f"latents: the kernels give a covariance that cannot be factorised: {error}") from error

    def __call__(self, v: Floats) -> Floats:
        """Compute the latents f (S, N, Q) from whitened latents v (S, Q N)."""
        Q, N, _ = self.factor.shape
        columns = v.reshape(-1, Q, N).transpose(1, 2, 0)
        return np.asarray(self.mean + (self.factor @ columns).transpose(2, 1, 0))


class SiteLikelihood:
    """Log likelihood of the data of each site, from runs at the sites with observations.

    Parameters
    ----------
    problem : Problem
    run : callable
        The simulator or an emulator.
    simulated : array of bool, shape (N,), optional
        Sites at which `run` runs the simulator; by default all.
    """

    def __init__(self, problem: Problem, run: Run, simulated: NDArray[np.bool_] | None = None) -> None:
        self.run, self.shape = run, problem.survey.Y.shape
        self.informed = np.isin(np.arange(problem.survey.size), informed_sites(problem))
        self.simulated = self.informed if simulated is None else self.informed & simulated
        self.observed = np.isfinite(problem.survey.Y)
        self.log_density = noise_log_density(problem, select_backend("cpu"))

    def __call__(self, f: Floats, sites: NDArray[np.intp]) -> tuple[Floats, int]:
        """Compute the log likelihood (S, B) of the data at sites (B,) for f (S, N, Q), and the number of runs.

        It is minus infinity where a run failed, and 0 where nothing was observed.
        """
        run_at = sites[self.informed[sites]]
        outputs, failed = np.zeros((len(f), *self.shape)), np.zeros((len(f), self.shape[0]), dtype=bool)
        if len(run_at) > 0:
            batch = self.run(f[:, run_at, :], run_at)
            whole = batch.complete(self.observed[run_at])
            outputs[:, run_at] = np.where(whole[..., None], batch.fill_unobserved(self.observed[run_at]), 0.0)
            failed[:, run_at] = ~whole
        values = to_numpy(self.log_density(outputs))
        values = np.where(failed | np.isnan(values), -np.inf, values)
        return values[:, sites], len(f) * int(self.simulated[run_at].sum())


def informed_sites(problem: Problem) -> NDArray[np.intp]:
    """Return the numbers (B,) of the sites with observations; the others need no run."""
    return np.flatnonzero(~np.isnan(problem.survey.Y).all(axis=1))
