"""The coal-mining disasters, small: counts, chains and posteriors hang together."""

import sys

import numpy as np
import pytest
from scipy.special import gammaln

from invgp.estimator.settings import JITTER


@pytest.fixture(scope="module")
def study(root):
    """The modules of the case study."""
    folder = str(root / "case_studies" / "cox_process")
    sys.path.insert(0, folder)
    try:
        import chains  # noqa: PLC0415
        import disasters  # noqa: PLC0415
        import posteriors  # noqa: PLC0415

        yield disasters, chains, posteriors
    finally:
        sys.path.remove(folder)


def test_that_the_disasters_are_those_of_the_paper(study):
    counts = study[0].disasters()
    assert counts.count.shape == (811,)
    assert counts.count.sum() == 191
    assert counts.offset == pytest.approx(np.log(191 / 811))
    assert counts.year[0] == pytest.approx(1851.2, abs=0.1)


def test_that_full_gaussians_agree_with_slice_sampling_and_diagonal_ones_are_too_narrow(study, tmp_path):
    disasters, chains, posteriors = study
    counts = disasters.disasters(days_a_bin=500)
    exact = chains.sample(counts, chains=8, draws=1200)
    assert exact.r_hat < 1.02
    found = list(posteriors.fits(counts, (0.2, 1.0)))
    for posterior in found:
        ratio = posterior.std_ratio(exact)
        if posterior.family == "full Gaussian":
            assert posterior.mean_error(exact) < 0.1
            assert np.abs(ratio - 1.0).max() < 0.1
        else:
            assert posterior.mean_error(exact) < 0.3
            assert ratio.max() < 0.5
    posteriors.figure(counts, found, exact, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    rows = list(posteriors.rows(found, exact))
    assert len(rows) == 2 * len(found)
    # The bar is for all means, and for the spread of full Gaussians.
    barred = [row["measure"].split(",")[0] for row in rows if "reference" in row]
    assert sorted(barred) == ["error of the mean"] * 6 + ["error of the standard deviation"] * 2
    off = max(p.mean_error(exact) for p in found if p.family != "full Gaussian")
    assert f"off by {off:.2f} standard deviations" in posteriors.entry(found, exact)["remark"]


def mean_field(counts, length_scale, inducing, jitter):
    """The best posterior with independent inducing values, by fixed points: standard deviations at the bins, bound.

    Where the bound is stationary in a variance s_j, 1 / s_j is the prior's precision of u_j given the others, and what
    the expected rates say. The mean is found by Newton's steps on whitened values.
    """

    def correlation(a, b):
        return np.exp(-0.5 * ((a - b.T) / length_scale) ** 2)

    factor = np.linalg.cholesky(correlation(inducing, inducing) + jitter * np.eye(len(inducing)))
    inverse = np.linalg.solve(factor, np.eye(len(inducing)))
    precision = np.sum(inverse**2, axis=0)
    whitened = np.linalg.solve(factor, correlation(inducing, counts.day)).T
    weights, left = whitened @ inverse, 1.0 - np.sum(whitened**2, axis=1)
    v, variance = np.zeros(len(inducing)), 1.0 / precision
    for _ in range(20):
        rate = np.exp(counts.offset + whitened @ v + 0.5 * (left + weights**2 @ variance))
        variance = 1.0 / (precision + rate @ weights**2)
        hessian = np.eye(v.size) + whitened.T @ (rate[:, None] * whitened)
        v = v + np.linalg.solve(hessian, whitened.T @ (counts.count - rate) - v)
    at_bins = left + weights**2 @ variance
    log_rate = counts.offset + whitened @ v
    likelihood = np.sum(counts.count * log_rate - np.exp(log_rate + 0.5 * at_bins) - gammaln(counts.count + 1.0))
    divergence = 0.5 * (precision @ variance + v @ v - v.size - np.sum(np.log(variance)))
    return np.sqrt(at_bins), likelihood - divergence - np.sum(np.log(np.diag(factor)))


@pytest.mark.parametrize(("inducing", "placement"), [(5, "grid"), (16, "subset"), (41, "subset")])
def test_that_diagonal_posteriors_are_as_narrow_as_the_best_of_their_family(study, inducing, placement):
    disasters, _, posteriors = study
    counts = disasters.disasters(days_a_bin=500)
    found = posteriors.fit(counts, "diagonal Gaussian", inducing, placement)
    std, bound = mean_field(counts, disasters.LENGTH_SCALE, found.inputs, JITTER["float64"])
    np.testing.assert_allclose(found.std, std, rtol=0.01)
    assert found.elbo == pytest.approx(bound, abs=0.01)
