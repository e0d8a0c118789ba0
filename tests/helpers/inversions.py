"""Inversions of sites on a line."""

import numpy as np

from invgp.adapters import CallableModel, Quantity
from invgp.core.backend import select_backend
from invgp.execution.simulator import Batch, Simulator
from invgp.inference.emulated import EmulatedInversion
from invgp.inference.restart import site_factors_at
from invgp.problem import Column, InferenceSettings, Latent, Noise, Observation, Problem, SimulatorVariable, Survey


def sites_on_a_line(x, length_scales=(1.0,), **inference):
    """A problem of nothing but sites and latents, for what depends on these alone."""
    x = np.asarray(x, dtype=float)
    names = [f"f{q}" for q in range(len(length_scales))]
    return Problem(
        title="",
        survey=Survey((Column("x", "m", x),), (Observation("t", "s", np.zeros((len(x), 1))),)),
        latents=tuple(
            Latent(name, "m", np.zeros(1), np.ones(1), "squared exponential", np.asarray([length]))
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


def inversion_on(function, problem, tmp_path, seed=0):
    """An inversion whose emulator is exact, and its posterior about the field where the latent is `about`."""
    inversion = EmulatedInversion(problem, select_backend("cpu"), Simulator(problem, tmp_path), seed)
    inversion.asked_of = set()

    def evaluate_emulator(latents, label, sites):
        inversion.asked_of |= set(sites)
        return Batch(function(latents[..., 0])[..., None], np.ones(latents.shape[:2], dtype=bool))

    inversion.evaluate_emulator = evaluate_emulator

    def converged(about):
        algorithm, start = inversion.algorithm(inversion.emulator_stages), inversion.start.trial
        said = site_factors_at(start, np.full(start.marginals.mean.shape, about), 3.0)
        state = algorithm.start_from(algorithm.posterior(said, start.hyper), near_optimum=False)
        return inversion.optimiser(algorithm, state, evaluate_emulator, lambda _elbo, _found: None).candidate

    return inversion, converged
