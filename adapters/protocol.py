"""The one contract between invgp and a simulator, whatever the simulator is.

A `ForwardModel` maps rows of numbers to rows of numbers. It knows nothing of latents, priors, links or
surveys; whoever calls it brings values in the units that its inputs name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Set in the environment of every program that an adapter starts, to the run's directory: whoever must end the programs
# of a worker that was killed finds them by it.
RUN_DIRECTORY_VARIABLE = "INVGP_RUN_DIRECTORY"

# How the names of empty directories begin that wait for the next run; see `RunContext`.
SPARE = ".spare-"

# What is added to the label of its first run in the name of the directory of several runs.
BATCH = "-batch"

# Where the directory of each batch, `RunContext.directory`, was when it was first used. A program can put a link in its
# place; an adapter then makes and removes nothing there.
HOMES: dict[str, str] = {}

# Absolute paths of directories whose runs are wanted no more: this process starts no program for them. A thread that
# waits for a program cannot be stopped, and would go on with the next row, the next attempt, a fresh program.
STOPPED: set[str] = set()


@dataclass(frozen=True)
class Quantity:
    """A named input or output: one number, or one number for each label.

    Parameters
    ----------
    name : the name by which the simulator knows it.
    unit : a UDUNITS string such as ``"m s-1"``; ``"1"`` if it has none.
    labels : None for a single number, otherwise the label of each number (layer 1, layer 2, ...).
    """

    name: str
    unit: str
    labels: tuple[str | int, ...] | None = None

    @property
    def size(self) -> int:
        """How many numbers it takes in a row."""
        return 1 if self.labels is None else len(self.labels)


class Status(StrEnum):
    """What became of one run."""

    OK = "ok"
    PARTIAL = "some outputs missing"
    RAISED = "raised an exception"
    NOT_STARTED = "could not be started"
    EXIT_CODE = "exit code"
    KILLED = "killed"
    TIMEOUT = "timeout"
    UNREADABLE = "unreadable output"
    NAN = "not a finite number"
    OUT_OF_BOUNDS = "out of bounds"


GAVE_OUTPUTS = frozenset({Status.OK, Status.PARTIAL})


@dataclass(frozen=True)
class Evaluations:
    """The outcome of a batch of B runs with P output numbers each.

    Parameters
    ----------
    outputs : (B, P), in the units of the model's outputs; NaN throughout a row that failed, and for what is missing of
        a row that is `Status.PARTIAL`.
    status : B of them.
    messages : B of them, empty for a run that went well; otherwise which run, why, and where its directory
        is.
    seconds : that the runs took, all in all, of a model that makes several at once; None if it makes one after the
        other.
    """

    outputs: Floats
    status: tuple[Status, ...]
    messages: tuple[str, ...]
    seconds: float | None = None

    @cached_property
    def ok(self) -> NDArray[np.bool_]:
        """(B,) which runs gave outputs, if only some of them."""
        return np.asarray([s in GAVE_OUTPUTS for s in self.status], dtype=bool)

    @staticmethod
    def concatenate(parts: Iterable[Evaluations]) -> Evaluations:
        """Join batches, in order, into one."""
        parts = list(parts)
        return Evaluations(
            outputs=np.concatenate([p.outputs for p in parts]),
            status=tuple(s for p in parts for s in p.status),
            messages=tuple(m for p in parts for m in p.messages),
        )


@dataclass(frozen=True)
class RunContext:
    """What a batch of runs needs besides its values.

    Parameters
    ----------
    labels : one a run, unique, fit to be the name of a directory; messages call the run by it.
    directory : where private run directories are made, one for each run that needs one.
    more : whether there will be further batches in `directory`. An adapter may then leave one empty directory of each
        process there, named `SPARE...`, for the next run to take: some disks take longer to make and remove one than a
        fast program takes to run. Whoever says so removes them in the end.
    """

    labels: Sequence[str]
    directory: Path
    more: bool = False

    def rows(self, start: int, stop: int) -> RunContext:
        """The context of a part of the batch."""
        return replace(self, labels=self.labels[start:stop])


@runtime_checkable
class ForwardModel(Protocol):
    """A simulator behind one face.

    An instance is picklable (it travels to worker processes), deterministic, and never raises for one bad
    row: that row's status and message tell. The result for a row does not depend on the rows beside it.
    """

    @property
    def name(self) -> str:
        """A short name for messages and provenance."""

    @property
    def inputs(self) -> tuple[Quantity, ...]:
        """What goes in; their sizes add up to the columns of `values`."""

    @property
    def outputs(self) -> tuple[Quantity, ...]:
        """What comes out; their sizes add up to the columns of `Evaluations.outputs`."""

    @property
    def digest(self) -> str:
        """A hexadecimal digest of everything that decides the outputs: program, templates, settings."""

    @property
    def rows_per_task(self) -> int:
        """How many rows one parallel task holds; fixed, so that the number of workers cannot sway results."""

    def evaluate(self, values: Floats, context: RunContext) -> Evaluations:
        """Run the simulator at each row of `values`, (B, I), in the units of `inputs`."""


class AdapterError(ValueError):
    """A simulator that cannot be wrapped as the settings say.

    Parameters
    ----------
    setting : the setting at fault, as the adapter's constructor names it.
    sentence : what it was and what it must be.
    """

    def __init__(self, setting: str, sentence: str) -> None:
        super().__init__(f"{setting}: {sentence}")
        self.setting = setting
        self.sentence = sentence

    def __reduce__(self) -> tuple[type[AdapterError], tuple[str, str]]:
        return AdapterError, (self.setting, self.sentence)


def former_digest(model: ForwardModel) -> str:
    """Give the digest that ledgers of version 1 know a model by: that of a program may have held absolute paths."""
    return str(getattr(model, "former_digest", model.digest))


def input_size(model: ForwardModel) -> int:
    """Number of columns of `values`."""
    return sum(q.size for q in model.inputs)


def output_size(model: ForwardModel) -> int:
    """Number of columns of `Evaluations.outputs`."""
    return sum(q.size for q in model.outputs)
