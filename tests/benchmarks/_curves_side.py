"""Methods of other packages, each in an environment of its own, for `peers_curves.py`.

    python _curves_side.py METHOD PROBLEM.npz FOLDER RUNS...

The process that started this one runs the simulator: it gets unknowns (S, D) on standard output and returns outputs
(S, P) on standard input, both in units in which data have unit noise. For each number of RUNS, the draws are written to
FOLDER. Unknowns are Gaussian a priori: mean + factor z, where z is standard normal.
"""

import struct
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np

ASSIMILATIONS = 4
ITERATIONS = 8  # of the iterative smoother: its default step lengths leave 2% of the first misfit after these
FEWEST_WALKERS = {"emcee": 32, "zeus": 10}  # as in the examples of their documentation
MOST_DRAWS = 20_000
SIZES = struct.Struct("<QQ")


class Problem:
    """The problem; `run` counts runs."""

    def __init__(self, path):
        stored = np.load(path)
        self.mean, self.factor, self.data, self.taper = (stored[n] for n in ("mean", "factor", "data", "taper"))
        self.size, self.runs = len(self.mean), 0

    def run(self, unknowns):
        """Outputs (S, P) of unknowns (S, D)."""
        unknowns = np.ascontiguousarray(unknowns, dtype="<f8")
        pipe_out, pipe_in = sys.__stdout__.buffer, sys.__stdin__.buffer
        pipe_out.write(SIZES.pack(*unknowns.shape) + unknowns.tobytes())
        pipe_out.flush()
        rows, columns = SIZES.unpack(pipe_in.read(SIZES.size))
        self.runs += rows
        return np.frombuffer(pipe_in.read(8 * rows * columns), "<f8").reshape(rows, columns)

    def unknowns(self, z):
        """Of standard normal numbers (S, D)."""
        return self.mean + z @ self.factor.T

    def log_posterior(self, z):
        """(S,), up to a constant."""
        misfit = self.data - self.run(self.unknowns(np.atleast_2d(z)))
        value = -0.5 * np.sum(misfit**2, axis=1) - 0.5 * np.sum(np.atleast_2d(z) ** 2, axis=1)
        return np.where(np.isfinite(value), value, -1e10)


def smoother(kind):
    """ES-MDA with four assimilations; a new ensemble for each number of runs."""

    def draw(problem, rng, runs):
        import iterative_ensemble_smoother as package  # noqa: PLC0415

        members = max(runs // ASSIMILATIONS, 3)
        X = problem.unknowns(rng.standard_normal((members, problem.size))).T
        settings = {"covariance": np.ones(len(problem.data)), "observations": problem.data, "alpha": ASSIMILATIONS}
        filtered = getattr(package, kind)(**settings, seed=rng)
        more = {"localization_callback": lambda K: K * problem.taper} if kind == "LocalizedESMDA" else {}
        more |= {"n_jobs": 1} if kind == "AdaptiveESMDA" else {}
        for _ in range(filtered.num_assimilations()):
            Y = problem.run(X.T).T
            filtered.prepare_assimilation(Y=np.nan_to_num(Y))
            X = filtered.assimilate_batch(X=X, **more)
        return X.T

    return draw


def iterative_smoother(problem, rng, runs):
    """Iterative ensemble smoother (Evensen et al., 2019) with the step lengths that the package recommends."""
    from iterative_ensemble_smoother import SIES, steplength_exponential  # noqa: PLC0415

    members = max(runs // ITERATIONS, 3)
    prior = problem.unknowns(rng.standard_normal((members, problem.size))).T
    smoothed = SIES(prior, np.ones(len(problem.data)), problem.data, seed=rng)
    X = prior
    for iteration in range(1, ITERATIONS + 1):
        X = smoothed.sies_iteration(np.nan_to_num(problem.run(X.T).T), steplength_exponential(iteration))
    return X.T


def information_filter(problem, rng, runs):
    """Ensemble information filter: one update with the exact precision of the prior; sensitivities by its LASSO."""
    import scipy.sparse  # noqa: PLC0415
    from graphite_maps.enif import EnIF  # noqa: PLC0415

    U = problem.unknowns(rng.standard_normal((runs, problem.size)))
    Y = np.nan_to_num(problem.run(U))
    covariance = problem.factor @ problem.factor.T
    jitter = 1e-8 * np.mean(np.diag(covariance)) * np.eye(problem.size)
    precision = scipy.sparse.csc_array(np.linalg.inv(covariance + jitter))
    noise = scipy.sparse.csc_array(np.eye(len(problem.data)))
    enif = EnIF(Prec_u=precision, Prec_eps=noise)
    # The prior has a mean of its own; the filter is linear, and its regression centres both sides.
    enif.fit(U, Y)
    return enif.transport(U, Y, problem.data, seed=1)


def ensemble_sampler(name):
    """emcee or zeus, with walkers from the prior; the first half of the steps is discarded."""

    def draw(problem, rng, runs):
        walkers = max(2 * problem.size + 2, FEWEST_WALKERS[name])
        np.random.seed(1)  # noqa: NPY002 - the packages use the global state
        start = rng.standard_normal((walkers, problem.size))
        if name == "emcee":
            import emcee  # noqa: PLC0415

            sampler = emcee.EnsembleSampler(walkers, problem.size, problem.log_posterior, vectorize=True)
            steps = runs // walkers - 1
            if steps < 2:
                return None
            sampler.run_mcmc(start, steps)
            return problem.unknowns(sampler.get_chain(discard=steps // 2, flat=True))
        import zeus  # noqa: PLC0415

        settings = {"vectorize": True, "verbose": False}
        sampler = zeus.EnsembleSampler(walkers, problem.size, problem.log_posterior, **settings)
        kept, state = [], start
        while problem.runs < runs:
            sampler.run_mcmc(state, 1, progress=False)
            state = sampler.get_last_sample()
            kept.append(np.array(state))
        return problem.unknowns(np.concatenate(kept[len(kept) // 2 :])) if len(kept) > 1 else None

    return draw


def variational(problem, rng, runs):
    """PyVBMC with its default options, from the prior mean; plausible bounds are the prior's standard deviation."""
    from pyvbmc import VBMC  # noqa: PLC0415

    ones = np.ones((1, problem.size))
    options = {"max_fun_evals": runs, "display": "off", "plot": False}
    fit = VBMC(
        lambda z: float(problem.log_posterior(z)[0]), 0.0 * ones, -np.inf * ones, np.inf * ones, -ones, ones, options
    )
    found, _ = fit.optimize()
    return problem.unknowns(found.sample(4000)[0])


def neural(problem, rng, runs):
    """Neural posterior estimation of sbi with its default network; one round."""
    import torch  # noqa: PLC0415
    from sbi.inference import NPE  # noqa: PLC0415

    torch.manual_seed(1)
    torch.set_num_threads(1)
    z = rng.standard_normal((runs, problem.size))
    outputs = problem.run(problem.unknowns(z)) + rng.standard_normal((runs, len(problem.data)))
    prior = torch.distributions.MultivariateNormal(torch.zeros(problem.size), torch.eye(problem.size))
    inference = NPE(prior=prior, show_progress_bars=False)
    inference.append_simulations(torch.as_tensor(z, dtype=torch.float32), torch.as_tensor(outputs, dtype=torch.float32))
    inference.train()
    posterior = inference.build_posterior()
    observed = torch.as_tensor(problem.data, dtype=torch.float32)
    return problem.unknowns(posterior.sample((4000,), x=observed, show_progress_bars=False).numpy().astype(float))


METHODS = {
    "ES-MDA": (smoother("ESMDA"), "iterative_ensemble_smoother"),
    "ES-MDA, localised": (smoother("LocalizedESMDA"), "iterative_ensemble_smoother"),
    "ES-MDA, adaptive": (smoother("AdaptiveESMDA"), "iterative_ensemble_smoother"),
    "IES": (iterative_smoother, "iterative_ensemble_smoother"),
    "EnIF": (information_filter, "graphite-maps"),
    "emcee": (ensemble_sampler("emcee"), "emcee"),
    "zeus": (ensemble_sampler("zeus"), "zeus-mcmc"),
    "PyVBMC": (variational, "pyvbmc"),
    "sbi": (neural, "sbi"),
}


def main():
    """Write the draws of each number of runs, with the version of the package."""
    name, path, folder, *budgets = sys.argv[1:]
    warnings.simplefilter("ignore")
    sys.stdout = sys.stderr  # what packages print must not reach the pipe
    draw, package = METHODS[name]
    for runs in map(int, budgets):
        problem = Problem(path)
        draws = draw(problem, np.random.default_rng([1, runs]), runs)
        if draws is not None:
            kept = draws if len(draws) <= MOST_DRAWS else np.random.default_rng(2).permutation(draws)[:MOST_DRAWS]
            np.savez(Path(folder) / f"{runs}.npz", draws=kept, runs=problem.runs, version=version(package))


if __name__ == "__main__":
    main()
