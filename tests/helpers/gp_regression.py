"""Gaussian process regression as a bound with its parameters and data, dense or sparse."""

import numpy as np

from invgp.core.bound import Bound
from invgp.core.geometry import inducing_factor, join_parameters
from invgp.core.kernels import SquaredExponential
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Diagonal, Full, Sites
from invgp.likelihoods import Gaussian

N, M = 40, 10
RNG = np.random.default_rng(3)
X = np.sort(RNG.uniform(0, 5, (N, 1)), axis=0)
Y = np.sin(2 * X) + 0.2 * RNG.standard_normal((N, 1))
START_NOISE = 0.5


def regression(backend, family="full", *, dense=True, components=1):
    size = N if dense else M
    Z = backend.asarray(X[None] if dense else np.linspace(0, 5, M)[None, :, None])
    kernels = (SquaredExponential(backend.asarray(1.0), backend.asarray([1.0])),)
    posterior = {
        "full": lambda: Full(1, size, components),
        "diagonal": lambda: Diagonal(1, size, components),
        "sites": lambda: Sites(1, size, N, backend.asarray([[1.0]])),
    }[family]()
    jitter = np.zeros((components, 1, size)) if components == 1 else 0.1 * RNG.standard_normal((components, 1, size))
    parameters = Parameters(
        posterior=posterior.initial_parameters(inducing_factor(kernels, Z), 0.5, backend.asarray(jitter)),
        kernels=join_parameters(kernels),
        inducing=Z,
        likelihood=backend.asarray([np.log(START_NOISE)]),
        prior_mean=backend.asarray([0.0]),
    )
    bound = Bound(posterior, kernels, backend.asarray(X), dense)
    data = Data(Gaussian(START_NOISE, outputs=1), backend.asarray(Y))
    return bound, parameters, data, Points.draw(np.random.default_rng(1), 16, N, 1, backend)
