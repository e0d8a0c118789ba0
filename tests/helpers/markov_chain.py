"""Exact posteriors of two latents on a line with exponential kernels, by sums over a grid of their values.

Such processes have the Markov property, so that the posterior at each site is found by one pass in each direction.
"""

from typing import NamedTuple

import numpy as np

import invgp

SHAPE = (241, 121)
PRIORS = {"a": (2.5, 0.8, 300.0), "b": (3.0, 0.8, 600.0)}  # mean, standard deviation and length-scale
NOISE = 0.25
X = 100.0 * np.arange(8)
MODELS = {"bent": lambda a, b: a * b, "two modes": lambda a, b: (a - 2.0) ** 2 + 0.3 * b}


def chain_problem(model):
    """The problem, with one datum that is off by several standard deviations of the noise."""
    rng = np.random.default_rng(2)
    a, b = (
        mean + std * np.linalg.cholesky(np.exp(-abs(X[:, None] - X) / length)) @ rng.standard_normal(len(X))
        for mean, std, length in PRIORS.values()
    )
    y = MODELS[model](a, b) + NOISE * rng.standard_normal(len(X))
    y[3] += 4.0 * NOISE
    return invgp.define(
        {"x": X, "y": y},
        coordinates={"x": "m"},
        observations={"y": "1"},
        latents={
            name: {"unit": "1", "mean": mean, "std": std, "kernel": {"kind": "exponential", "length_scale": length}}
            for name, (mean, std, length) in PRIORS.items()
        },
        forward=lambda a, b: {"y": MODELS[model](a, b)},
        noise={"y": NOISE},
        inference={"seed": 1},
    )


class ExactChain(NamedTuple):
    """Moments (N, 2) of the latents, and of the prediction of each datum (N,) with its log density."""

    mean: np.ndarray
    std: np.ndarray
    prediction_std: np.ndarray
    log_density: np.ndarray


def exact_chain(model, y, left_out=()):
    """Compute the posterior without some data."""
    grids = [np.linspace(-4.5, 4.5, size) for size in SHAPE]
    values, steps = [], []
    for z, (mean, std, length) in zip(grids, PRIORS.values(), strict=True):
        r = np.exp(-(X[1] - X[0]) / length)
        step = np.exp(-0.5 * (z - r * z[:, None]) ** 2 / (1.0 - r * r))
        steps.append(step / step.sum(axis=1, keepdims=True))
        values.append(mean + std * z)
    A, B = np.meshgrid(*values, indexing="ij")
    g = MODELS[model](A, B)
    likelihood = [np.exp(-0.5 * ((g - one) / NOISE) ** 2) for one in y]
    used = [np.ones_like(g) if n in left_out else one for n, one in enumerate(likelihood)]
    prior = np.exp(-0.5 * (grids[0][:, None] ** 2 + grids[1] ** 2))
    forward, backward = [prior / prior.sum() * used[0]], [np.ones_like(g)]
    for n in range(1, len(y)):
        following = steps[0].T @ forward[-1] @ steps[1] * used[n]
        forward.append(following / following.sum())
        before = steps[0] @ (used[-n] * backward[0]) @ steps[1].T
        backward.insert(0, before / before.sum())
    found = []
    for f, b, one in zip(forward, backward, likelihood, strict=True):
        p = f * b / np.sum(f * b)
        moments = [(np.sum(p * v), np.sum(p * v * v)) for v in (A, B, g)]
        density = np.log(np.sum(p * one)) - np.log(NOISE * np.sqrt(2.0 * np.pi))
        found.append((*((m, np.sqrt(s - m * m)) for m, s in moments), density))
    return ExactChain(
        np.asarray([[a[0], b[0]] for a, b, _, _ in found]),
        np.asarray([[a[1], b[1]] for a, b, _, _ in found]),
        np.asarray([c[1] for _, _, c, _ in found]),
        np.asarray([d for *_, d in found]),
    )
