"""Draws from the posterior of a field model, with the regression in place of the forward model.

The regression has a gradient, so that Hamiltonian Monte Carlo needs no runs. Sequential Monte Carlo from the prior
finds the modes and their weights; each of its particles then starts a chain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.special import logsumexp

from invgp.core.backend import Array, array_namespace, backend_of, to_numpy
from invgp.core.field.field_gaussian import Gaussian, LowRankGaussian
from invgp.core.field.field_inference import FieldInference, FieldState
from invgp.core.field.regression_likelihood import AnyRegression
from invgp.core.sampling.hamiltonian import HamiltonianOptions, LogDensity, sample
from invgp.core.sampling.tempering import TemperingOptions, resample, temper

Floats = NDArray[np.float64]
POPULATIONS, FINAL_MOVES = 4, 3  # independent populations of the search for modes, and their moves at the end
NEGLIGIBLE = 5.0  # nats: populations with so much less evidence than the best have not found the posterior
SEPARATE_CHAINS = 1.0  # between-chain variance relative to that within chains, above which chains may be in modes
SEPARATE_MODES = 3.0  # within-chain standard deviations between the means of neighbouring chains of two modes


@dataclass(frozen=True)
class RegressionTarget:
    """Posterior of the variables w with the regression in place of the forward model.

    Parameters
    ----------
    inference : FieldInference
    regression : Regression or LocalRegression
    weights : Array, shape (D,)
        Typical precisions of the noise; used only for Student-t noise.
    mixing : Array, shape (R, V), or None
        With another prior, the matrix that gives w as a function of V standard normal variables, which replace w.
    """

    inference: FieldInference
    regression: AnyRegression
    weights: Array
    mixing: Array | None = None

    @staticmethod
    def from_state(inference: FieldInference, state: FieldState) -> RegressionTarget:
        """Build the target from a state.

        Raises
        ------
        ValueError
            If there are no runs yet.
        """
        if state.regression is None:
            raise ValueError("there are no runs yet")
        averaged = inference.average_regression(state.regression, state.linear)
        return RegressionTarget(
            inference, state.regression, inference.noise_weights(state.regression, averaged, state.linear)
        )

    def log_likelihood(self, w: Array, trust: float = 0.0) -> tuple[Array, Array]:
        """Compute the log likelihood (S,) and its gradient (S, R); see `RegressionLikelihood.log_likelihood`.

        Parameters
        ----------
        w : Array, shape (S, R)
            Variables.
        trust : float
            As in `RegressionLikelihood.log_likelihood`.

        Returns
        -------
        value : Array, shape (S,), in nats
        gradient : Array, shape (S, R)
        """
        if self.mixing is None:
            return self.inference.likelihood.log_likelihood(self.regression, w, self.weights, trust)
        mixing = self.mixing
        w = w @ array_namespace(w).matrix_transpose(mixing)
        value, gradient = self.inference.likelihood.log_likelihood(self.regression, w, self.weights, trust)
        return value, gradient @ mixing

    def gaussian(self, linear: LowRankGaussian) -> LowRankGaussian:
        """Convert a Gaussian posterior of w by linearisation to one of the variables of the other prior.

        Parameters
        ----------
        linear : LowRankGaussian
            Posterior of w by linearisation.

        Returns
        -------
        LowRankGaussian
        """
        if self.mixing is None:
            return linear
        xp = array_namespace(linear.mean)
        mixed = xp.matrix_transpose(self.mixing)
        across = xp.matrix_transpose(linear.precision_factor) @ linear.mean
        shift = linear.mean + linear.precision_factor @ across  # the precision times the mean
        found = LowRankGaussian(xp.zeros_like(mixed[:, 0]), mixed @ linear.precision_factor)
        return LowRankGaussian(found.covariance_times(mixed @ shift), found.precision_factor)

    def density(self, mean: Array, root: Array, power: float = 1.0) -> LogDensity:
        """Return the log density of x, with w = mean + x @ root, for the likelihood raised to a power.

        Parameters
        ----------
        mean : Array, shape (R,)
        root : Array, shape (R, R)
        power : float
            Power of the likelihood, from 0 to 1.

        Returns
        -------
        callable
            Log density and gradient of x (S, R).
        """
        transposed = array_namespace(root).matrix_transpose(root)

        def log_density(x: Array) -> tuple[Array, Array]:
            xp = array_namespace(x)
            w = mean + x @ root
            value, gradient = self.log_likelihood(w)
            return power * value - 0.5 * xp.sum(xp.square(w), axis=1), (power * gradient - w) @ transposed

        return log_density

    def sample(
        self, q: Gaussian, start: Floats, rng: np.random.Generator, warmup: int, iterations: int, power: float = 1.0
    ) -> tuple[Floats, float]:
        """Sample w by Hamiltonian Monte Carlo.

        Parameters
        ----------
        q : Gaussian
            Approximation of the density.
        start : array, shape (C, R)
            Starting points of the chains, in coordinates in which q is standard normal.
        rng : numpy.random.Generator
        warmup, iterations : int
            Trajectories of each chain that are discarded, and that are kept.
        power : float
            Power of the likelihood.

        Returns
        -------
        w : array, shape (iterations, C, R)
        acceptance : float
            Mean acceptance rate.
        """
        root = array_namespace(q.factor).matrix_transpose(q.factor)
        drawn = sample(
            self.density(q.mean, root, power),
            lambda further: self.density(q.mean, further @ root, power),
            backend_of(q.mean).asarray(start),
            rng,
            warmup=warmup,
            iterations=iterations,
            options=HamiltonianOptions(harmonic=True),
        )
        return drawn.z @ to_numpy(root) + to_numpy(q.mean), drawn.acceptance

    def curvature(self, normals: Array) -> float:
        """Compute how much the regression deviates from a linear function over the prior.

        Parameters
        ----------
        normals : Array, shape (S, R)
            Draws from the prior.

        Returns
        -------
        float
            Root mean square second difference of the outputs, summed over data, in noise standard deviations.
        """
        xp = array_namespace(normals)
        far, near, centre = (self.regression.predictions(step * normals)[0] for step in (1.0, 0.5, 0.0))
        return math.sqrt(float(xp.mean(xp.sum(xp.square(far - 2.0 * near + centre), axis=1))))


class FieldDraws(NamedTuple):
    """Draws of the variables.

    Attributes
    ----------
    w : array, shape (n, C, R)
        Draws of C chains.
    population : array of int, shape (C,)
        Population of the search for modes that each chain started from; all 0 without a search.
    tempered : array, shape (m, R)
        Draws from a wider distribution: the likelihood raised to a power below 1.
    log_evidence : array, shape (K,), nats
        Logarithm of the evidence, up to `FieldInference.log_constant`, by each population; empty without a search.
    acceptance : float
        Mean acceptance rate.
    doubtful : array, shape (d, R)
        Particles of the search for modes where the regression explains the data, but is too uncertain to count.
    """

    w: Floats
    population: NDArray[np.intp]
    tempered: Floats
    log_evidence: Floats
    acceptance: float
    doubtful: Floats


@dataclass(frozen=True)
class FieldSamplingOptions:
    """Length of the sampling.

    Parameters
    ----------
    chains : int
        Number of chains.
    warmup, iterations : int
        Trajectories of each chain that are discarded, and that are kept.
    particles : int
        Particles of the search for modes from the prior, at least as many as chains; 0 for no search.
    power : float
        Power of the likelihood of the tempered draws.
    """

    chains: int = 64
    warmup: int = 100
    iterations: int = 64
    particles: int = 64
    power: float = 0.2


def sample_posterior(
    target: RegressionTarget, q: Gaussian, rng: np.random.Generator, options: FieldSamplingOptions
) -> FieldDraws:
    """Draw from the posterior, and from a wider distribution.

    The search for modes ignores the uncertainty of the regression. Otherwise it would end in regions without runs:
    there the regression excludes nothing, and the prior has most of its mass. The chains count the uncertainty as
    noise, and so do the weights of the particles from which they start.

    Parameters
    ----------
    target : RegressionTarget
    q : Gaussian
        Gaussian approximation of the posterior.
    rng : numpy.random.Generator
    options : FieldSamplingOptions
    """
    size = q.mean.shape[0]
    if options.particles:
        start = rng.standard_normal((POPULATIONS, options.particles // POPULATIONS, size))
        found = temper(
            lambda w: target.log_likelihood(w, trust=1.0),
            lambda power: _tempered_root(q, power),
            backend_of(q.mean).asarray(start),
            rng,
            TemperingOptions(final_moves=FINAL_MOVES, tempered_power=options.power),
        )
        tempered = found.tempered
        kept, log_evidence = weigh_by_uncertainty(target, found.v[-1], found.log_evidence, rng)
        everything = found.v[-1].reshape(-1, size)
        doubtful = np.delete(everything, kept, axis=0)
        chosen = np.linspace(0, options.particles, options.chains, endpoint=False).astype(np.intp)
        population = np.repeat(np.arange(POPULATIONS), start.shape[1])[chosen]
        particles = everything[kept][chosen]
        first = np.linalg.solve(to_numpy(q.factor), (particles - to_numpy(q.mean)).T).T
    else:
        first, population = rng.standard_normal((options.chains, size)), np.zeros(options.chains, dtype=np.intp)
        wide, _ = target.sample(q, first, rng, options.warmup, 1, options.power)
        tempered, log_evidence, doubtful = wide[-1], np.empty(0), np.empty((0, size))
    w, acceptance = target.sample(q, first, rng, options.warmup, options.iterations)
    return FieldDraws(w, population, tempered, log_evidence, acceptance, doubtful)


def weigh_by_uncertainty(
    target: RegressionTarget, particles: Floats, log_evidence: Floats, rng: np.random.Generator
) -> tuple[NDArray[np.intp], Floats]:
    """Resample particles (K, n, R) of populations whose search ignored the uncertainty of the regression.

    The regression can explain the data by an error in a region without runs. With its uncertainty as noise, such a
    region has a small weight. A population that is only there is replaced by particles of the others.

    Returns
    -------
    kept : array of int, shape (K n,)
        Numbers of the particles in the order of the populations.
    log_evidence : array, shape (K,)
        With the uncertainty as noise.
    """
    populations, count, size = particles.shape
    w = backend_of(target.weights).asarray(particles.reshape(-1, size))
    uncertain, certain = (to_numpy(target.log_likelihood(w, trust)[0]) for trust in (0.0, 1.0))
    log_weights = (uncertain - certain).reshape(populations, count)
    log_evidence = log_evidence + logsumexp(log_weights, axis=1) - math.log(count)
    lost = log_evidence < log_evidence.max() - NEGLIGIBLE
    pooled = np.where(lost[:, None], -np.inf, log_weights + log_evidence[:, None]).ravel()
    kept = [
        rng.permutation(resample(pooled, rng))[:count] if lost[k] else k * count + resample(log_weights[k], rng)
        for k in range(populations)
    ]
    return np.concatenate(kept), np.where(lost, logsumexp(log_evidence[~lost]) - math.log((~lost).sum()), log_evidence)


def _tempered_root(q: Gaussian, power: float) -> Array:
    """Return T (R, R) with T^T T the covariance of q with the information of the data multiplied by a power."""
    xp = array_namespace(q.covariance)
    values, vectors = xp.linalg.eigh(q.covariance)
    precision = 1.0 + power * (1.0 / values - 1.0)
    precision = xp.where(precision > 0.1, precision, xp.full_like(precision, 0.1))
    return xp.matrix_transpose(vectors / xp.sqrt(precision))


def label_modes(w: Floats) -> NDArray[np.intp]:
    """Return the mode (C,) of each chain, from 0, the one with most chains first.

    Chains are in different modes if their means differ by several standard deviations within the chains, and no chains
    lie between them.

    Parameters
    ----------
    w : array, shape (n, C, R)
        Draws of C chains.
    """
    _, chains, size = w.shape
    means = w.mean(axis=0)
    within = (w - means).reshape(-1, size)
    covariance = within.T @ within / (len(within) - chains)
    # There may be fewer draws than variables.
    covariance += 1e-3 * np.mean(np.diagonal(covariance)) * np.eye(size)
    scaled = np.linalg.solve(np.linalg.cholesky(covariance), (means - means.mean(axis=0)).T).T
    left, spreads, _ = np.linalg.svd(scaled, full_matrices=False)
    apart = spreads**2 / chains > SEPARATE_CHAINS
    if not apart.any():
        return np.zeros(chains, dtype=np.intp)
    groups = fcluster(linkage(left[:, apart] * spreads[apart], "single"), SEPARATE_MODES, "distance")
    _, numbers, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    rank = np.empty(len(sizes), dtype=np.intp)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return rank[numbers]
