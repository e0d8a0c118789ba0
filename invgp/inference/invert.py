"""From a problem to its posterior."""

from __future__ import annotations

import os
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from invgp.adapters.protocol import Evaluations, RunContext
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
from invgp.inference.evaluate import evaluate
from invgp.inference.monitor import Monitor, Silent
from invgp.likelihoods import Gaussian
from invgp.posterior import Solution, to_dataset
from invgp.problem import Floats, Problem

MESSAGES_SHOWN = 3
HOPELESS = 20  # runs: if the first of a batch all fail, so will the rest
RETRACES = 5  # steps in a row that are taken back because the simulator failed there
START_SHARE = 0.1  # of the prior's variance
WORTH_THREADS = 500  # sites: products of smaller matrices are slowed down by BLAS threads that wait for each other
DIRECTORIES_KEPT = 100  # of failed runs: enough to find a cause, too few to fill a disk


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
    with TemporaryDirectory(prefix="invgp-") as scratch, _own_directory(run_directory or scratch) as directory:
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
            if not inversion.failures.failed:
                shutil.rmtree(directory, ignore_errors=True)  # of runs that were cut short: they tell nothing
            raise InterruptedInversion(inversion.posterior("interrupted before it settled", settled=False)) from error
        except RunsFailedError as error:
            error.posterior = inversion.posterior("stopped because too many runs failed", settled=False)
            raise
        result = inversion.posterior(status, settled=bool(inversion.state.finished))
    if result is None:
        raise RunsFailedError(inversion.failures.sentence("no posterior could be found"))
    return result


def _check(problem: Problem, workers: int, seed: int) -> None:
    """What a config is checked for already, for a problem built in code."""
    fewest, samples = fewest_samples(problem.latent_count), problem.inference.samples
    for name, value, least in (("workers", workers, 1), ("seed", seed, 0), ("inference.samples", samples, fewest)):
        if value < least:
            raise ConfigError(f"{name}: must be at least {least}, was {value}")


@contextmanager
def _own_directory(parent: str | Path) -> Iterator[Path]:
    """A directory for the runs of this inversion alone: two that share an output must not share their runs."""
    directory = Path(parent) / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}-{secrets.token_hex(2)}"
    try:
        yield directory
    finally:
        with suppress(OSError):  # it stays if it holds the directory of a failed run
            directory.rmdir()


@dataclass
class _Failures:
    """Runs and what became of them."""

    runs: int = 0
    failed: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)

    def add(self, batch: Evaluations) -> None:
        self.runs += len(batch.status)
        bad = np.flatnonzero(~batch.ok)
        self.failed += len(bad)
        self.causes.update(batch.status[i].value for i in bad)
        room = MESSAGES_SHOWN - len(self.messages)
        self.messages += [batch.messages[i] for i in bad[: max(room, 0)]]

    def sentence(self, opening: str) -> str:
        causes = ", ".join(f"{cause} ({count})" for cause, count in self.causes.most_common())
        text = f"{opening}: {self.failed} of {self.runs} runs failed"
        return "\n  ".join([f"{text}: {causes}" if causes else text, *self.messages])


class _TooManyFailed(Exception):  # noqa: N818 - it says what happened, and never leaves this module
    """A batch cannot end well any more."""


@dataclass
class _Watch:
    """Stops a batch as soon as it cannot end well: nobody should pay for the rest."""

    size: int
    allowed: float
    seen: list[Evaluations] = field(default_factory=list)
    runs: int = 0
    failed: int = 0

    def saw(self, part: Evaluations) -> None:
        self.seen.append(part)
        self.runs += len(part.status)
        self.failed += int((~part.ok).sum())
        hopeless = self.failed == self.runs >= min(HOPELESS, self.size)
        if hopeless or self.failed > self.allowed * self.size:
            raise _TooManyFailed


class _Inversion:
    """One inversion under way; holds the best posterior so far."""

    def __init__(
        self, problem: Problem, where: Place, *, seed: int, workers: int, directory: Path, monitor: Monitor
    ) -> None:
        self.problem, self.where, self.seed, self.workers = problem, where, seed, workers
        self.directory, self.monitor = directory, monitor
        self.failures = _Failures()
        self.trace: list[tuple[float, int]] = []
        self.retraced = 0
        self.best_outputs: tuple[Floats, NDArray[np.bool_]] | None = None
        # One stream for each purpose: drawing more realizations must not change the posterior.
        points, self.draw_stream = np.random.default_rng(seed).spawn(2)
        settings = problem.inference
        bound, parameters = dense_full_gaussian(problem, where)
        # Where nothing was observed the noise may be unknown, and plays no part.
        observed = problem.survey.Y
        likelihood = Gaussian(where.asarray(np.where(np.isnan(observed), 1.0, problem.noise_std)))
        self.algorithm = Savigp(
            bound,
            parameters,
            partial(likelihood.log_density, where.asarray(observed)),
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
            outputs, valid = self._evaluate(self.algorithm.ask(self.state))
            self.state, info = self.algorithm.tell(self.state, self.where.asarray(outputs), self.where.asmask(valid))
            self._keep(info, outputs, valid)
        return self.state.finished

    def _evaluate(self, f: object) -> tuple[Floats, NDArray[np.bool_]]:
        """Outputs (S, N, P) and which runs were valid (S, N); none, if the batch was cut short."""
        samples, sites = self.problem.inference.samples, self.problem.survey.size
        evaluation = self.state.evaluations + 1
        labels = [f"evaluation{evaluation}-site{n + 1}-sample{s + 1}" for s in range(samples) for n in range(sites)]
        watch = _Watch(samples * sites, self.problem.inference.max_failed_share)
        try:
            batch = evaluate(
                self.problem.forward,
                self.problem.to_simulator(self.problem.physical(to_numpy(f))),
                RunContext(labels, self.directory),
                workers=self.workers,
                monitor=self.monitor,
                watch=watch.saw,
            )
        except _TooManyFailed:
            self._take_in(Evaluations.concatenate(watch.seen), labels)
            self._retrace()
            outputs = np.full((samples, sites, len(self.problem.noise_std.T)), np.nan)
            return outputs, np.zeros((samples, sites), dtype=bool)
        self._take_in(batch, labels)
        self.retraced = 0
        return self.problem.from_simulator(batch.outputs, samples), batch.ok.reshape(samples, sites)

    def _take_in(self, batch: Evaluations, labels: Sequence[str]) -> None:
        self._drop_directories(batch, labels)
        self.failures.add(batch)

    def _retrace(self) -> None:
        """A step to where the simulator fails is taken back; at the start, or time and again, it is the end."""
        self.retraced += 1
        if self.best_outputs is None or self.retraced > RETRACES:
            allowed = self.problem.inference.max_failed_share
            raise RunsFailedError(
                self.failures.sentence(f"the inversion stopped at inference.max_failed_share = {allowed:g}")
            )

    def _drop_directories(self, batch: Evaluations, labels: Sequence[str]) -> None:
        room = max(DIRECTORIES_KEPT - self.failures.failed, 0)
        for i in np.flatnonzero(~batch.ok)[room:]:
            shutil.rmtree(self.directory / labels[i], ignore_errors=True)

    def _keep(self, info: Info, outputs: Floats, valid: NDArray[np.bool_]) -> None:
        if info.accepted:
            self.trace.append((info.elbo, self.failures.runs))
            self.best_outputs = outputs, valid
        self.monitor.evaluated(self.state.evaluations, info.elbo, accepted=info.accepted)

    def posterior(self, status: str, *, settled: bool) -> xr.Dataset | None:
        """The best posterior so far, or None if no evaluation of the bound has succeeded."""
        if self.best_outputs is None:
            return None
        outputs, valid = self.best_outputs
        mean, variance = self.algorithm.marginals(self.state)
        normals = self.draw_stream.standard_normal(
            (self.problem.output.realizations, self.problem.survey.size, self.problem.latent_count)
        )
        modelled = np.where(valid[..., None], outputs, np.nan)
        solution = Solution(
            mean=to_numpy(mean),
            std=np.sqrt(to_numpy(variance)),
            draws=to_numpy(self.algorithm.draws(self.state, self.where.asarray(normals))),
            predicted=np.nanmean(modelled, axis=0),
            predicted_std=np.nanstd(modelled, axis=0),
            elbo=np.asarray([bound for bound, _ in self.trace]),
            runs=np.asarray([runs for _, runs in self.trace]),
            runs_total=self.failures.runs,
            runs_failed=self.failures.failed,
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
