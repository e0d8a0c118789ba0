"""An UM-Bridge server with one event loop for all connections, and worker processes for the runs."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import logging
import re
import resource
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h11

from invgp.adapters.http_client import quote_text
from invgp.adapters.protocol import ForwardModel, input_size

from .replies import METHODS, RequestError, answer_request, check_method
from .run_queue import RunQueue

PORT = 4242
SECONDS = 60.0  # to receive a request, or to send an answer; the duration of a run is not limited
IDLE_SECONDS = 15.0  # until the first byte of a request
SECONDS_TO_HANG_UP = 1.0
BYTES_AT_ONCE = 2**16
BYTES_OF_A_REQUEST, BYTES_OF_A_NUMBER = 2**16, 64
MOST_CONNECTIONS = 256
FEWEST_CONNECTIONS = 8
# File descriptors that are reserved for the process and for each worker.
OTHER_DESCRIPTORS, DESCRIPTORS_PER_WORKER = 48, 16
SECONDS_BETWEEN_WARNINGS = 60.0
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_log = logging.getLogger(__name__)


class ModelServer:
    """Serve one model, for evaluation only, to all clients that can reach the address.

    Each input and each output is a block of numbers, in the units of the model. Runs are made in worker processes. A
    worker that dies is replaced, and its run fails. The size and the time of requests are limited.

    No client address can exclude others. One address may have three quarters of the connections, and half of the
    waiting and active runs. If there are no connections left, a new one replaces the one that has been idle longest.
    Addresses take turns with their runs. Requests that need no run never wait for one.

    A client that has closed its connection cannot be distinguished from one that sends no more and waits for its
    answer. Its run is therefore made, but after the runs of the other clients at its address.

    Parameters
    ----------
    model : ForwardModel
        Model to serve, under its name.
    directory : Path
        Parent of the run directories; those of the latest failed runs are kept.
    host : str
        Address to listen on.
    port : int
        Port to listen on; 0 for any free port.
    workers : int
        Number of simultaneous runs; further requests wait.

    Raises
    ------
    OSError
        The server cannot listen on this address and port.
    """

    def __init__(
        self, model: ForwardModel, directory: Path, host: str = "127.0.0.1", port: int = PORT, workers: int = 1
    ) -> None:
        self.model = model
        self._limit = BYTES_OF_A_REQUEST + BYTES_OF_A_NUMBER * input_size(model)
        self._most = _most_connections(workers)
        self._connections: set[_Connection] = set()
        self._family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=self._family, backlog=128)
        self._runs = RunQueue(model, directory, workers, 3 * self._most // 4, self._most // 2)
        self._ending, self._ended = threading.Event(), threading.Event()
        self._ended.set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last_warning = -SECONDS_BETWEEN_WARNINGS

    @property
    def url(self) -> str:
        """Address of the server."""
        host, port = self._listener.getsockname()[:2]
        return f"http://[{host}]:{port}" if self._family == socket.AF_INET6 else f"http://{host}:{port}"

    def serve_forever(self) -> None:
        """Answer requests until `stop` is called.

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C, or another signal with a handler in Python, has ended the server. Active runs are ended, and their
            requests are answered.
        """
        if self._ending.is_set():
            return
        handlers = {}
        if threading.current_thread() is threading.main_thread():
            candidates = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            handlers = {number: found for number in candidates if callable(found := signal.getsignal(number))}
        self._ended.clear()
        try:
            interrupted = asyncio.run(self._serve([*handlers]))
        finally:
            self._ended.set()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if interrupted:
            raise KeyboardInterrupt

    def stop(self) -> None:
        """End `serve_forever`, from any thread, without waiting for it."""
        self._ending.set()
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._end)

    def close(self) -> None:
        """Stop the server, wait for the end of `serve_forever` in another thread, and end all runs."""
        self.stop()
        self._ended.wait()
        self._listener.close()
        self._runs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _serve(self, interrupts: list[signal.Signals]) -> bool:
        """Serve until the end; return whether one of the signals ended the server."""
        self._loop = loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._report)
        self._asked_to_end = loop.create_future()
        for number in interrupts:
            loop.add_signal_handler(number, self._end, True)
        server = await asyncio.start_server(self._serve_connection, sock=self._listener, backlog=128)
        if self._ending.is_set():
            self._end()
        interrupted: bool = await self._asked_to_end
        self._ending.set()
        server.close()
        for connection in self._idle_connections():
            connection.abort()
        await loop.run_in_executor(None, self._runs.close)
        answering = [connection.task for connection in self._connections]
        if answering:
            await asyncio.wait(answering, timeout=SECONDS_TO_HANG_UP)
        return interrupted

    def _end(self, interrupted: bool = False) -> None:
        if not self._asked_to_end.done():
            self._asked_to_end.set_result(interrupted)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(reader, writer, self._limit)
        is_accepted = self._make_room(connection.address)
        if is_accepted:
            self._connections.add(connection)
        try:
            if is_accepted:
                while await self._answer_one(connection):
                    pass
            else:
                await connection.refuse(RequestError(503, "Busy", "there are too many connections; ask again later"))
        except (OSError, EOFError, asyncio.CancelledError):  # the client has disconnected, or the server ends
            pass
        except Exception:
            _log.exception("a request from %s could not be answered", connection.address)
        finally:
            self._connections.discard(connection)
            connection.abort()

    async def _answer_one(self, connection: _Connection) -> bool:
        """Answer one request; return whether another may follow."""
        try:
            path, body = await connection.receive_request()
        except RequestError as error:
            await connection.refuse(error)
            return False
        connection.busy = True
        try:
            run = partial(self._runs.run, address=connection.address, has_ended=connection.has_ended)
            reply = await answer_request(self.model, path, body, run)
            status = 200
        except RequestError as error:
            status, reply = error.code, _error_reply(error)
        except Exception as error:
            _log.exception("an error in the answer to %s", path)
            status, reply = 500, _error_reply(RequestError(500, "InvalidOutput", f"{type(error).__name__}: {error}"))
        return await connection.send_reply(status, reply, last=self._ending.is_set())

    def _make_room(self, address: str) -> bool:
        """Close the connection that has been idle longest if there are too many; return whether there is room."""
        counts = Counter(connection.address for connection in self._connections)
        idle = self._idle_connections()
        if counts[address] >= 3 * self._most // 4:
            idle = [connection for connection in idle if connection.address == address]
        elif len(self._connections) < self._most:
            return True
        if not idle:
            return False
        # Of the address with the most connections.
        self._drop(min(idle, key=lambda connection: (-counts[connection.address], connection.idle_since)))
        return True

    def _idle_connections(self) -> list[_Connection]:
        return [connection for connection in self._connections if not connection.busy]

    def _drop(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        connection.abort()

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG002 - asyncio's
        """Log an error outside of a request. Without resources, asyncio waits 1 s before it accepts again."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in OUT_OF_RESOURCES:
            _log.error("%s", context["message"], exc_info=error)
            return
        idle = sorted(self._idle_connections(), key=lambda connection: connection.idle_since)
        for connection in idle[: len(idle) // 2 + 1]:
            self._drop(connection)
        if time.monotonic() - self._last_warning >= SECONDS_BETWEEN_WARNINGS:
            self._last_warning = time.monotonic()
            _log.warning("no connection can be accepted for now (%s); idle connections are closed", error.strerror)


class _Connection:
    """One connection of a client.

    Parameters
    ----------
    reader, writer : asyncio.StreamReader, asyncio.StreamWriter
    limit : int
        Largest size of the body of a request, in bytes.

    Attributes
    ----------
    address : str
        Address of the client.
    busy : bool
        Whether a request was received and is being answered.
    idle_since : float
        Time of the last answer, or of the connection, on the monotonic clock.
    task : asyncio.Task
        Task that serves the connection.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int) -> None:
        self.address = _client_address(writer.get_extra_info("peername"))
        self.busy = False
        self.idle_since = time.monotonic()
        self.task: Any = asyncio.current_task()
        self._reader, self._writer = reader, writer
        self._writer.transport.set_write_buffer_limits(0)  # `drain` waits until everything is sent
        self._http = h11.Connection(h11.SERVER)
        self._limit = limit
        self._method = self._path = ""

    async def receive_request(self) -> tuple[str, bytes]:
        """Return path and body of the next request; raise `EOFError` if there is none.

        Raises
        ------
        RequestError
            The request is refused; the connection cannot be used any more.
        """
        began = bool(self._http.trailing_data[0])
        try:
            async with asyncio.timeout(SECONDS if began else IDLE_SECONDS) as limit:
                body = bytearray()
                while True:
                    event = self._http.next_event()
                    if event is h11.NEED_DATA:
                        await self._continue()
                        data = await self._reader.read(BYTES_AT_ONCE)
                        if not began:
                            began = True
                            limit.reschedule(asyncio.get_running_loop().time() + SECONDS)
                        self._http.receive_data(data)
                    elif isinstance(event, h11.Request):
                        self._method, self._path = event.method.decode(), _request_path(event.target)
                        self._check_headers(event.http_version, dict(event.headers))
                    elif isinstance(event, h11.Data):
                        body += event.data
                        self._check_size(len(body))
                    elif isinstance(event, h11.EndOfMessage):
                        return self._path, bytes(body)
                    else:
                        raise EOFError
        except TimeoutError as error:
            if not began:
                raise EOFError from error
            sentence = f"a request must come within {SECONDS:g} s"
            raise RequestError(408, "InvalidInput", sentence) from error
        except h11.RemoteProtocolError as error:
            sentence = f"the request is not HTTP: {quote_text(str(error))}"
            raise RequestError(error.error_status_hint, "InvalidInput", sentence) from error

    async def send_reply(self, status: int, message: object, *, last: bool = False) -> bool:
        """Send an answer; return whether another request may follow."""
        body = json.dumps(message, allow_nan=False).encode()
        headers = [("Server", "invgp"), ("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if last:
            headers.append(("Connection", "close"))
        if status == 405:
            headers.append(("Allow", METHODS[self._path]))
        events: list[h11.Event] = [h11.Response(status_code=status, reason=HTTPStatus(status).phrase, headers=headers)]
        if self._method != "HEAD":
            events.append(h11.Data(body))
        data = b"".join(self._http.send(event) or b"" for event in [*events, h11.EndOfMessage()])
        async with asyncio.timeout(SECONDS):
            self._writer.write(data)
            await self._writer.drain()
        self.busy, self.idle_since = False, time.monotonic()
        if self._http.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            return False
        self._http.start_next_cycle()
        return True

    async def refuse(self, error: RequestError) -> None:
        """Send an error and close the connection; the client receives it even if it is still sending."""
        await self.send_reply(error.code, _error_reply(error), last=True)
        self._writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS_TO_HANG_UP):
                while await self._reader.read(BYTES_AT_ONCE):
                    pass

    def has_ended(self) -> bool:
        """Whether the client sends no more: it has disconnected, or waits for its last answer."""
        return self._reader.at_eof() or self._reader.exception() is not None

    def abort(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()

    async def _continue(self) -> None:
        """Ask a client that waits for it to send the body of its request."""
        if self._http.they_are_waiting_for_100_continue:
            self._writer.write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            await self._writer.drain()

    def _check_headers(self, version: bytes, headers: dict[bytes, bytes]) -> None:
        if version not in (b"1.0", b"1.1"):
            raise RequestError(505, "InvalidInput", "a request must be in HTTP/1.1 or HTTP/1.0")
        check_method(self._method, self._path)
        if b"origin" in headers:
            raise RequestError(403, "InvalidInput", "web pages may not ask")
        if b"content-length" in headers and b"transfer-encoding" in headers:  # a proxy may interpret it differently
            sentence = "a request must not have both Content-Length and Transfer-Encoding"
            raise RequestError(400, "InvalidInput", sentence)
        self._check_size(int(headers.get(b"content-length", b"0")))

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise RequestError(413, "InvalidInput", f"a request must not be larger than {self._limit:,} bytes")


def _most_connections(workers: int) -> int:
    """Return the largest number of connections, as far as file descriptors allow."""
    wanted = max(MOST_CONNECTIONS, 4 * workers)
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(allowed - OTHER_DESCRIPTORS - DESCRIPTORS_PER_WORKER * workers, FEWEST_CONNECTIONS))


def _client_address(peer: tuple[Any, ...] | None) -> str:
    """Return the IPv4 address of a client, or its IPv6 network, whose addresses may belong to one machine."""
    if peer is None:  # it has disconnected already
        return ""
    address = ipaddress.ip_address(peer[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))


def _request_path(target: bytes) -> str:
    """Return the path of a request, whose target may also be a complete address."""
    return re.sub(r"^https?://[^/]*", "", target.decode("ascii", "replace"), flags=re.IGNORECASE)


def _error_reply(error: RequestError) -> dict[str, dict[str, str]]:
    return {"error": {"type": error.kind, "message": str(error)}}
