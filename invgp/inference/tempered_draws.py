"""Draws from the exact posterior of a site model by tempered sequential Monte Carlo: all modes, with their weights.

Sites that are independent in the prior are independent in the posterior too, because each datum belongs to one site.
They are sampled apart from each other, which takes fewer powers of the likelihood and longer steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.special import logsumexp

from invgp.core.backend import Array, Backend, array_namespace, to_numpy
from invgp.core.coupled.coupled_gaussian import SiteFactors
from invgp.core.coupled.prior import Prior
from invgp.core.sampling.site_target import gaussian_root
from invgp.core.sampling.statistics import split_r_hat
from invgp.core.sampling.tempering import Population, temper
from invgp.inference.emulated_posterior import EmulatedPosterior, Report, SamplingOptions, label_modes
from invgp.posterior import Samples
from invgp.problem import Floats

TEMPERED = "tempered sequential Monte Carlo"  # name of the sampler, for users


def draw_by_tempering(
    posterior: EmulatedPosterior,
    factors: SiteFactors,
    rng: np.random.Generator,
    options: SamplingOptions,
    report: Report,
) -> tuple[Samples, Floats]:
    """Draw by tempered sequential Monte Carlo from the prior.

    Parameters
    ----------
    posterior : EmulatedPosterior
    factors : SiteFactors
        Site factors of a Gaussian approximation, which give the scale of the tempered posteriors.
    rng : numpy.random.Generator
    options : SamplingOptions
    report : callable
        Receives the power of the likelihood, as text.

    Returns
    -------
    samples : Samples
    tempered : array, shape (R, N, Q)
        Draws from a wider distribution: the prior times a small power of the likelihood.
    """
    prior, backend = posterior.target.prior, posterior.backend
    most = options.numbers_at_once // (options.populations * prior.site_count * prior.latent_count)
    particles = int(np.clip(most, options.fewest_particles, options.most_particles))
    groups = independent_groups(prior, options.independent)
    parts, populations = [posterior], []
    if len(groups) > 1:
        parts = [posterior.select(group) for group in groups]
    for number, (part, group) in enumerate(zip(parts, groups, strict=True), start=1):
        where = f"group {number} of {len(groups)} of sites, " if len(groups) > 1 else ""
        scale = _scale(part.target.prior, positive_factors(_take(factors, group, backend)))
        start = backend.asarray(rng.standard_normal((options.populations, particles, part.target.size)))
        populations.append(temper(part.target.log_likelihood, scale, start, rng, report=_report_power(report, where)))
    samples = _from_populations(posterior, parts, groups, populations, options)
    tempered = _join([part.latents(found.tempered) for part, found in zip(parts, populations, strict=True)], groups)
    return samples, tempered


def independent_groups(prior: Prior, limit: float) -> list[NDArray[np.intp]]:
    """Divide the sites into groups, such that the prior correlation between groups is at most a limit.

    Returns
    -------
    list of arrays of int
        Positions of the sites of each group, in ascending order.
    """
    xp = array_namespace(prior.X)
    related = np.zeros((prior.site_count, prior.site_count), dtype=bool)
    for kernel in prior.kernels:
        covariance = to_numpy(xp.abs(kernel(prior.X, prior.X)))
        spread = np.sqrt(np.diagonal(covariance))
        related |= covariance > limit * spread[:, None] * spread
    count, labels = connected_components(csr_array(related), directed=False)
    return [np.flatnonzero(labels == k) for k in range(count)]


def _report_power(report: Report, where: str) -> Callable[[float], None]:
    return lambda power: report(f"{where}likelihood power {power:.2g}")


def _scale(prior: Prior, factors: SiteFactors) -> Callable[[float], Array]:
    return lambda power: gaussian_root(prior, factors, power)


def _take(factors: SiteFactors, sites: NDArray[np.intp], backend: Backend) -> SiteFactors:
    index = backend.namespace.asarray(sites.astype(np.int32), device=backend.device)
    return SiteFactors(*(backend.namespace.take(part, index, axis=0) for part in factors))


def _join(latents: list[Floats], groups: list[NDArray[np.intp]]) -> Floats:
    """Join draws (..., B, Q) of groups of sites to draws (..., N, Q) of all sites."""
    order = np.argsort(np.concatenate(groups))
    return np.concatenate(latents, axis=-2)[..., order, :]


def positive_factors(factors: SiteFactors) -> SiteFactors:
    """Return site factors whose precisions have no negative eigenvalues."""
    xp = array_namespace(factors.shift)
    values, vectors = xp.linalg.eigh(factors.precision)
    values = xp.maximum(values, xp.zeros_like(values))
    precision = (vectors * values[:, None, :]) @ xp.matrix_transpose(vectors)
    return SiteFactors(precision, factors.shift)


def _from_populations(
    posterior: EmulatedPosterior,
    parts: list[EmulatedPosterior],
    groups: list[NDArray[np.intp]],
    found: list[Population],
    options: SamplingOptions,
) -> Samples:
    """Return the particles of several populations; R-hat compares populations, since particles may keep their modes.

    Each of the populations found is that of one group of sites. Groups are independent, so that their particles can be
    joined in any order.
    """
    iterations, K, n, _ = found[0].v.shape
    last = min(iterations, max(options.draws * 2 // (K * n), 4))
    chosen = np.unique(np.linspace(iterations - 1, iterations // 2, last).round().astype(np.intp))
    latents = _join([part.latents(one.v[chosen]) for part, one in zip(parts, found, strict=True)], groups)
    I, _, _, N, Q = latents.shape  # noqa: E741
    grouped = latents.swapaxes(0, 1).reshape(K, I * n, N * Q)
    flat = latents.reshape(I * K * n, N, Q)
    # The populations are independent: the variance of their means gives the effective number of draws.
    means = grouped.mean(axis=1)
    within = grouped.var(axis=1).mean(axis=0)
    ratio = within / np.maximum(means.var(axis=0, ddof=1), 1e-300)
    effective = float(K * np.median(ratio))
    log_evidence = np.sum([one.log_evidence for one in found], axis=0)
    error = float(np.std(log_evidence, ddof=1) / math.sqrt(K))
    return Samples(
        flat,
        np.tile(np.repeat(np.arange(K), n), I),
        label_modes(flat, options),
        TEMPERED,
        np.nan,
        split_r_hat(grouped).reshape(N, Q),
        np.full((N, Q), min(effective, float(len(flat)))),
        float(logsumexp(log_evidence) - math.log(K)),
        error,
        posterior.whiten(flat) if len(found) > 1 else posterior.inducing_variables(found[0].v[chosen]),
    )
