"""Models behind UM-Bridge: the real servers of the package umbridge, and servers that mean no good."""

from __future__ import annotations

import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from invgp.adapters import AdapterError, Quantity, RunContext, Status, UmbridgeModel
from invgp.adapters.exchange import DEEPEST, parse_json
from invgp.adapters.testing import check_forward_model
from invgp.config import load
from invgp.inference.concurrency import Concurrency
from invgp.inference.evaluate import evaluate
from invgp.inference.invert import invert

INPUTS = (Quantity("depth", "m", (1, 2)), Quantity("velocity", "m s-1"))
OUTPUTS = (Quantity("time", "s", (1, 2)), Quantity("total", "s"))
VALUES = np.array([[100.0, 200.0, 2000.0], [150.0, 260.0, 2100.0], [90.0, 111.0, 1900.0]])
PATIENCE = 20.0  # s, for a busy machine

# Fails where the velocity is below zero, gives NaN where it is zero.
REAL_SERVER = """
import sys, time, umbridge

class Times(umbridge.Model):
    def get_input_sizes(self, config): return [2, 1]
    def get_output_sizes(self, config): return [2, 1]
    def supports_evaluate(self): return True
    def __call__(self, parameters, config={}):
        time.sleep(config.get("seconds", 0.0))
        [depths, [velocity]] = parameters
        if velocity < 0:
            raise ValueError("a velocity below zero")
        if velocity == 0:
            return [[float("nan"), float("inf")], [-float("inf")]]
        times = [2 * depth / velocity for depth in depths]
        return [times, [sum(times)]]

class Inert(Times):
    def supports_evaluate(self): return False

umbridge.serve_models([Times("times"), Inert("inert")], int(sys.argv[1]), max_workers=int(sys.argv[2]))
"""


def expected(values: np.ndarray) -> np.ndarray:
    times = 2 * values[:, :2] / values[:, 2:]
    return np.column_stack([times, times.sum(axis=1)])


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the server did not come up"
            time.sleep(0.05)


@contextmanager
def real_server(port: int, workers: int = 1) -> Iterator[str]:
    """`umbridge.serve_models` in a process of its own."""
    command = [sys.executable, "-c", REAL_SERVER, str(port), str(workers)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def servers() -> Iterator[list[str]]:
    """Two real servers; the second runs four models at once."""
    with ExitStack() as stack:
        yield [stack.enter_context(real_server(free_port(), workers)) for workers in (1, 4)]


Behaviour = Callable[[socket.socket], None]


class RawServer:
    """Says what UM-Bridge wants to hear, until it is asked to evaluate; then it does as it likes."""

    def __init__(self, behaviour: Behaviour, told: dict[str, Any] | None = None) -> None:
        self._behaviour = behaviour
        self._told = {
            "/Info": {"protocolVersion": 1.0, "models": ["times"]},
            "/ModelInfo": {"support": {"Evaluate": True}},
            "/InputSizes": {"inputSizes": [2, 1]},
            "/OutputSizes": {"outputSizes": [2, 1]},
            **(told or {}),
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
                while path := _request(connection):
                    if path == "/Evaluate":
                        self.asked += 1
                        self._behaviour(connection)
                        return
                    connection.sendall(http(json.dumps(self._told[path]).encode(), close=False))
            except OSError:
                return

    def close(self) -> None:
        self._listener.close()


def _request(connection: socket.socket) -> str:
    """The path of the next request, which is read to its end; nothing if there is none."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return ""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    while length and len(body) < int(length[1]):
        body += connection.recv(65536)
    return head.split()[1].decode()


def http(body: bytes, status: str = "200 OK", *, close: bool = True) -> bytes:
    end = b"Connection: close\r\n" if close else b""
    return b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status.encode(), end, len(body), body)


def sends(data: bytes) -> Behaviour:
    return lambda connection: connection.sendall(data)


GOOD = http(b'{"output": [[1, 2.5], [3e0]]}')


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
    while True:
        connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")


def continues_for_ever(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


@contextmanager
def raw_server(behaviour: Behaviour, told: dict[str, Any] | None = None) -> Iterator[RawServer]:
    with closing(RawServer(behaviour, told)) as server:
        yield server


def times_model(*urls: str, **settings: Any) -> UmbridgeModel:
    return UmbridgeModel(urls, **{"model": "times", "inputs": INPUTS, "outputs": OUTPUTS, "timeout": 10, **settings})


def context(count: int, directory: Path = Path("/nonexistent")) -> RunContext:
    return RunContext([f"site-{i}" for i in range(count)], directory)


def one_run(behaviour: Behaviour, **settings: Any) -> tuple[Status, str]:
    with raw_server(behaviour) as server:
        outcome = times_model(server.url, **settings).evaluate(VALUES[:1], context(1))
    return outcome.status[0], outcome.messages[0].replace(server.url, "URL")


def test_that_a_real_server_conforms(servers: list[str], tmp_path: Path) -> None:
    check_forward_model(times_model(servers[0]), VALUES, tmp_path)


def test_that_several_servers_with_several_connections_conform(servers: list[str], tmp_path: Path) -> None:
    model = times_model(*servers, connections=2)
    check_forward_model(model, VALUES, tmp_path)
    np.testing.assert_array_equal(model.evaluate(VALUES, context(3)).outputs, expected(VALUES))


def test_that_what_goes_wrong_in_a_real_server_is_told_and_harms_no_other_row(servers: list[str]) -> None:
    """Python's server writes nan and inf, which are not JSON, and gives no JSON at all for what a model raises."""
    values = np.vstack([VALUES, [1, 2, -1], VALUES, [1, 2, 0], VALUES, [1, np.nan, 1]])
    outcome = times_model(*servers).evaluate(values, context(12))
    bad = [3, 7, 11]
    assert [outcome.status[i] for i in bad] == [Status.RAISED, Status.NAN, Status.NAN]
    assert re.search(r"^run site-3: server http://.*: HTTP status 500: .*Internal Server Error", outcome.messages[3])
    assert outcome.messages[7].endswith("output time[1] is nan")
    assert outcome.messages[11].endswith("input depth[2] is nan, which JSON cannot carry")
    np.testing.assert_array_equal(np.delete(outcome.outputs, bad, axis=0), expected(np.vstack([VALUES] * 3)))


@pytest.mark.parametrize(
    ("which", "settings"),
    [
        pytest.param([0, 1], {}, id="two servers"),
        pytest.param([1], {"connections": 2}, id="a server that runs several at once"),
    ],
)
def test_that_runs_really_happen_at_once(
    which: list[int], settings: dict[str, Any], servers: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The best of several, since others may use this machine."""
    model = times_model(*(servers[i] for i in which), config={"seconds": 0.05}, **settings)
    values = np.repeat(VALUES, 8, axis=0) + np.arange(24.0)[:, None]  # all different
    at_once, attempts = 0.0, 0
    while at_once <= 1.5 and attempts < 20:
        started, attempts, concurrency = time.perf_counter(), attempts + 1, Concurrency()
        with caplog.at_level(logging.INFO, logger="invgp.adapters.umbridge"):
            outcome = evaluate(model, values, context(24), concurrency=concurrency)
        at_once = 24 * 0.05 / (time.perf_counter() - started)
        np.testing.assert_array_equal(outcome.outputs, expected(values))
    assert at_once > 1.5
    said = [re.findall(r"24 runs in .* s, ([\d.]+) at once on average", r.message) for r in caplog.records]
    assert len(said) == attempts
    assert float(said[-1][0]) > 1.5
    assert 1.5 < concurrency.reached < 2.05


SURVEY = """\
[dimensions]
layer = [1, 2]
[survey]
file = "sites.csv"
[survey.coordinates.position]
unit = "m"
[survey.observations]
time = { columns = ["t1", "t2"], dimension = "layer", unit = "s" }
total = { columns = ["t"], unit = "s" }
[latents]
depth = { unit = "m", dimension = "layer", mean = [200, 500], std = "15%", kernel = { length_scale = 1000 } }
velocity = { unit = "m s-1", mean = 2000, std = 100, kernel = { length_scale = 1000 }, link = "log" }
[forward]
ADAPTER
inputs = ["depth", "velocity"]
outputs = ["time", "total"]
[noise]
std = { time = 0.01, total = 0.02 }
[inference]
max_evaluations = 4
"""


def test_that_a_survey_is_inverted_through_real_servers_as_through_a_function(
    servers: list[str], tmp_path: Path
) -> None:
    (tmp_path / "sites.csv").write_text("position,t1,t2,t\n0,0.21,0.5,0.7\n300,0.22,0.52,0.75\n700,0.2,0.49,0.7\n")
    (tmp_path / "times.py").write_text(
        "def times(depth, velocity):\n    time = 2 * depth / velocity[:, None]\n    return time, time.sum(axis=1)\n"
    )
    posteriors = []
    for adapter in ('"callable"\nfunction = "times:times"', f'"umbridge"\nmodel = "times"\nurls = {servers}'):
        (tmp_path / "survey.toml").write_text(SURVEY.replace("ADAPTER", f"adapter = {adapter}"))
        posteriors.append(invert(load(tmp_path / "survey.toml"), run_directory=tmp_path / "runs"))
    for name in ("depth", "depth_std", "velocity", "velocity_std", "elbo"):
        np.testing.assert_array_equal(*(posterior[name] for posterior in posteriors))


def test_that_a_server_that_is_down_costs_no_row(servers: list[str], caplog: pytest.LogCaptureFixture) -> None:
    model = times_model(f"http://127.0.0.1:{free_port()}", servers[0], retries=1, config={"seconds": 0.01})
    values = np.repeat(VALUES, 10, axis=0)
    outcome = model.evaluate(values, context(30))
    np.testing.assert_array_equal(outcome.outputs, expected(values))
    assert ["it gets no more runs of this batch" in record.message for record in caplog.records] == [True]


def test_that_a_single_row_does_not_need_the_first_server(servers: list[str]) -> None:
    model = times_model(f"http://127.0.0.1:{free_port()}", servers[0])
    np.testing.assert_array_equal(model.evaluate(VALUES[:1], context(1)).outputs, expected(VALUES[:1]))
    assert model.evaluate(VALUES[:0], context(0)).outputs.shape == (0, 3)


def test_that_all_rows_fail_soon_if_no_server_is_there() -> None:
    urls = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
    started = time.monotonic()
    outcome = times_model(*urls, retries=2).evaluate(np.repeat(VALUES, 20, axis=0), context(60))
    assert time.monotonic() - started < 3
    assert set(outcome.status) == {Status.NOT_STARTED}
    assert re.search(r"^run site-7: server http://127.* cannot be reached: .*refused", outcome.messages[7])


def test_that_a_server_that_comes_up_late_is_waited_for() -> None:
    port = free_port()
    model = times_model(f"http://127.0.0.1:{port}", retries=12)
    with ExitStack() as stack:
        starting = threading.Timer(0.3, lambda: stack.enter_context(real_server(port)))
        starting.start()
        outcome = model.evaluate(VALUES, context(3))
        starting.join()
    np.testing.assert_array_equal(outcome.outputs, expected(VALUES))


def test_that_a_row_that_broke_off_goes_to_another_server(servers: list[str]) -> None:
    """The bad server is much quicker than the good one: it would use up every row's tries."""
    with raw_server(sends(b"")) as hangs_up:
        model = times_model(hangs_up.url, servers[0], retries=1, config={"seconds": 0.02})
        values = np.repeat(VALUES, 4, axis=0)
        np.testing.assert_array_equal(model.evaluate(values, context(12)).outputs, expected(values))
        assert hangs_up.asked > 0


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
        (sends(b"SSH-2.0-OpenSSH_9.2\r\n"), Status.UNREADABLE, "the reply is not HTTP (BadStatusLine)"),
    ],
)
def test_that_a_bad_answer_is_told_at_once(behaviour: Behaviour, status: Status, sentence: str) -> None:
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
    assert time.monotonic() - started < 1.5
    assert (status, message) == (Status.TIMEOUT, "run site-0: server URL: no whole answer within 0.4 s")


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


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (
            {"/InputSizes": {"inputSizes": [3]}},
            "takes blocks of sizes [3] for the model 'times', but inputs must be as many blocks of the same sizes and "
            "are depth (2), velocity (1)",
        ),
        (
            {"/OutputSizes": {"outputSizes": [2, 2]}},
            "gives blocks of sizes [2, 2] for the model 'times', but outputs must be as many blocks of the same sizes "
            "and are time (2), total (1)",
        ),
        (
            {"/InputSizes": {"inputSizes": 3}},
            "takes blocks of sizes 3.0 for the model 'times', but inputs must be as many blocks of the same sizes and "
            "are depth (2), velocity (1)",
        ),
        (
            {"/Info": {"protocolVersion": 1.0, "models": ["t\ud800imes"]}},
            "offers no model 'times'; did you mean 't?imes'?",
        ),
        ({"/Info": {"protocolVersion": 1.0, "models": ["tims"]}}, "offers no model 'times'; did you mean 'tims'?"),
        ({"/Info": {"protocolVersion": 2.0, "models": []}}, "must speak UM-Bridge 1.0, but speaks 2.0"),
        ({"/Info": ["times"]}, 'does not speak UM-Bridge: /Info gave ["times"]'),
        ({"/ModelInfo": {"support": {}}}, "does not evaluate the model 'times'"),
    ],
)
def test_that_a_server_that_does_not_fit_is_told_in_one_sentence(told: dict[str, Any], sentence: str) -> None:
    with raw_server(sends(GOOD), told) as server:
        outcome = times_model(server.url).evaluate(VALUES, context(3))
    assert set(outcome.status) == {Status.NOT_STARTED}
    assert outcome.messages == tuple(f"run site-{i}: server {server.url} {sentence}" for i in range(3))
    assert server.asked == 0


def test_that_a_model_that_does_not_evaluate_is_told(servers: list[str]) -> None:
    outcome = times_model(servers[0], model="inert").evaluate(VALUES, context(3))
    assert outcome.messages[0].endswith("does not evaluate the model 'inert'")


def test_that_a_server_that_never_says_what_it_offers_is_not_waited_for() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        outcome = times_model(url, timeout=0.3).evaluate(np.repeat(VALUES, 10, axis=0), context(30))
    assert outcome.messages[29] == (
        f"run site-29: server {url} does not say what it offers: no whole answer within 0.3 s"
    )


def test_that_a_server_that_never_says_what_it_offers_costs_no_row(
    servers: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        values = np.repeat(VALUES, 4, axis=0)
        model = times_model(url, servers[0], timeout=1.0, config={"seconds": 0.2})
        outcome = model.evaluate(values, context(12))
    assert outcome.status == (Status.OK,) * 12, outcome.messages
    assert f"{url} does not say what it offers" in caplog.text


def test_that_ctrl_c_does_not_wait_for_the_servers() -> None:
    with ExitStack() as stack:
        urls = [stack.enter_context(raw_server(lambda _: time.sleep(30))).url for _ in range(2)]
        seconds, errors = interrupted(urls)
    assert seconds < 20
    assert errors.strip().endswith("KeyboardInterrupt")


def interrupted(urls: list[str]) -> tuple[float, str]:
    """Seconds from Ctrl-C to the end of a process that waits for servers, and its standard error."""
    script = (
        "import sys; from pathlib import Path; import numpy as np\n"
        "from invgp.adapters import Quantity, RunContext, UmbridgeModel\n"
        f"model = UmbridgeModel({tuple(urls)!r}, 'times', {INPUTS!r}, {OUTPUTS!r})\n"
        "print('ready', flush=True)\n"
        "model.evaluate(np.ones((8, 3)), RunContext([str(i) for i in range(8)], Path('.')))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    return time.monotonic() - started, errors


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"urls": ()}, "urls: must name at least one server, but is empty"),
        ({"urls": ("http://a", "http://a")}, "urls: must differ; connections says how many requests"),
        ({"urls": ("ftp://a",)}, r"urls\[0\]: must be like 'http://localhost:4242', but 'ftp://a' is no address"),
        ({"urls": ("http://a:port",)}, r"urls\[0\]: .* is no address"),
        ({"urls": ("http://me:secret@a",)}, r"urls\[0\]: .* holds more than scheme, host, port and path"),
        ({"urls": ("http://a/\r\nX: y",)}, r"urls\[0\]: .* holds more than scheme, host, port and path"),
        ({"model": ""}, "model: must be the name of a model"),
        ({"timeout": 0.0}, "timeout: must be a positive number of seconds"),
        ({"timeout": float("inf")}, "timeout: must be a positive number of seconds"),
        ({"retries": -1}, "retries: must be at least 0"),
        ({"connections": 0}, "connections: must be at least 1"),
        ({"config": {"a": {1}}}, "config: must be what JSON can hold"),
        ({"config": {"a": float("nan")}}, "config: must be what JSON can hold"),
        ({"inputs": ()}, "inputs: must name at least one quantity"),
    ],
)
def test_that_settings_that_cannot_work_are_refused(settings: dict[str, Any], sentence: str) -> None:
    urls = settings.pop("urls", ("http://localhost",))
    with pytest.raises(AdapterError, match=sentence):
        times_model(*urls, **settings)


def test_that_the_digest_knows_the_version_and_the_config_but_not_the_address() -> None:
    one = times_model("http://a", config={"level": 1, "grid": 2})
    assert one.digest == times_model("http://b", "http://c", config={"grid": 2, "level": 1}, retries=0).digest
    others = [{"version": "2"}, {"config": {"level": 2}}, {"model": "t"}, {"inputs": OUTPUTS}]
    assert len({one.digest, *(times_model("http://a", **other).digest for other in others)}) == 5


def test_that_a_task_keeps_all_connections_busy() -> None:
    assert times_model("http://a").rows_per_task == 32
    assert times_model("http://a", "http://b", connections=4).rows_per_task == 256


def test_that_json_is_read_as_servers_write_it() -> None:
    read = parse_json(b'\xef\xbb\xbf{"a": [nan, -nan, NaN, inf, -inf, -Infinity, 3], "nan inf": "[[[ nan \\" inf"}')
    np.testing.assert_array_equal(read["a"], [np.nan, np.nan, np.nan, np.inf, -np.inf, -np.inf, 3.0])
    assert read["nan inf"] == '[[[ nan " inf'
    assert parse_json(b"[" * DEEPEST + b"]" * DEEPEST)
    for wrong in (b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1), b"", b"\xff", b"nano", b'{"a": nan', b"'a'"):
        with pytest.raises(ValueError, match=r"nested|Expecting|decode"):
            parse_json(wrong)
