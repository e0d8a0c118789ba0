"""Problems with known posteriors for the samplers of references."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from invgp.adapters import CallableModel, Quantity
from invgp.core.kernels import Matern52
from invgp.execution.pools import Loop
from invgp.problem import Column, Latent, Noise, Observation, OutputSettings, Problem, SimulatorVariable, Survey
from invgp.progress import SilentMonitor
from invgp.sampling.simulated_sites import SimulatedSites, WhitenedPrior
from invgp.sampling.tolerant_simulator import TolerantSimulator

NOISE = 0.3
SLOPES = np.asarray([[1.0, 0.5], [0.0, 1.0]])  # (P, Q)
TIED, INDEPENDENT = 2.0, 0.01  # length-scales of sites 1 m apart


def latent_line(
    function: Callable[..., np.ndarray], Y: np.ndarray, latents: int, length_scale: float, noise: float = NOISE
) -> Problem:
    """Sites 1 m apart, latents of mean 1 and spread 1; data Y (N, P)."""
    N, P = Y.shape
    names = tuple(range(P))
    return Problem(
        title="A line",
        survey=Survey((Column("position", "m", np.arange(float(N))),), (Observation("data", "1", Y, "output", names),)),
        latents=tuple(
            Latent(f"f{q}", "1", np.ones(1), np.ones(1), Matern52(1.0, np.asarray([length_scale])))
            for q in range(latents)
        ),
        noise=Noise("gaussian", {"data": np.full(Y.shape, noise)}),
        forward=CallableModel(
            function=function,
            inputs=tuple(Quantity(f"f{q}", "1") for q in range(latents)),
            outputs=(Quantity("data", "1", names if P > 1 else None),),
        ),
        inputs=tuple(SimulatorVariable(f"f{q}") for q in range(latents)),
        outputs=(SimulatorVariable("data"),),
        output=OutputSettings(file=Path("unused.nc")),
    )


def linear(f0: np.ndarray, f1: np.ndarray) -> np.ndarray:
    """Two outputs that are linear in two latents."""
    return np.stack([f0, f1], axis=-1) @ SLOPES.T


def linear_problem(length_scale: float = TIED) -> Problem:
    """Five sites with some missing data."""
    Y = np.asarray([[1.0, 0.5], [2.5, 1.5], [np.nan, 2.0], [np.nan, np.nan], [3.0, 0.0]])
    return latent_line(linear, Y, 2, length_scale)


def exact_posterior(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Mean (N, Q) and covariance (N Q, N Q) of the linear problem, by the textbook."""
    prior, Y = WhitenedPrior(problem), problem.survey.Y
    N, Q = prior.mean.shape
    K = np.zeros((N, Q, N, Q))
    for q in range(Q):
        K[:, q, :, q] = prior.factor[q] @ prior.factor[q].T
    K = K.reshape(N * Q, N * Q)
    seen = np.isfinite(Y).ravel()
    H = np.kron(np.eye(N), SLOPES)[seen]
    gain = K @ H.T @ np.linalg.inv(H @ K @ H.T + NOISE**2 * np.eye(len(H)))
    mean = prior.mean.ravel()
    return (mean + gain @ (Y.ravel()[seen] - H @ mean)).reshape(N, Q), K - gain @ H @ K


def simulator_of(problem: Problem, folder: Path) -> TolerantSimulator:
    """Return the simulator of a problem, with runs in this process."""
    return TolerantSimulator.of(problem, folder, Loop(), SilentMonitor())


def target_of(problem: Problem, folder: Path) -> SimulatedSites:
    """Return the posterior of a site model on its simulator."""
    return SimulatedSites(problem, simulator_of(problem, folder))
