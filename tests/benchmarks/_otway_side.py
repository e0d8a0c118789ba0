"""Other ways to the posterior of the Otway line: runs in an environment of its own, for `peers_otway.py`.

    python _otway_side.py METHOD PROBLEM.npz FOLDER SECONDS

The unknowns are the whitened latents w, standard normal a priori. Every method works harder and harder, and after each
stage writes mean and standard deviation of the latents to FOLDER and tells in a line of JSON what it took so far.
"""

import json
import sys
import time
import warnings
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import emcee
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from iterative_ensemble_smoother import ESMDA

ASSIMILATIONS = 4


class Line:
    """The problem, with every simulator run counted: one is one site, once."""

    def __init__(self, path):
        stored = np.load(path)
        self.factor = stored["factor"]  # (Q, N, N)
        self.mean = np.broadcast_to(stored["mean"], self.factor.shape[1::-1])  # (N, Q)
        self.data, self.noise = stored["data"], stored["noise"]  # (N, 4)
        self.sites, self.latents = self.mean.shape
        self.size, self.runs = self.mean.size, 0

    def fields(self, w):
        """Latents (S, N, Q), depths before velocities, of whitened ones (S, Q N)."""
        w = w.reshape(len(w), self.latents, self.sites)
        return self.mean + np.einsum("qnm,sqm->snq", self.factor, w, optimize=True)

    def misfit(self, fields):
        """Data less two-way times, in standard deviations of the noise, (S, N, 4)."""
        self.runs += fields.shape[0] * fields.shape[1]
        depth, velocity = fields[..., :4], fields[..., 4:]
        thickness = np.diff(depth, axis=-1, prepend=0.0)
        return (self.data - np.cumsum(2.0 * thickness / velocity, axis=-1)) / self.noise

    def log_likelihood(self, w):
        """(S,), up to a constant."""
        return -0.5 * np.sum(self.misfit(self.fields(w)) ** 2, axis=(1, 2))


def smoother(line, rng):
    """ES-MDA with four assimilations, with twice the members at each stage."""
    members = 100
    while True:
        before = line.runs
        w = rng.standard_normal((line.size, members))
        data = np.ravel(line.data / line.noise)
        esmda = ESMDA(covariance=np.ones(data.size), observations=data, alpha=ASSIMILATIONS, seed=rng)
        for _ in range(esmda.num_assimilations()):
            outputs = data - line.misfit(line.fields(w.T)).reshape(members, -1)
            esmda.prepare_assimilation(Y=outputs.T)
            w = esmda.assimilate_batch(X=w)
        yield f"{members:,} members", line.runs - before, w.T
        members *= 2


def ensemble(line, rng):
    """emcee: walkers that stretch towards each other; the first half of what they saw is thrown away."""
    walkers = 2 * line.size + 2

    def log_posterior(w):
        return line.log_likelihood(w) - 0.5 * np.sum(w**2, axis=1)

    sampler = emcee.EnsembleSampler(walkers, line.size, log_posterior, vectorize=True)
    np.random.seed(1)  # noqa: NPY002  emcee draws from the global state
    state, steps = rng.standard_normal((walkers, line.size)), 8
    while True:
        state = sampler.run_mcmc(state, steps - sampler.iteration)
        yield f"{steps:,} steps of {walkers:,} walkers", line.runs, sampler.get_chain(discard=steps // 2, flat=True)
        steps *= 2


def slices(line, rng):
    """Elliptical slice sampling as published (Murray, Adams and MacKay, 2010); the first half is thrown away."""
    w = rng.standard_normal((1, line.size))
    now, kept, steps = line.log_likelihood(w), [], 500
    while True:
        while len(kept) < steps:
            level, other = now + np.log(rng.random()), rng.standard_normal((1, line.size))
            angle = rng.uniform(0.0, 2.0 * np.pi)
            low, high = angle - 2.0 * np.pi, angle
            while True:
                proposed = w * np.cos(angle) + other * np.sin(angle)
                value = line.log_likelihood(proposed)
                if value > level:
                    break
                low, high = (angle, high) if angle < 0.0 else (low, angle)
                angle = rng.uniform(low, high)
            w, now = proposed, value
            kept.append(w[0])
        yield f"{steps:,} steps", line.runs, np.asarray(kept[steps // 2 :])
        steps *= 2


def variational(line, rng, method):
    """PyMC's variational inference with the simulator as a black box, whose gradient is taken by differences."""
    step = 1e-4

    @lru_cache(maxsize=1)  # the bound and its gradient ask at the same place, one after the other: it is run once
    def value_and_slope(stored):
        """Log likelihood at w (D,), given as bytes, and its gradient from one run more for each latent and site."""
        fields = line.fields(np.frombuffer(stored)[None])
        shifts = step * np.eye(line.latents)[:, None, :] * np.abs(line.mean)
        misfit = line.misfit(np.concatenate([fields, fields + shifts]))
        site = -0.5 * np.sum(misfit**2, axis=-1)
        slope = ((site[1:] - site[0]) / np.max(shifts, axis=-1)).T  # (N, Q)
        return site[0].sum(), np.einsum("qnm,nq->qm", line.factor, slope).ravel()

    class Slope(pt.Op):
        itypes, otypes = [pt.dvector], [pt.dscalar, pt.dvector]

        def perform(self, node, inputs, outputs):
            value, slope = value_and_slope(inputs[0].tobytes())
            outputs[0][0], outputs[1][0] = np.asarray(value), slope

    class LogLikelihood(pt.Op):
        itypes, otypes = [pt.dvector], [pt.dscalar]
        both = Slope()

        def perform(self, node, inputs, outputs):
            outputs[0][0] = np.asarray(value_and_slope(inputs[0].tobytes())[0])

        def grad(self, inputs, output_gradients):
            return [output_gradients[0] * self.both(inputs[0])[1]]

    with pm.Model():
        w = pm.Normal("w", shape=line.size)
        pm.Potential("likelihood", LogLikelihood()(w))
        fit = {"mean field": pm.ADVI, "full rank": pm.FullRankADVI}[method](random_seed=1)
        done, steps = 0, 500
        while True:
            fit.fit(steps - done, progressbar=False, obj_optimizer=pm.adam(learning_rate=0.01))
            done = steps
            before = line.runs
            draws = fit.approx.sample(1000, random_seed=2, return_inferencedata=False)["w"]
            line.runs = before
            yield f"{steps:,} steps", line.runs, draws
            steps *= 2


METHODS = {
    "ES-MDA": (smoother, ["iterative_ensemble_smoother"], ()),
    "emcee": (ensemble, ["emcee"], ()),
    "ESS": (slices, ["numpy"], ()),
    "ADVI": (variational, ["pymc"], ("mean field",)),
    "full-rank ADVI": (variational, ["pymc"], ("full rank",)),
}


def main():
    """One line of JSON a stage, until the seconds are over."""
    name, path, folder, seconds = sys.argv[1:]
    warnings.simplefilter("ignore")
    method, packages, more = METHODS[name]
    line = Line(path)
    print(json.dumps({"versions": {p: version(p) for p in packages}}), flush=True)
    begun = stage_begun = time.process_time()
    for stage, (effort, runs, draws) in enumerate(method(line, np.random.default_rng(1), *more)):
        now = time.process_time()
        # A smoother's stages are each a fit of its own; the others go on from where they were.
        taken = now - (stage_begun if method is smoother else begun)
        fields = np.concatenate([line.fields(part) for part in np.array_split(draws, max(len(draws) // 500, 1))])
        file = Path(folder) / f"{stage}.npz"
        np.savez(file, mean=fields.mean(axis=0), std=fields.std(axis=0, ddof=1))
        print(json.dumps({"effort": effort, "runs": runs, "seconds": taken, "file": str(file)}), flush=True)
        stage_begun = time.process_time()
        if stage_begun - begun > float(seconds):
            break


if __name__ == "__main__":
    main()
