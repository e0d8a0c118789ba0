import math

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from invgp.core.backend import device_of, to_numpy
from invgp.core.kernels import STATIONARY, squared_distances

CLOSED_FORMS = {
    "squared exponential": lambda r: math.exp(-0.5 * r**2),
    "exponential": lambda r: math.exp(-r),
    "matern 3/2": lambda r: (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r),
    "matern 5/2": lambda r: (1 + math.sqrt(5) * r + 5 * r**2 / 3) * math.exp(-math.sqrt(5) * r),
    "rational quadratic": lambda r: 1 / (1 + 0.5 * r**2),
}


@pytest.mark.parametrize("kind", STATIONARY)
def test_that_each_kernel_is_its_closed_form_with_one_length_scale_a_dimension(kind, backend, tolerance, rng):
    X1, X2 = rng.standard_normal((7, 3)), rng.standard_normal((4, 3))
    scales = np.asarray([0.5, 2.0, 1.3])
    kernel = STATIONARY[kind](backend.asarray(2.5), backend.asarray(scales))
    found = kernel(backend.asarray(X1), backend.asarray(X2))
    assert device_of(found) == device_of(backend.asarray(0.0))
    expected = [[2.5 * CLOSED_FORMS[kind](np.linalg.norm((a - b) / scales)) for b in X2] for a in X1]
    np.testing.assert_allclose(to_numpy(found), expected, rtol=tolerance(backend, 1e-13))


def test_that_neighbours_far_from_the_origin_keep_their_distance(backend):
    # As far apart as the precision can tell at that distance, and no more.
    easting = 5e5 + np.asarray([[0.0], [0.001 if backend.dtype == "float64" else 1.0]])
    found = to_numpy(squared_distances(backend.asarray(easting), backend.asarray(easting)))
    np.testing.assert_allclose(found, cdist(easting, easting) ** 2, rtol=1e-12)
