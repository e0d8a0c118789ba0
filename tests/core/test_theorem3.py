"""Theorem 3 of the paper: in a dense model the gradients of a diagonal posterior vary less than a full one's.

The full posterior is sampled jointly: every site's log density adds its noise to every gradient. A diagonal one can be
averaged over all other sites (Rao-Blackwell), which leaves each site its own log density.
"""

from functools import partial

import numpy as np
import pytest

from invgp.core.estimators import score
from invgp.core.point_sets import Points

SITES, SAMPLES, REPEATS = 4, 64, 400
Y = np.asarray([1.0, -1.0, 1.0, 1.0])
COUNTS = np.asarray([0.0, 2.0, 1.0, 4.0])
LOG_DENSITIES = {
    "logistic": lambda f: -np.logaddexp(0.0, -Y * f),
    "Poisson": lambda f: COUNTS * f - np.exp(f),
}
COMPONENTS = {
    "first": (np.asarray([0.3, -0.2, 0.5, 1.0]), np.asarray([0.5, 0.8, 0.3, 0.6])),
    "second": (np.asarray([-0.6, 0.4, -0.1, 0.2]), np.asarray([0.7, 0.4, 0.9, 0.5])),
}


def of_each_site(z, scale, densities, *, independent=False):
    """Gradient and curvature (2, N) by the package, every site by itself, from its own column of z (S, N)."""
    one = np.ones((1, 1, 1))
    terms = [
        score(Points(z[:, [n]], one, independent), scale[n : n + 1, None], densities[:, [n]]) for n in range(SITES)
    ]
    return np.asarray([[t.gradient[0, 0], t.curvature[0, 0]] for t in terms]).T


def of_all_sites_together(z, scale, densities, *, independent=False):
    """The same from the sum of all log densities, with all sites as the latents of one."""
    points = Points(z, np.eye(SITES)[None], independent)
    terms = score(points, scale[None], densities.sum(axis=1, keepdims=True))
    return np.stack([terms.gradient[0], terms.curvature[0]])


unbiased_of_each_site = partial(of_each_site, independent=True)
unbiased_of_all_sites_together = partial(of_all_sites_together, independent=True)


def plain_of_each_site(z, scale, densities):
    """The paper's estimator without control variates: (2, N)."""
    return np.stack([np.mean(z * densities, axis=0) / scale, np.mean((z**2 - 1) * densities, axis=0) / scale**2])


def plain_of_all_sites_together(z, scale, densities):
    return plain_of_each_site(z, scale, densities.sum(axis=1, keepdims=True))


def exact_derivatives(log_density, mean, scale):
    """Gradient and curvature (2, N) by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    z = nodes[:, None]
    densities = log_density(mean + scale * z)
    weights = weights[:, None] / weights.sum()
    return np.stack([np.sum(weights * h * densities, axis=0) for h in (z / scale, (z**2 - 1) / scale**2)])


def repeat_estimates(estimator, log_density, mean, scale, samples=SAMPLES):
    rng = np.random.default_rng(8)
    draws = (rng.standard_normal((samples, SITES)) for _ in range(REPEATS))
    return np.asarray([estimator(z, scale, log_density(mean + scale * z)) for z in draws])


@pytest.mark.slow
@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("kind", LOG_DENSITIES)
@pytest.mark.parametrize(
    ("by_site", "together", "samples"),
    [
        (plain_of_each_site, plain_of_all_sites_together, SAMPLES),
        (of_each_site, of_all_sites_together, 4 * SAMPLES),
        (unbiased_of_each_site, unbiased_of_all_sites_together, 4 * SAMPLES),
    ],
    ids=["plain", "package", "unbiased"],
)
def test_that_every_gradient_of_a_diagonal_posterior_varies_less(by_site, together, samples, kind, component):
    log_density, (mean, scale) = LOG_DENSITIES[kind], COMPONENTS[component]
    alone, joint = (repeat_estimates(e, log_density, mean, scale, samples) for e in (by_site, together))
    if by_site is not of_each_site:  # which has a bias of order 1/S
        for estimates in (alone, joint):
            error = np.abs(estimates.mean(axis=0) - exact_derivatives(log_density, mean, scale))
            assert np.all(error < 5 / np.sqrt(REPEATS) * estimates.std(axis=0))
    ratio = alone.var(axis=0) / joint.var(axis=0)
    # Where a site's own log density is what the control variates leave, the two differ by sampling error alone.
    assert np.all(ratio < (1.0 if by_site is plain_of_each_site else 1.2)), ratio
    assert np.exp(np.mean(np.log(ratio))) < 0.6, ratio


@pytest.mark.parametrize("kind", LOG_DENSITIES)
def test_that_every_gradient_of_the_mean_varies_more_under_a_full_covariance_sampled_jointly(kind):
    log_density, (mean, scale) = LOG_DENSITIES[kind], COMPONENTS["first"]
    correlation = 0.6 ** np.abs(np.subtract.outer(np.arange(SITES), np.arange(SITES)))
    covariance = scale[:, None] * correlation * scale
    factor, precision = np.linalg.cholesky(covariance), np.linalg.inv(covariance)
    rng = np.random.default_rng(8)
    full = []
    for _ in range(REPEATS):
        offset = rng.standard_normal((SAMPLES, SITES)) @ factor.T
        densities = log_density(mean + offset).sum(axis=1, keepdims=True)
        full.append(np.mean(offset @ precision * densities, axis=0))
    diagonal = repeat_estimates(plain_of_each_site, log_density, mean, scale)[:, 0]
    # The marginals are the same, so is what is estimated.
    error = np.abs(np.mean(full, axis=0) - exact_derivatives(log_density, mean, scale)[0])
    assert np.all(error < 5 * np.std(full, axis=0) / np.sqrt(REPEATS))
    assert np.all(diagonal.var(axis=0) < np.var(full, axis=0))


@pytest.mark.parametrize("kind", LOG_DENSITIES)
def test_that_the_package_varies_less_than_the_plain_estimator_of_the_paper(kind):
    log_density, (mean, scale) = LOG_DENSITIES[kind], COMPONENTS["second"]
    package, plain = (repeat_estimates(e, log_density, mean, scale) for e in (of_each_site, plain_of_each_site))
    assert np.all(package.var(axis=0) < 0.5 * plain.var(axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOG_DENSITIES)
def test_that_a_fit_to_its_own_samples_errs_less_in_all_and_its_bias_vanishes_with_more_of_them(kind):
    log_density, (mean, scale) = LOG_DENSITIES[kind], COMPONENTS["second"]
    truth, by_samples = exact_derivatives(log_density, mean, scale), {}
    for samples in (SAMPLES, 8 * SAMPLES):
        default, unbiased = (
            repeat_estimates(e, log_density, mean, scale, samples) - truth
            for e in (of_each_site, unbiased_of_each_site)
        )
        assert np.mean(default**2) < np.mean(unbiased**2)
        by_samples[samples] = np.linalg.norm(default.mean(axis=0))
    assert by_samples[8 * SAMPLES] < 0.5 * by_samples[SAMPLES]
