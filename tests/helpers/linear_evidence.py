"""The closed form of the evidence of a linear problem, and a problem with a curved posterior."""

import numpy as np
from scipy.stats import multivariate_normal

import invgp
from helpers.problems import WEIGHTS


def data_moments(problem):
    """Prior mean and covariance, with noise, of all data of the linear problem, by site."""
    X, N = problem.survey.X, problem.survey.size
    covariance = np.zeros((N, 2, N, 2))
    for latent, weights in zip(problem.latents, WEIGHTS.T, strict=True):
        prior = latent.kernel(X, X) * latent.std[0] ** 2
        covariance += np.einsum("nm,p,q->npmq", prior, weights, weights)
    covariance = covariance.reshape(2 * N, 2 * N) + np.diag(problem.noise_std.ravel() ** 2)
    return np.tile(WEIGHTS @ [latent.mean[0] for latent in problem.latents], N), covariance


def exact_evidence(problem):
    """Of the linear problem, whose data are jointly Gaussian."""
    return multivariate_normal(*data_moments(problem)).logpdf(problem.survey.Y.ravel())


def product_problem():
    """Only the product of two latents is measured: the posterior is curved."""
    rng = np.random.default_rng(4)
    return invgp.define(
        {"x": np.arange(8.0), "y": 6.0 + 0.2 * rng.standard_normal(8)},
        coordinates={"x": "m"},
        observations={"y": "1"},
        latents={
            name: {"unit": "1", "mean": mean, "std": "30%", "kernel": {"length_scale": 3.0}}
            for name, mean in (("a", 2.0), ("b", 3.0))
        },
        forward=lambda a, b: {"y": a * b},
        noise={"y": 0.3},
        inference={"seed": 1},
    )
