"""The evidence by bridge sampling against closed forms."""

import math

import numpy as np
import pytest

from invgp.core.sampling.statistics import bridge_evidence


@pytest.mark.parametrize("width", [0.6, 1.0, 1.5])
def test_that_the_evidence_of_a_gaussian_is_found_within_its_error(width):
    rng, size = np.random.default_rng(3), 10

    def log_ratio(z):  # a Gaussian of this width and weight e^-7 over the standard normal
        inside = -7.0 - size * math.log(width) - 0.5 * np.sum((z / width) ** 2, axis=1)
        return inside + 0.5 * np.sum(z**2, axis=1)

    found = [
        bridge_evidence(
            log_ratio(width * rng.standard_normal((2000, size))), log_ratio(rng.standard_normal((2000, size)))
        )
        for _ in range(60)
    ]
    logs = np.asarray([one.log for one in found])
    assert abs(logs.mean() + 7.0) < 4.0 * max(logs.std() / math.sqrt(60), 1e-9)
    assert found[0].error == pytest.approx(logs.std(), rel=0.3, abs=1e-12)


def test_that_a_proposal_outside_of_the_posterior_gives_no_evidence():
    found = bridge_evidence(np.zeros(10), np.full(10, -np.inf))
    assert math.isnan(found.log)
