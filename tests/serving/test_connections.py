"""Many clients, slow clients and strange clients: nobody keeps the others from their answers."""

from __future__ import annotations

import http.client
import json
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from invgp.adapters import CallableModel, Quantity
from invgp.adapters.directories import RunDirectory
from invgp.serving import ModelServer
from invgp.serving.run_queue import DIRECTORIES_KEPT

pytestmark = pytest.mark.processes

PATIENCE = 30.0  # s, for a busy machine
HERE, ELSEWHERE = "127.0.0.2", "127.0.0.3"  # two clients
EVALUATE = json.dumps({"name": "time", "input": [[500.0]], "config": {}}).encode()
HELD = EVALUATE.replace(b"500.0", b"1.0")
MODEL = CallableModel(lambda depth: depth, (Quantity("depth", "m"),), (Quantity("time", "s"),), name="time")
INFO = b"GET /Info HTTP/1.1\r\nHost: a\r\n\r\n"
Address = tuple[str, int]


def post(body: bytes, headers: bytes = b"", path: bytes = b"/InputSizes") -> bytes:
    return b"POST %s HTTP/1.1\r\nHost: a\r\n%sContent-Length: %d\r\n\r\n%s" % (path, headers, len(body), body)


@contextmanager
def start_server(directory: Path, model: CallableModel = MODEL) -> Iterator[ModelServer]:
    """A server in this process."""
    with ModelServer(model, directory / "runs", port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server


def address_of(server: ModelServer) -> Address:
    host, port = server.url.removeprefix("http://").split(":")
    return host, int(port)


@contextmanager
def serving_here(directory: Path) -> Iterator[Address]:
    """The address of a server in this process."""
    with start_server(directory) as server:
        yield address_of(server)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with serving_here(tmp_path_factory.mktemp("served")) as where:
        yield where


def ask(address: Address, path: str, body: bytes | None = None, client: str = ELSEWHERE) -> tuple[int, Any]:
    """Status and JSON of one request, from the address of a client."""
    with closing(http.client.HTTPConnection(*address, timeout=PATIENCE, source_address=(client, 0))) as connection:
        connection.request("GET" if body is None else "POST", path, body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def connect(address: Address, data: bytes = b"", client: str = HERE) -> socket.socket:
    wire = socket.create_connection(address, PATIENCE, source_address=(client, 0))
    wire.sendall(data)
    return wire


def exchange(address: Address, data: bytes) -> bytes:
    """All that comes until the server closes the connection."""
    with connect(address, data) as wire:
        return wire.makefile("rb").read()


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [b"", b"GET /Info HTTP/1.1\r\nX: ", b"POST /Evaluate HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"],
    ids=["idle", "slow headers", "slow body"],
)
def test_that_connections_that_wait_do_not_starve_other_clients(data: bytes, address: Address) -> None:
    with ExitStack() as stack:
        for _ in range(400):
            with suppress(ConnectionError):
                stack.enter_context(connect(address, data))
        for client in (ELSEWHERE, HERE):
            assert ask(address, "/Info", client=client) == (200, {"protocolVersion": 1.0, "models": ["time"]})
            assert ask(address, "/Evaluate", EVALUATE, client) == (200, {"output": [[500.0]]})


def test_that_the_connection_that_waits_longest_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("invgp.serving.model_server.MOST_CONNECTIONS", 4)  # three per address
    with serving_here(tmp_path) as address, ExitStack() as stack:
        other = stack.enter_context(connect(address, client=ELSEWHERE))
        wires = []
        for _ in range(4):
            wires.append(stack.enter_context(connect(address, INFO)))
            assert wires[-1].recv(1000).startswith(b"HTTP/1.1 200")
        assert wires[0].recv(1000) == b""
        for wire in (*wires[1:], other):
            wire.sendall(INFO)
            assert wire.recv(1000).startswith(b"HTTP/1.1 200")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


HELD_MODEL = """
import time
from pathlib import Path

DIRECTORY = Path(__file__).parent


def time_of(depth):
    with (DIRECTORY / "log").open("a") as log:
        log.write(f"{float(depth)}\\n")
    while depth == 1.0 and not (DIRECTORY / "go").exists():
        time.sleep(0.01)
    return depth
"""


def held_model(directory: Path) -> CallableModel:
    """A model whose runs at 1 m end when there is a file ``go``; ``log`` has the depths of all runs, in order."""
    (directory / "held.py").write_text(HELD_MODEL)
    depth, seconds = Quantity("depth", "m"), Quantity("time", "s")
    return CallableModel("held:time_of", (depth,), (seconds,), vectorised=False, name="time", search_path=directory)


def test_that_clients_take_turns_with_their_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker, and a client that asks for eight runs: it does not delay the run of another by more than two."""
    monkeypatch.setattr("invgp.serving.model_server.MOST_CONNECTIONS", 16)  # eight runs per address
    with start_server(tmp_path, held_model(tmp_path)) as server, ThreadPoolExecutor(9) as pool:
        address = address_of(server)
        asked = [pool.submit(ask, address, "/Evaluate", HELD, HERE) for _ in range(8)]
        wait_until(lambda: server._runs._requested[HERE] == 8)
        assert ask(address, "/Evaluate", HELD, HERE)[0] == 503
        for client in (HERE, ELSEWHERE):  # what needs no run does not wait for one
            assert ask(address, "/Info", client=client)[0] == 200
            assert ask(address, "/InputSizes", b'{"name": "time"}', client) == (200, {"inputSizes": [1]})
        asked.append(pool.submit(ask, address, "/Evaluate", EVALUATE, ELSEWHERE))
        wait_until(lambda: server._runs._requested[ELSEWHERE] == 1)
        (tmp_path / "go").touch()
        assert [future.result(PATIENCE)[0] for future in asked] == [200] * 9
    order = (tmp_path / "log").read_text().split()
    assert len(order) == 9
    assert order.index("500.0") <= 2


def test_that_clients_that_may_have_disconnected_come_last(tmp_path: Path) -> None:
    abandoned = post(EVALUATE.replace(b"500", b"2"), path=b"/Evaluate")
    with start_server(tmp_path, held_model(tmp_path)) as server, ThreadPoolExecutor(2) as pool:
        address = address_of(server)
        held = pool.submit(ask, address, "/Evaluate", HELD, HERE)
        wait_until(lambda: server._runs._requested[HERE] == 1)
        connect(address, abandoned).close()
        with connect(address, abandoned) as half_closed:
            half_closed.shutdown(socket.SHUT_WR)
            wait_until(lambda: sum(connection.has_ended() for connection in tuple(server._connections)) == 2)
            wait_until(lambda: server._runs._requested[HERE] == 3)
            present = pool.submit(ask, address, "/Evaluate", EVALUATE, HERE)
            wait_until(lambda: server._runs._requested[HERE] == 4)
            (tmp_path / "go").touch()
            assert [held.result(PATIENCE)[0], present.result(PATIENCE)[0]] == [200, 200]
            assert half_closed.makefile("rb").read().endswith(b'{"output": [[2.0]]}')
    assert (tmp_path / "log").read_text().split() == ["1.0", "500.0", "2.0", "2.0"]


@pytest.mark.parametrize(
    ("request_", "start", "end"),
    [
        (b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", b"404 Not Found", b'"there is no BREW /"}}'),
        (b"PUT /Info HTTP/1.1\r\nHost: a\r\n\r\n", b"405 Method Not Allowed", b"must be requested by GET, not PUT"),
        (b"GET /Evaluate HTTP/1.1\r\nHost: a\r\n\r\n", b"405 Method Not Allowed", b"requested by POST, not GET"),
        (b"HEAD /Info HTTP/1.1\r\nHost: a\r\n\r\n", b"405 Method Not Allowed", b"Allow: GET\r\n\r\n"),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", b"404 Not Found", b"there is no CONNECT a:1"),
        (b"GET http://a:1/Info HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"200 OK", b'["time"]}'),
        (b"GET http://a/etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", b"404 Not Found", b"there is no GET /etc/passwd"),
        (b"GET //Info HTTP/1.1\r\nHost: a\r\n\r\n", b"404 Not Found", b"there is no GET //Info"),
        (b"GET /Info HTTP/1.0\r\n\r\n", b"200 OK", b'["time"]}'),
        (b"GET /Info HTTP/1.1\r\n\r\n", b"400 Bad Request", b"Missing mandatory Host: header"),
        (b"GET /Info HTTP/2.0\r\nHost: a\r\n\r\n", b"505 HTTP Version", b"must be in HTTP/1.1 or HTTP/1.0"),
        (b"\x16\x03\x01\x02", b"400 Bad Request", b"the request is not HTTP"),
        (b"GET /Info HTTP/1.1\r\n" + b"X: y\r\n" * 5000, b"431 Request Header Fields", b"the request is not HTTP"),
        (post(b"{}", b"Transfer-Encoding: chunked\r\n"), b"400 Bad Request", b"both Content-Length and Transfer-"),
        (post(b"{}", b"Content-Length: 3\r\n"), b"400 Bad Request", b"conflicting Content-Length headers"),
        (post(b"{}", b"Content-Length: -2\r\n"), b"400 Bad Request", b"bad Content-Length"),
        (post(b"{}", b"Transfer-Encoding: gzip\r\n"), b"501 Not Implemented", b"the request is not HTTP"),
        (post(b"{}", b"Origin: http://example.org\r\n"), b"403 Forbidden", b"web pages may not ask"),
        (post(b" " * 500_000), b"413 ", b"must not be larger than 65,600 bytes"),
        (post(b'{"name": "time", "name": "x"}', b"Connection: close\r\n"), b"400 Bad Request", b"a key occurs twice"),
        (
            b"POST /InputSizes HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n" + b" " * 99_999,
            b"413 ",
            b"must not be larger than 65,600 bytes",
        ),
        (
            b"POST /InputSizes HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            b'8\r\n{"name":\r\n8\r\n "time"}\r\n0\r\n\r\n',
            b"200 OK",
            b'{"inputSizes": [1]}',
        ),
        (
            b"POST /InputSizes HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-8\r\n",
            b"400 Bad Request",
            b"illegal chunk header",
        ),
    ],
)  # fmt: skip
def test_that_strange_requests_get_one_answer_and_the_connection_is_closed(
    request_: bytes, start: bytes, end: bytes, address: Address
) -> None:
    reply = exchange(address, request_)
    assert reply.startswith(b"HTTP/1.1 " + start)
    assert end in reply[-200:]
    assert len(re.findall(rb"HTTP/1.1 \d", reply)) == 1


def test_that_requests_may_come_all_at_once_and_are_answered_in_order(address: Address) -> None:
    last = post(b'{"name": "time"}', b"Connection: close\r\n", b"/OutputSizes")
    replies = exchange(address, INFO + post(b"nonsense") + post(b'{"name": "time"}') + last)
    assert re.findall(rb"HTTP/1.1 (\d+)", replies) == [b"200", b"400", b"200", b"200"]
    assert re.search(rb"protocolVersion.*not JSON.*inputSizes.*outputSizes", replies, re.DOTALL)


def test_that_a_client_that_asks_first_is_reported_to_continue(address: Address) -> None:
    body = b'{"name": "time"}'
    head = post(b"", b"Expect: 100-continue\r\nConnection: close\r\n").replace(
        b"Content-Length: 0", b"Content-Length: %d"
    )
    with connect(address, head % len(body)) as wire:
        assert wire.recv(1000).startswith(b"HTTP/1.1 100 ")
        wire.sendall(body)
        assert wire.makefile("rb").read().endswith(b'{"inputSizes": [1]}')
    assert exchange(address, head % 10**9).startswith(b"HTTP/1.1 413 ")  # without having sent it


def test_that_a_client_that_sends_no_more_gets_its_answer(address: Address) -> None:
    with connect(address, post(b'{"name": "time"}')) as wire:
        wire.shutdown(socket.SHUT_WR)
        assert wire.makefile("rb").read().endswith(b'{"inputSizes": [1]}')


@pytest.mark.parametrize("start", [b"GET /", b"POST /Evaluate HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"])
def test_that_a_request_that_trickles_is_cut_off(
    start: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("invgp.serving.model_server.SECONDS", 0.3)
    with serving_here(tmp_path) as address, connect(address, start) as wire:
        wire.settimeout(0.05)
        deadline, reply = time.monotonic() + PATIENCE, b""
        while not reply.endswith(b"}}") and time.monotonic() < deadline:
            with suppress(TimeoutError):
                wire.sendall(b" ")
                reply += wire.recv(1000)
    assert b"HTTP/1.1 408 " in reply
    assert b"a request must come within 0.3 s" in reply
    assert capsys.readouterr().err == ""


def test_that_idle_connections_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("invgp.serving.model_server.IDLE_SECONDS", 0.2)
    with serving_here(tmp_path) as address:
        assert exchange(address, b"") == b""
        assert exchange(address, INFO).endswith(b'["time"]}')


def test_that_nothing_is_left_of_a_server(tmp_path: Path) -> None:
    threads, children = set(threading.enumerate()), set(psutil.Process().children(recursive=True))
    with ThreadPoolExecutor(3) as pool, ExitStack() as stack:
        with start_server(tmp_path, held_model(tmp_path)) as server:
            address = address_of(server)
            for _ in range(20):
                stack.enter_context(connect(address))
            asked = [pool.submit(ask, address, "/Evaluate", HELD) for _ in range(3)]
            wait_until(lambda: server._runs._requested[ELSEWHERE] == 3 and (tmp_path / "log").exists())
        assert [future.result(PATIENCE)[0] for future in asked] == [500] * 3  # the one under way, and two that waited
    wait_until(lambda: set(threading.enumerate()) <= threads)
    left = set(psutil.Process().children(recursive=True)) - children
    assert [process for process in left if "resource_tracker" not in " ".join(process.cmdline())] == []


FEW_DESCRIPTORS = """
import logging, resource, sys
from pathlib import Path
from invgp.adapters import CallableModel, Quantity
from invgp.serving import ModelServer

logging.basicConfig(format="%(message)s")
model = CallableModel(lambda depth: depth, (Quantity("depth", "m"),), (Quantity("time", "s"),), name="time")
with ModelServer(model, Path(sys.argv[1]), port=0) as server:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))  # after the server has counted them
    print(server.url, flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("stopped")
"""


@pytest.mark.slow
def test_that_a_server_without_file_descriptors_warns_once_and_recovers(tmp_path: Path) -> None:
    with (
        subprocess.Popen(
            [sys.executable, "-c", FEW_DESCRIPTORS, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
        ExitStack() as stack,
    ):
        assert process.stdout is not None
        host, port = process.stdout.readline().strip().removeprefix("http://").split(":")
        address = host, int(port)
        for _ in range(150):
            stack.enter_context(connect(address))
        for _ in range(3):
            assert ask(address, "/Info")[0] == 200
        stack.close()
        deadline = time.monotonic() + PATIENCE
        while ask(address, "/Evaluate", EVALUATE)[0] != 200 and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(2)
        output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (0, "stopped\n")
    assert errors == "no connection can be accepted for now (Too many open files); idle connections are closed\n"


def test_that_few_file_descriptors_mean_few_connections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (128, 128))
    with ModelServer(MODEL, tmp_path, port=0) as server:
        assert server._most < 128


def test_that_of_failed_runs_the_latest_are_kept(tmp_path: Path) -> None:
    directory = tmp_path / "runs"
    with ModelServer(MODEL, directory, port=0) as server:
        for i in range(DIRECTORIES_KEPT + 5):
            RunDirectory(directory / f"run-{i}").make()
            server._runs._record_failure(f"run-{i}")
    assert len(list(directory.iterdir())) == DIRECTORIES_KEPT
