"""A simulator behind UM-Bridge 1.0 (https://um-bridge-benchmarks.readthedocs.io): one server, or several at once."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .exchange import (
    BrokenOffError,
    Connection,
    NoConnectionError,
    Reply,
    TooSlowError,
    UnreadableReplyError,
    check_url,
    said,
)
from .protocol import AdapterError, Evaluations, Floats, Quantity, RunContext, Status
from .quantities import check_batch, check_quantities, did_you_mean, digest_of, first_bad_output, size_of
from .sharing import Batch, Task

PROTOCOL_VERSION = 1.0
ROWS_PER_CONNECTION = 32
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # s
# Of a reply: enough for an error with its traceback, and for any way to write a number.
BYTES_OF_A_REPLY, BYTES_OF_A_NUMBER = 2**16, 64

_log = logging.getLogger(__name__)


class _UnfitError(Exception):
    """A server that does not offer what the settings say."""


class _SilentError(Exception):
    """A server that does not say what it offers."""


class _RunError(Exception):
    """One run did not give its outputs."""

    def __init__(self, status: Status, cause: str) -> None:
        super().__init__(cause)
        self.status = status


@dataclass(frozen=True)
class UmbridgeModel:
    """A model that UM-Bridge servers offer; each input and each output is one block of its numbers, in order.

    The rows of a batch are shared out over all connections. A row that a server takes but does not answer is tried
    again, on another server if there is one; a server that cannot be reached is asked again after a pause, and left
    alone for the rest of the batch when `retries` pauses were in vain. So is one that does not say what it offers. A
    row that fails in any other way, or takes too long, fails at once.

    Parameters
    ----------
    urls : of the servers, ``http://host:port``; all must offer the same model.
    model : the name under which they offer it.
    inputs, outputs : what goes in and what comes out; sizes are checked when a server is first used.
    config : passed on to the model with each run.
    timeout : seconds that a run may take, with the way there and back.
    retries : how often a row, or a server, is tried again.
    connections : requests that each server gets at once; more than one where it runs them in parallel.
    version : whatever tells one state of the model from another. It goes into the digest, because nothing else that
        the servers say can tell.
    name : for messages and provenance; `model` if empty.

    Raises
    ------
    AdapterError
        If the settings cannot work. No server is asked here.

    Notes
    -----
    The digest covers `model`, `inputs`, `outputs`, `config` and `version`: not `urls`, since the same model may run
    elsewhere tomorrow, nor what the servers compute.
    """

    urls: tuple[str, ...]
    model: str
    inputs: tuple[Quantity, ...]
    outputs: tuple[Quantity, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 600.0
    retries: int = 3
    connections: int = 1
    version: str = ""
    name: str = ""
    digest: str = field(init=False, repr=False)
    _known: set[str] = field(init=False, repr=False, compare=False, default_factory=set)

    def __post_init__(self) -> None:
        check_quantities("inputs", self.inputs)
        check_quantities("outputs", self.outputs)
        self._check_settings()
        # The only writes to a frozen instance: what its settings determine.
        object.__setattr__(self, "name", self.name or self.model)
        settings = (self.model, self.inputs, self.outputs, self.version)
        object.__setattr__(self, "digest", digest_of([repr(settings), json.dumps(self.config, sort_keys=True)]))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": set()}  # another process asks for itself

    @property
    def rows_per_task(self) -> int:
        """Enough to keep every connection busy; settings alone decide it."""
        return ROWS_PER_CONNECTION * self.runs_at_once

    @property
    def runs_at_once(self) -> int:
        """Requests that may be under way."""
        return self.connections * len(self.urls)

    def evaluate(self, values: Floats, context: RunContext) -> Evaluations:
        """Ask the servers for each row of `values`, (B, I); a single connection is a plain loop in this thread."""
        values = check_batch(self.inputs, values, context)
        batch = Batch(range(len(values)), self.urls)
        lanes = [Connection(url, self.timeout) for _ in range(self.connections) for url in self.urls]
        lanes = lanes[: max(len(values), len(self.urls))]  # a single row needs other servers too, if the first is down
        started = time.perf_counter()
        try:
            if len(lanes) == 1:
                self._work(lanes[0], values, batch)
            else:
                _work_together([threading.Thread(target=self._work, args=(c, values, batch)) for c in lanes])
        except BaseException:  # Ctrl-C
            batch.stop(Status.KILLED, "interrupted")
            for connection in lanes:
                connection.abort()
            raise
        seconds = max(time.perf_counter() - started, 1e-9)
        _log.info("%d runs in %.3g s, %.2f at once on average", len(values), seconds, batch.busy / seconds)
        return self._collect(batch, context)

    def _work(self, connection: Connection, values: Floats, batch: Batch) -> None:
        """Run rows on one connection until there are none left."""
        refused, task = 0, None
        try:
            while (task := batch.take(connection.url)) is not None:
                try:
                    self._get_to_know(connection)
                    started = time.perf_counter()
                    try:
                        outputs = self._run(connection, values[task.row])
                    finally:
                        batch.spent(time.perf_counter() - started)
                except (NoConnectionError, _SilentError) as error:
                    refused += 1
                    if refused > self.retries or isinstance(error, _SilentError):
                        self._give_up(connection.url, error, batch)
                    batch.put_back(task)
                    batch.pause(min(FIRST_PAUSE * 2 ** min(refused - 1, 8), LONGEST_PAUSE))
                    continue
                except BrokenOffError as error:
                    self._try_again(task, connection.url, error, batch)
                except _UnfitError as error:
                    batch.stop(Status.NOT_STARTED, f"server {connection.url} {error}")
                    batch.put_back(task)
                except _RunError as error:
                    batch.fail(task, error.status, f"server {connection.url}: {error}")
                except Exception as error:  # what a reply sets off in a parser must cost its own row alone
                    _log.debug("a reply of %s could not be read", connection.url, exc_info=True)
                    sentence = f"the reply cannot be read ({type(error).__name__}: {said(str(error))})"
                    batch.fail(task, Status.UNREADABLE, f"server {connection.url}: {sentence}")
                else:
                    batch.finish(task, outputs)
                refused = 0
        except BaseException as error:  # a fault of ours must not leave the others waiting
            batch.stop(Status.KILLED, f"{type(error).__name__}: {error}")
            batch.put_back(task)
            raise
        finally:
            connection.close()

    def _try_again(self, task: Task, url: str, error: BrokenOffError, batch: Batch) -> None:
        task.broken_off_by.append(url)
        times = len(task.broken_off_by)
        if times > self.retries:
            batch.fail(task, Status.KILLED, f"server {url}: {error}, {times} times in all")
        else:
            batch.put_back(task)
            batch.pause(FIRST_PAUSE)

    def _give_up(self, url: str, error: Exception, batch: Batch) -> None:
        # Of the only server, every run of the batch says so.
        level = logging.WARNING if len(self.urls) > 1 else logging.INFO
        _log.log(level, "%s %s; it gets no more runs of this batch", url, error)
        batch.give_up(url, f"server {url} {error}")

    def _get_to_know(self, connection: Connection) -> None:
        """Check once that the server offers the model, with these sizes."""
        if connection.url in self._known:
            return
        try:
            self._check_server(connection)
        except TooSlowError as error:
            raise _SilentError(f"does not say what it offers: {error}") from error
        except UnreadableReplyError as error:
            raise _UnfitError(f"does not speak UM-Bridge: {error}") from error
        self._known.add(connection.url)

    def _check_server(self, connection: Connection) -> None:
        info = self._told(connection, "/Info", None)
        version = info.get("protocolVersion")
        if not isinstance(version, float) or version != PROTOCOL_VERSION:
            raise _UnfitError(f"must speak UM-Bridge {PROTOCOL_VERSION}, but speaks {said(repr(version))}")
        models = info.get("models")
        models = models if isinstance(models, list) else []
        if self.model not in models:
            known = [said(str(name)) for name in models]
            raise _UnfitError(f"offers no model {self.model!r}; {did_you_mean(self.model, known)}")
        support = self._told(connection, "/ModelInfo", {"name": self.model}).get("support")
        if not isinstance(support, Mapping) or support.get("Evaluate") is not True:
            raise _UnfitError(f"does not evaluate the model {self.model!r}")
        for verb, side, quantities in (("takes", "input", self.inputs), ("gives", "output", self.outputs)):
            message = {"name": self.model, "config": dict(self.config)}
            sizes = self._told(connection, f"/{side.capitalize()}Sizes", message).get(f"{side}Sizes")
            shown = _whole(sizes) if isinstance(sizes, list) else sizes
            if repr(shown) != repr([q.size for q in quantities]):  # true is not 1
                ours = ", ".join(f"{q.name} ({q.size})" for q in quantities)
                raise _UnfitError(
                    f"{verb} blocks of sizes {said(str(shown))} for the model {self.model!r}, but {side}s "
                    f"must be as many blocks of the same sizes and are {ours}"
                )

    def _told(self, connection: Connection, path: str, message: object | None) -> Mapping[str, Any]:
        reply = connection.exchange(path, message, BYTES_OF_A_REPLY)
        if reply.status != 200:
            raise UnreadableReplyError(f"{path} gave {_error_of(reply)}")
        answer = reply.json()
        if not isinstance(answer, Mapping):
            raise UnreadableReplyError(f"{path} gave {said(reply.data)}")
        return answer

    def _run(self, connection: Connection, row: Floats) -> Floats:
        """Outputs (P,) at inputs (I,)."""
        bad = first_bad_output(self.inputs, row)
        if bad is not None:
            raise _RunError(Status.NAN, f"{bad.replace('output', 'input', 1)}, which JSON cannot carry")
        blocks = [block.tolist() for block in np.split(row, np.cumsum([q.size for q in self.inputs])[:-1])]
        message = {"name": self.model, "input": blocks, "config": dict(self.config)}
        limit = BYTES_OF_A_REPLY + BYTES_OF_A_NUMBER * size_of(self.outputs)
        try:
            reply = connection.exchange("/Evaluate", message, limit)
            if reply.status != 200:
                raise _RunError(Status.RAISED, _error_of(reply))
            outputs = self._read(reply)
        except TooSlowError as error:
            raise _RunError(Status.TIMEOUT, str(error)) from error
        except UnreadableReplyError as error:
            raise _RunError(Status.UNREADABLE, str(error)) from error
        bad = first_bad_output(self.outputs, outputs)
        if bad is not None:
            raise _RunError(Status.NAN, bad)
        return outputs

    def _read(self, reply: Reply) -> Floats:
        answer = reply.json()
        if isinstance(answer, Mapping) and "error" in answer:
            raise _RunError(Status.RAISED, _error_of(reply))
        blocks = answer.get("output") if isinstance(answer, Mapping) else None
        if not isinstance(blocks, list) or not all(isinstance(block, list) for block in blocks):
            raise UnreadableReplyError(f'the reply is not {{"output": [[numbers], ...]}}: {said(reply.data)}')
        sizes, expected = [len(block) for block in blocks], [q.size for q in self.outputs]
        if sizes != expected:
            raise UnreadableReplyError(f"the output came in blocks of sizes {_short(sizes)}, expected {expected}")
        numbers = [number for block in blocks for number in block]
        # Servers in C++ write null for a number that is not finite.
        if not all(number is None or isinstance(number, float) for number in numbers):
            raise UnreadableReplyError(f"the output holds something else than numbers: {said(reply.data)}")
        return np.asarray([np.nan if number is None else number for number in numbers], dtype=np.float64)

    def _collect(self, batch: Batch, context: RunContext) -> Evaluations:
        outputs = np.full((len(context.labels), size_of(self.outputs)), np.nan)
        status, messages = [Status.OK] * len(outputs), [""] * len(outputs)
        for row, numbers in batch.outputs.items():
            outputs[row] = numbers
        for row, (what, why) in batch.failures.items():
            status[row], messages[row] = what, f"run {context.labels[row]}: {why}"
        return Evaluations(outputs, tuple(status), tuple(messages), batch.busy)

    def _check_settings(self) -> None:
        if not self.urls:
            raise AdapterError("urls", "must name at least one server, but is empty")
        for i, url in enumerate(self.urls):
            wrong = check_url(url)
            if wrong:
                raise AdapterError(f"urls[{i}]", f"must be like 'http://localhost:4242', but {url!r} {wrong}")
        if len(set(self.urls)) < len(self.urls):
            raise AdapterError("urls", "must differ; connections says how many requests a server gets at once")
        if not self.model:
            raise AdapterError("model", "must be the name of a model, but is empty")
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            raise AdapterError("timeout", f"must be a positive number of seconds; it is {self.timeout!r}")
        if self.retries < 0:
            raise AdapterError("retries", f"must be at least 0; it is {self.retries!r}")
        if self.connections < 1:
            raise AdapterError("connections", f"must be at least 1; it is {self.connections!r}")
        try:
            json.dumps(self.config, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise AdapterError("config", f"must be what JSON can hold, but: {error}") from error


def _work_together(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.daemon = True
        thread.start()
    for thread in threads:
        thread.join()


def _error_of(reply: Reply) -> str:
    """What a server says of its failure: UM-Bridge's error, or whatever came in its place."""
    try:
        error = reply.json()["error"]
        return f"{said(str(error['type']))}: {said(str(error['message']))}"
    except (UnreadableReplyError, KeyError, TypeError, IndexError):
        return f"HTTP status {reply.status}: {said(reply.data)}"


def _whole(sizes: list[Any]) -> list[Any]:
    """The sizes that a server told, as integers where they are."""
    return [int(size) if isinstance(size, float) and size.is_integer() else size for size in sizes]


def _short(sizes: list[int]) -> str:
    return str(sizes) if len(sizes) <= 8 else f"[{', '.join(map(str, sizes[:8]))}, ...]"
