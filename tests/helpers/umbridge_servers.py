"""Servers: UM-Bridge's own, and raw sockets with a given behaviour."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from invgp.adapters import Quantity, RunContext, UmbridgeModel

INPUTS = (Quantity("depth", "m", (1, 2)), Quantity("velocity", "m s-1"))
OUTPUTS = (Quantity("time", "s", (1, 2)), Quantity("total", "s"))
VALUES = np.array([[100.0, 200.0, 2000.0], [150.0, 260.0, 2100.0], [90.0, 111.0, 1900.0]])
Behaviour = Callable[[socket.socket], None]


class RawServer:
    """Says what UM-Bridge wants to hear, until it is asked to evaluate; then it does as it likes."""

    def __init__(self, behaviour: Behaviour, reported: dict[str, Any] | None = None) -> None:
        self._behaviour = behaviour
        self._told = {
            "/Info": {"protocolVersion": 1.0, "models": ["times"]},
            "/ModelInfo": {"support": {"Evaluate": True}},
            "/InputSizes": {"inputSizes": [2, 1]},
            "/OutputSizes": {"outputSizes": [2, 1]},
            **(reported or {}),
        }
        self.asked = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while request := _request(connection):
                    if not self.answer(connection, *request):
                        return
            except OSError:
                return

    def answer(self, connection: socket.socket, path: str, body: bytes) -> bool:
        """Answer one request; return whether the connection stays open."""
        if path == "/Evaluate":
            self.asked += 1
            self._behaviour(connection)
            return False
        connection.sendall(http(json.dumps(self._told[path]).encode(), close=False))
        return True

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that listens
        self._listener.close()


def _request(connection: socket.socket) -> tuple[str, bytes] | None:
    """Read the next request, its path and its body; None if there is none."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    while length and len(body) < int(length[1]):
        body += connection.recv(65536)
    return head.split()[1].decode(), body


def http(body: bytes, status: str = "200 OK", *, close: bool = True) -> bytes:
    end = b"Connection: close\r\n" if close else b""
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status.encode(), end, len(body), body)


def sends(data: bytes) -> Behaviour:
    return lambda connection: connection.sendall(data)


GOOD = http(b'{"output": [[1, 2.5], [3e0]]}')


@contextmanager
def raw_server(behaviour: Behaviour, reported: dict[str, Any] | None = None) -> Iterator[RawServer]:
    with closing(RawServer(behaviour, reported)) as server:
        yield server


def times_model(*urls: str, **settings: Any) -> UmbridgeModel:
    return UmbridgeModel(urls, **{"model": "times", "inputs": INPUTS, "outputs": OUTPUTS, "timeout": 10, **settings})


def context(count: int, directory: Path = Path("/nonexistent")) -> RunContext:
    return RunContext([f"site-{i}" for i in range(count)], directory)
