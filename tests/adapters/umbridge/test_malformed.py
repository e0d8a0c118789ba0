"""Replies that no server should send: each fails its own row, or is read as what it says.

``MALFORMED_REPLIES=10000 pytest -s tests/adapters/umbridge/test_malformed.py`` tries 10,000 of them.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import tracemalloc
from collections import Counter
from contextlib import closing

import numpy as np
import pytest

from helpers.malformed_replies import Malformed, malformed_replies
from helpers.umbridge_servers import GOOD, RawServer, context, times_model
from invgp.adapters import Status

pytestmark = pytest.mark.processes

SEED, AT_ONCE = 18, 300
COUNT = int(os.environ.get("MALFORMED_REPLIES", str(AT_ONCE)))
LANES = 8
TIMEOUT = 1.0  # s


class MalformedServer(RawServer):
    """Sends the reply whose number is the first input, and a good one where there is none."""

    def __init__(self, replies: dict[int, Malformed], path: str = "/Evaluate") -> None:
        self._replies, self._path = replies, path
        super().__init__(lambda _: None)

    def answer(self, connection: socket.socket, path: str, body: bytes) -> bool:
        number = int(json.loads(body)["input"][0][0]) if path == "/Evaluate" else 0
        if path == self._path and number in self._replies:
            self._replies[number].send(connection)
            return False
        if path == "/Evaluate":
            connection.sendall(GOOD)
            return False
        return super().answer(connection, path, body)


def try_replies(replies: list[Malformed]) -> Counter[str]:
    """Count statuses; every second row is answered well, and must not suffer."""
    threads = threading.active_count()
    numbered = {2 * i: reply for i, reply in enumerate(replies)}
    values = np.column_stack([np.arange(2.0 * len(replies)), np.ones((2 * len(replies), 2))])
    with closing(MalformedServer(numbered)) as server:
        model = times_model(server.url, retries=2, connections=LANES, timeout=TIMEOUT)
        outcome = model.evaluate(values, context(len(values)))
        for row, (status, message) in enumerate(zip(outcome.status, outcome.messages, strict=True)):
            if row % 2 == 1:
                assert (status, message) == (Status.OK, ""), row
            elif status is Status.OK:
                assert np.isfinite(outcome.outputs[row]).all()
            else:
                assert message.startswith(f"run site-{row}: server {server.url}"), message
                assert len(message) < 800, message
                assert message.isprintable(), message
                # The last resort: no reply that is known today should need it.
                assert "the reply cannot be read" not in message, (message, replies[row // 2].data[:500])
    deadline = time.monotonic() + 20
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= threads
    return Counter(status.name for status in outcome.status[::2])


@pytest.mark.slow
def test_that_malformed_replies_fail_their_own_rows_only() -> None:
    for start in range(0, COUNT, AT_ONCE):
        tracemalloc.start()
        counts = try_replies(list(malformed_replies(SEED + start, AT_ONCE)))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(start, dict(counts), f"{peak / 2**20:.0f} MiB")
        assert counts["UNREADABLE"] > AT_ONCE / 6
        assert peak < 64 * 2**20


@pytest.mark.parametrize("path", ["/Info", "/ModelInfo", "/InputSizes", "/OutputSizes"])
def test_that_malformed_offers_are_reported(path: str) -> None:
    for reply in malformed_replies(7, 15, patient=0):
        with closing(MalformedServer({0: reply}, path)) as server:
            outcome = times_model(server.url, retries=0, timeout=TIMEOUT).evaluate(np.ones((2, 3)), context(2))
        for message in outcome.messages:
            assert message == "" or message.startswith(("run site-0: server ", "run site-1: server "))
            assert len(message) < 800
