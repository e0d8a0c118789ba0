"""What runs of the forward model tell of the sites: their terms of the bound, and what they should say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from invgp.core.backend import Array, array_namespace
from invgp.core.coupled.coupled_gaussian import SiteFactors
from invgp.core.coupled.hyperparameters import NoiseScaledFactors
from invgp.core.coupled.site_estimators import (
    GaussianNoise,
    SiteTerms,
    all_outputs,
    bounded_precision,
    estimate_by_output,
    estimate_log_density,
    fewest_samples,
    plain_values,
)
from invgp.core.coupled.stage import Stage

LogDensity = Callable[[Array, Array | None], Array]


@dataclass(frozen=True)
class SiteUpdate:
    """What the runs tell of the sites.

    Attributes
    ----------
    terms : of each site.
    by_group : the same by groups of outputs whose noise is learnt, (G, ...).
    usable : (B,), where there were runs enough for more than a value; None if everywhere.
    trustworthy : whether the bound can be told: half of the runs of every site went well, and each of its outputs is
        there in half of them, or often enough for a fit.
    """

    terms: SiteTerms
    by_group: SiteTerms | None
    usable: Array = None
    trustworthy: bool = True

    def sites(self, factor: Array, offset: Array, old: SiteFactors, *, bounded: bool) -> SiteFactors:
        """What the sites should say; where that cannot be told, what they said."""
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
    noise: Array,
    outputs: Array,
    valid: Array,
    rows: Array | None,
) -> SiteUpdate:
    """What outputs (S, B, P) tell of all sites, or of some (B,).

    Parameters
    ----------
    noise_groups, noise : of outputs (P, G) whose noise is learnt, and its log scales (G,); None if nothing is learnt.
    valid : (S, B), the runs that went well.
    """
    xp = array_namespace(outputs)
    present = xp.isfinite(outputs)
    partial = bool(xp.any(valid[..., None] & ~present))
    outputs = xp.where(valid[..., None] & present, outputs, xp.zeros_like(outputs))
    z, by_group, counted = stage.points.base, None, valid
    if not isinstance(likelihood, GaussianNoise):
        whole = xp.all(present | ~valid[..., None], axis=-1)
        densities = likelihood(outputs, rows)
        valid = valid & (xp.isfinite(densities) | ~whole)
        counted = valid & whole
        terms = estimate_log_density(z, densities, counted)
    else:
        given = likelihood if rows is None else likelihood.at(rows)
        if noise_groups is not None and noise.shape[0]:
            given = given.scaled((noise_groups @ noise[:, None])[:, 0])
        densities = given.log_density(outputs)
        if partial:
            counted = valid[..., None] & given.known(present)
        if stage.kind == "log density":
            counted = xp.all(counted, axis=-1) if partial else counted
            terms = estimate_log_density(z, densities, counted)
        else:
            by_output = estimate_by_output(z, given.residuals(outputs), counted, quadratic=stage.quadratic)
            terms = all_outputs(by_output, given.log_normaliser)
            if noise_groups is not None and noise.shape[0]:
                by_group = _sum_by_group(by_output, noise_groups)
    return _check_sample_counts(stage, SiteUpdate(terms, by_group), densities, valid, counted)


def _check_sample_counts(stage: Stage, told: SiteUpdate, densities: Array, valid: Array, counted: Array) -> SiteUpdate:
    """The same where there are runs enough; elsewhere only a value, if at least half of them went well.

    Runs fail where the posterior should not go. A run that lacks an output has not failed: what counts is whether
    the runs that have it are enough.

    Parameters
    ----------
    valid : (S, B), the runs that went well.
    counted : (S, B), or by output (S, B, P), those that were used.
    """
    xp = array_namespace(valid)
    if bool(xp.all(counted)):
        return told
    needed = float(fewest_samples(stage.points.base.shape[1], quadratic=stage.quadratic))
    went_well, used = (xp.sum(xp.astype(runs, densities.dtype), axis=0) for runs in (valid, counted))
    whole = counted if counted.ndim == 2 else xp.all(counted, axis=-1)
    used = used if used.ndim == 1 else xp.min(used, axis=-1)
    usable = used >= needed
    value = xp.where(usable, told.terms.value, plain_values(densities, whole))
    by_group = None
    if told.by_group is not None:
        weight = xp.astype(usable, value.dtype)
        grouped = told.by_group
        by_group = SiteTerms(
            grouped.value * weight, grouped.gradient * weight[:, None], grouped.curvature * weight[:, None, None]
        )
    half = 0.5 * float(valid.shape[0])
    trustworthy = bool(xp.all((went_well >= half) & (usable | (used >= half))))
    return SiteUpdate(told.terms._replace(value=value), by_group, usable, trustworthy)


def _sum_by_group(by_output: SiteTerms, groups: Array) -> SiteTerms:
    """Terms by output (P, ...) -> by group (G, ...)."""
    xp = array_namespace(groups)
    parts = []
    for part in by_output:
        summed = groups.T @ xp.reshape(part, (part.shape[0], -1))
        parts.append(xp.reshape(summed, (groups.shape[1], *part.shape[1:])))
    return SiteTerms(*parts)


def scale_site_factors(
    sites: SiteFactors, factor: Array, offset: Array, by_group: SiteTerms | None, counts: Array | None
) -> NoiseScaledFactors:
    """What sites say as a function of the noise, from what they say now and the terms by group, in units of z."""
    xp = array_namespace(offset)
    if by_group is None or counts is None:
        nothing = xp.zeros_like(offset[:0, 0])
        empty = SiteFactors(
            xp.zeros_like(sites.precision)[None, ...][:0, ...], xp.zeros_like(offset)[None, ...][:0, ...]
        )
        return NoiseScaledFactors(sites, empty, nothing, nothing)
    inverse = xp.linalg.inv(factor)
    back = xp.matrix_transpose(inverse)
    precision = -(back @ by_group.curvature @ inverse)
    gradient = (back @ by_group.gradient[..., None])[..., 0]
    shift = gradient + (precision @ offset[..., None])[..., 0]
    spread = 0.5 * xp.sum(xp.linalg.diagonal(by_group.curvature), axis=-1)
    bent = 0.5 * xp.sum(offset * (shift - gradient), axis=-1)
    constants = xp.sum(by_group.value - spread - xp.sum(gradient * offset, axis=-1) - bent, axis=-1)
    own = SiteFactors(precision, shift)
    fixed = SiteFactors(*(whole - xp.sum(part, axis=0) for whole, part in zip(sites, own, strict=True)))
    return NoiseScaledFactors(fixed, own, constants, counts)


def site_factors_from_terms(factor: Array, offset: Array, terms: SiteTerms, *, bounded: bool) -> SiteFactors:
    """What sites should say, from their terms in units of z.

    Parameters
    ----------
    factor : F with f = mean + F z, (B, Q, Q).
    offset : mean less the prior's, (B, Q).
    bounded : whether no site may take much of its own precision away.
    """
    xp = array_namespace(factor)
    inverse = xp.linalg.inv(factor)
    back = xp.matrix_transpose(inverse)
    precision = back @ (bounded_precision(terms.curvature) if bounded else -terms.curvature) @ inverse
    precision = 0.5 * (precision + xp.matrix_transpose(precision))
    return SiteFactors(precision, (back @ terms.gradient[..., None] + precision @ offset[..., None])[..., 0])
