"""Site updates: from forward model outputs to terms of the bound and to new site factors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from invgp.core.backend import Array, array_namespace
from invgp.core.coupled.coupled_gaussian import SiteFactors
from invgp.core.coupled.hyperparameters import NoiseScaledFactors
from invgp.core.coupled.site_estimators import (
    GaussianNoise,
    SiteTerms,
    estimate_by_output,
    estimate_log_density,
    limit_site_precision,
    mean_log_densities,
    min_fit_samples,
    sum_over_outputs,
)
from invgp.core.coupled.stage import Stage

LogDensity = Callable[[Array, Array | None], Array]


@dataclass(frozen=True)
class SiteUpdate:
    """Estimates from the runs of B sites.

    Attributes
    ----------
    terms : SiteTerms
        Expected log likelihood of each site, with derivatives.
    by_group : SiteTerms or None
        The same for each of G groups of outputs whose noise is learnt, with a leading dimension G.
    usable : Array of bool, shape (B,), or None
        Whether a site had enough valid runs for derivatives; None if all sites had.
    reliable : bool
        Whether the bound can be estimated: at each site at least half of the runs are valid, and each output is
        present in half of the runs or in enough of them for a fit.
    """

    terms: SiteTerms
    by_group: SiteTerms | None
    usable: Array = None
    reliable: bool = True

    def site_factors(self, factor: Array, offset: Array, old: SiteFactors, *, bounded: bool) -> SiteFactors:
        """Compute new site factors; sites without enough valid runs keep their `old` ones.

        See `site_factors_from_terms` for the parameters.
        """
        new = site_factors_from_terms(factor, offset, self.terms, bounded=bounded)
        if self.usable is None:
            return new
        xp = array_namespace(factor)
        return SiteFactors(
            xp.where(self.usable[:, None, None], new.precision, old.precision),
            xp.where(self.usable[:, None], new.shift, old.shift),
        )


def estimate_site_update(
    stage: Stage,
    likelihood: GaussianNoise | LogDensity,
    noise_groups: Array | None,
    log_noise_scales: Array,
    outputs: Array,
    valid: Array,
    rows: Array | None,
) -> SiteUpdate:
    """Estimate the terms of all sites, or of some of them, from forward model outputs.

    Parameters
    ----------
    stage : Stage
        Estimator with its sample points.
    likelihood : GaussianNoise or callable
        Gaussian noise, or a function from outputs (S, B, P) and site indices (B,), None for all sites, to log
        densities (S, B).
    noise_groups : Array, shape (P, G), or None
        1 where the noise of an output belongs to a learnt group; None if no noise is learnt.
    log_noise_scales : Array, shape (G,)
        Log scale of the noise of each group.
    outputs : Array, shape (S, B, P)
        Outputs of the forward model; NaN for missing outputs.
    valid : Array of bool, shape (S, B)
        Runs that did not fail.
    rows : Array of int, shape (B,), or None
        Indices of the sites; None for all sites.
    """
    xp = array_namespace(outputs)
    present = xp.isfinite(outputs)
    partial = bool(xp.any(valid[..., None] & ~present))
    outputs = xp.where(valid[..., None] & present, outputs, xp.zeros_like(outputs))
    z, by_group, used = stage.points.base, None, valid
    if not isinstance(likelihood, GaussianNoise):
        complete = xp.all(present | ~valid[..., None], axis=-1)
        densities = likelihood(outputs, rows)
        valid = valid & (xp.isfinite(densities) | ~complete)
        used = valid & complete
        terms = estimate_log_density(z, densities, used)
    else:
        noise = likelihood if rows is None else likelihood.take(rows)
        if noise_groups is not None and log_noise_scales.shape[0]:
            noise = noise.scale((noise_groups @ log_noise_scales[:, None])[:, 0])
        densities = noise.log_density(outputs)
        if partial:
            used = valid[..., None] & noise.available_residuals(present)
        if stage.kind == "log density":
            used = xp.all(used, axis=-1) if partial else used
            terms = estimate_log_density(z, densities, used)
        else:
            by_output = estimate_by_output(z, noise.residuals(outputs), used, quadratic=stage.quadratic)
            terms = sum_over_outputs(by_output, noise.log_normaliser)
            if noise_groups is not None and log_noise_scales.shape[0]:
                by_group = _sum_by_group(by_output, noise_groups)
    return _check_sample_counts(stage, SiteUpdate(terms, by_group), densities, valid, used)


def _check_sample_counts(stage: Stage, update: SiteUpdate, densities: Array, valid: Array, used: Array) -> SiteUpdate:
    """Replace the value of sites with too few runs for a fit by the mean log density, and check the reliability.

    Runs fail where the posterior should not go. A run with a missing output has not failed: the fit of this output
    only needs enough other runs.

    Parameters
    ----------
    valid : Array of bool, shape (S, B)
        Runs that did not fail.
    used : Array of bool, shape (S, B) or (S, B, P)
        Runs that the fits used, for all outputs or for each of them.
    """
    xp = array_namespace(valid)
    if bool(xp.all(used)):
        return update
    needed = float(min_fit_samples(stage.points.base.shape[1], quadratic=stage.quadratic))
    valid_count, used_count = (xp.sum(xp.astype(runs, densities.dtype), axis=0) for runs in (valid, used))
    complete = used if used.ndim == 2 else xp.all(used, axis=-1)
    used_count = used_count if used_count.ndim == 1 else xp.min(used_count, axis=-1)
    usable = used_count >= needed
    value = xp.where(usable, update.terms.value, mean_log_densities(densities, complete))
    by_group = None
    if update.by_group is not None:
        weight = xp.astype(usable, value.dtype)
        grouped = update.by_group
        by_group = SiteTerms(
            grouped.value * weight, grouped.gradient * weight[:, None], grouped.curvature * weight[:, None, None]
        )
    half = 0.5 * float(valid.shape[0])
    reliable = bool(xp.all((valid_count >= half) & (usable | (used_count >= half))))
    return SiteUpdate(update.terms._replace(value=value), by_group, usable, reliable)


def _sum_by_group(by_output: SiteTerms, groups: Array) -> SiteTerms:
    """Sum terms of outputs (P, ...) within groups (P, G), to terms of groups (G, ...)."""
    xp = array_namespace(groups)
    parts = []
    for part in by_output:
        summed = groups.T @ xp.reshape(part, (part.shape[0], -1))
        parts.append(xp.reshape(summed, (groups.shape[1], *part.shape[1:])))
    return SiteTerms(*parts)


def scale_site_factors(
    sites: SiteFactors, factor: Array, offset: Array, by_group: SiteTerms | None, counts: Array | None
) -> NoiseScaledFactors:
    """Express site factors as a function of the noise scales of groups of outputs.

    Parameters
    ----------
    sites : SiteFactors
        Factors for the present noise.
    factor : Array, shape (N, Q, Q)
        F with f = mean + F z.
    offset : Array, shape (N, Q)
        Posterior mean minus prior mean.
    by_group : SiteTerms or None
        Terms of each group, with respect to z; None if no noise is learnt.
    counts : Array, shape (G,), or None
        Number of observations in each group.
    """
    xp = array_namespace(offset)
    if by_group is None or counts is None:
        no_groups = xp.zeros_like(offset[:0, 0])
        empty = SiteFactors(
            xp.zeros_like(sites.precision)[None, ...][:0, ...], xp.zeros_like(offset)[None, ...][:0, ...]
        )
        return NoiseScaledFactors(sites, empty, no_groups, no_groups)
    inverse = xp.linalg.inv(factor)
    back = xp.matrix_transpose(inverse)
    precision = -(back @ by_group.curvature @ inverse)
    gradient = (back @ by_group.gradient[..., None])[..., 0]
    shift = gradient + (precision @ offset[..., None])[..., 0]
    spread = 0.5 * xp.sum(xp.linalg.diagonal(by_group.curvature), axis=-1)
    quadratic = 0.5 * xp.sum(offset * (shift - gradient), axis=-1)
    constants = xp.sum(by_group.value - spread - xp.sum(gradient * offset, axis=-1) - quadratic, axis=-1)
    factors = SiteFactors(precision, shift)
    fixed = SiteFactors(*(total - xp.sum(part, axis=0) for total, part in zip(sites, factors, strict=True)))
    return NoiseScaledFactors(fixed, factors, constants, counts)


def site_factors_from_terms(factor: Array, offset: Array, terms: SiteTerms, *, bounded: bool) -> SiteFactors:
    """Compute the optimal site factors from the terms with respect to z.

    With expectations over q(f_n), Lambda_n = -E[Hessian of log p] and eta_n = E[gradient of log p] + Lambda_n (b_n -
    mu), where b_n is the posterior mean and mu the prior mean.

    Parameters
    ----------
    factor : Array, shape (B, Q, Q)
        F with f = b + F z.
    offset : Array, shape (B, Q)
        Posterior mean minus prior mean.
    terms : SiteTerms
        Gradient and curvature of the expected log likelihood with respect to z.
    bounded : bool
        Whether to limit negative precisions to a part of the marginal posterior precision of the site.

    References
    ----------
    Opper and Archambeau (2009).
    """
    xp = array_namespace(factor)
    inverse = xp.linalg.inv(factor)
    back = xp.matrix_transpose(inverse)
    precision = back @ (limit_site_precision(terms.curvature) if bounded else -terms.curvature) @ inverse
    precision = 0.5 * (precision + xp.matrix_transpose(precision))
    return SiteFactors(precision, (back @ terms.gradient[..., None] + precision @ offset[..., None])[..., 0])
