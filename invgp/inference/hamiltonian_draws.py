"""Hamiltonian Monte Carlo of the posterior on an emulator, started at draws from its Gaussian approximation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from invgp.core.backend import Array, array_namespace, to_numpy
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.sampling.hamiltonian import HamiltonianOptions, LogDensity, sample
from invgp.core.sampling.statistics import Evidence, bridge_evidence, effective_sample_size, split_r_hat
from invgp.inference.emulated_posterior import EmulatedPosterior, Report, SamplingOptions, label_modes
from invgp.inference.importance_draws import extend_gaussian, importance_weights, whiten
from invgp.posterior import Samples
from invgp.problem import Floats

HAMILTONIAN = "Hamiltonian Monte Carlo"  # name of the sampler, for users


def draw_by_hamiltonian(
    posterior: EmulatedPosterior,
    gaussian: GaussianPosterior,
    rng: np.random.Generator,
    options: SamplingOptions,
    report: Report,
    starts: Floats | None = None,
) -> Samples:
    """Draw by Hamiltonian Monte Carlo in coordinates in which a Gaussian approximation is standard normal.

    The chains start at some of `starts` (R, D), variables of a dense prior, or at draws from the Gaussian.
    """
    target, backend = posterior.target, posterior.backend
    centre, root = extend_gaussian(backend, gaussian, target.size)
    xp = array_namespace(root)

    def transform(matrix: Array) -> LogDensity:
        return target.around(centre, matrix @ root if matrix.shape == root.shape else _block(xp, matrix, root))

    numbers = target.prior.site_count * target.prior.latent_count
    chains = int(np.clip(options.chain_numbers // numbers, options.fewest_chains, options.chains))
    iterations = min(math.ceil(options.iterations * options.chains / chains), options.most_iterations)
    start = backend.asarray(_start(posterior, gaussian, starts, rng, chains))
    found = sample(
        target.around(centre, root),
        transform,
        start,
        rng,
        warmup=options.warmup,
        iterations=iterations,
        options=HamiltonianOptions(harmonic=True),
        report=lambda done: report(f"iteration {done} of {options.warmup + iterations}"),
    )
    kept = max(options.most_numbers // (numbers * chains), 4)
    draws = found.z[:: math.ceil(iterations / kept)].swapaxes(0, 1)
    v = np.stack([to_numpy(target.variables(backend.asarray(chain), centre, root)) for chain in draws])
    log_evidence, error = _bridge(posterior, gaussian, draws, rng.spawn(1)[0], options)
    samples = _from_chains(posterior, v, HAMILTONIAN, options)
    return replace(samples, log_evidence=log_evidence, log_evidence_error=error)


def _start(
    posterior: EmulatedPosterior,
    gaussian: GaussianPosterior,
    starts: Floats | None,
    rng: np.random.Generator,
    chains: int,
) -> Floats:
    size = posterior.target.size
    if starts is None:
        return rng.standard_normal((chains, size))
    chosen = starts[rng.choice(len(starts), chains, replace=len(starts) < chains)]
    return whiten(posterior, gaussian, chosen)


def _bridge(
    posterior: EmulatedPosterior,
    gaussian: GaussianPosterior,
    draws: Floats,
    rng: np.random.Generator,
    options: SamplingOptions,
) -> Evidence:
    """Estimate the evidence from draws (C, n, D) in coordinates in which the Gaussian is standard normal."""
    if not options.bridged:
        return Evidence(np.nan, np.nan)
    chains, D = len(draws), draws.shape[-1]
    few = draws[:, :: math.ceil(draws[..., 0].size / options.bridged)]
    own, _ = importance_weights(posterior, gaussian, few.reshape(-1, D), options.rows_at_once)
    normals = rng.standard_normal((options.bridged, D))
    other, _ = importance_weights(posterior, gaussian, normals, options.rows_at_once)
    by_chain = np.nan_to_num(own, neginf=own[np.isfinite(own)].min()).reshape(chains, -1, 1)
    effective = float(effective_sample_size(by_chain)[0]) if by_chain.shape[1] >= 4 else None
    return bridge_evidence(own, other, effective)


def _block(xp: Any, matrix: Array, root: Array) -> Array:
    """Multiply a matrix (D, D) by the root of the inducing variables, with the identity for the other variables."""
    size, whole = root.shape[0], matrix.shape[0]
    left = matrix[:, :size] @ root
    return xp.concat([left, matrix[:, size:whole]], axis=1)


def _from_chains(posterior: EmulatedPosterior, v: Floats, method: str, options: SamplingOptions) -> Samples:
    """Return draws v (C, n, D) of chains that each visit the whole posterior."""
    latents = np.stack([posterior.latents(chain) for chain in v])
    C, n, N, Q = latents.shape
    by_variable = latents.reshape(C, n, N * Q)
    flat = latents.swapaxes(0, 1).reshape(C * n, N, Q)
    return Samples(
        flat,
        np.tile(np.arange(C), n),
        label_modes(flat, options),
        method,
        np.nan,
        split_r_hat(by_variable).reshape(N, Q),
        effective_sample_size(by_variable).reshape(N, Q),
        whitened=posterior.inducing_variables(v.swapaxes(0, 1)),
    )
