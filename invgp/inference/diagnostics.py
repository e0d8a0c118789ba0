"""What can be said about a posterior without knowing the truth.

The data misfit asks whether the noise explains the residuals. The shape asks, site by site, what the posterior of that
site would be if all others kept saying what they say: their message is a Gaussian (the cavity), and its product with
the site's own likelihood can be computed by importance sampling, whatever its form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree
from scipy.stats import chi2, t

from invgp.core.backend import Backend, to_numpy
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.point_sets import Points
from invgp.execution.simulator import Batch
from invgp.latent_model.noise_density import noise_log_density
from invgp.posterior import Diagnostics
from invgp.problem import Floats, Problem
from invgp.wording import counted

WIDENED = 1.5  # of the draws from the posterior: wider than what they are to judge
LEAST_PRECISION = 0.1  # of what the other sites say, in units of the prior's
FEWEST_EFFECTIVE = 4.0  # draws: with fewer, nothing is said
DOUBTFUL = 0.2  # standard deviations, beyond chance
POOR_FIT, CLOSE_FIT = 2.0, 0.2  # mean squared normalised residual
UNEXPLAINED = 10.0  # expected misfit of a site, at least; more where chance alone may do that
CHANCE = 1e-2  # that any site of a survey is called unexplained though all is right
FARTHEST_NEIGHBOUR = 2.0  # length-scales
FEWEST_DATA = 20  # of a kind: a few may be fitted well or badly by chance
NAMED = 5  # sites


def chi_square(problem: Problem, predicted: Floats) -> Floats:
    """Mean square of the residuals in units of the noise, (P,), at predictions (N, P)."""
    residuals = (problem.survey.Y - predicted) / problem.noise_std
    counts = np.sum(np.isfinite(residuals), axis=0)
    return np.where(counts, np.nansum(residuals**2, axis=0) / np.maximum(counts, 1), np.nan)


def expected_misfit(problem: Problem, predicted: Floats, predicted_std: Floats) -> Floats:
    """Mean square (N,) of data less outputs at each site, over its data and over the posterior, in units of the noise.

    Parameters
    ----------
    predicted, predicted_std : of the outputs under the posterior, (N, P).
    """
    squares = ((problem.survey.Y - predicted) ** 2 + predicted_std**2) / problem.noise_std**2
    counts = np.sum(np.isfinite(squares), axis=1)
    return np.where(counts, np.nansum(squares, axis=1) / np.maximum(counts, 1), np.nan)


def find_unexplained(problem: Problem, predicted: Floats, predicted_std: Floats) -> NDArray[np.bool_]:
    """The sites (N,) whose data lie farther outside the noise than chance can put them anywhere in the survey."""
    misfit = expected_misfit(problem, predicted, predicted_std)
    counts = np.maximum(np.isfinite(problem.survey.Y).sum(axis=1), 1)
    chance = CHANCE / problem.survey.size
    if problem.noise.kind == "gaussian":
        limit = chi2.isf(chance, counts) / counts
    else:  # the largest of the data may be all of the misfit
        degrees = problem.noise.degrees
        heavy = problem.noise.kind == "student-t"
        tail = t.isf(0.5 * chance / counts, degrees) if heavy else -np.log(chance / counts)
        limit = tail**2 * ((degrees - 2.0) / degrees if heavy else 0.5)
    # The posterior's own spread adds at most about 1.
    return np.asarray(np.nan_to_num(misfit) > np.maximum(limit + 1.0, UNEXPLAINED))


class Cavity:
    """What all other sites say about some sites (B,), with draws (S, B, Q) that cover it and the posterior."""

    def __init__(
        self, posterior: GaussianPosterior, sites: NDArray[np.intp], rng: np.random.Generator, samples: int
    ) -> None:
        self.sites = sites
        mean, covariance = (to_numpy(part)[sites] for part in posterior.marginals)
        prior_mean = to_numpy(posterior.prior.mean)
        own_precision, own_shift = (to_numpy(part)[sites] for part in posterior.sites)
        precision = np.linalg.inv(covariance)
        prior_std = np.sqrt([float(kernel.variance) for kernel in posterior.prior.kernels])
        # In units of the prior. Others that take precision away may leave no distribution, or one so wide that a
        # simulator would be asked for what nobody believes.
        values, vectors = np.linalg.eigh((precision - own_precision) * prior_std[:, None] * prior_std)
        factor = prior_std[:, None] * vectors / np.sqrt(np.maximum(values, LEAST_PRECISION))[:, None, :]
        spread = factor @ factor.swapaxes(-1, -2)
        shift = precision @ (mean - prior_mean)[..., None] - own_shift[..., None]
        self.mean, self.covariance = mean, covariance
        self.others = prior_mean + (spread @ shift)[..., 0], spread
        self.wide = mean, WIDENED**2 * covariance
        count, latents = mean.shape
        normals = Points.draw(rng, samples // 2, count, latents, Backend(np, "cpu")).normals()
        self.latents = np.concatenate([_transform_normals(normals, *gaussian) for gaussian in (self.others, self.wide)])

    def shape_errors(self, problem: Problem, batch: Batch) -> Floats:
        """Distance (B, Q) between posterior and product of cavity and likelihood, from runs at `latents`."""
        whole = batch.whole(np.isfinite(problem.survey.Y[self.sites]))
        outputs = np.where(whole[..., None], np.nan_to_num(batch.outputs), 0.0)
        log_density = np.asarray(noise_log_density(problem, Backend(np, "cpu"))(outputs, self.sites))
        proposal = np.logaddexp(_log_normal(self.latents, *self.others), _log_normal(self.latents, *self.wide))
        weight = np.where(whole, _log_normal(self.latents, *self.others) + log_density - proposal, -np.inf)
        told = np.isfinite(weight.max(axis=0))
        weight = np.exp(np.where(told, weight - np.where(told, weight.max(axis=0), 0.0), 0.0))
        weight /= weight.sum(axis=0)
        mean = np.sum(weight[..., None] * self.latents, axis=0)
        variance = np.sum(weight[..., None] * (self.latents - mean) ** 2, axis=0)
        own = np.diagonal(self.covariance, axis1=1, axis2=2)
        effective = 1.0 / np.sum(weight**2, axis=0)
        # Less what chance alone would do with so many draws.
        chance = 1.0 / np.sqrt(effective) + 5.0 / effective
        off = np.maximum(np.abs(mean - self.mean) / np.sqrt(own), 0.5 * np.abs(np.log(variance / own)))
        enough = told & (effective >= FEWEST_EFFECTIVE)
        return np.where(enough[:, None], np.maximum(off - chance[:, None], 0.0), np.nan)


def doubtful_latents(problem: Problem, shape_errors: Floats) -> list[str]:
    """The latents, and labels of theirs, whose shape is in doubt at some site, from errors (N, Q); none if all are."""
    doubtful = np.any(np.nan_to_num(shape_errors) > DOUBTFUL, axis=0).tolist()
    names = [f"{v.name} {label}".strip() for v in problem.latents for label in v.labels or [""]]
    return [] if all(doubtful) else [name for name, doubt in zip(names, doubtful, strict=True) if doubt]


def diagnose(
    problem: Problem,
    predicted: Floats,
    predicted_std: Floats,
    shape_error: Floats,
    notes: Sequence[str] = (),
    *,
    converged: bool = True,
    latents: Sequence[str] = (),
) -> Diagnostics:
    """Numbers and sentences; before the posterior has converged, its misfit says nothing of the noise.

    Parameters
    ----------
    shape_error : (N,), the largest of each site's.
    latents : those whose shape is in doubt, if not all of them are.
    """
    misfit = chi_square(problem, predicted)
    misfits = expected_misfit(problem, predicted, predicted_std)
    far = _unexplained_sentences(np.where(find_unexplained(problem, predicted, predicted_std), misfits, 0.0))
    sentences = [
        *notes,
        *far,
        *(_misfit_sentences(problem, misfit) if converged else ()),
        *_shape_sentences(shape_error, latents),
    ]
    return Diagnostics(misfit, shape_error, (*sentences, *_length_scale_sentences(problem)))


def _misfit_sentences(problem: Problem, misfit: Floats) -> list[str]:
    sentences = []
    counts = np.sum(np.isfinite(problem.survey.Y), axis=0)
    misfit = np.where(counts >= FEWEST_DATA, misfit, 1.0)
    for observation in problem.survey.observations:
        labels: Sequence[object] = observation.labels or [""]
        for label, value in zip(labels, misfit[problem.observation_slices[observation.name]], strict=True):
            what = f"{observation.name} {label}".strip()
            if value > POOR_FIT:
                sentences.append(
                    f"{what} is fitted worse than its noise allows (mean squared normalised residual "
                    f"{value:.2g}): the noise may be larger than stated, or the simulator misses something."
                )
            elif value < CLOSE_FIT:
                sentences.append(
                    f"{what} is fitted far more closely than its noise asks for (mean squared normalised residual "
                    f"{value:.2g}): the noise may be smaller than stated."
                )
    return sentences


def _unexplained_sentences(misfit: Floats) -> list[str]:
    sites, named = _worst(misfit, 0.0)
    if not sites:
        return []
    return [
        f"At {sites} of {counted(len(misfit), 'site')} the posterior does not explain the data, which lie far outside "
        f"the noise: site {named}. Either the data there are wrong, which Student-t noise would "
        "bear, or this is the wrong solution."
    ]


def _shape_sentences(shape_error: Floats, latents: Sequence[str]) -> list[str]:
    sites, named = _worst(shape_error, DOUBTFUL)
    if not sites:
        return []
    of = f" of {', '.join(latents)}" if latents else ""
    return [
        f"At {sites} of {counted(len(shape_error), 'site')} the posterior{of} is not Gaussian in shape "
        f"(several solutions, or a strongly bent one), so that mean and spread there are doubtful: site {named}. "
        "`invgp compare` samples it."
    ]


def _worst(values: Floats, limit: float) -> tuple[int, str]:
    """How many sites have a larger value, and the numbers of those with the largest."""
    beyond = np.flatnonzero(np.nan_to_num(values) > limit)
    worst = beyond[np.argsort(-values[beyond])]
    return len(beyond), ", ".join(str(n + 1) for n in worst[:NAMED]) + (" and others" if len(worst) > NAMED else "")


def _length_scale_sentences(problem: Problem) -> list[str]:
    """Of length-scales that were learnt and say no more than that the sites are independent."""
    X, sentences = problem.survey.X, []
    if len(X) < 2:
        return []
    for latent in problem.latents:
        if "length_scale" not in latent.learn:
            continue
        scaled = X / latent.length_scale
        nearest, _ = KDTree(scaled).query(scaled, k=2)
        are_distinct = np.median(np.asarray(nearest)[:, 1])
        if are_distinct > FARTHEST_NEIGHBOUR:
            sentences.append(
                f"The length-scale of {latent.name} was learnt to be far below the distance between sites, where the "
                "data cannot tell one value from another: start it nearer to what you expect, or give it a prior."
            )
    return sentences


def _transform_normals(normals: Floats, mean: Floats, covariance: Floats) -> Floats:
    return np.asarray(mean + (np.linalg.cholesky(covariance) @ normals[..., None])[..., 0])


def _log_normal(f: Floats, mean: Floats, covariance: Floats) -> Floats:
    factor = np.linalg.cholesky(covariance)
    scaled = np.linalg.solve(factor, np.moveaxis(f - mean, 0, -1))
    log_determinant = np.sum(np.log(np.diagonal(factor, axis1=1, axis2=2)), axis=-1)
    constant = 0.5 * mean.shape[1] * math.log(2.0 * math.pi)
    return np.asarray(-0.5 * np.sum(scaled**2, axis=1).T - log_determinant - constant)
