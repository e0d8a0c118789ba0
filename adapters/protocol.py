"""The interface between invgp and simulators.

A `ForwardModel` maps rows of numbers to rows of numbers. It does not depend on latents, priors, links or surveys; the
caller passes values in the units of its inputs.
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

# Environment variable of every program that an adapter starts: the run directory. The programs of a worker that was
# killed are found by it.
RUN_DIRECTORY_VARIABLE = "INVGP_RUN_DIRECTORY"

# Prefix of the names of empty directories that are kept for the next run; see `RunContext`.
SPARE = ".spare-"

# Suffix of the directory of a batch, after the label of its first run.
BATCH = "-batch"

# The resolved path of each `RunContext.directory` when it was first used. A program can replace it by a link;
# an adapter then creates and removes nothing there.
HOMES: dict[str, str] = {}

# Absolute paths of directories whose runs were stopped: this process starts no program for them. A thread that waits
# for a program cannot be stopped, and would continue with the next row or attempt.
STOPPED: set[str] = set()


@dataclass(frozen=True, repr=False)
class Quantity:
    """A named input or output: one number, or one number per label.

    Parameters
    ----------
    name : str
        Name in the simulator.
    unit : str
        UDUNITS string such as ``"m s-1"``; ``"1"`` for a quantity without a unit.
    labels : tuple of str or int, optional
        Label of each number, for example the number of a layer; None for a single number.
    names : tuple of str, optional
        Name of each number in the files of PEST and Dakota; by default it is made of name and label.
    """

    name: str
    unit: str
    labels: tuple[str | int, ...] | None = None
    names: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        """Return the settings; names only if there are some, because the digest of a model contains this text."""
        more = "" if self.names is None else f", names={self.names!r}"
        return f"Quantity(name={self.name!r}, unit={self.unit!r}, labels={self.labels!r}{more})"

    @property
    def size(self) -> int:
        """Number of columns."""
        return 1 if self.labels is None else len(self.labels)


class Status(StrEnum):
    """The status of a run."""

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
    """The outcome of a batch of B runs with P outputs each.

    Parameters
    ----------
    outputs : array of float64, shape (B, P), or (B, P + P I) for a model with Jacobians
        In the units of the outputs of the model. All values of a failed run are NaN, and so are the missing outputs of
        a run with `Status.PARTIAL`. The Jacobian of a run follows its outputs: the derivatives of the first output by
        all I inputs, then those of the second, and so on; `split_jacobian` separates them.
    status : tuple of Status, length B
    messages : tuple of str, length B
        Empty for a successful run; otherwise the label of the run, the cause, and its directory.
    seconds : float, optional
        Sum of the durations of the runs in s, for a model that makes several runs at the same time; None for a model
        that makes one run after the other.
    """

    outputs: Floats
    status: tuple[Status, ...]
    messages: tuple[str, ...]
    seconds: float | None = None

    @cached_property
    def ok(self) -> NDArray[np.bool_]:
        """Which runs have outputs, at least some of them, shape (B,)."""
        return np.asarray([s in GAVE_OUTPUTS for s in self.status], dtype=bool)

    @staticmethod
    def concatenate(parts: Iterable[Evaluations]) -> Evaluations:
        """Join batches, in order.

        Parameters
        ----------
        parts : iterable of Evaluations
            The batches.

        Returns
        -------
        Evaluations
        """
        parts = list(parts)
        return Evaluations(
            outputs=np.concatenate([p.outputs for p in parts]),
            status=tuple(s for p in parts for s in p.status),
            messages=tuple(m for p in parts for m in p.messages),
        )


@dataclass(frozen=True)
class RunContext:
    """Labels and directory of a batch of runs.

    Parameters
    ----------
    labels : sequence of str, length B
        One unique label per run, a valid name of a directory. Messages refer to the run by it.
    directory : Path
        Parent of the private run directories.
    more : bool
        Whether there will be further batches in `directory`. Then an adapter may leave one empty directory per process
        there, with the prefix `SPARE`, for the next run, because on some disks the creation of a directory takes longer
        than a fast program. The caller removes these directories in the end.
    """

    labels: Sequence[str]
    directory: Path
    more: bool = False

    def rows(self, start: int, stop: int) -> RunContext:
        """Return the context of a part of the batch.

        Parameters
        ----------
        start, stop : int
            First row of the part, and the one after its last.

        Returns
        -------
        RunContext
        """
        return replace(self, labels=self.labels[start:stop])


@runtime_checkable
class ForwardModel(Protocol):
    """A simulator.

    An instance is picklable, because it is sent to worker processes, and deterministic. It does not raise an exception
    for a bad row; the status and the message of the row report the failure. The outcome of a row does not depend on the
    other rows. `invgp.adapters.testing.check_forward_model` checks these properties.

    A model may have two more attributes. `jacobian` (bool) states whether each run also gives the derivatives of all
    outputs by all inputs; see `Evaluations`. `jacobian_cost` (float) is the cost of these derivatives in runs, such as
    1 for an adjoint solution that takes as long as the run itself. It is added to the number of runs.
    """

    @property
    def name(self) -> str:
        """Short name for messages and provenance."""

    @property
    def inputs(self) -> tuple[Quantity, ...]:
        """Inputs; their sizes add up to the number of columns of `values`."""

    @property
    def outputs(self) -> tuple[Quantity, ...]:
        """Outputs; their sizes add up to the number of columns of `Evaluations.outputs`."""

    @property
    def digest(self) -> str:
        """Hexadecimal digest of everything that affects the outputs: program, templates, settings."""

    @property
    def rows_per_task(self) -> int:
        """Number of rows per task; fixed, so that the results do not depend on the number of workers."""

    def evaluate(self, values: Floats, context: RunContext) -> Evaluations:
        """Run the simulator.

        Parameters
        ----------
        values : array, shape (B, I)
            One row per run, in the units of `inputs`.
        context : RunContext

        Returns
        -------
        Evaluations

        Raises
        ------
        ValueError
            The shape of `values` or the labels are invalid.
        """


class AdapterError(ValueError):
    """The settings of an adapter are invalid.

    Parameters
    ----------
    setting : str
        Name of the invalid argument of the adapter.
    sentence : str
        What it was and what it must be.
    """

    def __init__(self, setting: str, sentence: str) -> None:
        super().__init__(f"{setting}: {sentence}")
        self.setting = setting
        self.sentence = sentence

    def __reduce__(self) -> tuple[type[AdapterError], tuple[str, str]]:
        return AdapterError, (self.setting, self.sentence)


def former_digest(model: ForwardModel) -> str:
    """Return the digest of a model in ledgers of version 1, which may contain absolute paths.

    Parameters
    ----------
    model : ForwardModel

    Returns
    -------
    str
    """
    return str(getattr(model, "former_digest", model.digest))


def input_size(model: ForwardModel) -> int:
    """Return the number of columns of `values`.

    Parameters
    ----------
    model : ForwardModel

    Returns
    -------
    int
    """
    return sum(q.size for q in model.inputs)


def output_size(model: ForwardModel) -> int:
    """Return the number of columns of `Evaluations.outputs`, with those of the Jacobian.

    Parameters
    ----------
    model : ForwardModel

    Returns
    -------
    int
    """
    values = sum(q.size for q in model.outputs)
    return values * (1 + input_size(model)) if gives_jacobian(model) else values


def gives_jacobian(model: ForwardModel) -> bool:
    """Return whether each run of a model gives the derivatives of its outputs, too.

    Parameters
    ----------
    model : ForwardModel

    Returns
    -------
    bool
    """
    return bool(getattr(model, "jacobian", False))


def cost_of_run(model: ForwardModel) -> float:
    """Return the cost of one run of a model with its Jacobian, in runs without one.

    Parameters
    ----------
    model : ForwardModel

    Returns
    -------
    float
    """
    return 1.0 + float(getattr(model, "jacobian_cost", 0.0)) if gives_jacobian(model) else 1.0


def split_jacobian(model: ForwardModel, outputs: Floats) -> tuple[Floats, Floats | None]:
    """Separate outputs from Jacobians.

    Parameters
    ----------
    model : ForwardModel
    outputs : array, shape (B, P) or (B, P + P I)
        As in `Evaluations`.

    Returns
    -------
    outputs : array, shape (B, P)
    jacobians : array, shape (B, P, I), or None
        None if the model gives none.
    """
    if not gives_jacobian(model):
        return outputs, None
    values = sum(q.size for q in model.outputs)
    return outputs[:, :values], outputs[:, values:].reshape(len(outputs), values, input_size(model))
