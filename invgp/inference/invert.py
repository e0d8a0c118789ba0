"""From a problem to its posterior."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import xarray as xr
from threadpoolctl import threadpool_limits

from invgp.core.backend import DeviceError, Place, place, to_numpy
from invgp.core.bound import Bound, Parameters
from invgp.core.estimators import fewest_samples
from invgp.core.geometry import inducing_factor
from invgp.core.kernels import CORRELATIONS, Kernel
from invgp.core.optimisers import LBFGS
from invgp.core.posteriors import Full
from invgp.core.sampling import Points
from invgp.core.savigp import Info, Savigp, State
from invgp.errors import ConfigError, DeviceMissingError, RunsFailedError
from invgp.inference.monitor import Monitor, Silent
from invgp.inference.noise import noise_likelihood
from invgp.inference.simulator import Batch, Simulator, TooManyFailed, own_directory
from invgp.posterior import Solution, to_dataset
from invgp.problem import Problem

RETRACES = 5  # steps in a row that are taken back because the simulator failed there
START_SHARE = 0.1  # of the prior's variance
WORTH_THREADS = 500  # sites: products of smaller matrices are slowed down by BLAS threads that wait for each other


class InterruptedInversion(KeyboardInterrupt):
    """The person stopped the inversion.

    Attributes
    ----------
    posterior : the best posterior so far, as `invert` would return it; None if there was none yet.
    """

    def __init__(self, posterior: xr.Dataset | None) -> None:
        super().__init__("the inversion was interrupted")
        self.posterior = posterior


def invert(
    problem: Problem,
    *,
    workers: int | None = None,
    seed: int | None = None,
    device: str | None = None,
    run_directory: str | Path | None = None,
    monitor: Monitor | None = None,
) -> xr.Dataset:
    """Infer the posterior over the problem's latents.

    Parameters
    ----------
    workers, seed, device : instead of the problem's own settings. The same seed gives the same posterior, to the
        bit, whatever the number of workers.
    run_directory : where simulators run and the directories of failed runs are kept; by default a temporary one,
        which keeps nothing.
    monitor : told of each step.

    Returns
    -------
    xarray.Dataset
        Posterior mean, spread, quantiles and draws of each latent, the data and their fit, the bound.

    Raises
    ------
    RunsFailedError
        More runs failed than `inference.max_failed_share` allows.
    DeviceMissingError
        The device is not on this machine.
    InterruptedInversion
        Ctrl-C; it carries the best posterior so far.
    """
    settings = problem.inference
    seed = settings.seed if seed is None else seed
    workers = settings.workers if workers is None else workers
    _check(problem, workers, seed)
    try:
        where = place(device or settings.device)
    except DeviceError as error:
        raise DeviceMissingError(str(error)) from error
    with TemporaryDirectory(prefix="invgp-") as scratch, own_directory(run_directory or scratch) as directory:
        try:
            inversion = _Inversion(
                problem, where, seed=seed, workers=workers, directory=directory, monitor=monitor or Silent()
            )
        except np.linalg.LinAlgError as error:
            raise ConfigError(f"latents: the kernels give a covariance that cannot be factorised: {error}") from error
        try:
            with threadpool_limits(1 if problem.survey.size < WORTH_THREADS else None):
                status = inversion.run()
        except KeyboardInterrupt as error:
            if not inversion.simulator.failed:
                shutil.rmtree(directory, ignore_errors=True)  # of runs that were cut short: they tell nothing
            raise InterruptedInversion(inversion.posterior("interrupted before it settled", settled=False)) from error
        except RunsFailedError as error:
            error.posterior = inversion.posterior("stopped because too many runs failed", settled=False)
            raise
        result = inversion.posterior(status, settled=bool(inversion.state.finished))
    if result is None:
        raise RunsFailedError(inversion.simulator.failures("no posterior could be found"))
    return result


def _check(problem: Problem, workers: int, seed: int) -> None:
    """What a config is checked for already, for a problem built in code."""
    fewest, samples = fewest_samples(problem.latent_count), problem.inference.samples
    for name, value, least in (("workers", workers, 1), ("seed", seed, 0), ("inference.samples", samples, fewest)):
        if value < least:
            raise ConfigError(f"{name}: must be at least {least}, was {value}")


class _Inversion:
    """One inversion under way; holds the best posterior so far."""

    def __init__(
        self, problem: Problem, where: Place, *, seed: int, workers: int, directory: Path, monitor: Monitor
    ) -> None:
        self.problem, self.where, self.seed, self.monitor = problem, where, seed, monitor
        self.simulator = Simulator(problem, directory, workers, monitor)
        self.trace: list[tuple[float, int]] = []
        self.retraced = 0
        self.best: Batch | None = None
        # One stream for each purpose: drawing more realizations must not change the posterior.
        points, self.draw_stream = np.random.default_rng(seed).spawn(2)
        settings = problem.inference
        bound, parameters = dense_full_gaussian(problem, where)
        likelihood = noise_likelihood(problem, where)
        self.algorithm = Savigp(
            bound,
            parameters,
            partial(likelihood.log_density, where.asarray(problem.survey.Y)),
            Points.draw(points, settings.samples, problem.survey.size, problem.latent_count, where),
            LBFGS(tolerance=settings.tolerance),
        )
        self.state: State = self.algorithm.init()

    def run(self) -> str:
        """Ask, evaluate, tell, until the bound settles; say why it ended."""
        settings = self.problem.inference
        self.monitor.begin(settings.samples * self.problem.survey.size, settings.max_evaluations)
        while not self.state.finished:
            if self.state.evaluations >= settings.max_evaluations:
                return f"stopped at inference.max_evaluations = {settings.max_evaluations} before the bound settled"
            batch = self._evaluate(self.algorithm.ask(self.state))
            told = self.where.asarray(batch.outputs), self.where.asmask(batch.valid)
            self.state, info = self.algorithm.tell(self.state, *told)
            self._keep(info, batch)
        return self.state.finished

    def _evaluate(self, f: object) -> Batch:
        """What the simulator makes of latent values (S, N, Q); nothing valid, if the batch was cut short."""
        values = to_numpy(f)
        try:
            batch = self.simulator.run(values, f"evaluation{self.state.evaluations + 1}")
        except TooManyFailed:
            self._retrace()
            nothing = np.full((*values.shape[:2], len(self.problem.noise_std.T)), np.nan)
            return Batch(nothing, np.zeros(values.shape[:2], dtype=bool))
        self.retraced = 0
        return batch

    def _retrace(self) -> None:
        """A step to where the simulator fails is taken back; at the start, or time and again, it is the end."""
        self.retraced += 1
        if self.best is None or self.retraced > RETRACES:
            allowed = self.problem.inference.max_failed_share
            raise RunsFailedError(
                self.simulator.failures(f"the inversion stopped at inference.max_failed_share = {allowed:g}")
            )

    def _keep(self, info: Info, batch: Batch) -> None:
        if info.accepted:
            self.trace.append((info.elbo, self.simulator.runs))
            self.best = batch
        self.monitor.evaluated(self.state.evaluations, info.elbo, accepted=info.accepted)

    def posterior(self, status: str, *, settled: bool) -> xr.Dataset | None:
        """The best posterior so far, or None if no evaluation of the bound has succeeded."""
        if self.best is None:
            return None
        mean, variance = self.algorithm.marginals(self.state)
        normals = self.draw_stream.standard_normal(
            (self.problem.output.realizations, self.problem.survey.size, self.problem.latent_count)
        )
        modelled = np.where(self.best.valid[..., None], self.best.outputs, np.nan)
        solution = Solution(
            mean=to_numpy(mean),
            std=np.sqrt(to_numpy(variance)),
            draws=to_numpy(self.algorithm.draws(self.state, self.where.asarray(normals))),
            predicted=np.nanmean(modelled, axis=0),
            predicted_std=np.nanstd(modelled, axis=0),
            elbo=np.asarray([bound for bound, _ in self.trace]),
            runs=np.asarray([runs for _, runs in self.trace]),
            runs_total=self.simulator.runs,
            runs_failed=self.simulator.failed,
            seed=self.seed,
            status=status,
            settled=settled,
        )
        return to_dataset(self.problem, solution)


def dense_full_gaussian(problem: Problem, where: Place) -> tuple[Bound, Parameters]:
    """The paper's full Gaussian at the sites, and where it starts: the prior's mean, a tenth of its variance."""
    mean, std = problem.prior()
    kernels = tuple(
        Kernel(CORRELATIONS[latent.kernel], where.asarray(float(s) ** 2), where.asarray(latent.length_scale))
        for latent in problem.latents
        for s in std[problem.latent_slices[latent.name]]
    )
    xp, N, Q = where.namespace, problem.survey.size, problem.latent_count
    X = where.asarray(problem.survey.X)
    Z = xp.broadcast_to(X, (Q, *X.shape))
    family = Full(latents=Q, inducing=N)
    parameters = Parameters(
        posterior=family.initial(inducing_factor(kernels, Z), START_SHARE, where.asarray(np.zeros((1, Q, N)))),
        kernels=xp.stack([kernel.parameters for kernel in kernels]),
        inducing=Z,
        likelihood=where.asarray(np.zeros(0)),
    )
    return Bound(family, kernels, where.asarray(mean), X, dense=True), parameters
