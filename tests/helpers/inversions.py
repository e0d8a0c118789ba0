"""Inversions of sites on a line."""

from dataclasses import replace

import numpy as np

from invgp.adapters import CallableModel, Quantity
from invgp.core.backend import select_backend
from invgp.core.kernels import SquaredExponential
from invgp.execution.simulator import Simulator
from invgp.inference.restart import site_factors_at
from invgp.inference.runner import Runner
from invgp.inference.site_evaluation import emulator_evaluator
from invgp.inference.site_model import prepare_site_model
from invgp.problem import Column, InferenceSettings, Latent, Noise, Observation, Problem, SimulatorVariable, Survey


def sites_on_a_line(x, length_scales=(1.0,), **inference):
    """A problem of nothing but sites and latents, for what depends on these alone."""
    x = np.asarray(x, dtype=float)
    names = [f"f{q}" for q in range(len(length_scales))]
    return Problem(
        title="",
        survey=Survey((Column("x", "m", x),), (Observation("t", "s", np.zeros((len(x), 1))),)),
        latents=tuple(
            Latent(name, "m", np.zeros(1), np.ones(1), SquaredExponential(1.0, np.asarray([length])))
            for name, length in zip(names, length_scales, strict=True)
        ),
        noise=Noise("gaussian", {"t": np.ones((len(x), 1))}),
        forward=CallableModel(
            function=lambda **latents: latents["f0"],
            inputs=tuple(Quantity(n, "m") for n in names),
            outputs=(Quantity("t", "s"),),
        ),
        inputs=tuple(SimulatorVariable(n) for n in names),
        outputs=(SimulatorVariable("t"),),
        inference=InferenceSettings(**{"posterior": "coupled gaussian", **inference}),
    )


class ExactEmulator:
    """An emulator that is the simulator itself, a function of the first latent."""

    name, error, solver_noise = "exact", 0.0, 0.0

    def __init__(self, function, errors=0.0):
        self.function, self.errors, self.asked_of = function, errors, set()

    def predict(self, latents, sites):
        self.asked_of |= set(sites)
        return self.function(latents[..., 0])[..., None]

    def output_error(self, sites):
        return np.zeros((len(sites), 1)) + self.errors, np.zeros((len(sites), 1))


class SearchUnderWay:
    """A search on an exact emulator: its model, its runner and its state."""

    def __init__(self, function, problem, tmp_path, seed=0):
        self.runner = Runner(Simulator(problem, tmp_path))
        self.model, state = prepare_site_model(problem, select_backend("cpu"), self.runner, seed)
        self.emulator = ExactEmulator(function)
        self.state = self.runner.keep(replace(state, emulator=self.emulator))

    def find(self, about):
        """The solution of a search that starts where the latent is `about`."""
        algorithm, start = self.model.algorithm(self.model.emulator_stages), self.state.start
        factors = site_factors_at(start, np.full(start.marginals.mean.shape, about), 3.0)
        begin = algorithm.start_from(algorithm.posterior(factors, start.hyper), near_optimum=False)
        evaluate = emulator_evaluator(self.emulator)
        return self.model.optimiser(algorithm, begin, evaluate, lambda _elbo, _found: None).candidate
