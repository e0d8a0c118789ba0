"""Draws from the exact posterior of a field model, with the regression in the simulator's place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from invgp.core.backend import to_numpy
from invgp.core.field.field_inference import FieldState
from invgp.core.field.field_sampling import (
    FieldDraws,
    FieldSamplingOptions,
    RegressionTarget,
    label_modes,
    sample_posterior,
)
from invgp.core.sampling.statistics import Evidence, bridge_evidence, effective_sample_size, split_r_hat
from invgp.inference.field_model import FieldModel, KnownOutputs
from invgp.inference.importance_draws import smooth_weights
from invgp.latent_model.prior_field import ChangedPrior
from invgp.posterior import Samples
from invgp.problem import Floats


@dataclass(frozen=True)
class FieldDrawOptions:
    """Tuning of the draws from the posterior of a field model.

    Parameters
    ----------
    most_numbers : float
        Largest number of latent values of all draws together, which determines the memory.
    most_variables : int
        Variables above which modes are not searched, since the search would take minutes.
    few_variables : int
        Variables up to which there are more chains and particles, since they take little time, and a long tail has few
        of them.
    few_variables_chains, few_variables_particles : int
        Fewest chains and particles then.
    diagnosed : int
        Most latent values whose R-hat is computed; the others have that of the next one before them.
    gaussian_draws : int
        Independent draws if the posterior is Gaussian.
    predicted : int
        Draws for the predicted outputs.
    proposals : int
        Draws from the Gaussian for the Pareto k of its weights.
    bridged : int
        Draws from the posterior, and from the Gaussian, for the evidence.
    short, long, longer : FieldSamplingOptions
        Sampler between batches of runs; at the end; and if too few independent draws remain.
    several_modes : FieldSamplingOptions
        Sampler for several modes, whose weights are only as accurate as there are many particles.
    at_node : FieldSamplingOptions
        Sampler for each of several hyperparameters.
    """

    most_numbers: float = 5e7
    most_variables: int = 600
    few_variables: int = 10
    few_variables_chains: int = 256
    few_variables_particles: int = 1024
    diagnosed: int = 1000
    gaussian_draws: int = 4000
    predicted: int = 1000
    proposals: int = 1000
    bridged: int = 2000
    short: FieldSamplingOptions = field(default=FieldSamplingOptions(64, 60, 16, 64))
    long: FieldSamplingOptions = field(default=FieldSamplingOptions(64, 150, 64, 128))
    longer: FieldSamplingOptions = field(default=FieldSamplingOptions(64, 200, 160, 128))
    several_modes: FieldSamplingOptions = field(default=FieldSamplingOptions(256, 100, 16, 2048))
    at_node: FieldSamplingOptions = field(default=FieldSamplingOptions(64, 60, 4, 64))


DRAWS = FieldDrawOptions()
FEWEST_ROWS = 4  # of chains whose effective number of draws is computed


class Node(NamedTuple):
    """Draws at given hyperparameters.

    Attributes
    ----------
    model : FieldModel
    state : FieldState
        State of its inference.
    draws : FieldDraws
        Draws of the variables of the model, or of those of the changed prior.
    prior : ChangedPrior or None
        Prior with other hyperparameters than those of the model.
    """

    model: FieldModel
    state: FieldState
    draws: FieldDraws
    prior: ChangedPrior | None = None

    def variables(self, v: Floats) -> Floats:
        """Return the variables (S, R) of the model, from draws (S, V)."""
        return v if self.prior is None else v @ self.prior.mixing.T

    def latents(self, v: Floats, rng: np.random.Generator) -> Floats:
        """Return draws (S, G, Q) on the grid, from draws (S, V)."""
        if self.prior is not None:
            return self.prior.draw_latents(v, rng)
        omitted = self.model.field.draw_omitted(rng, len(v))
        omitted -= omitted.mean(axis=0)  # which is known to be 0
        return self.model.field.latents(v) + omitted


def draw_variables(
    model: FieldModel, state: FieldState, rng: np.random.Generator, options: FieldSamplingOptions
) -> FieldDraws:
    """Draw the variables from the posterior of the regression."""
    target = RegressionTarget.from_state(model.algorithm, state)
    if model.variables > DRAWS.most_variables:
        options = replace(options, particles=0)
    elif model.variables <= DRAWS.few_variables:
        most = max(options.particles, DRAWS.few_variables_particles)
        options = replace(options, chains=max(options.chains, DRAWS.few_variables_chains), particles=most)
    return sample_posterior(target, state.q, rng, options)


def draw_with_prior(
    model: FieldModel, state: FieldState, prior: ChangedPrior, rng: np.random.Generator, count: int
) -> Node:
    """Draw the variables of another prior from the posterior of the regression.

    Parameters
    ----------
    model : FieldModel
    state : FieldState
    prior : ChangedPrior
    rng : numpy.random.Generator
    count : int
        Number of draws if the posterior is Gaussian.
    """
    target = replace(RegressionTarget.from_state(model.algorithm, state), mixing=model.backend.asarray(prior.mixing))
    q = target.gaussian(state.linear).to_dense()
    if model.is_gaussian(state):
        normals = model.backend.asarray(rng.standard_normal((count, prior.mixing.shape[1])))
        v = to_numpy(q.samples(normals))[:, None]
        return Node(model, state, FieldDraws(v, np.zeros(1, dtype=np.intp), v[:, 0], np.empty(0), 1.0, v[:0, 0]), prior)
    options = DRAWS.at_node if prior.mixing.shape[1] <= DRAWS.most_variables else replace(DRAWS.at_node, particles=0)
    return Node(model, state, sample_posterior(target, q, rng, options), prior)


def has_several_modes(draws: FieldDraws) -> bool:
    """Return whether the chains of draws are in different modes."""
    return bool(label_modes(draws.w).max() > 0)


def has_new_modes(draws: FieldDraws, before: FieldDraws) -> bool:
    """Return whether some chains of draws are in a mode in which none of earlier draws, of the same length, are."""
    modes = label_modes(np.concatenate([draws.w, before.w], axis=1))
    chains = draws.w.shape[1]
    return bool(np.setdiff1d(modes[:chains], modes[chains:]).size)


def most_draws(model: FieldModel) -> int:
    """Return the largest number of draws that fit in memory."""
    return max(int(DRAWS.most_numbers / (model.field.bases[0].modes.shape[0] * len(model.field.bases))), 1)


def to_samples(nodes: Sequence[Node], known: KnownOutputs, rng: np.random.Generator) -> tuple[Samples, Floats]:
    """Convert the draws of the variables to draws on the grid.

    Parameters
    ----------
    nodes : sequence of Node
        Draws at each value of the hyperparameters, with equal probability.
    known : KnownOutputs
        Outputs of all runs.
    rng : numpy.random.Generator
        Random numbers of the modes of the prior that are omitted.

    Returns
    -------
    samples : Samples
    predicted : array, shape (S, N, P)
        Outputs of at most about `FieldDrawOptions.predicted` draws by the regression.
    """
    most = most_draws(nodes[0].model) // len(nodes)
    parts, whitened, predicted, predicted_modes, chains, modes, r_hats, sizes = [], [], [], [], [], [], [], []
    for number, node in enumerate(nodes):
        w, C = node.draws.w, node.draws.w.shape[1]
        flat = _kept_draws(node, most)
        n = math.ceil(len(flat) / C)
        parts.append(node.latents(flat, rng.spawn(1)[0]))
        if node.prior is not None:
            whitened.append(node.prior.whitened_variables(flat))
        stride = math.ceil(len(flat) * len(nodes) / DRAWS.predicted)
        predicted.append(node.model.predict(node.state, node.variables(flat[::stride]), known))
        of_chain = label_modes(w) if C > 1 else np.zeros(C, dtype=np.intp)
        modes.append(np.tile(of_chain, n)[: len(flat)])
        predicted_modes.append(modes[-1][::stride])
        several = of_chain.max() > 0
        chain = node.draws.population if several else np.arange(C)
        chains.append(np.tile(chain, n)[: len(flat)] + number * DRAWS.at_node.chains)
        r_hat, effective = _convergence(node, several=bool(several))
        r_hats.append(r_hat)
        sizes.append(effective)
    samples = Samples(
        np.concatenate(parts),
        np.concatenate(chains),
        np.concatenate(modes),
        _method(nodes),
        gaussian_k_hat(nodes[0].model, nodes[0].state, rng.spawn(1)[0]),
        np.mean(r_hats, axis=0),  # each node has few draws, so that the largest would be high by chance
        np.minimum(np.sum(sizes, axis=0), sum(len(part) for part in parts)),
        *(node_evidence(nodes[0], rng.spawn(1)[0]) if len(nodes) == 1 else Evidence(np.nan, np.nan)),
        whitened=np.concatenate(whitened) if whitened else None,
        predicted=np.concatenate(predicted),
        predicted_mode=np.concatenate(predicted_modes),
    )
    return samples, np.concatenate(predicted)


def draw_counts(nodes: Sequence[Node]) -> list[int]:
    """Return the number of draws of each node in the result of `to_samples`."""
    most = most_draws(nodes[0].model) // len(nodes)
    return [len(_kept_draws(node, most)) for node in nodes]


def _kept_draws(node: Node, most: int) -> Floats:
    """Return at most `most` draws (S, R) of a node, evenly spaced along its chains."""
    w = node.draws.w
    kept = np.unique(np.linspace(0, len(w) - 1, min(len(w), max(most // w.shape[1], 1))).round().astype(np.intp))
    return w[kept].reshape(-1, w.shape[2])[:most]


def _method(nodes: Sequence[Node]) -> str:
    if all(node.draws.w.shape[1] == 1 for node in nodes):
        method = "independent draws from the Gaussian posterior"
    elif nodes[0].draws.log_evidence.size:
        method = "tempered sequential Monte Carlo, then Hamiltonian Monte Carlo"
    else:
        method = "Hamiltonian Monte Carlo"
    return method if len(nodes) == 1 else f"{method}, at {len(nodes)} values of the hyperparameters"


def _convergence(node: Node, *, several: bool) -> tuple[Floats, Floats]:
    """Compute R-hat and effective sample size (G, Q); with several modes, from the differences of the populations."""
    w, field = node.draws.w, node.model.field
    n, C, R = w.shape
    G, Q = field.bases[0].modes.shape[0], len(field.bases)
    stride = max(math.ceil(G * Q / DRAWS.diagnosed), 1)
    values = field.latents(node.variables(w.reshape(n * C, R)), nodes=slice(None, None, stride)).reshape(n, C, -1)
    if C == 1:
        ones = np.ones((G, Q))
        return ones, n * ones
    draws = values.swapaxes(0, 1)
    if several:
        K = int(node.draws.population.max()) + 1
        draws = np.stack([draws[node.draws.population == k].reshape(-1, draws.shape[-1]) for k in range(K)])
        # The particles of a population keep their modes: only the populations are independent.
        r_hat = split_r_hat(draws)
        between = np.maximum(draws.mean(axis=1).var(axis=0, ddof=1), 1e-300)
        effective = np.minimum(K * draws.var(axis=1).mean(axis=0) / between, n * C)
    else:
        r_hat = split_r_hat(draws)
        effective = effective_sample_size(draws)
    nearest = np.arange(G) // stride
    return r_hat.reshape(-1, Q)[nearest], effective.reshape(-1, Q)[nearest]


def gaussian_k_hat(model: FieldModel, state: FieldState, rng: np.random.Generator) -> float:
    """Compute the Pareto k of the importance weights of draws from the Gaussian posterior of a state."""
    normals = model.backend.asarray(rng.standard_normal((DRAWS.proposals, model.variables)))
    target = RegressionTarget.from_state(model.algorithm, state)
    weights = to_numpy(
        model.algorithm.likelihood.log_density(target.regression, state.q.samples(normals), target.weights)
    )
    weights = weights + 0.5 * np.sum(to_numpy(normals) ** 2, axis=1)
    if not np.isfinite(weights).all():
        return np.inf
    return smooth_weights(weights)[1]


def evidence_constant(model: FieldModel, state: FieldState) -> float:
    """Return the logarithm of the density of all data minus `RegressionTarget.log_likelihood`, in nats."""
    if state.regression is None:
        return math.nan
    condition = model.field.condition  # direct data
    direct = 0.0 if condition is None else condition.log_evidence
    return model.algorithm.likelihood.log_constant(state.regression) + model.whitening.log_scale + direct


def node_evidence(node: Node, rng: np.random.Generator) -> Evidence:
    """Return the evidence by the populations of the search for modes, or by a bridge to the Gaussian of the state.

    The one with the smaller error is returned: the bridge, unless there are several modes.
    """
    found, constant = node.draws.log_evidence, evidence_constant(node.model, node.state)
    tempered = bridged = Evidence(math.nan, math.nan)
    if found.size:
        error = float(np.std(found, ddof=1) / math.sqrt(len(found)))
        tempered = Evidence(constant + float(logsumexp(found) - math.log(len(found))), error)
    if node.prior is None and node.draws.w.shape[1] > 1:
        w = node.draws.w[:: -(-node.draws.w[..., 0].size // DRAWS.bridged)]
        n, C, R = w.shape
        mean, factor = to_numpy(node.state.q.mean), to_numpy(node.state.q.factor)
        own = gaussian_weights(node.model, node.state, np.linalg.solve(factor, (w.reshape(-1, R) - mean).T).T)
        other = gaussian_weights(node.model, node.state, rng.standard_normal((DRAWS.bridged, R)))
        effective = float(effective_sample_size(own.reshape(n, C, 1).swapaxes(0, 1))[0]) if n >= FEWEST_ROWS else None
        bridged = bridge_evidence(own, other, effective)
        bridged = Evidence(constant + bridged.log, bridged.error)
    return tempered if math.isnan(bridged.error) or tempered.error < bridged.error else bridged


def gaussian_weights(model: FieldModel, state: FieldState, z: Floats) -> Floats:
    """Return the log likelihood of the regression times the prior over the Gaussian, up to `evidence_constant`.

    Parameters
    ----------
    model : FieldModel
    state : FieldState
    z : array, shape (S, R)
        Variables in which the Gaussian of the state is standard normal.

    Returns
    -------
    array, shape (S,)
    """
    q, target = state.q, RegressionTarget.from_state(model.algorithm, state)
    w = q.samples(model.backend.asarray(z))
    determinant = float(np.sum(np.log(np.diagonal(to_numpy(q.factor)))))
    likelihood = to_numpy(target.log_likelihood(w)[0])
    return np.asarray(likelihood + determinant + 0.5 * np.sum(z**2 - to_numpy(w) ** 2, axis=1))


def pick_from_all_modes(draws: FieldDraws, count: int, rng: np.random.Generator) -> Floats:
    """Pick `count` of the draws, with one from each mode if there are several: a mode without runs may be an error.

    Parameters
    ----------
    draws : FieldDraws
    count : int
        At least one. The modes with most chains come first if there are more modes than this.
    rng : numpy.random.Generator

    Returns
    -------
    array, shape (count, R)
    """
    modes = label_modes(draws.w)
    flat = draws.w.reshape(-1, draws.w.shape[-1])
    if not modes.any():
        return pick(flat, count, rng)
    of_draw = np.tile(modes, len(draws.w))
    each = [pick(flat[of_draw == mode], 1, rng) for mode in range(min(int(modes.max()) + 1, count))]
    return np.concatenate([*each, pick(flat, count - len(each), rng)])


def pick(draws: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Pick `count` of the draws (S, R), without repetition as far as possible."""
    rounds = max(math.ceil(count / max(len(draws), 1)), 1)
    chosen: NDArray[np.intp] = np.concatenate([rng.permutation(len(draws)) for _ in range(rounds)])
    return draws[chosen[:count]]
