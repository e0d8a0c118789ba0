"""A line of sites with two latents, and simulators for it."""

import numpy as np

from invgp.adapters import CallableModel, Quantity
from invgp.core.kernels import Matern52, SquaredExponential
from invgp.links import LINKS
from invgp.problem import Column, InferenceSettings, Latent, Noise, Observation, Problem, SimulatorVariable, Survey

NOISE = 0.1


def smooth_outputs(a, b):
    """Two outputs of two latents, gently bent."""
    return {"t": np.stack([a + 0.3 * b * b, b - 0.2 * a * b], axis=-1)}


def with_jump(a, b, size=3.0):
    """The same with a jump, of so many standard deviations of the noise."""
    answer = smooth_outputs(a, b)
    answer["t"][:, 1] += size * NOISE * (a > 0.8)
    return answer


class Counted:
    """A function that counts its rows."""

    def __init__(self, function):
        self.function, self.rows = function, 0

    def __call__(self, a, b):
        self.rows += len(a)
        return self.function(a, b)


def line_problem(function, sites=40, seed=0, links=("identity", "identity"), **inference):
    """A line of two latents, and the truth (N, 2) of its data."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0.0, 100.0, sites)
    covariance = np.exp(-0.5 * ((x[:, None] - x) / 20.0) ** 2) + 1e-8 * np.eye(sites)
    truth = np.linalg.cholesky(covariance) @ rng.standard_normal((sites, 2))
    y = function(*truth.T)["t"] + NOISE * rng.standard_normal((sites, 2))
    latents = tuple(
        Latent(name, "m", np.zeros(1), np.ones(1), SquaredExponential(1.0, np.asarray([20.0])), LINKS[link])
        for name, link in zip("ab", links, strict=True)
    )
    model = CallableModel(
        function=function, inputs=(Quantity("a", "m"), Quantity("b", "m")), outputs=(Quantity("t", "s", (1, 2)),)
    )
    problem = Problem(
        title="",
        survey=Survey((Column("x", "m", x),), (Observation("t", "s", y, "gate", (1, 2)),)),
        latents=latents,
        noise=Noise("gaussian", {"t": np.full((sites, 2), NOISE)}),
        forward=model,
        inputs=(SimulatorVariable("a"), SimulatorVariable("b")),
        outputs=(SimulatorVariable("t"),),
        inference=InferenceSettings(**{"posterior": "coupled gaussian", **inference}),
    )
    return problem, truth


def one_site(function, noise, **inference):
    """One site, one latent with a standard normal prior, and the datum 1."""
    model = CallableModel(function=function, inputs=(Quantity("a", "m"),), outputs=(Quantity("t", "s"),))
    return Problem(
        title="",
        survey=Survey((Column("x", "m", np.zeros(1)),), (Observation("t", "s", np.ones((1, 1))),)),
        latents=(Latent("a", "m", np.zeros(1), np.ones(1), Matern52(1.0, np.ones(1))),),
        noise=Noise("gaussian", {"t": np.full((1, 1), noise)}),
        forward=model,
        inputs=(SimulatorVariable("a"),),
        outputs=(SimulatorVariable("t"),),
        inference=InferenceSettings(**{"posterior": "coupled gaussian", **inference}),
    )
