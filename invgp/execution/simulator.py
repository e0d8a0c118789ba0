"""The simulator of a problem as a function of the latents. It counts all runs of an inversion."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.adapters.protocol import Evaluations, RunContext, Status, cost_of_run, split_jacobian
from invgp.execution.evaluate import BatchStopped, Concurrency, evaluate
from invgp.execution.pools import Loop, Pool
from invgp.execution.run_directories import remove_run_directory
from invgp.execution.run_outcomes import FailedRuns, MissingOutputs, RunOutcomes
from invgp.ledger import Recorder
from invgp.ledger.rows import without_removed_directory
from invgp.problem import Floats, Part, Problem
from invgp.progress import Monitor, SilentMonitor

MESSAGES_SHOWN = 3
RUNS_TRIED = 20  # of a batch: if all of them fail, the rest is not run
FIRST_TRIED = 5  # the same of the first batch: the simulator may not work at all
DIRECTORIES_KEPT = 100  # of failed runs: enough to find a cause, too few to fill a disk


class Batch(NamedTuple):
    """Outputs of the simulator for S samples at B sites.

    Attributes
    ----------
    outputs : array, shape (S, B, P)
        With discrepancies, in the order and the units of the observations. NaN where a successful run lacks an output.
        The values of a failed run are meaningless.
    valid : array of bool, shape (S, B)
        Which runs succeeded.
    """

    outputs: Floats
    valid: NDArray[np.bool_]

    def complete(self, observed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which runs succeeded with all outputs that were observed (B, P) at their site, shape (S, B).

        Parameters
        ----------
        observed : array of bool, shape (B, P)
            Which data were observed at each site.

        Returns
        -------
        array of bool, shape (S, B)
        """
        return np.asarray(self.valid & (np.isfinite(self.outputs) | ~observed).all(axis=-1))

    def fill_unobserved(self, observed: NDArray[np.bool_]) -> Floats:
        """Return the outputs (S, B, P), with finite numbers where nothing was observed (B, P).

        Parameters
        ----------
        observed : array of bool, shape (B, P)
            Which data were observed at each site.

        Returns
        -------
        array, shape (S, B, P)
        """
        return np.where(observed, self.outputs, np.nan_to_num(self.outputs))

    @staticmethod
    def all_failed(samples: int, sites: int, outputs: int) -> Batch:
        """Return a batch without a successful run.

        Parameters
        ----------
        samples, sites, outputs : int
            S, B and P.

        Returns
        -------
        Batch
        """
        return Batch(np.full((samples, sites, outputs), np.nan), np.zeros((samples, sites), dtype=bool))


class FieldBatch(NamedTuple):
    """Outputs of field models for S fields.

    Attributes
    ----------
    outputs : array, shape (S, N, P)
        In the order and the units of the observations; NaN where missing, and at a site at which the run of a site
        model failed.
    valid : array of bool, shape (S,)
        Which runs of field models succeeded.
    jacobians : tuple of (Part, array, array), or None
        For each simulator: its source, the outputs (S, O) and their Jacobians (S, O, I), in its units. None if a
        simulator gives no Jacobians.
    """

    outputs: Floats
    valid: NDArray[np.bool_]
    jacobians: tuple[tuple[Part, Floats, Floats], ...] | None

    def select(self, rows: NDArray[np.bool_]) -> FieldBatch:
        """Return some of the fields (S,).

        Parameters
        ----------
        rows : array of bool, shape (S,)
            Which fields are kept.

        Returns
        -------
        FieldBatch
        """
        jacobians = self.jacobians and tuple((part, own[rows], slopes[rows]) for part, own, slopes in self.jacobians)
        return FieldBatch(self.outputs[rows], self.valid[rows], jacobians)


class TooManyFailures(BatchStopped):
    """More runs of a batch failed than `inference.max_failed_share` allows; the rest of the batch was not run."""


@dataclass
class Simulator:
    """The forward model of a problem, with a count of its runs.

    Parameters
    ----------
    problem : Problem
    directory : Path
        Parent of the run directories.
    pool : Pool
        Workers that make the runs.
    monitor : Monitor
    budget : int, optional
        Largest number of runs; None for no limit.
    recorder : Recorder, optional
        Ledger of the runs. A run that is found in the ledger counts as made, so that a resumed inversion makes the same
        decisions as an undisturbed one.
    source_recorders : mapping of str to Recorder
        Ledgers of the runs of further simulators, by source.
    concurrency : Concurrency
    temporary : bool
        Whether `directory` is removed at the end, so that messages must not name it.
    prefix : str
        First part of the label of each run.

    Attributes
    ----------
    runs, failed, partial : int
        Number of runs, of failed runs, and of successful runs that lack some outputs.
    source_runs, source_failed : Counter of str
        Number of runs and of failed runs of each source.
    causes : Counter of str
        Number of failed runs by status.
    messages : list of str
        Messages of the first failed runs.
    purposes : Counter of str
        Number of batches by purpose.
    outcomes : RunOutcomes
    missing_outputs : MissingOutputs
    """

    problem: Problem
    directory: Path
    pool: Pool = field(default_factory=Loop)
    monitor: Monitor = field(default_factory=SilentMonitor)
    budget: int | None = None
    recorder: Recorder | None = None
    source_recorders: Mapping[str, Recorder] = field(default_factory=dict)
    concurrency: Concurrency = field(default_factory=Concurrency)
    temporary: bool = False
    prefix: str = ""
    runs: int = 0
    failed: int = 0
    partial: int = 0
    source_runs: Counter[str] = field(default_factory=Counter)
    source_failed: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)
    purposes: Counter[str] = field(default_factory=Counter)
    outcomes: RunOutcomes = field(default_factory=RunOutcomes)
    missing_outputs: MissingOutputs = field(init=False)

    def __post_init__(self) -> None:
        self.missing_outputs = MissingOutputs(np.isfinite(self.problem.survey.Y))
        self._is_direct = ~np.isin(np.arange(self.problem.survey.size), self.problem.simulated)

    def run(
        self, f: Floats, label: str, sites: NDArray[np.intp] | None = None, *, allowed: float | None = None
    ) -> Batch:
        """Run a site model.

        Parameters
        ----------
        f : array, shape (S, B, Q)
            Latents, on the scale of the processes.
        label : str
            Purpose of the runs. The name of a run directory consists of it, the site and the sample.
        sites : array of int, shape (B,), optional
            Numbers of the sites; by default all N sites.
        allowed : float, optional
            Largest fraction of runs that may fail; by default `inference.max_failed_share`. With 1, a batch is only
            ended if all of its first runs fail.

        Returns
        -------
        Batch

        Raises
        ------
        TooManyFailures
            The fraction of failed runs is larger than this. The runs are counted.
        """
        problem = self.problem
        numbers = np.arange(problem.survey.size) if sites is None else sites
        if not self.can_afford(self.count_runs(len(f), numbers)):
            raise ValueError(
                f"{self.count_runs(len(f), numbers)} runs are more than the {self.runs_left} that are left"
            )
        outputs = np.full((len(f), len(numbers), problem.noise_std.shape[1]), np.nan)
        valid = np.ones((len(f), len(numbers)), dtype=bool)
        for part in problem.parts:
            positions, own = part.locate(numbers)
            if not len(positions):
                continue
            found = self._run_part(part, f[:, positions], label, own, allowed)
            outputs[np.ix_(np.arange(len(f)), positions, part.columns)], valid[:, positions] = found
        simulated = np.flatnonzero(~self._is_direct[numbers])
        self.outcomes.add(f[:, simulated], numbers[simulated], valid[:, simulated])
        self.missing_outputs.add(outputs, valid, numbers)
        return Batch(outputs, valid)

    def _run_part(
        self, part: Part, f: Floats, label: str, sites: NDArray[np.intp], allowed: float | None = None
    ) -> Batch:
        """Run the model of one source at latents (S, B, Q) of its sites (B,)."""
        problem, samples = part.problem, len(f)
        rows = problem.to_simulator(problem.to_physical(f), sites)
        prefix = "" if part.name == self.problem.parts[0].name else f"{part.name}-"
        runs = [f"{prefix}site{part.sites[n] + 1}-sample{s + 1}" for s in range(samples) for n in sites]
        if part.direct:
            found = problem.forward.evaluate(rows, RunContext(runs, self.directory))
        else:
            found = self._evaluate(part, rows, label, runs, allowed)
        outputs = problem.from_simulator(split_jacobian(problem.forward, found.outputs)[0], samples)
        if not part.direct:
            outputs = problem.add_discrepancy(outputs, f)
        return Batch(outputs, found.ok.reshape(samples, len(sites)))

    def count_runs(self, samples: int, sites: NDArray[np.intp]) -> int:
        """Return the number of runs for samples at each of some sites (B,); direct data need none.

        Parameters
        ----------
        samples : int
            Samples per site.
        sites : array of int, shape (B,)
            Numbers of the sites.

        Returns
        -------
        int
        """
        return samples * int((~self._is_direct[sites]).sum())

    def run_fields(self, f: Floats, label: str) -> FieldBatch:
        """Run a field model.

        Parameters
        ----------
        f : array, shape (S, G + n, Q)
            Latents at `Problem.nodes`: on the grid and at the sites of site models, on the scale of the processes.
        label : str
            Purpose of the runs.

        Returns
        -------
        FieldBatch

        Raises
        ------
        TooManyFailures
            As in `run`.
        """
        values, valid = self.problem.to_physical(f), np.ones(len(f), dtype=bool)
        jacobians: list[tuple[Part, Floats, Floats]] = []
        outputs = np.full((len(f), *self.problem.noise_std.shape), np.nan)
        for number, part in enumerate(self.simulators):
            kept = np.flatnonzero(valid)  # where a simulator fails, the others are not run
            if not kept.size:
                break
            nodes = self.problem.nodes_of(part)
            if part.problem.grid is None:
                found = self._run_part(part, f[kept][:, nodes], label, np.arange(len(part.sites)))
                answers = np.where(found.valid[..., None], found.outputs, np.nan)
                outputs[np.ix_(kept, part.sites, part.columns)] = answers
                continue
            prefix = f"{part.name}-" if number else ""
            runs = [f"{prefix}sample{s + 1}" for s in kept]
            batch = self._evaluate(part, part.problem.field_to_simulator(values[kept][:, nodes]), label, runs)
            own, jacobian = split_jacobian(part.problem.forward, batch.outputs)
            outputs[np.ix_(kept, part.sites, part.columns)] = part.problem.field_from_simulator(own)
            valid[kept] = batch.ok
            if jacobian is not None:
                places = np.full(len(f), -1)
                places[kept] = np.arange(len(kept))
                jacobians.append((part, own[places], jacobian[places]))
        complete = len(jacobians) == len(self.simulators)
        return FieldBatch(outputs, valid, tuple(jacobians) if complete else None)

    @property
    def cost_of_field(self) -> int:
        """Cost of all data of a field model once, in runs: one, or for a site model one per site, with Jacobians."""
        return sum(
            math.ceil((len(part.sites) if part.problem.grid is None else 1) * cost_of_run(part.problem.forward))
            for part in self.simulators
        )

    @property
    def simulators(self) -> list[Part]:
        """The sources whose data need simulator runs."""
        return [part for part in self.problem.parts if not part.direct]

    def _evaluate(
        self, part: Part, rows: Floats, label: str, runs: Sequence[str], allowed: float | None = None
    ) -> Evaluations:
        """Run the rows (B, I) of a source for a purpose; `runs` are the last parts of their labels."""
        problem = part.problem
        cost = math.ceil(len(rows) * cost_of_run(problem.forward))
        if not self.can_afford(cost):
            raise ValueError(f"{cost} runs are more than the {self.runs_left} that are left")
        label = self.prefix + label
        purpose = label.replace("-", " ")
        self.purposes[label] += 1
        if self.purposes[label] > 1:  # the run directories of two batches must have different names
            label = f"{label}-{self.purposes[label]}"
        labels = [f"{label}-{run}" for run in runs]
        self.monitor.start_batch(purpose, len(labels))
        allowed = problem.inference.max_failed_share if allowed is None else allowed
        limit = _FailureLimit(len(labels), allowed, RUNS_TRIED if self.runs else FIRST_TRIED)
        try:
            batch = evaluate(
                problem.forward,
                rows,
                RunContext(labels, self.directory, more=True),
                pool=self.pool,
                retries=problem.inference.retries,
                recorder=self.recorder_of(part),
                monitor=self.monitor,
                watch=limit.check,
                concurrency=self.concurrency,
            )
        except TooManyFailures:
            self._count(part, Evaluations.concatenate(limit.parts), labels)
            raise
        self._count(part, batch, labels)
        return batch

    def recorder_of(self, part: Part) -> Recorder | None:
        """Return the ledger of the runs of a source.

        Parameters
        ----------
        part : Part
            A source of the problem.

        Returns
        -------
        Recorder or None
        """
        return self.recorder if part.name == self.problem.parts[0].name else self.source_recorders.get(part.name)

    @property
    def recorders(self) -> list[Recorder | None]:
        """The ledger of the runs of each simulator."""
        return [self.recorder_of(part) for part in self.simulators]

    @property
    def reused(self) -> int:
        """Number of runs that were taken from the ledger."""
        return sum(r.reused for r in (self.recorder, *self.source_recorders.values()) if r is not None)

    @property
    def failed_runs(self) -> FailedRuns:
        """The failed runs: their number, causes and first messages."""
        causes = ", ".join(f"{cause} ({count:,})" for cause, count in self.causes.most_common())
        return FailedRuns(self.runs, self.failed, causes, tuple(self.messages))

    @property
    def failure_words(self) -> str:
        """The predicate of a sentence about runs that failed."""
        return "failed or lack outputs" if self.partial else "failed"

    @property
    def runs_left(self) -> int | None:
        """Number of runs that can still be made; None for no limit."""
        return None if self.budget is None else self.budget - self.runs

    def can_afford(self, runs: int) -> bool:
        """Whether this number of runs is within the budget.

        Parameters
        ----------
        runs : int
            Number of runs.

        Returns
        -------
        bool
        """
        return self.runs_left is None or runs <= self.runs_left

    def describe_failures(self, opening: str) -> str:
        """Return a text about the failed runs: the opening, the causes and the first messages.

        Parameters
        ----------
        opening : str
            First words of the text, without a colon.

        Returns
        -------
        str
        """
        causes = self.failed_runs.causes
        text = f"{opening}: {self.failed} of {self.runs} runs failed"
        if self.partial:
            text += f", and {self.partial} gave only some of their outputs"
        reused = []
        if self.reused:
            reused = [
                f"{self.reused} of these runs are known from the ledger; `invgp runs rerun` tries failed ones again"
            ]
        absent = [sentence] if (sentence := self.missing_outputs.describe_absent(self.problem)) else []
        return "\n  ".join([f"{text}: {causes}" if causes else text, *self.messages, *absent, *reused])

    def describe_effects(self, mean: Floats, covariance: Floats) -> list[str]:
        """Return sentences about the effect of failed and incomplete runs on a posterior.

        Parameters
        ----------
        mean : array, shape (N, Q)
            Posterior mean at each site.
        covariance : array, shape (N, Q, Q)
            Posterior covariance at each site.
        """
        some, problem = [], self.problem
        each = problem.noise.is_gaussian
        if self.partial:
            some = [
                f"{self.partial} of {self.runs} runs gave only some of their outputs; "
                + (
                    "each output was inferred from the runs that have it."
                    if each
                    else "where one that was observed is missing, the run was left out."
                )
            ]
        return some + self.outcomes.find_pattern(self.problem, mean, covariance)

    def _count(self, part: Part, batch: Evaluations, labels: Sequence[str]) -> None:
        bad = np.flatnonzero(~batch.ok)
        self.source_runs[part.name] += len(batch.status)
        self.source_failed[part.name] += len(bad)
        for i in bad[max(DIRECTORIES_KEPT - self.failed, 0) :]:
            remove_run_directory(self.directory, labels[i])
        self.runs += math.ceil(len(batch.status) * cost_of_run(part.problem.forward))
        self.failed += len(bad)
        self.partial += sum(status is Status.PARTIAL for status in batch.status)
        self.causes.update(batch.status[i].value for i in bad)
        if len(self.messages) < MESSAGES_SHOWN:  # each once: equal inputs are run once, and have one message
            messages = dict.fromkeys(
                [*self.messages, *(without_removed_directory(batch.messages[i], temporary=self.temporary) for i in bad)]
            )
            self.messages = list(messages)[:MESSAGES_SHOWN]


@dataclass
class _FailureLimit:
    """Stops a batch as soon as too many of its runs have failed."""

    size: int
    allowed: float
    tried: int
    parts: list[Evaluations] = field(default_factory=list)
    runs: int = 0
    failed: int = 0

    def check(self, part: Evaluations) -> None:
        self.parts.append(part)
        self.runs += len(part.status)
        self.failed += int((~part.ok).sum())
        all_failed = self.failed == self.runs >= min(self.tried, self.size)
        # In a small batch the fraction varies by chance: two standard deviations are added.
        margin = 2.0 * math.sqrt(self.allowed * (1.0 - self.allowed) * self.size)
        if all_failed or self.failed > self.allowed * self.size + margin:
            raise TooManyFailures
