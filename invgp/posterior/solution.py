"""Result of an inference, as host arrays, with its diagnostics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.posterior.gaussian_processes import ProcessPosterior
from invgp.problem import Floats


class StoredRuns(NamedTuple):
    """Runs of the simulators of a site model, oldest first.

    Attributes
    ----------
    sites : array of int, shape (R,)
        Number of the site of each run, from 0.
    latents : array, shape (R, Q), on the scale of the Gaussian processes
    outputs : array, shape (R, P), in the units of the observations
        NaN where the run failed or has no such output.
    stage : array of int, shape (R,)
        Step of the inversion; -1 for runs of earlier inversions.
    """

    sites: NDArray[np.intp]
    latents: Floats
    outputs: Floats
    stage: NDArray[np.intp]


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics of a posterior that do not need the truth.

    Attributes
    ----------
    chi_square : array, shape (P,)
        Mean squared normalised residual over the sites; NaN for an output without observations.
    shape_error : array, shape (N,)
        Distance of the Gaussian from the exact posterior of each site given all other sites, in standard deviations:
        the larger of the error of the mean and the logarithm of the ratio of standard deviations; NaN if unknown.
    sentences : tuple of str
        The diagnostics as sentences.
    """

    chi_square: Floats
    shape_error: Floats
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class EmulatorReport:
    """Accuracy of an emulator. Errors are in standard deviations of the noise.

    Attributes
    ----------
    name : str
        Type of regression.
    held_out_error : float
        Root mean square error at runs that were left out of the fit.
    verification_error : array, shape (N,)
        Root mean square error at new runs, made after the fit; NaN at sites without such runs.
    direct : array of bool, shape (N,)
        Sites where the simulator was run instead of the emulator.
    """

    name: str
    held_out_error: float
    verification_error: Floats
    direct: NDArray[np.bool_]


@dataclass(frozen=True)
class HyperparameterDraws:
    """Draws of a learnt hyperparameter from its posterior.

    Attributes
    ----------
    name : str
        Name of its variable in the file.
    long_name : str
    unit : str
    values : array, shape (R,)
        One value per draw of the latents, with which it is joint.
    median : float
        Median of the prior; of a log-normal prior it is the value in the configuration.
    factor : float
        A change by this factor is one standard deviation of the logarithm in the prior.
    most_probable : float
        Value that the Gaussian approximation uses.
    process_std : array, shape (L,), or None
        For a factor on the standard deviation of a latent: that of its processes at a factor of 1.
    degrees : float or None
        Degrees of freedom, if its square has an inverse-gamma prior whose shape and scale are half of them; None for a
        log-normal prior.
    """

    name: str
    long_name: str
    unit: str
    values: Floats
    median: float
    factor: float
    most_probable: float
    process_std: Floats | None = None
    degrees: float | None = None


@dataclass(frozen=True)
class Samples:
    """Draws from the exact posterior, with the emulator (or the regression of a field model) in the simulator's place.

    Attributes
    ----------
    latents : array, shape (R, N, Q)
        Draws of the latent processes at the sites or nodes, joint over all of them, with equal weights.
    chain : array of int, shape (R,)
        Number of the chain or population of each draw, from 0.
    mode : array of int, shape (R,)
        Number of the mode of each draw, from 0, the most probable first; all 0 for a posterior with one mode.
    method : str
        Name of the sampler, for users.
    k_hat : float
        Pareto k of the importance weights of the Gaussian approximation; NaN if it was not computed.
    r_hat : array, shape (N, Q)
        Rank-normalised split R-hat of each latent process.
    effective : array, shape (N, Q)
        Smaller of the bulk and tail effective sample sizes of each latent process.
    log_evidence, log_evidence_error : float, nats
        Logarithm of the marginal likelihood and its standard error; NaN if unknown.
    whitened : array, shape (R, Q, M), or None
        Draws of the whitened inducing variables, from which the latents can be predicted at any point; None if they are
        not stored.
    gaussian_error : array, shape (N,), in standard deviations, or None
        Distance of the stored Gaussian approximation from the draws at each site or node: the largest over the latents
        of the error of the mean and the logarithm of the ratio of standard deviations.
    hyperparameters : tuple of HyperparameterDraws
        Learnt hyperparameters over which the draws are averaged; empty if they are fixed.
    predicted : array, shape (S, N, P), or None
        Outputs at some of the draws, in the units of the observations.
    predicted_mode : array of int, shape (S,), or None
        The mode of each of these draws, from 0.
    """

    latents: Floats
    chain: NDArray[np.intp]
    mode: NDArray[np.intp]
    method: str
    k_hat: float
    r_hat: Floats
    effective: Floats
    log_evidence: float = np.nan
    log_evidence_error: float = np.nan
    whitened: Floats | None = None
    gaussian_error: Floats | None = None
    hyperparameters: tuple[HyperparameterDraws, ...] = ()
    predicted: Floats | None = None
    predicted_mode: NDArray[np.intp] | None = None

    @property
    def mode_probabilities(self) -> Floats:
        """Probability of each mode, the most probable first."""
        return np.asarray(np.bincount(self.mode) / len(self.mode))

    def select_points(self, count: int) -> Samples:
        """Return the draws at the first points only.

        Parameters
        ----------
        count : int
            Number of points.

        Returns
        -------
        Samples
        """
        error = None if self.gaussian_error is None else self.gaussian_error[:count]
        return replace(
            self,
            latents=self.latents[:, :count],
            r_hat=self.r_hat[:count],
            effective=self.effective[:count],
            gaussian_error=error,
        )

    def thin(self, count: int) -> NDArray[np.intp]:
        """Return the numbers of at most `count` draws, in order.

        They are selected at random, with the shares of modes and chains in all draws. Evenly spaced draws could all
        come from a few of the chains.

        Parameters
        ----------
        count : int
            Largest number of draws.

        Returns
        -------
        array of int
        """
        total = len(self.latents)
        if count >= total:
            return np.arange(total)
        by_mode = np.lexsort((np.random.default_rng(total).random(total), self.chain, self.mode))
        places = ((np.arange(count) + 0.5) * total / count).astype(np.intp)
        return np.sort(by_mode[places])

    def moments(self) -> tuple[Floats, Floats]:
        """Compute mean (N, Q) and covariance (N, Q, Q) of the latent processes at each site or node."""
        mean = self.latents.mean(axis=0)
        offset = (self.latents - mean).transpose(1, 2, 0)
        return mean, offset @ offset.swapaxes(-1, -2) / (len(self.latents) - 1)

    def distance_from(self, mean: Floats, covariance: Floats) -> Floats:
        """Compute the distance (N,) of a Gaussian with mean (N, Q) and covariance (N, Q, Q), as `gaussian_error`.

        Parameters
        ----------
        mean : array, shape (N, Q)
        covariance : array, shape (N, Q, Q)

        Returns
        -------
        array, shape (N,)
        """
        std = self.latents.std(axis=0)
        other = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        shift = np.abs(self.latents.mean(axis=0) - mean) / std
        return np.asarray(np.maximum(shift, np.abs(np.log(other / std))).max(axis=1))


@dataclass(frozen=True)
class Solution:
    """Result of an inference, as host arrays.

    Latents are on the scale of the Gaussian processes. For a field model, N is the number of grid nodes in `mean`,
    `covariance` and `draws`, and the number of sites elsewhere.

    Attributes
    ----------
    mean : array, shape (N, Q)
        Posterior mean of the latent processes.
    covariance : array, shape (N, Q, Q)
        Posterior covariance of the latent processes at each site.
    draws : array, shape (R, N, Q)
        Posterior draws, joint over sites and latents.
    processes : ProcessPosterior or None
        Posterior in a form that can be predicted at any point; None if it would be too large to store.
    predicted, predicted_std : array, shape (N, P)
        Posterior mean and standard deviation of the simulator outputs with discrepancies, in the units of the
        observations.
    elbo : array, shape (I,)
        Evidence lower bound at each iteration, in nats.
    runs : array, shape (I,)
        Number of simulator runs until each iteration.
    runs_total, runs_failed : int
        Number of all runs and of failed runs.
    seed : int
        Random seed.
    status : str
        Reason why the inference ended.
    converged : bool
        Whether the inference converged.
    diagnostics : Diagnostics
    emulator : EmulatorReport or None
        Accuracy of the emulator; None without an emulator.
    few_runs_std : array, shape (N, Q), or None
        For a field model, the part of the standard deviation of the processes that is due to the small number of runs.
    samples : Samples or None
        All draws from the exact posterior; None if the posterior is a Gaussian. `draws` are some of them.
    emulator_runs : StoredRuns or None
        For a site model, the runs that its emulator was fitted to.
    direct_predictions : mapping of str to pair of arrays, shape (K, p)
        For a field model, posterior mean and standard deviation of the direct data of each source.
    discrepancy : pair of arrays, shape (N, P), or None
        For a field model, posterior mean and standard deviation of the discrepancies; None without any.
    """

    mean: Floats
    covariance: Floats
    draws: Floats
    processes: ProcessPosterior | None
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
    samples: Samples | None = None
    emulator_runs: StoredRuns | None = None
    direct_predictions: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)
    discrepancy: tuple[Floats, Floats] | None = None

    @property
    def points(self) -> str:
        """Dimension of the latents in the dataset."""
        return "site" if self.few_runs_std is None else "node"
