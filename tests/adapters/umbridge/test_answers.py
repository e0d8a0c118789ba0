"""What a server may answer: well, badly, slowly, without end."""

from __future__ import annotations

import socket
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest

from helpers.umbridge_servers import GOOD, VALUES, Behaviour, context, http, raw_server, sends, times_model
from invgp.adapters import Status
from invgp.adapters.http_client import DEEPEST, parse_json

pytestmark = pytest.mark.processes


def trickles(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.05)


def trickles_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        connection.sendall(b"x")
        time.sleep(0.05)


def never_ends(connection: socket.socket) -> None:
    connection.sendall(b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"output": [[')
    while True:
        connection.sendall(b"1," * 50_000)


def never_ends_in_chunks(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    send_chunks(connection, b" " * 65536)


def fails_without_end(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nbroken\r\n")
    send_chunks(connection, b" and so on")


def send_chunks(connection: socket.socket, chunk: bytes) -> None:
    while True:
        connection.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))


def continues_for_ever(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


def one_run(behaviour: Behaviour, **settings: Any) -> tuple[Status, str]:
    with raw_server(behaviour) as server:
        outcome = times_model(server.url, **settings).evaluate(VALUES[:1], context(1))
    return outcome.status[0], outcome.messages[0].replace(server.url, "URL")


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        (sends(b""), "the connection was closed before the answer was whole"),
        (sends(GOOD[:-5]), "the connection was closed before the answer was whole"),
        (sends(GOOD[:30]), "the connection was closed before the answer was whole"),
        (sends(http(b"no server", "503 Service Unavailable")), "HTTP status 503: no server"),
    ],
    ids=["at once", "within the body", "within the headers", "load balancer"],
)
def test_that_a_run_that_breaks_off_is_tried_again_and_no_more(behaviour: Behaviour, sentence: str) -> None:
    with raw_server(behaviour) as server:
        outcome = times_model(server.url, retries=2).evaluate(VALUES[:1], context(1))
    assert outcome.status == (Status.KILLED,)
    assert outcome.messages[0] == f"run site-0: server {server.url}: {sentence}, 3 times in all"
    assert server.asked == 3


@pytest.mark.parametrize(
    ("behaviour", "status", "sentence"),
    [
        (sends(http(b'{"output": [[nan, 1], [1]]}')), Status.NAN, "output time[1] is nan"),
        (sends(http(b'{"output": [[1, 1], [null]]}')), Status.NAN, "output total is nan"),
        (sends(http(b'{"output": [[1, -inf], [1]]}')), Status.NAN, "output time[2] is -inf"),
        (
            sends(http(b'{"error": {"type": "InvalidOutput", "message": "nan"}}', "500 Sorry")),
            Status.RAISED,
            "InvalidOutput: nan",
        ),
        (sends(http(b'{"error": {"type": "T", "message": "M"}}')), Status.RAISED, "T: M"),
        (sends(http(b'{"error": 1}', "400 No")), Status.RAISED, 'HTTP status 400: {"error": 1}'),
        (sends(http(b"<h1>\x00no\n</h1>", "500 No")), Status.RAISED, "HTTP status 500: <h1>?no </h1>"),
        (
            sends(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
            Status.RAISED,
            "HTTP status 302: nothing",
        ),
        (
            sends(http(b"hello")),
            Status.UNREADABLE,
            "the reply is not JSON (Expecting value: line 1 column 1 (char 0)): hello",
        ),
        (
            sends(http(b'{"output": [[1], [2]]}')),
            Status.UNREADABLE,
            "the output came in blocks of sizes [1, 1], expected [2, 1]",
        ),
        (
            sends(http(b'{"output": [1, 2, 3]}')),
            Status.UNREADABLE,
            'the reply is not {"output": [[numbers], ...]}: {"output": [1, 2, 3]}',
        ),
        (sends(http(b"[]")), Status.UNREADABLE, 'the reply is not {"output": [[numbers], ...]}: []'),
        (
            sends(http(b'{"output": [[1, "2"], [true]]}')),
            Status.UNREADABLE,
            'the output holds something else than numbers: {"output": [[1, "2"], [true]]}',
        ),
        (
            sends(http(b'{"output": [[1, 1], [1]], "output": [[1, 1], [1]]}')),
            Status.UNREADABLE,
            "the reply is not JSON (a key occurs twice in one object): "
            '{"output": [[1, 1], [1]], "output": [[1, 1], [1]]}',
        ),
        (
            sends(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b"),
            Status.UNREADABLE,
            "the reply is compressed (gzip), which was not asked for",
        ),
        (
            sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n12345\r\n0\r\n\r\n"),
            Status.UNREADABLE,
            "the reply is not HTTP: illegal chunk header: '-5\\r\\n'",
        ),
        (
            sends(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"),
            Status.UNREADABLE,
            "the reply is not HTTP: bad Content-Length",
        ),
        (sends(b"SSH-2.0-OpenSSH_9.2\r\n"), Status.UNREADABLE, "the reply is not HTTP: SSH-2.0-OpenSSH_9.2"),
    ],
)
def test_that_a_bad_answer_is_reported_at_once(behaviour: Behaviour, status: Status, sentence: str) -> None:
    assert one_run(behaviour) == (status, f"run site-0: server URL: {sentence}")


def test_that_an_error_may_hold_what_is_no_character() -> None:
    status, message = one_run(sends(http(rb'{"error": {"type": "\ud800", "message": "no \udce9"}}')))
    assert (status, message) == (Status.RAISED, "run site-0: server URL: ?: no ?")


def test_that_an_answer_needs_no_content_type_and_may_come_in_chunks() -> None:
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n" + b'{"ou\r\n'
    body = b'tput": [[1, 2.5], [3e0]]}'
    chunks += b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    for reply in (GOOD, chunks, b"HTTP/1.0 200 OK\r\n\r\n" + b'{"output": [[1, 2.5], [3e0]]}'):
        with raw_server(sends(reply)) as server:
            outcome = times_model(server.url).evaluate(VALUES[:1], context(1))
        np.testing.assert_array_equal(outcome.outputs, [[1, 2.5, 3]])


@pytest.mark.parametrize("behaviour", [trickles, trickles_headers, lambda _: time.sleep(5)])
def test_that_a_slow_answer_is_cut_off_in_time(behaviour: Behaviour) -> None:
    started = time.monotonic()
    status, message = one_run(behaviour, timeout=0.4)
    assert time.monotonic() - started < 4.0  # less than a behaviour takes
    assert (status, message) == (Status.TIMEOUT, "run site-0: server URL: no whole answer within 0.4 s")


@pytest.mark.slow
@pytest.mark.parametrize(
    "behaviour",
    [
        never_ends,
        never_ends_in_chunks,
        continues_for_ever,
        sends(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n"),
        sends(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000),
        sends(http(b"[" * 60_000)),
        sends(http(b'{"output": [[' + b"1" * 60_000 + b", 1], [1]]}")),
        sends(http(b'{"output": "' + b'\\"' * 30_000)),
    ],
    ids=[
        "endless", "endless chunks", "endless 100", "huge", "many headers", "nested", "a long number", "an open string",
    ],
)  # fmt: skip
def test_that_a_hostile_answer_costs_little_memory_and_time(behaviour: Behaviour) -> None:
    one_run(sends(GOOD))
    tracemalloc.start()
    started = time.monotonic()
    status, message = one_run(behaviour)
    seconds, (_, peak) = time.monotonic() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert status in (Status.UNREADABLE, Status.NAN)
    assert len(message) < 600
    assert seconds < 20
    assert peak < 4 * 2**20


LARGE = 8 * 2**20
TRACEBACK = b'{"error": {"type": "ValueError", "message": "no mesh' + b"x" * LARGE + b'"}}'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behaviour", "status", "start"),
    [
        (
            sends(http(TRACEBACK, "500 No")),
            Status.RAISED,
            'HTTP status 500: {"error": {"type": "ValueError", "message"',
        ),
        (sends(http(TRACEBACK[:60_000] + b'"}}', "500 No")), Status.RAISED, "ValueError: no meshxxx"),
        (sends(http(b'{"error": {"type": "%s", "message": "M"}}' % (b"T" * 60_000), "500 No")), Status.RAISED, "TTT"),
        (fails_without_end, Status.RAISED, "HTTP status 500: broken and so on and so on"),
        (sends(http(b"<html>" + b" busy" * LARGE, "503 Busy")), Status.KILLED, "HTTP status 503: <html> busy busy"),
    ],
    ids=["large", "a traceback", "a long type", "endless", "load balancer"],
)
def test_that_a_large_error_reply_fails_its_row_with_the_start_of_the_error(
    behaviour: Behaviour, status: Status, start: str
) -> None:
    one_run(sends(GOOD))
    with raw_server(behaviour) as server:  # the body exists before memory is traced
        tracemalloc.start()
        outcome = times_model(server.url, retries=1).evaluate(VALUES[:1], context(1))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert outcome.status == (status,)
    assert outcome.messages[0].startswith(f"run site-0: server {server.url}: {start}")
    assert len(outcome.messages[0]) < 400
    assert peak < 2 * 2**20


def test_that_json_is_read_as_servers_write_it() -> None:
    read = parse_json(b'\xef\xbb\xbf{"a": [nan, -nan, NaN, inf, -inf, -Infinity, 3], "nan inf": "[[[ nan \\" inf"}')
    np.testing.assert_array_equal(read["a"], [np.nan, np.nan, np.nan, np.inf, -np.inf, -np.inf, 3.0])
    assert read["nan inf"] == '[[[ nan " inf'
    assert parse_json(b"[" * DEEPEST + b"]" * DEEPEST)
    for wrong in (b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1), b"", b"\xff", b"nano", b'{"a": nan', b"'a'"):
        with pytest.raises(ValueError, match=r"nested|Expecting|decode"):
            parse_json(wrong)
