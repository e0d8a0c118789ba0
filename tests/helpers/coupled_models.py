"""Models of a few sites, and functions that run the coupled algorithm on them."""

import numpy as np

from invgp.core.coupled import GaussianNoise, Prior
from invgp.core.coupled.coupled_minibatches import MiniBatches
from invgp.core.kernels import Matern52
from invgp.core.point_sets import Points

CONVERGED = "the posterior has converged"


def prior_of(backend, X, latents, variance=1.0, length_scale=1.0, mean=0.0):
    X = np.asarray(X, dtype=float).reshape(len(X), -1)
    kernel = Matern52(backend.asarray(variance), backend.asarray(np.full(X.shape[1], length_scale)))
    Z = backend.asarray(np.broadcast_to(X, (latents, *X.shape)))
    return Prior((kernel,) * latents, backend.asarray(np.full(latents, mean)), backend.asarray(X), Z, dense=True)


def independent_noise(backend, y, std):
    y = np.asarray(y, dtype=float)
    std = np.broadcast_to(std, y.shape)
    whitening = np.eye(y.shape[1]) / std[..., None]
    normaliser = -np.sum(np.log(std) + 0.5 * np.log(2 * np.pi), axis=1)
    return GaussianNoise(*(backend.asarray(part) for part in (y, whitening, normaliser, np.ones_like(y))))


def sobol(backend, samples, sites, latents, seed=1):
    return Points.draw(np.random.default_rng(seed), samples, sites, latents, backend)


def all_valid(f):
    return np.ones(f.shape[:2], dtype=bool)


def run(algorithm, outputs_of, most=60, valid_of=lambda f, evaluation: all_valid(f), state=None):
    """Ask and tell until the inference ends; return the last state, and the stage and result of each evaluation."""
    state, history = state or algorithm.init(), []
    while not state.finished and state.evaluations < most:
        f, stage = algorithm.ask(state), state.stage
        valid = valid_of(f, state.evaluations)
        state, info = algorithm.tell(state, np.where(valid[..., None], outputs_of(f), np.nan), valid)
        history.append((stage, info))
    return state, history


def run_batches(algorithm, outputs_of, size, most=80, valid_of=all_valid, seed=2, start=None):
    """Run the inference on mini-batches; `outputs_of` takes latents and the indices of their sites."""
    batches = MiniBatches(algorithm, size, np.random.default_rng(seed))
    state, history = batches.init(start or algorithm.init().trial), []
    while not state.finished and state.passes < most:
        (rows, f), stage = batches.ask(state), state.stage
        valid = valid_of(f)
        state, info = batches.tell(state, np.where(valid[..., None], outputs_of(f, rows), np.nan), valid)
        if info is not None:
            history.append((stage, info))
    return state, history


def identity_model(f, rows=None):
    return f


def exponential(f, rows=None):
    return np.exp(3.0 * f)
