"""Any simulator that invgp can run, offered to others as an UM-Bridge 1.0 server."""

from __future__ import annotations

import io
import itertools
import json
import logging
import math
import os
import shutil
import socketserver
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from socket import AF_INET, AF_INET6
from typing import Any

import numpy as np
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import BrokenProcessPool, ShutdownExecutorError

from invgp.adapters.exchange import BoundedReader, TooLargeError, parse_json
from invgp.adapters.protocol import Evaluations, ForwardModel, RunContext, Status, input_size
from invgp.execution.pools.worker_processes import begin_worker
from invgp.execution.stray_programs import end_programs
from invgp.problem import Floats

PROTOCOL_VERSION = 1.0
FEATURES = ("Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian")
PORT = 4242
SECONDS = 60.0  # for a request to come, or an answer to be taken; a run takes as long as it takes
BYTES_OF_A_REQUEST, BYTES_OF_A_NUMBER = 2**16, 64
MOST_CONNECTIONS = 256
KEPT = 20  # directories of failed runs, the latest
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

_log = logging.getLogger(__name__)


class RequestError(Exception):
    """A request that gets an error of UM-Bridge for an answer."""

    def __init__(self, code: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.code, self.kind = code, kind


class ModelServer(ThreadingHTTPServer):
    """Offers one model, for evaluation only, to whoever can reach it.

    Each input and each output is a block of its numbers, in the simulator's units. Runs happen in worker processes; a
    worker that dies is replaced, and its run fails. Requests are bounded in size and time.

    Parameters
    ----------
    model : what is offered, under its name.
    directory : where private run directories are made; of failed runs the latest few are kept.
    host, port : where to listen; port 0 is any that is free.
    workers : runs at once; further requests wait.

    Raises
    ------
    OSError
        If nothing can listen there.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self, model: ForwardModel, directory: Path, host: str = "127.0.0.1", port: int = PORT, workers: int = 1
    ) -> None:
        self.model = model
        self.limit = BYTES_OF_A_REQUEST + BYTES_OF_A_NUMBER * input_size(model)
        self._directory = directory
        self._numbers = itertools.count(1)
        self._failed: deque[str] = deque()
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._stopped = False
        self._workers: set[ProcessPoolExecutor] = set()
        self._idle: Queue[ProcessPoolExecutor] = Queue()
        for _ in range(workers):
            self._idle.put(self._new_worker())
        self.address_family = AF_INET6 if ":" in host else AF_INET
        super().__init__((host, port), _Handler)  # the last: if it fails, it closes all

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.server_address[:2]
        return f"http://[{host!s}]:{port}" if self.address_family == AF_INET6 else f"http://{host!s}:{port}"

    def run(self, row: Floats) -> Floats:
        """Outputs (P,) at inputs (I,); raise `RequestError` if the run fails."""
        label = f"run-{next(self._numbers)}"
        worker = self._idle.get()
        try:
            if self._stopped:
                raise RequestError(500, "InvalidOutput", f"run {label}: the server was stopped")
            outcome = worker.submit(_run, (row, label, self._directory)).result()
        except BrokenProcessPool as error:
            end_programs(self._directory / label)
            self._workers.discard(worker)
            worker = self._new_worker()
            sentence = f"run {label}: the worker process died while it ran {self.model.name!r}"
            raise RequestError(500, "InvalidOutput", sentence) from error
        except ShutdownExecutorError as error:
            raise RequestError(500, "InvalidOutput", f"run {label}: the server was stopped") from error
        finally:
            self._idle.put(worker)
        if outcome.status[0] is not Status.OK:  # UM-Bridge has no word for a number that is missing
            self._forget_older(label)
            raise RequestError(500, "InvalidOutput", outcome.messages[0])
        numbers: Floats = outcome.outputs[0]
        return numbers

    def server_bind(self) -> None:
        """Bind, without asking name servers who we are, as `HTTPServer` does."""
        socketserver.TCPServer.server_bind(self)

    def server_close(self) -> None:
        """Stop listening, and end all runs; the directories of failed ones stay."""
        super().server_close()
        self._stopped = True
        for worker in tuple(self._workers):
            worker.shutdown(wait=False, kill_workers=True)
        end_programs(self._directory)
        for directory in self._directory.glob("run-*"):
            if directory.name not in self._failed:
                shutil.rmtree(directory, ignore_errors=True)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hand a connection to a thread of its own, if there are not too many."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            request.settimeout(1.0)
            request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's signature
        """Say why a connection ended, unless the client just went away."""
        if not isinstance(sys.exception(), OSError):
            _log.exception("a request from %s could not be answered", client_address)

    def _new_worker(self) -> ProcessPoolExecutor:
        """A pool of one: if it dies, it dies alone."""
        worker = ProcessPoolExecutor(1, env=ONE_THREAD, initializer=_begin, initargs=(os.getpid(), self.model))
        self._workers.add(worker)
        return worker

    def _forget_older(self, label: str) -> None:
        self._failed.append(label)
        while len(self._failed) > KEPT:
            shutil.rmtree(self._directory / self._failed.popleft(), ignore_errors=True)


_model: ForwardModel  # of a worker process


def _begin(server: int, model: ForwardModel) -> None:
    """Start of a worker process."""
    begin_worker(server)
    global _model  # noqa: PLW0603 - it is pickled once for each worker, not for each run
    _model = model


def _run(wanted: tuple[Floats, str, Path]) -> Evaluations:
    row, label, directory = wanted
    return _model.evaluate(row[None], RunContext([label], directory))


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "invgp", ""
    disable_nagle_algorithm = True
    server: ModelServer

    def setup(self) -> None:
        super().setup()
        self._reader = BoundedReader(self.connection, 0, 0.0)
        self.rfile = io.BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        self._reader.allow(BYTES_OF_A_REQUEST + self.server.limit, time.monotonic() + SECONDS)
        try:
            super().handle_one_request()
        except TooLargeError:
            self.close_connection = True

    def do_GET(self) -> None:
        """Answer ``/Info``."""
        if self.path == "/Info":
            self._reply(200, {"protocolVersion": PROTOCOL_VERSION, "models": [self.server.model.name]})
        else:
            self._refuse(RequestError(404, "UnsupportedFeature", f"there is no GET {self.path}"))

    def do_POST(self) -> None:
        """Answer all else."""
        try:
            reply = answer(self.server, self.path, self._message())
        except RequestError as error:
            self._refuse(error)
        except (OSError, TooLargeError):  # the client went away, or takes too long
            raise
        except Exception as error:
            _log.exception("a fault in answering %s", self.path)
            self._refuse(RequestError(500, "InvalidOutput", f"{type(error).__name__}: {error}"))
        else:
            self._reply(200, reply)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """What `http.server` refuses gets the same kind of answer."""
        self.close_connection = True
        self._refuse(RequestError(code, "InvalidInput", message or "the request cannot be understood"))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Nothing on standard error for each request."""
        _log.debug(format, *args)

    def _message(self) -> Mapping[str, Any]:
        closing, self.close_connection = self.close_connection, True  # unless the body is read to its end
        if self.headers.get("Origin") is not None:
            raise RequestError(403, "InvalidInput", "web pages may not ask")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()) or self.headers.get("Transfer-Encoding"):
            raise RequestError(411, "InvalidInput", "a request must have a Content-Length")
        if len(length) > 18 or int(length) > self.server.limit:
            sentence = f"a request must not be larger than {self.server.limit:,} bytes"
            raise RequestError(413, "InvalidInput", sentence)
        body = self.rfile.read(int(length))
        self.close_connection = closing
        try:
            message = parse_json(body)
        except ValueError as error:
            raise RequestError(400, "InvalidInput", f"the request is not JSON: {error}") from error
        if not isinstance(message, Mapping):
            raise RequestError(400, "InvalidInput", "the request is not a JSON object")
        return message

    def _refuse(self, error: RequestError) -> None:
        self._reply(error.code, {"error": {"type": error.kind, "message": str(error)}})

    def _reply(self, code: int, message: object) -> None:
        body = json.dumps(message, allow_nan=False).encode()
        self.connection.settimeout(SECONDS)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def answer(server: ModelServer, path: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """What a POST to `path` is answered with; raise `RequestError` if with an error."""
    model, feature = server.model, path.removeprefix("/")
    if feature not in ("ModelInfo", "InputSizes", "OutputSizes", *FEATURES):
        raise RequestError(404, "UnsupportedFeature", f"there is no POST {path}")
    if message.get("name") != model.name:
        sentence = f"there is no model {message.get('name')!r}; there is {model.name!r}"
        raise RequestError(400, "ModelNotFound", sentence)
    if message.get("config"):
        raise RequestError(400, "InvalidInput", f"the model {model.name!r} takes no config, so it must be empty")
    if feature == "ModelInfo":
        return {"support": {name: name == "Evaluate" for name in FEATURES}}
    if feature == "InputSizes":
        return {"inputSizes": [q.size for q in model.inputs]}
    if feature == "OutputSizes":
        return {"outputSizes": [q.size for q in model.outputs]}
    if feature != "Evaluate":
        raise RequestError(400, "UnsupportedFeature", f"{feature} is not supported by the model {model.name!r}")
    outputs = server.run(read_input(model, message.get("input")))
    return {"output": [block.tolist() for block in np.split(outputs, _ends([q.size for q in model.outputs]))]}


def read_input(model: ForwardModel, blocks: Any) -> Floats:
    """Inputs (I,) from a list of lists; raise `RequestError` unless the sizes are right and the numbers finite."""
    if not isinstance(blocks, list) or not all(isinstance(block, list) for block in blocks):
        raise RequestError(400, "InvalidInput", "input must be a list of lists of numbers")
    sizes, expected = [len(block) for block in blocks], [q.size for q in model.inputs]
    if sizes != expected:
        names = ", ".join(f"{q.name} ({q.size}, in {q.unit})" for q in model.inputs)
        sentence = f"input must have one block for each of {names}; it has {len(sizes)}, of sizes {sizes[:20]}"
        raise RequestError(400, "InvalidInput", sentence)
    for quantity, block in zip(model.inputs, blocks, strict=True):
        if not all(isinstance(number, float) and math.isfinite(number) for number in block):
            raise RequestError(400, "InvalidInput", f"input {quantity.name} must hold finite numbers only")
    return np.asarray([number for block in blocks for number in block], dtype=np.float64)


def _ends(sizes: list[int]) -> list[int]:
    return list(itertools.accumulate(sizes))[:-1]
