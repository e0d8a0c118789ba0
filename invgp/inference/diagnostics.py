"""Diagnostics of a posterior that need no known truth.

The misfit shows whether the noise explains the residuals. The shape error of a site compares its Gaussian posterior
with its exact posterior given the site factors of all other sites. These form a Gaussian, the cavity; its product with
the exact likelihood of the site is computed by importance sampling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree
from scipy.stats import chi2, t

from invgp.core.backend import Backend, to_numpy
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.point_sets import Points
from invgp.execution.simulator import Batch
from invgp.formatting import count_noun
from invgp.latent_model.noise_density import noise_log_density
from invgp.posterior import Diagnostics
from invgp.problem import Floats, Problem


@dataclass(frozen=True)
class DiagnosticOptions:
    """Tuning of the diagnostics, and the limits above or below which they are reported.

    Attributes
    ----------
    widened : float
        Factor on the posterior spread in the importance proposal, which must be wider than the posterior.
    least_precision : float
        Smallest eigenvalue of the cavity precision, relative to the prior precision.
    fewest_effective : float
        Effective samples below which the shape error is not determined.
    doubtful : float, standard deviations
        Shape error that is reported.
    poor_fit, close_fit : float
        Mean squared normalised residual above or below which it is reported.
    unexplained : float
        Smallest expected misfit of an unexplained site.
    chance : float
        Probability that a correct posterior has any unexplained site.
    farthest_neighbour : float, length-scales
        Median distance to the nearest site above which a learnt length-scale is reported.
    fewest_data : int
        Fewest data of an observation and label for a note on their misfit.
    neighbours : int
        Neighbours of a site whose residuals are compared.
    biased : float, standard deviations
        Score of the residuals of neighbours above which it is reported.
    largest_residual : float
        Larger residuals count as this, so that outliers do not matter.
    named : int
        Most sites that a note lists.
    """

    widened: float = 1.5
    least_precision: float = 0.1
    fewest_effective: float = 4.0
    doubtful: float = 0.2
    poor_fit: float = 2.0
    close_fit: float = 0.2
    unexplained: float = 10.0
    chance: float = 1e-2
    farthest_neighbour: float = 2.0
    fewest_data: int = 20
    neighbours: int = 4
    biased: float = 4.0
    largest_residual: float = 3.0
    named: int = 5


DEFAULTS = DiagnosticOptions()


def chi_square(problem: Problem, predicted: Floats) -> Floats:
    """Compute the mean squared normalised residual (P,) of predictions (N, P); NaN without observations.

    Parameters
    ----------
    problem : Problem
        The problem.
    predicted : array, shape (N, P)
        Posterior mean of the outputs.

    Returns
    -------
    array, shape (P,)
    """
    residuals = (problem.survey.Y - predicted) / problem.noise_std
    counts = np.sum(np.isfinite(residuals), axis=0)
    return np.where(counts, np.nansum(residuals**2, axis=0) / np.maximum(counts, 1), np.nan)


def expected_misfit(problem: Problem, predicted: Floats, predicted_std: Floats) -> Floats:
    """Compute the posterior mean (N,) of the mean squared normalised residual of each site.

    Parameters
    ----------
    problem : Problem
    predicted, predicted_std : arrays, shape (N, P)
        Posterior mean and standard deviation of the outputs.
    """
    squares = ((problem.survey.Y - predicted) ** 2 + predicted_std**2) / problem.noise_std**2
    counts = np.sum(np.isfinite(squares), axis=1)
    return np.where(counts, np.nansum(squares, axis=1) / np.maximum(counts, 1), np.nan)


def find_unexplained(
    problem: Problem, predicted: Floats, predicted_std: Floats, options: DiagnosticOptions = DEFAULTS
) -> NDArray[np.bool_]:
    """Return a mask (N,) of the sites whose misfit is larger than chance explains at any site of the survey.

    Parameters
    ----------
    problem : Problem
        The problem.
    predicted, predicted_std : array, shape (N, P)
        Posterior mean and standard deviation of the outputs.
    options : DiagnosticOptions
        Limits.

    Returns
    -------
    array of bool, shape (N,)
    """
    misfit = expected_misfit(problem, predicted, predicted_std)
    counts = np.maximum(np.isfinite(problem.survey.Y).sum(axis=1), 1)
    chance = options.chance / problem.survey.size
    if problem.noise.kind == "gaussian":
        limit = chi2.isf(chance, counts) / counts
    else:  # the largest residual may dominate the misfit
        degrees = problem.noise.degrees
        heavy = problem.noise.kind == "student-t"
        tail = t.isf(0.5 * chance / counts, degrees) if heavy else -np.log(chance / counts)
        limit = tail**2 * ((degrees - 2.0) / degrees if heavy else 0.5)
    # The posterior's own spread adds at most about 1.
    return np.asarray(np.nan_to_num(misfit) > np.maximum(limit + 1.0, options.unexplained))


class Cavity:
    """Cavity distributions of some sites (B,): the posterior without the site factor of the site.

    Parameters
    ----------
    posterior : GaussianPosterior
    sites : array of int, shape (B,)
    rng : numpy.random.Generator
    samples : int
        Number of samples per site, S.
    options : DiagnosticOptions

    Attributes
    ----------
    latents : array, shape (S, B, Q)
        Samples, half of them from the cavity and half from the widened posterior.
    """

    def __init__(
        self,
        posterior: GaussianPosterior,
        sites: NDArray[np.intp],
        rng: np.random.Generator,
        samples: int,
        options: DiagnosticOptions = DEFAULTS,
    ) -> None:
        self.sites, self.options = sites, options
        mean, covariance = (to_numpy(part)[sites] for part in posterior.marginals)
        prior_mean = to_numpy(posterior.prior.mean)[sites]
        own_precision, own_shift = (to_numpy(part)[sites] for part in posterior.sites)
        precision = np.linalg.inv(covariance)
        prior_std = np.sqrt([float(kernel.variance) for kernel in posterior.prior.kernels])
        # In units of the prior. The cavity precision may be indefinite, or so small that samples would be far outside
        # the prior; its eigenvalues are limited.
        values, vectors = np.linalg.eigh((precision - own_precision) * prior_std[:, None] * prior_std)
        factor = prior_std[:, None] * vectors / np.sqrt(np.maximum(values, options.least_precision))[:, None, :]
        spread = factor @ factor.swapaxes(-1, -2)
        shift = precision @ (mean - prior_mean)[..., None] - own_shift[..., None]
        self.mean, self.covariance = mean, covariance
        self.others = prior_mean + (spread @ shift)[..., 0], spread
        self.wide = mean, options.widened**2 * covariance
        count, latents = mean.shape
        normals = Points.draw(rng, samples // 2, count, latents, Backend(np, "cpu")).normals()
        self.latents = np.concatenate([_transform_normals(normals, *gaussian) for gaussian in (self.others, self.wide)])

    def shape_errors(self, problem: Problem, batch: Batch) -> Floats:
        """Compute the shape errors from runs at `latents`.

        Returns
        -------
        array, shape (B, Q), in standard deviations
            Difference between the posterior and the product of cavity and likelihood, minus the Monte Carlo error;
            NaN where it could not be determined.
        """
        whole = batch.complete(np.isfinite(problem.survey.Y[self.sites]))
        outputs = np.where(whole[..., None], np.nan_to_num(batch.outputs), 0.0)
        log_density = np.asarray(noise_log_density(problem, Backend(np, "cpu"))(outputs, self.sites))
        proposal = np.logaddexp(_log_normal(self.latents, *self.others), _log_normal(self.latents, *self.wide))
        weight = np.where(whole, _log_normal(self.latents, *self.others) + log_density - proposal, -np.inf)
        known = np.isfinite(weight.max(axis=0))
        weight = np.exp(np.where(known, weight - np.where(known, weight.max(axis=0), 0.0), 0.0))
        weight /= weight.sum(axis=0)
        mean = np.sum(weight[..., None] * self.latents, axis=0)
        variance = np.sum(weight[..., None] * (self.latents - mean) ** 2, axis=0)
        own = np.diagonal(self.covariance, axis1=1, axis2=2)
        effective = 1.0 / np.sum(weight**2, axis=0)
        # Subtract the expected Monte Carlo error.
        chance = 1.0 / np.sqrt(effective) + 5.0 / effective
        off = np.maximum(np.abs(mean - self.mean) / np.sqrt(own), 0.5 * np.abs(np.log(variance / own)))
        enough = known & (effective >= self.options.fewest_effective)
        return np.where(enough[:, None], np.maximum(off - chance[:, None], 0.0), np.nan)


def doubtful_latents(problem: Problem, shape_errors: Floats, options: DiagnosticOptions = DEFAULTS) -> list[str]:
    """Name the latents and labels with a large shape error (N, Q) at any site; empty if all have one.

    Parameters
    ----------
    problem : Problem
        The problem.
    shape_errors : array, shape (N, Q), in standard deviations
        Shape error of each latent at each site.
    options : DiagnosticOptions
        Limits.

    Returns
    -------
    list of str
    """
    doubtful = np.any(np.nan_to_num(shape_errors) > options.doubtful, axis=0).tolist()
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
    options: DiagnosticOptions = DEFAULTS,
) -> Diagnostics:
    """Compute the diagnostics of a posterior, and describe them in sentences.

    Parameters
    ----------
    problem : Problem
        Problem with learnt hyperparameters.
    predicted, predicted_std : arrays, shape (N, P)
        Posterior mean and standard deviation of the outputs.
    shape_error : array, shape (N,)
        Largest shape error over the latents of each site.
    notes : sequence of str
        Further sentences, which come first.
    converged : bool
        Whether the posterior has converged. If not, its misfit contains no information on the noise.
    latents : sequence of str
        Latents with a large shape error, if not all have one.
    options : DiagnosticOptions
    """
    misfit = chi_square(problem, predicted)
    misfits = expected_misfit(problem, predicted, predicted_std)
    unexplained = find_unexplained(problem, predicted, predicted_std, options)
    far = _unexplained_sentences(np.where(unexplained, misfits, 0.0), options)
    sentences = [
        *notes,
        *far,
        *(_misfit_sentences(problem, misfit, predicted_std, options) if converged else ()),
        *(_bias_sentences(problem, predicted, options) if converged else ()),
        *_shape_sentences(shape_error, latents, options),
    ]
    sentences.extend(_length_scale_sentences(problem, options))
    if not sentences and not converged:
        sentences = ["The inversion ended before it converged: means and spreads are doubtful."]
    return Diagnostics(misfit, shape_error, tuple(sentences))


def neighbour_score(X: Floats, residuals: Floats, options: DiagnosticOptions = DEFAULTS) -> float:
    """Compute how far the sum of products of the residuals of neighbours is from zero, in standard deviations.

    If the noise of different sites is independent and the simulator is right, residuals of neighbours are
    uncorrelated, or slightly negatively correlated because the posterior fits them.

    Parameters
    ----------
    X : array, shape (N, D)
        Coordinates of the sites.
    residuals : array, shape (N,)
        In standard deviations of the noise. Larger ones than noise of another size would be are scaled down.
    options : DiagnosticOptions
    """
    largest = options.largest_residual
    r = np.clip(residuals / max(1.0, float(np.sqrt(np.mean(residuals**2)))), -largest, largest)
    extent = np.ptp(X, axis=0)
    scaled = X / np.where(extent > 0.0, extent, 1.0)
    _, nearest = KDTree(scaled).query(scaled, k=min(options.neighbours + 1, len(X)))
    nearest = np.reshape(nearest, (len(X), -1))
    own = np.repeat(np.arange(len(X)), np.size(nearest, 1))
    pairs = np.unique(np.sort(np.stack([own, nearest.ravel()], axis=-1), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return float(np.sum(r[pairs[:, 0]] * r[pairs[:, 1]]) / math.sqrt(len(pairs)))


def _bias_sentences(problem: Problem, predicted: Floats, options: DiagnosticOptions) -> list[str]:
    """Describe observations whose residuals are similar at neighbouring sites, unlike independent noise."""
    if problem.noise.correlates_sites:
        return []
    residuals, sentences = (problem.survey.Y - predicted) / problem.noise_std, []
    for observation in problem.survey.observations:
        labels: Sequence[object] = observation.labels or [""]
        for label, column in zip(labels, residuals.T[problem.observation_slices[observation.name]], strict=True):
            known = np.isfinite(column)
            if known.sum() < options.fewest_data:
                continue
            if neighbour_score(problem.survey.X[known], column[known], options) > options.biased:
                sentences.append(
                    f"The residuals of {f'{observation.name} {label}'.strip()} are similar at neighbouring sites, "
                    "which independent noise does not explain: the simulator may be biased, a length-scale too long, "
                    "or the noise correlated. The error bars are then too narrow; noise.discrepancy accounts for a "
                    "bias."
                )
    return sentences


def _misfit_sentences(problem: Problem, misfit: Floats, predicted_std: Floats, options: DiagnosticOptions) -> list[str]:
    sentences = []
    observed = np.isfinite(problem.survey.Y)
    counts = np.sum(observed, axis=0)
    # Where each datum is fitted by latents of its own, residuals of the mean are small whatever the noise; the
    # posterior spread of the prediction is then as large as the noise.
    spread = np.sum(np.where(observed, predicted_std / problem.noise_std, 0.0) ** 2, axis=0) / np.maximum(counts, 1)
    expected = np.where(counts >= options.fewest_data, misfit + spread, 1.0)
    misfit = np.where(counts >= options.fewest_data, misfit, 1.0)
    for observation in problem.survey.observations:
        labels: Sequence[object] = observation.labels or [""]
        columns = problem.observation_slices[observation.name]
        for label, value, whole in zip(labels, misfit[columns], expected[columns], strict=True):
            what = f"{observation.name} {label}".strip()
            if value > options.poor_fit:
                sentences.append(
                    f"{what} is fitted worse than its noise allows (mean squared normalised residual "
                    f"{value:.2g}): the noise may be larger than stated, or the simulator misses something."
                )
            elif whole < options.close_fit:
                sentences.append(
                    f"{what} is fitted far more closely than its noise level implies (mean squared normalised residual "
                    f"{value:.2g}): the noise may be smaller than stated."
                )
    return sentences


def _unexplained_sentences(misfit: Floats, options: DiagnosticOptions) -> list[str]:
    sites, named = _name_worst_sites(misfit, 0.0, options.named)
    if not sites:
        return []
    return [
        f"At {sites} of {count_noun(len(misfit), 'site')} the posterior does not explain the data, which lie far "
        f"outside the noise: site {named}. Either the data there are wrong, which Student-t noise would "
        "tolerate, or this is the wrong solution."
    ]


def _shape_sentences(shape_error: Floats, latents: Sequence[str], options: DiagnosticOptions) -> list[str]:
    sites, named = _name_worst_sites(shape_error, options.doubtful, options.named)
    if not sites:
        return []
    of = f" of {', '.join(latents)}" if latents else ""
    return [
        f"At {sites} of {count_noun(len(shape_error), 'site')} the posterior{of} is not Gaussian in shape "
        f"(several solutions, or a strongly curved one), so that mean and spread there are doubtful: site {named}. "
        "`invgp compare` samples it."
    ]


def _name_worst_sites(values: Floats, limit: float, most: int) -> tuple[int, str]:
    """Count the sites with a value above `limit`, and list the numbers of the worst."""
    beyond = np.flatnonzero(np.nan_to_num(values) > limit)
    worst = beyond[np.argsort(-values[beyond])]
    return len(beyond), ", ".join(str(n + 1) for n in worst[:most]) + (" and others" if len(worst) > most else "")


def _length_scale_sentences(problem: Problem, options: DiagnosticOptions) -> list[str]:
    """Describe learnt length-scales that are so short that the sites are independent."""
    X, sentences = problem.survey.X, []
    if len(X) < 2:
        return []
    for latent in problem.latents:
        if "length_scale" not in latent.learn:
            continue
        scaled = X / latent.correlation_length(X.shape[1])
        nearest, _ = KDTree(scaled).query(scaled, k=2)
        spacing = np.median(np.asarray(nearest)[:, 1])
        if spacing > options.farthest_neighbour:
            sentences.append(
                f"The length-scale of {latent.name} was learnt to be far below the distance between sites, where the "
                "data cannot distinguish values: start it nearer to what you expect, or give it a prior."
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
