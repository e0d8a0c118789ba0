"""A simulator on one or several UM-Bridge 1.0 servers (https://um-bridge-benchmarks.readthedocs.io)."""

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

from .http_client import (
    BrokenOffError,
    Connection,
    NoConnectionError,
    Reply,
    TooSlowError,
    UnreadableReplyError,
    find_url_fault,
    quote_text,
)
from .protocol import AdapterError, Evaluations, Floats, Quantity, RunContext, Status, output_size
from .quantities import check_batch, check_quantities, describe_nonfinite, did_you_mean, digest_of, size_of
from .row_queue import QueuedRow, RequestTimes, RowQueue
from .run_errors import RunError
from .umbridge_jacobians import choose_endpoint, jacobian_products, place_product

PROTOCOL_VERSION = 1.0
ROWS_PER_CONNECTION = 32
LONGEST_CHECK = 10.0  # s, for the answers of a server that `find_server_faults` asks
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # s
# Sizes of a reply: enough for an error with its traceback, and for any format of a number.
BYTES_PER_REPLY, BYTES_PER_NUMBER = 2**16, 64

_log = logging.getLogger(__name__)


class _UnfitError(Exception):
    """A server does not have the model of the settings."""


class _SilentError(Exception):
    """A server does not report its models."""


@dataclass(frozen=True)
class UmbridgeModel:
    """A model on UM-Bridge servers. Each input and each output is one block of numbers, in order.

    The rows of a batch are distributed over all connections. A row that a server accepts but does not answer is
    repeated, on another server if there is one. A server that cannot be reached is tried again after a pause, and is
    not used for the rest of the batch after `retries` pauses. A server that does not report its models is not used
    either. A row that fails for another reason, or takes too long, is not repeated.

    Parameters
    ----------
    urls : tuple of str
        Addresses of the servers, such as ``http://host:port``; all must serve the same model.
    model : str
        Name of the model on the servers.
    inputs, outputs : tuple of Quantity
        Their sizes are checked when a server is first used.
    config : mapping
        Configuration that is sent to the model with each run.
    timeout : float
        Time limit for a run in s, including the transfer.
    retries : int
        Largest number of repetitions for a row, and for a server that cannot be reached.
    jacobian : bool
        Whether each run also gives the Jacobian, from requests to ``Gradient`` or ``ApplyJacobian``: the one with fewer
        requests of those that the server supports.
    jacobian_cost : float
        Cost of these requests, in runs.
    connections : int
        Number of simultaneous requests to each server; more than one for a server that makes runs in parallel. The
        first run on each server is then made alone, to measure whether the others wait for each other.
    version : str
        Version of the model. It is part of the digest, because the servers do not report a version.
    name : str
        Name in messages and provenance; by default `model`.

    Raises
    ------
    AdapterError
        The settings are invalid. No request is sent here.

    Notes
    -----
    The digest covers `model`, `inputs`, `outputs`, `config`, `version` and `jacobian`. It covers neither `urls`,
    because the same model may be served at another address, nor the program behind the servers.
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
    jacobian: bool = False
    jacobian_cost: float = 0.0
    digest: str = field(init=False, repr=False)
    # Address of each server that was checked, and its endpoint for Jacobians.
    _checked_urls: dict[str, str] = field(init=False, repr=False, compare=False, default_factory=dict)
    _times: RequestTimes = field(init=False, repr=False, compare=False, default_factory=RequestTimes)

    def __post_init__(self) -> None:
        check_quantities("inputs", self.inputs)
        check_quantities("outputs", self.outputs)
        self._check_settings()
        # The only writes to a frozen instance: what its settings determine.
        object.__setattr__(self, "name", self.name or self.model)
        settings = (self.model, self.inputs, self.outputs, self.version)
        parts = [repr(settings), json.dumps(self.config, sort_keys=True), *(["jacobian"] if self.jacobian else [])]
        object.__setattr__(self, "digest", digest_of(parts))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_checked_urls": {}}  # another process asks for itself

    @property
    def rows_per_task(self) -> int:
        """Number of rows per task: enough to keep every connection busy."""
        return ROWS_PER_CONNECTION * self.runs_at_once

    @property
    def runs_at_once(self) -> int:
        """Number of simultaneous requests."""
        return self.connections * len(self.urls)

    def evaluate(self, values: Floats, context: RunContext) -> Evaluations:
        """Send each row of `values`, shape (B, I), to a server; a single connection is used in this thread."""
        values = check_batch(self.inputs, values, context)
        # A run that is alone on its server shows how long a run takes: see `RequestTimes`.
        unknown = [] if self.connections == 1 else [url for url in self.urls if not self._times.was_alone(url)]
        queue = RowQueue(range(len(values)), self.urls, alone_first=unknown)
        connections = [Connection(url, self.timeout) for _ in range(self.connections) for url in self.urls]
        # A single row needs the other servers, too, if the first one is down.
        connections = connections[: max(len(values), len(self.urls))]
        started, busy_before = time.perf_counter(), self._times.busy
        try:
            if len(connections) == 1:
                self._work(connections[0], values, queue)
            else:
                _run_threads([threading.Thread(target=self._work, args=(c, values, queue)) for c in connections])
        except BaseException:  # Ctrl-C
            queue.stop(Status.KILLED, "interrupted")
            for connection in connections:
                connection.abort()
            raise
        seconds = max(time.perf_counter() - started, 1e-9)
        busy = max(self._times.busy - busy_before, 0.0)
        _log.info("%d runs in %.3g s, %.2f at once on average", len(values), seconds, busy / seconds)
        return self._collect(queue, context, busy)

    def _work(self, connection: Connection, values: Floats, queue: RowQueue) -> None:
        """Make runs with one connection until there are no rows left."""
        refused, task = 0, None
        try:
            while (task := queue.take(connection.url)) is not None:
                try:
                    self._check_server_once(connection)
                    with self._times.measure(connection.url):
                        outputs = self._run(connection, values[task.row])
                except (NoConnectionError, _SilentError) as error:
                    refused += 1
                    if refused > self.retries or isinstance(error, _SilentError):
                        self._give_up(connection.url, error, queue)
                    queue.put_back(task)
                    queue.pause(min(FIRST_PAUSE * 2 ** min(refused - 1, 8), LONGEST_PAUSE))
                    continue
                except BrokenOffError as error:
                    self._try_again(task, connection.url, error, queue)
                except _UnfitError as error:
                    queue.stop(Status.NOT_STARTED, f"server {connection.url} {error}")
                    queue.put_back(task)
                except RunError as error:
                    queue.fail(task, error.status, f"server {connection.url}: {error}")
                except Exception as error:  # an error of a parser must not affect other rows
                    _log.debug("a reply of %s could not be read", connection.url, exc_info=True)
                    sentence = f"the reply cannot be read ({type(error).__name__}: {quote_text(str(error))})"
                    queue.fail(task, Status.UNREADABLE, f"server {connection.url}: {sentence}")
                else:
                    queue.finish(task, outputs)
                refused = 0
        except BaseException as error:  # a bug must not make the other threads wait
            queue.stop(Status.KILLED, f"{type(error).__name__}: {error}")
            queue.put_back(task)
            raise
        finally:
            connection.close()

    def _try_again(self, task: QueuedRow, url: str, error: BrokenOffError, queue: RowQueue) -> None:
        task.broken_off_by.append(url)
        times = len(task.broken_off_by)
        if times > self.retries:
            queue.fail(task, Status.KILLED, f"server {url}: {error}, {times} times in all")
        else:
            queue.put_back(task)
            queue.pause(FIRST_PAUSE)

    def _give_up(self, url: str, error: Exception, queue: RowQueue) -> None:
        # With a single server, the message of every run contains the error.
        level = logging.WARNING if len(self.urls) > 1 else logging.INFO
        _log.log(level, "%s %s; it gets no more runs of this batch", url, error)
        queue.give_up(url, f"server {url} {error}")

    def find_server_faults(self) -> tuple[str, ...]:
        """Ask each server for the model and its sizes; return a sentence for each one that cannot be used."""
        faults: list[str] = []
        for url in self.urls:
            connection = Connection(url, min(self.timeout, LONGEST_CHECK))
            try:
                self._check_server_once(connection)
            except (NoConnectionError, BrokenOffError, _SilentError, _UnfitError) as error:
                faults.append(f"server {url} {error}")
            finally:
                connection.close()
        return tuple(faults)

    def _check_server_once(self, connection: Connection) -> None:
        """Check once that the server has the model, with these sizes."""
        if connection.url in self._checked_urls:
            return
        try:
            endpoint = self._check_server(connection)
        except TooSlowError as error:
            raise _SilentError(f"does not say what it offers: {error}") from error
        except UnreadableReplyError as error:
            raise _UnfitError(f"does not speak UM-Bridge: {error}") from error
        self._checked_urls[connection.url] = endpoint

    def _check_server(self, connection: Connection) -> str:
        """Return the endpoint for Jacobians; empty if none are wanted."""
        info = self._request(connection, "/Info", None)
        version = info.get("protocolVersion")
        if not isinstance(version, float) or version != PROTOCOL_VERSION:
            raise _UnfitError(f"must speak UM-Bridge {PROTOCOL_VERSION}, but speaks {quote_text(repr(version))}")
        models = info.get("models")
        models = models if isinstance(models, list) else []
        if self.model not in models:
            known = [quote_text(str(name)) for name in models]
            raise _UnfitError(f"offers no model {self.model!r}; {did_you_mean(self.model, known)}")
        support = self._request(connection, "/ModelInfo", {"name": self.model}).get("support")
        if not isinstance(support, Mapping) or support.get("Evaluate") is not True:
            raise _UnfitError(f"does not evaluate the model {self.model!r}")
        endpoint = choose_endpoint(support, self.inputs, self.outputs) if self.jacobian else ""
        if self.jacobian and not endpoint:
            raise _UnfitError(f"gives no derivatives of the model {self.model!r}; set jacobian = false")
        for verb, side, quantities in (("takes", "input", self.inputs), ("gives", "output", self.outputs)):
            message = {"name": self.model, "config": dict(self.config)}
            sizes = self._request(connection, f"/{side.capitalize()}Sizes", message).get(f"{side}Sizes")
            shown = _as_integers(sizes) if isinstance(sizes, list) else sizes
            if repr(shown) != repr([q.size for q in quantities]):  # true is not 1
                ours = ", ".join(f"{q.name} ({q.size})" for q in quantities)
                raise _UnfitError(
                    f"{verb} blocks of sizes {quote_text(str(shown))} for the model {self.model!r}, but {side}s "
                    f"must be as many blocks of the same sizes and are {ours}"
                )
        return endpoint

    def _request(self, connection: Connection, path: str, message: object | None) -> Mapping[str, Any]:
        reply = connection.exchange(path, message, BYTES_PER_REPLY)
        if reply.status != 200:
            raise UnreadableReplyError(f"{path} gave {_describe_error(reply)}")
        answer = reply.json()
        if not isinstance(answer, Mapping):
            raise UnreadableReplyError(f"{path} gave {quote_text(reply.data)}")
        return answer

    def _run(self, connection: Connection, row: Floats) -> Floats:
        """Make one run; return the outputs (P,), with the Jacobian (P + P I,), for inputs (I,)."""
        bad = describe_nonfinite(self.inputs, row)
        if bad is not None:
            raise RunError(Status.NAN, f"input {bad}, which JSON cannot carry")
        blocks = [block.tolist() for block in np.split(row, np.cumsum([q.size for q in self.inputs])[:-1])]
        message = {"name": self.model, "input": blocks, "config": dict(self.config)}
        try:
            outputs = self._read_outputs(self._ask(connection, "/Evaluate", message, size_of(self.outputs)))
            bad = describe_nonfinite(self.outputs, outputs)
            if bad is not None:
                raise RunError(Status.NAN, f"output {bad}")
            if not self.jacobian:
                return outputs
            return np.concatenate([outputs, self._read_jacobian(connection, message).ravel()])
        except TooSlowError as error:
            raise RunError(Status.TIMEOUT, str(error)) from error
        except UnreadableReplyError as error:
            raise RunError(Status.UNREADABLE, str(error)) from error

    def _ask(self, connection: Connection, path: str, message: object, size: int) -> Reply:
        """Return a reply with some numbers."""
        reply = connection.exchange(path, message, BYTES_PER_REPLY + BYTES_PER_NUMBER * size)
        if reply.status != 200:
            raise RunError(Status.RAISED, _describe_error(reply))
        answer = reply.json()
        if isinstance(answer, Mapping) and "error" in answer:
            raise RunError(Status.RAISED, _describe_error(reply))
        return reply

    def _read_jacobian(self, connection: Connection, message: Mapping[str, Any]) -> Floats:
        """Return the Jacobian (P, I) at the inputs of a message."""
        jacobian = np.empty((size_of(self.outputs), size_of(self.inputs)))
        endpoint = self._checked_urls[connection.url]
        for product in jacobian_products(endpoint, self.inputs, self.outputs):
            try:
                answer = self._ask(connection, f"/{endpoint}", {**message, **product.fields}, product.size).json()
            except RunError as error:
                raise RunError(error.status, f"{endpoint}: {error}") from error
            numbers = answer.get("output") if isinstance(answer, Mapping) else None
            if not isinstance(numbers, list) or len(numbers) != product.size:
                raise UnreadableReplyError(f"{endpoint} must give {product.size} numbers: {quote_text(str(answer))}")
            if not all(isinstance(number, float) and math.isfinite(number) for number in numbers):
                raise RunError(Status.NAN, f"{endpoint} gives something else than finite numbers")
            place_product(jacobian, product, np.asarray(numbers, dtype=np.float64))
        return jacobian

    def _read_outputs(self, reply: Reply) -> Floats:
        answer = reply.json()
        blocks = answer.get("output") if isinstance(answer, Mapping) else None
        if not isinstance(blocks, list) or not all(isinstance(block, list) for block in blocks):
            raise UnreadableReplyError(f'the reply is not {{"output": [[numbers], ...]}}: {quote_text(reply.data)}')
        sizes, expected = [len(block) for block in blocks], [q.size for q in self.outputs]
        if sizes != expected:
            raise UnreadableReplyError(f"the output came in blocks of sizes {_shorten(sizes)}, expected {expected}")
        numbers = [number for block in blocks for number in block]
        # Servers in C++ write null for a number that is not finite.
        if not all(number is None or isinstance(number, float) for number in numbers):
            raise UnreadableReplyError(f"the output holds something else than numbers: {quote_text(reply.data)}")
        return np.asarray([np.nan if number is None else number for number in numbers], dtype=np.float64)

    def _collect(self, queue: RowQueue, context: RunContext, busy: float) -> Evaluations:
        outputs = np.full((len(context.labels), output_size(self)), np.nan)
        status, messages = [Status.OK] * len(outputs), [""] * len(outputs)
        for row, numbers in queue.outputs.items():
            outputs[row] = numbers
        for row, (what, why) in queue.failures.items():
            status[row], messages[row] = what, f"run {context.labels[row]}: {why}"
        return Evaluations(outputs, tuple(status), tuple(messages), busy)

    def _check_settings(self) -> None:
        if not self.urls:
            raise AdapterError("urls", "must name at least one server, but is empty")
        for i, url in enumerate(self.urls):
            wrong = find_url_fault(url)
            if wrong:
                raise AdapterError(f"urls[{i}]", f"must be like 'http://localhost:4242', but {url!r} {wrong}")
        if len(set(self.urls)) < len(self.urls):
            raise AdapterError("urls", "must differ; connections is the number of simultaneous requests to a server")
        if not self.model:
            raise AdapterError("model", "must be the name of a model, but is empty")
        if not (math.isfinite(self.timeout) and self.timeout > 0):
            raise AdapterError("timeout", f"must be a positive number of seconds; it is {self.timeout!r}")
        if self.retries < 0:
            raise AdapterError("retries", f"must be at least 0; it is {self.retries!r}")
        if not (math.isfinite(self.jacobian_cost) and self.jacobian_cost >= 0.0):
            raise AdapterError("jacobian_cost", f"must be a number of runs, at least 0, was {self.jacobian_cost!r}")
        if self.connections < 1:
            raise AdapterError("connections", f"must be at least 1; it is {self.connections!r}")
        try:
            json.dumps(self.config, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise AdapterError("config", f"must be what JSON can hold, but: {error}") from error


def _run_threads(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.daemon = True
        thread.start()
    for thread in threads:
        thread.join()


def _describe_error(reply: Reply) -> str:
    """Describe the failure that a server reports."""
    try:
        error = reply.json()["error"]
        return quote_text(f"{quote_text(str(error['type']))}: {quote_text(str(error['message']))}")
    except (UnreadableReplyError, KeyError, TypeError, IndexError):
        return f"HTTP status {reply.status}: {quote_text(reply.data)}"


def _as_integers(sizes: list[Any]) -> list[Any]:
    """Return the sizes that a server reports, as integers if possible."""
    return [int(size) if isinstance(size, float) and size.is_integer() else size for size in sizes]


def _shorten(sizes: list[int]) -> str:
    return str(sizes) if len(sizes) <= 8 else f"[{', '.join(map(str, sizes[:8]))}, ...]"
