"""The curve as it was seen, and a model of it."""

import numpy as np
import pytest

from helpers.curve import POSTERIOR_ONLY, TRUTH, X
from invgp.estimator import SAVIGP
from invgp.likelihoods import Gaussian


@pytest.fixture(scope="session")
def noisy_data():
    return TRUTH + 0.3 * np.random.default_rng(1).standard_normal(len(X))


@pytest.fixture(scope="session")
def regression(noisy_data):
    return SAVIGP(Gaussian(0.3), length_scale=1.0, method=POSTERIOR_ONLY).fit(X, noisy_data)
