"""Runs of a served model: in worker processes, with addresses that take turns."""

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

from invgp.adapters.protocol import Evaluations, ForwardModel, RunContext, Status
from invgp.execution.pools.worker_processes import initialise_worker, start_worker, submit_uninterrupted
from invgp.execution.run_directories import remove_run_directory
from invgp.execution.stray_programs import end_programs
from invgp.problem import Floats

from .answers import RequestError

KEPT = 20  # directories of failed runs, the latest


class _Turn(NamedTuple):
    """What a run waits for, and whether the client who asked for it may have gone."""

    future: asyncio.Future[None]
    has_ended: Callable[[], bool]


class RunQueue:
    """Runs that wait and runs under way.

    An address that asks for many runs does not delay those of others: whenever a worker is free, the next address in
    turn gets it. At one address, clients that may have gone come after the others.

    Parameters
    ----------
    model : ForwardModel
        What is run.
    directory : Path
        Where private run directories are made; those of the latest failed runs are kept.
    workers : int
        Runs at once.
    most, most_per_address : int
        Runs that may wait or be under way, in all and per address.
    """

    def __init__(self, model: ForwardModel, directory: Path, workers: int, most: int, most_per_address: int) -> None:
        self._model = model
        self._directory = directory.resolve()
        self._most, self._most_per_address = most, most_per_address
        self._numbers = itertools.count(1)
        self._failed: deque[str] = deque()
        self._asked: Counter[str] = Counter()  # runs that wait or are under way, by address
        self._waiting: dict[str, deque[_Turn]] = {}  # by address, in the order of their turns
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
        row : array (I,)
            Inputs, in the units of the model.
        address : str
            Who asks for it.
        has_ended : callable
            Whether the client may have gone.

        Returns
        -------
        array (P,)
            Outputs, in the units of the model.

        Raises
        ------
        RequestError
            If the run fails, or too many wait already.
        """
        if self._asked[address] >= self._most_per_address or self._asked.total() >= self._most:
            raise RequestError(503, "Busy", f"{self._asked.total()} runs wait or are under way; ask again later")
        self._asked[address] += 1
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
            self._asked[address] -= 1
            self._asked += Counter()  # forgets addresses without runs

    def close(self) -> None:
        """End all runs and workers; the directories of failed runs stay."""
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
            if not turn.cancelled():  # it got its turn and lost it at once
                self._free += 1
                self._give_turns()
            raise

    def _give_turns(self) -> None:
        """Give the free workers to the addresses that wait longest for their turn."""
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
        """Run the model in a worker process, from a thread that waits for it."""
        try:
            outcome = self._evaluate(row, label)
        except BrokenProcessPool as error:
            end_programs(self._directory / label)
            sentence = f"run {label}: the worker process died while it ran {self._model.name!r}"
            raise RequestError(500, "InvalidOutput", sentence) from error
        except ShutdownExecutorError as error:
            raise RequestError(500, "InvalidOutput", f"run {label}: the server was stopped") from error
        if outcome.status[0] is not Status.OK:  # UM-Bridge has no word for a number that is missing
            self._forget_older(label)
            raise RequestError(500, "InvalidOutput", outcome.messages[0])
        numbers: Floats = outcome.outputs[0]
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
        """Give a run to an idle worker, or to a new one if there is none."""
        while self._idle:
            worker = self._idle.pop()
            try:
                return worker, submit_uninterrupted(worker, _run, wanted)
            except BrokenProcessPool:  # it died while it had nothing to do
                self._workers.discard(worker)
        try:
            worker = self._new_worker()
            return worker, submit_uninterrupted(worker, _run, wanted)
        except OSError as error:
            sentence = f"run {wanted[1]}: no worker process can be started: {error.strerror or error}"
            raise RequestError(500, "InvalidOutput", sentence) from error

    def _new_worker(self) -> ProcessPoolExecutor:
        """Make a pool of one: if it dies, it dies alone."""
        with self._lock:
            if self._stopped:
                raise ShutdownExecutorError
            worker = start_worker(_begin, self._model)
            self._workers.add(worker)
            return worker

    def _forget_older(self, label: str) -> None:
        self._failed.append(label)
        while len(self._failed) > KEPT:
            remove_run_directory(self._directory, self._failed.popleft())


_model: ForwardModel  # of a worker process


def _begin(server: int, model: ForwardModel) -> None:
    """Start a worker process."""
    initialise_worker(server)
    global _model  # noqa: PLW0603 - it is pickled once for each worker, not for each run
    _model = model


def _run(wanted: tuple[Floats, str, Path]) -> Evaluations:
    row, label, directory = wanted
    return _model.evaluate(row[None], RunContext([label], directory))
