"""Runs of a served model in worker processes, with a fair order between client addresses."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import BrokenProcessPool, ShutdownExecutorError

from invgp.adapters.protocol import Evaluations, ForwardModel, RunContext, Status, split_jacobian
from invgp.execution.pools.worker_processes import initialise_worker, start_worker, submit_uninterrupted
from invgp.execution.run_directories import end_programs, remove_run_directory
from invgp.problem import Floats

from .replies import RequestError

DIRECTORIES_KEPT = 20  # of the latest failed runs


class _Turn(NamedTuple):
    """A run that waits for a worker, and whether its client may have disconnected."""

    future: asyncio.Future[None]
    has_ended: Callable[[], bool]


class RunQueue:
    """A queue of runs.

    An address with many runs does not delay the runs of others: a free worker is given to the next address in turn. At
    one address, clients that may have disconnected come after the others.

    Parameters
    ----------
    model : ForwardModel
    directory : Path
        Parent of the run directories; those of the latest failed runs are kept.
    workers : int
        Number of simultaneous runs.
    most, most_per_address : int
        Largest number of waiting and active runs, in total and per address.
    """

    def __init__(self, model: ForwardModel, directory: Path, workers: int, most: int, most_per_address: int) -> None:
        self._model = model
        self._directory = directory.resolve()
        self._most, self._most_per_address = most, most_per_address
        self._numbers = itertools.count(1)
        self._failed: deque[str] = deque()
        self._requested: Counter[str] = Counter()  # number of waiting and active runs, by address
        self._waiting: dict[str, deque[_Turn]] = {}  # by address, in the order of turns
        self._free = workers
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="invgp-run")
        self._idle: list[ProcessPoolExecutor] = []
        self._workers: set[ProcessPoolExecutor] = set()
        self._stopped = False
        self._lock = threading.Lock()

    async def run(self, row: Floats, address: str, has_ended: Callable[[], bool]) -> Floats:
        """Run the model once.

        Parameters
        ----------
        row : array, shape (I,)
            Inputs, in the units of the model.
        address : str
            Address of the client.
        has_ended : callable
            Returns whether the client may have disconnected.

        Returns
        -------
        array, shape (P,)
            Outputs, in the units of the model.

        Raises
        ------
        RequestError
            The run fails, or too many runs are waiting.
        """
        if self._requested[address] >= self._most_per_address or self._requested.total() >= self._most:
            raise RequestError(503, "Busy", f"{self._requested.total()} runs wait or are under way; ask again later")
        self._requested[address] += 1
        try:
            await self._wait_for_turn(address, has_ended)
            try:
                label = f"run-{next(self._numbers)}"
                if self._stopped:
                    raise RequestError(500, "InvalidOutput", f"run {label}: the server was stopped")
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, self._run_in_worker, row, label)
            finally:
                self._free += 1
                self._give_turns()
        finally:
            self._requested[address] -= 1
            self._requested += Counter()  # removes addresses without runs

    def close(self) -> None:
        """End all runs and workers; keep the directories of failed runs."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        for worker in tuple(self._workers):
            worker.shutdown(kill_workers=True)
        end_programs(self._directory)
        self._threads.shutdown()
        for directory in self._directory.glob("run-*"):
            if directory.name not in self._failed:
                remove_run_directory(self._directory, directory.name)

    async def _wait_for_turn(self, address: str, has_ended: Callable[[], bool]) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(_Turn(turn, has_ended))
        self._give_turns()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was cancelled after it got its turn
                self._free += 1
                self._give_turns()
            raise

    def _give_turns(self) -> None:
        """Give the free workers to the addresses that have waited longest."""
        while self._free and self._waiting:
            address = next(iter(self._waiting))
            turns = self._waiting.pop(address)
            turn = next((turn for turn in turns if not turn.has_ended()), turns[0])
            turns.remove(turn)
            if turns:
                self._waiting[address] = turns  # behind the other addresses
            if not turn.future.cancelled():
                self._free -= 1
                turn.future.set_result(None)

    def _run_in_worker(self, row: Floats, label: str) -> Floats:
        """Run the model in a worker process, and wait for it in this thread."""
        try:
            outcome = self._evaluate(row, label)
        except BrokenProcessPool as error:
            end_programs(self._directory / label)
            sentence = f"run {label}: the worker process died while it ran {self._model.name!r}"
            raise RequestError(500, "InvalidOutput", sentence) from error
        except ShutdownExecutorError as error:
            raise RequestError(500, "InvalidOutput", f"run {label}: the server was stopped") from error
        if outcome.status[0] is not Status.OK:  # UM-Bridge cannot represent a missing number
            self._record_failure(label)
            raise RequestError(500, "InvalidOutput", outcome.messages[0])
        numbers: Floats = split_jacobian(self._model, outcome.outputs)[0][0]
        return numbers

    def _evaluate(self, row: Floats, label: str) -> Evaluations:
        worker, future = self._submit((row, label, self._directory))
        try:
            return future.result()
        finally:
            if isinstance(future.exception(), BrokenProcessPool):
                self._workers.discard(worker)
            else:
                self._idle.append(worker)

    def _submit(self, wanted: tuple[Floats, str, Path]) -> tuple[ProcessPoolExecutor, Future[Evaluations]]:
        """Submit a run to an idle worker, or to a new one."""
        while self._idle:
            worker = self._idle.pop()
            try:
                return worker, submit_uninterrupted(worker, _run, wanted)
            except BrokenProcessPool:  # it died while it was idle
                self._workers.discard(worker)
        try:
            worker = self._start_worker()
            return worker, submit_uninterrupted(worker, _run, wanted)
        except OSError as error:
            sentence = f"run {wanted[1]}: no worker process can be started: {error.strerror or error}"
            raise RequestError(500, "InvalidOutput", sentence) from error

    def _start_worker(self) -> ProcessPoolExecutor:
        """Start an executor with one process, so that its death does not affect other runs."""
        with self._lock:
            if self._stopped:
                raise ShutdownExecutorError
            worker = start_worker(_initialise, self._model)
            self._workers.add(worker)
            return worker

    def _record_failure(self, label: str) -> None:
        """Keep the directory of a failed run, and remove the oldest one."""
        self._failed.append(label)
        while len(self._failed) > DIRECTORIES_KEPT:
            remove_run_directory(self._directory, self._failed.popleft())


_model: ForwardModel  # in a worker process


def _initialise(server: int, model: ForwardModel) -> None:
    """Initialise a worker process."""
    initialise_worker(server)
    global _model  # noqa: PLW0603 - so that it is pickled once per worker
    _model = model


def _run(wanted: tuple[Floats, str, Path]) -> Evaluations:
    row, label, directory = wanted
    return _model.evaluate(row[None], RunContext([label], directory))
