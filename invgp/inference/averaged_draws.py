"""Draws from the posterior of a site model, averaged over its learnt hyperparameters.

The draws at the most probable hyperparameters are moved to others, which are drawn from the evidence of the Gaussian
approximation times their prior. Importance weights correct the differences between the Gaussian approximation and the
exact posterior; see `invgp.core.sampling.averaging`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, to_numpy
from invgp.core.coupled.coupled_gaussian import CoupledGaussian
from invgp.core.coupled.coupled_savigp import CoupledSavigp
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.coupled.hyperparameters import (
    HyperparameterLearning,
    Hyperparameters,
    NoiseScaledFactors,
    evidence_value,
)
from invgp.core.sampling.averaging import AveragingOptions, average_over_nodes
from invgp.core.sampling.hamiltonian import LogDensity
from invgp.core.sampling.hyperparameter_draws import ProposalOptions, draw_hyperparameters
from invgp.core.sampling.site_target import multiply
from invgp.core.sampling.statistics import split_r_hat
from invgp.inference.emulated_posterior import EmulatedPosterior, SamplingOptions, label_modes
from invgp.inference.tempered_draws import positive_factors
from invgp.latent_model.learnt_parameters import LearntParameters
from invgp.posterior import Samples
from invgp.problem import Floats, Problem


@dataclass(frozen=True)
class HyperparameterOptions:
    """Tuning of the average over hyperparameters.

    Parameters
    ----------
    fewest_particles, most_particles : int
        Draws that are moved.
    rows : int
        Sites of all particles together, which determine the time.
    fewest_nodes, most_nodes : int
        Values of the hyperparameters.
    numbers : float
        Numbers of the matrices of all nodes together, which determine the memory.
    operations : float
        Operations of the factorisations of each round of proposals.
    fewest_proposals, most_proposals : int
        Proposals of hyperparameters in each round.
    most_variables : int
        Largest number of variables (inducing points times latents); beyond, hyperparameters have their most probable
        values.
    smallest_share : float
        Effective share of the particles after a step of the path, below which the average is not used.
    rows_at_once : int
        Rows for the emulator in one call, to limit memory.
    path : AveragingOptions
    """

    fewest_particles: int = 1024
    most_particles: int = 4096
    rows: int = 200_000
    fewest_nodes: int = 16
    most_nodes: int = 256
    numbers: float = 3e7
    operations: float = 2e10
    fewest_proposals: int = 32
    most_proposals: int = 256
    most_variables: int = 2000
    smallest_share: float = 0.05
    rows_at_once: int = 50_000
    path: AveragingOptions = field(default_factory=AveragingOptions)


class Conditional(NamedTuple):
    """Posterior at given hyperparameters.

    Attributes
    ----------
    posterior : EmulatedPosterior
    q : CoupledGaussian
        Its Gaussian approximation.
    log_evidence : float
        Evidence of the Gaussian approximation, up to a constant.
    """

    posterior: EmulatedPosterior
    q: CoupledGaussian
    log_evidence: float

    @property
    def constant(self) -> float:
        """Logarithm of the change of volume by `variables`, minus the evidence of the Gaussian approximation."""
        return -0.5 * float(self.q.log_determinant) - self.log_evidence

    def variables(self, z: Array) -> Array:
        """Compute variables of the prior (C, D) from coordinates (C, D)."""
        return multiply(z, self.q.root) + self._centre(z)

    def coordinates(self, v: Array) -> Array:
        """Compute coordinates (C, D) from variables of the prior (C, D)."""
        xp, size = array_namespace(v), self.q.root.shape[0]
        offset = v - self._centre(v)
        inner = xp.linalg.solve(xp.matrix_transpose(self.q.root), xp.matrix_transpose(offset[:, :size]))
        return xp.concat([xp.matrix_transpose(inner), offset[:, size:]], axis=1)

    def _centre(self, like: Array) -> Array:
        xp = array_namespace(like)
        mean = xp.reshape(self.q.mean, (-1,))
        return xp.concat([mean, xp.zeros_like(like[0, mean.shape[0] :])])


class HyperparameterPath:
    """Posteriors between the most probable hyperparameters and those of the nodes.

    Parameters
    ----------
    gaussian : GaussianPosterior
        Gaussian approximation at the most probable hyperparameters.
    learning : HyperparameterLearning
    factors : NoiseScaledFactors
        Its site factors as functions of the noise.
    parameters : LearntParameters
        Hyperparameters of the problem with the error of the emulator in its noise.
    start : EmulatedPosterior
        Posterior at the most probable hyperparameters.
    rows_at_once : int
    """

    def __init__(
        self,
        gaussian: GaussianPosterior,
        learning: HyperparameterLearning,
        factors: NoiseScaledFactors,
        parameters: LearntParameters,
        start: EmulatedPosterior,
        rows_at_once: int,
    ) -> None:
        self.gaussian, self.learning, self.factors = gaussian, learning, factors
        self.parameters, self.start, self.rows_at_once = parameters, start, rows_at_once
        self.first = np.concatenate([to_numpy(gaussian.hyper.theta), to_numpy(gaussian.hyper.noise)])
        self.nodes = self.first[None]
        self._cache: tuple[float, dict[int, Conditional]] = (math.nan, {})

    def conditional(self, theta: Floats) -> Conditional:
        """Return the posterior at hyperparameters theta (H,).

        Raises
        ------
        numpy.linalg.LinAlgError
            If its Gaussian approximation is not positive definite.
        """
        backend, H = self.start.backend, self.gaussian.hyper.theta.shape[0]
        hyper = Hyperparameters(backend.asarray(theta[:H]), backend.asarray(theta[H:]), self.gaussian.hyper.Z)
        change = hyper.noise - self.gaussian.hyper.noise
        prior = self.learning.prior_at(self.gaussian.prior, hyper)
        value, q = evidence_value(prior, positive_factors(self.factors.site_factors(change)))
        posterior = EmulatedPosterior(
            self.parameters.problem_at(theta), self.start.emulator, self.start.sites, prior, backend
        )
        return Conditional(posterior, q, value + float(self.factors.constant(change)))

    def cost(self, theta: Floats) -> float:
        """Return the negative log density of hyperparameters (H,) by the Gaussian approximation, up to a constant."""
        try:
            evidence = self.conditional(theta).log_evidence
        except np.linalg.LinAlgError:
            return np.inf
        cost = -self.parameters.log_prior(theta) - evidence
        return cost if math.isfinite(cost) else np.inf

    def at(self, share: float, node: int) -> Conditional:
        """Return the posterior of a node at a share of the path."""
        if self._cache[0] != share:
            self._cache = (share, {})
        known = self._cache[1]
        key = node if share else 0
        if key not in known:
            known[key] = self.conditional(self.first + share * (self.nodes[node] - self.first))
        return known[key]

    def density(self, share: float, node: NDArray[np.intp]) -> LogDensity:
        """Return the log density of coordinates (R, D) of particles with these nodes (R,)."""
        groups = [np.flatnonzero(node == k) for k in np.unique(node)]
        conditionals = [self.at(share, int(node[group[0]])) for group in groups]
        order = np.argsort(np.concatenate(groups))
        step = max(self.rows_at_once // self.gaussian.prior.site_count, 1)
        blocks = _blocks([len(group) for group in groups], step)

        def log_density(z: Array) -> tuple[Array, Array]:
            xp, backend = array_namespace(z), self.start.backend

            def rows(index: NDArray[np.intp]) -> Array:
                return xp.asarray(index.astype(np.int32), device=backend.device)

            values, gradients = [], []
            for block in blocks:
                parts = [xp.take(z, rows(groups[k]), axis=0) for k in block]
                value, gradient = self._of_block([conditionals[k] for k in block], parts)
                values.append(value)
                gradients.append(gradient)
            back = rows(order)
            return xp.take(xp.concat(values), back, axis=0), xp.take(xp.concat(gradients), back, axis=0)

        return log_density

    def _of_block(self, conditionals: list[Conditional], parts: list[Array]) -> tuple[Array, Array]:
        """Compute log densities and gradients of coordinates, with one call of the emulator."""
        xp = array_namespace(parts[0])
        variables = [one.variables(z) for one, z in zip(conditionals, parts, strict=True)]
        latents = [one.posterior.target.latents(v) for one, v in zip(conditionals, variables, strict=True)]
        outputs, pull_back = self.start.emulator.linearise(xp.concat(latents), self.start.sites)
        values, slopes, first = [], [], 0
        for one, v in zip(conditionals, variables, strict=True):
            value, slope = one.posterior.density(outputs[first : first + v.shape[0], ...])
            values.append(xp.sum(value, axis=1) - 0.5 * xp.sum(xp.square(v), axis=1) + one.constant)
            slopes.append(slope)
            first += v.shape[0]
        pulled, gradients, first = pull_back(xp.concat(slopes)), [], 0
        for one, v in zip(conditionals, variables, strict=True):
            gradient = one.posterior.target.pull_back(pulled[first : first + v.shape[0], ...]) - v
            gradients.append(multiply(gradient, xp.matrix_transpose(one.q.root)))
            first += v.shape[0]
        return xp.concat(values), xp.concat(gradients)


def _blocks(sizes: list[int], most: int) -> list[list[int]]:
    """Divide groups of these sizes into blocks of at most `most` elements; a larger group is a block by itself."""
    blocks: list[list[int]] = []
    filled = most
    for k, size in enumerate(sizes):
        if filled + size > most:
            blocks.append([])
            filled = 0
        blocks[-1].append(k)
        filled += size
    return blocks


def average_draws(
    samples: Samples,
    start: EmulatedPosterior,
    gaussian: GaussianPosterior,
    algorithm: CoupledSavigp,
    problem: Problem,
    rng: np.random.Generator,
    sampling: SamplingOptions,
    options: HyperparameterOptions | None = None,
) -> Samples | None:
    """Average draws over the learnt hyperparameters.

    Parameters
    ----------
    samples : Samples
        Draws at the most probable hyperparameters.
    start : EmulatedPosterior
        Posterior at the most probable hyperparameters.
    gaussian : GaussianPosterior
        Its Gaussian approximation.
    algorithm : CoupledSavigp
        Algorithm of the Gaussian approximation on the emulator.
    problem : Problem
        Problem with the configured hyperparameters, and with the error of the emulator in its noise.
    rng : numpy.random.Generator
    sampling : SamplingOptions
    options : HyperparameterOptions, optional

    Returns
    -------
    Samples or None
        None if the draws could not be moved, or there are too many variables.
    """
    options, parameters = options or HyperparameterOptions(), LearntParameters(problem)
    size = start.target.inducing_size
    if algorithm.learning is None or size > options.most_variables:
        return None
    points = algorithm.samples(gaussian, algorithm.stages[-1].points)
    outputs = start.backend.asarray(start.emulator.predict(to_numpy(points), start.sites))
    valid = start.backend.asmask(np.ones(points.shape[:2], dtype=bool))
    path = HyperparameterPath(
        gaussian,
        algorithm.learning,
        algorithm.noise_scaled_factors(gaussian, outputs, valid),
        parameters,
        start,
        options.rows_at_once,
    )
    populations = sampling.populations
    count = int(np.clip(options.numbers / size**2, options.fewest_nodes, options.most_nodes))
    count -= count % populations
    proposals = int(np.clip(options.operations / size**3, options.fewest_proposals, options.most_proposals))
    proposals = 2 ** int(math.log2(proposals))
    drawn = draw_hyperparameters(
        path.cost, path.first, parameters.spreads, count, rng, ProposalOptions(proposals=proposals)
    )
    path.nodes = drawn.theta
    particles = int(np.clip(options.rows // len(start.sites), options.fewest_particles, options.most_particles))
    chosen, node = _assign(samples.chain, populations, count, particles, rng)
    first = path.at(0.0, 0)
    z = first.coordinates(start.backend.asarray(_variables(start, samples, chosen)))
    found = average_over_nodes(path.density, z, node, populations, rng, options.path)
    if found.share < options.smallest_share:
        return None
    latents, whitened = _at_end(path, found.z, found.node)
    N, Q = latents.shape[1:]
    log_evidence = samples.log_evidence + drawn.log_evidence + found.log_ratio - first.log_evidence
    # The order within a population is that of the nodes.
    each = len(latents) // populations
    shuffled = np.concatenate([k * each + rng.permutation(each) for k in range(populations)])
    grouped = latents[shuffled].reshape(populations, each, N * Q)
    return replace(
        samples,
        latents=latents[shuffled],
        chain=np.repeat(np.arange(populations), each),
        mode=label_modes(latents[shuffled], sampling),
        method=f"{samples.method}, averaged over {count} values of the hyperparameters by sequential Monte Carlo",
        r_hat=np.maximum(samples.r_hat, split_r_hat(grouped).reshape(N, Q)),
        effective=found.share * np.minimum(samples.effective, len(latents)),
        log_evidence=log_evidence,
        whitened=whitened[shuffled],
        hyperparameters=parameters.describe(path.nodes[found.node[shuffled]], path.first),
    )


def _assign(
    chain: NDArray[np.intp], populations: int, nodes: int, particles: int, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Choose draws (R,), equally many of each population, and a node (R,) for each; populations share no nodes."""
    population = chain * populations // (int(chain.max()) + 1)
    counts = np.bincount(population, minlength=populations)
    each = min(particles // populations, int(counts.min()))
    chosen, node = [], []
    for k in range(populations):
        own = rng.permutation(np.flatnonzero(population == k))[:each]
        chosen.append(own)
        node.append(np.arange(k, nodes, populations)[np.arange(each) % (nodes // populations)])
    return np.concatenate(chosen), np.concatenate(node)


def _variables(start: EmulatedPosterior, samples: Samples, chosen: NDArray[np.intp]) -> Floats:
    """Return the variables of the prior (R, D) of some draws."""
    if samples.whitened is None:
        raise ValueError("the draws have no whitened variables")
    target, backend = start.target, start.backend
    inducing = samples.whitened[chosen].reshape(len(chosen), -1)
    if target.open_spread is None:
        return inducing
    spread = to_numpy(target.open_spread)
    rest = np.zeros((len(chosen), spread.size))
    projected = to_numpy(target.latents(backend.asarray(np.concatenate([inducing, rest], axis=1))))
    offset = (samples.latents[chosen] - projected) / np.where(spread > 0.0, spread, np.inf)
    return np.concatenate([inducing, offset.reshape(rest.shape)], axis=1)


def _at_end(path: HyperparameterPath, z: Array, node: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return latents (R, N, Q) and whitened inducing variables (R, Q, M) of particles at the end of the path."""
    z = to_numpy(z)
    prior = path.gaussian.prior
    latents = np.empty((len(z), prior.site_count, prior.latent_count))
    whitened = np.empty((len(z), prior.latent_count, prior.inducing_count))
    for k in np.unique(node):
        own, conditional = node == k, path.at(1.0, int(k))
        v = conditional.variables(path.start.backend.asarray(z[own]))
        latents[own] = to_numpy(conditional.posterior.target.latents(v))
        whitened[own] = conditional.posterior.inducing_variables(to_numpy(v))
    return latents, whitened
