"""Reference chains of a problem: slice sampling with a Gaussian proposal that is fitted first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from threadpoolctl import threadpool_limits

from invgp.core.backend import cholesky, select_backend, to_numpy
from invgp.errors import RunsFailedError
from invgp.execution.monitor import Monitor
from invgp.execution.pools import Pool
from invgp.execution.simulator import Batch, Simulator, TooManyFailures
from invgp.inference.gaussian import search_gaussian
from invgp.inference.invert import search_within_budget
from invgp.inference.runner import Runner
from invgp.inference.site_evaluation import evaluator
from invgp.inference.site_model import prepare_site_model
from invgp.ledger import Recorder
from invgp.problem import Floats, Problem
from invgp.sampling.chains import Chains
from invgp.sampling.chains_file import saved_proposal
from invgp.sampling.proposal import Proposal
from invgp.sampling.slice_sampling import sample
from invgp.sampling.target_density import Run, WhitenedPrior, informed_sites

STEPS = 8  # iterations of the fit; each computes the posterior of a linearised simulator
SAMPLES_PER_LATENT = 4  # samples per site of an iteration, divided by Q + 1
QUICK_RUN = 0.1  # s: chains make millions of quicker runs, which are not recorded in the ledger


@dataclass
class DirectSimulator:
    """The simulator as a function for a sampler; failed runs are allowed.

    Parameters
    ----------
    simulator : Simulator
    recorder : Recorder, optional
        Ledger, which records the first `kept` runs and all runs that are not quick.
    kept : int
        Number of first runs that are always recorded: those of the fit, which are not in the file of the chains.
    calls : int
        Number of calls so far, for the labels of runs.
    """

    simulator: Simulator
    recorder: Recorder | None = None
    kept: int = 0
    calls: int = 0

    @staticmethod
    def of(
        problem: Problem, directory: Path, pool: Pool, monitor: Monitor, recorder: Recorder | None = None
    ) -> DirectSimulator:
        """Build from a problem, with runs in a directory; any share of them may fail."""
        tolerant = replace(problem, inference=problem.inference.model_copy(update={"max_failed_share": 1.0}))
        return DirectSimulator(
            Simulator(tolerant, directory, pool, monitor, recorder=recorder), recorder, fit_runs(problem)
        )

    def __call__(self, f: Floats, sites: NDArray[np.intp]) -> Batch:
        """Run the simulator at latent values f (S, B, Q) of sites (B,)."""
        self.calls += 1
        self.simulator.recorder = self.recorder if self.keeps_next_runs else None
        try:
            return self.simulator.run(f, f"chains{self.calls}", sites)
        except TooManyFailures:
            if len(f) > 1:  # run the samples one by one, so that the others are not lost
                parts = [self(one[None, ...], sites) for one in f]
                return Batch(np.concatenate([p.outputs for p in parts]), np.concatenate([p.valid for p in parts]))
            return Batch.all_failed(1, len(sites), self.simulator.problem.noise_std.shape[1])

    @property
    def keeps_next_runs(self) -> bool:
        """Whether the next runs are recorded in the ledger."""
        if self.recorder is None or self.simulator.runs < self.kept:
            return True
        made = self.simulator.runs - self.recorder.reused
        return self.simulator.concurrency.busy >= QUICK_RUN * made


def reference(problem: Problem, run: Run, *, seed: int = 0, checkpoint: Path | None = None, **settings: Any) -> Chains:
    """Sample the posterior of a problem on the simulator, with a proposal from `fit_linearised_gaussian`.

    Parameters
    ----------
    problem : Problem
    run : callable
        The simulator.
    seed, checkpoint, settings
        See `invgp.sampling.slice_sampling.sample`.
    """
    begun = None if checkpoint is None else saved_proposal(checkpoint)
    proposal = begun or fit_linearised_gaussian(problem, run, seed=seed)
    return sample(problem, run, proposal, seed=seed, checkpoint=checkpoint, **settings)


def emulated_reference(
    problem: Problem, run: DirectSimulator, *, seed: int = 0, checkpoint: Path | None = None, **settings: Any
) -> Chains:
    """Sample the posterior on an emulator, and on the simulator where the emulator is not accurate enough.

    For simulators that are too slow for chains. The emulator and the proposal are those of an emulated inversion.
    Resumed chains need the same emulator again: its runs are then read from the ledger and counted once.

    Parameters
    ----------
    problem : Problem
    run : DirectSimulator
    seed, checkpoint, settings
        See `invgp.sampling.slice_sampling.sample`.

    Raises
    ------
    RunsFailedError
        No emulator could be fitted.
    """
    dense = problem.with_inference(posterior="coupled gaussian", inducing=None)
    runner = Runner(run.simulator)
    with threadpool_limits(1):
        model, state = prepare_site_model(dense, select_backend("cpu"), runner, seed)
        state = search_within_budget(search_gaussian, model, runner, state)
    if state.candidate is None or state.emulator is None:
        raise RunsFailedError("no emulator could be fitted")
    q = state.posterior.q
    covariance = to_numpy(q.root).T @ to_numpy(q.root)
    proposal = Proposal.from_covariance(to_numpy(q.mean).ravel(), covariance, run.simulator.runs)
    evaluate = evaluator(runner, state)

    def answer(f: Floats, sites: NDArray[np.intp]) -> Batch:
        return evaluate(f, "chains", sites)

    return sample(problem, answer, proposal, seed=seed, simulated=state.direct, checkpoint=checkpoint, **settings)


def fit_runs(problem: Problem) -> int:
    """Return the number of runs of `fit_linearised_gaussian`."""
    return STEPS * SAMPLES_PER_LATENT * (problem.latent_count + 1) * len(informed_sites(problem))


def fit_linearised_gaussian(problem: Problem, run: Run, *, seed: int = 0) -> Proposal:
    """Fit a Gaussian to the posterior by statistical linearisation, coupled over latents and sites.

    Each iteration regresses the outputs of each site on samples from the current Gaussian. The posterior with this
    linear simulator is the next Gaussian.
    """
    with threadpool_limits(1):
        return _fit_linearised_gaussian(problem, run, seed)


def _fit_linearised_gaussian(problem: Problem, run: Run, seed: int) -> Proposal:
    N, Q = problem.survey.size, problem.latent_count
    sites = informed_sites(problem)
    prior = WhitenedPrior(problem)
    z = np.random.default_rng(seed).standard_normal((SAMPLES_PER_LATENT * (Q + 1), len(sites), Q))
    current = _WhitenedGaussian(np.eye(N * Q), np.zeros(N * Q))
    for _ in range(STEPS):
        mean, root = _marginals(prior, current, sites)
        batch = run(mean + np.einsum("nij,snj->sni", root, z), sites)
        if not batch.complete(np.isfinite(problem.survey.Y[sites])).any():
            raise RunsFailedError("the reference could not start: every run failed")
        slopes, residual = _regress_outputs(problem, z, batch, sites)
        J = np.asarray(np.linalg.solve(root.mT, slopes.mT).mT, dtype=np.float64)
        aim = residual + np.einsum("npq,nq->np", J, mean - prior.mean)
        current = _linear_posterior(prior, J, aim, sites)
    return Proposal.from_precision(current.mean, current.precision, runs=fit_runs(problem))


class _WhitenedGaussian(NamedTuple):
    """Gaussian of the whitened latents: precision (D, D) and mean (D,)."""

    precision: Floats
    mean: Floats


def _marginals(prior: WhitenedPrior, q: _WhitenedGaussian, sites: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Compute means (B, Q) of the latents at sites (B,) and Cholesky factors (B, Q, Q) of their covariances."""
    Q, N, _ = prior.factor.shape
    seen = np.zeros((Q, N, Q, len(sites)))
    for i in range(Q):
        seen[i, :, i, :] = prior.factor[i, sites].T
    factor = np.linalg.cholesky(q.precision)
    spread = solve_triangular(factor, seen.reshape(Q * N, -1), lower=True).reshape(Q * N, Q, -1)
    covariance = np.einsum("din,djn->nij", spread, spread, optimize=True)
    return prior(q.mean[None, :])[0, sites], cholesky(covariance)


def _regress_outputs(problem: Problem, z: Floats, batch: Batch, sites: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Regress outputs on z (S, B, Q): slopes (B, P, Q) and data minus fitted mean (B, P), in noise stds."""
    Y = problem.survey.Y[sites]
    weight = np.where(np.isnan(Y), 0.0, 1.0 / np.where(np.isnan(Y), 1.0, problem.noise_std[sites]))
    observed = ~np.isnan(Y)
    whole = batch.complete(observed)[..., None]
    features = np.concatenate([np.ones_like(z[..., :1]), z], axis=-1) * whole
    outputs = np.where(whole, batch.fill_unobserved(observed), 0.0) * weight
    # The ridge makes the slopes vanish at a site where nearly all runs failed.
    gram = np.einsum("snf,sng->nfg", features, features) + 1e-6 * np.eye(features.shape[-1])
    fit = np.linalg.solve(gram, np.einsum("snf,snp->nfp", features, outputs))
    return fit[:, 1:].mT, np.nan_to_num(Y) * weight - fit[:, 0]


def _linear_posterior(prior: WhitenedPrior, J: Floats, aim: Floats, sites: NDArray[np.intp]) -> _WhitenedGaussian:
    """Compute the posterior for data `aim` (B, P), noise variance 1, and a linear simulator J (B, P, Q)."""
    Q, N, _ = prior.factor.shape
    curvature, pull = J.mT @ J, np.einsum("npq,np->nq", J, aim)
    precision = np.empty((Q, N, Q, N))
    for i in range(Q):
        for j in range(Q):
            precision[i, :, j] = (prior.factor[i, sites].T * curvature[:, i, j]) @ prior.factor[j, sites]
    precision = precision.reshape(Q * N, Q * N) + np.eye(Q * N)
    shift = np.einsum("qbn,bq->qn", prior.factor[:, sites], pull).ravel()
    return _WhitenedGaussian(precision, cho_solve(cho_factor(precision, lower=True), shift))
