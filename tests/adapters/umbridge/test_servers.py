"""Real servers, several of them, up, down and late."""

from __future__ import annotations

import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.umbridge_servers import INPUTS, OUTPUTS, VALUES, context, raw_server, sends, times_model
from invgp.adapters import AdapterError, Quantity, Status, split_jacobian
from invgp.adapters.protocol import cost_of_run
from invgp.adapters.testing import check_forward_model
from invgp.adapters.umbridge_jacobians import choose_endpoint
from invgp.config import load
from invgp.execution.evaluate import Concurrency, evaluate
from invgp.inference.invert import invert

pytestmark = pytest.mark.processes

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

def derivatives(out_wrt, in_wrt, parameters):
    [[first, second], [velocity]] = parameters
    if velocity > 3000:
        raise ValueError("no derivatives above 3000")
    by_depth = [[2 / velocity, 0.0], [0.0, 2 / velocity], [2 / velocity, 2 / velocity]]
    by_velocity = [[-2 * d / velocity**2] for d in (first, second, first + second)]
    rows = (by_depth, by_velocity)[in_wrt]
    return rows[:2] if out_wrt == 0 else rows[2:]

class Rows(Times):
    def supports_gradient(self): return True
    def gradient(self, out_wrt, in_wrt, parameters, sens, config={}):
        rows = derivatives(out_wrt, in_wrt, parameters)
        return [sum(s * row[j] for s, row in zip(sens, rows, strict=True)) for j in range(len(rows[0]))]

class Columns(Times):
    def supports_apply_jacobian(self): return True
    def apply_jacobian(self, out_wrt, in_wrt, parameters, vec, config={}):
        return [sum(v * x for v, x in zip(vec, row, strict=True)) for row in derivatives(out_wrt, in_wrt, parameters)]

models = [Times("times"), Inert("inert"), Rows("rows"), Columns("columns")]
umbridge.serve_models(models, int(sys.argv[1]), max_workers=int(sys.argv[2]))
"""


def expected_outputs(values: np.ndarray) -> np.ndarray:
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


def test_that_a_real_server_conforms(servers: list[str], tmp_path: Path) -> None:
    check_forward_model(times_model(servers[0]), VALUES, tmp_path)


def test_that_several_servers_with_several_connections_conform(servers: list[str], tmp_path: Path) -> None:
    model = times_model(*servers, connections=2)
    check_forward_model(model, VALUES, tmp_path)
    np.testing.assert_array_equal(model.evaluate(VALUES, context(3)).outputs, expected_outputs(VALUES))


def test_that_a_fault_of_a_real_server_is_reported_and_affects_no_other_row(servers: list[str]) -> None:
    """Python's server writes nan and inf, which are not JSON, and gives no JSON at all for what a model raises."""
    values = np.vstack([VALUES, [1, 2, -1], VALUES, [1, 2, 0], VALUES, [1, np.nan, 1]])
    outcome = times_model(*servers).evaluate(values, context(12))
    bad = [3, 7, 11]
    assert [outcome.status[i] for i in bad] == [Status.RAISED, Status.NAN, Status.NAN]
    assert re.search(r"^run site-3: server http://.*: HTTP status 500: .*Internal Server Error", outcome.messages[3])
    assert outcome.messages[7].endswith("output time[1] is nan")
    assert outcome.messages[11].endswith("input depth[2] is nan, which JSON cannot carry")
    np.testing.assert_array_equal(np.delete(outcome.outputs, bad, axis=0), expected_outputs(np.vstack([VALUES] * 3)))


@pytest.mark.parametrize("model", ["rows", "columns"])
def test_that_the_jacobian_comes_from_products_with_unit_vectors(
    model: str, servers: list[str], tmp_path: Path
) -> None:
    derived = times_model(servers[0], model=model, jacobian=True, jacobian_cost=0.5)
    check_forward_model(derived, VALUES, tmp_path)
    values = np.vstack([VALUES, [1.0, 2.0, 4000.0]])
    found = derived.evaluate(values, context(4))
    assert found.status[3] is Status.RAISED
    assert re.search(r"(Gradient|ApplyJacobian): HTTP status 500", found.messages[3])
    outputs, jacobians = split_jacobian(derived, found.outputs[:3])
    np.testing.assert_array_equal(outputs, expected_outputs(VALUES))
    assert jacobians is not None
    steps = np.eye(3) * [0.1, 0.1, 1.0]
    numeric = [expected_outputs(VALUES + step) - expected_outputs(VALUES - step) for step in steps]
    numeric = np.stack(numeric, axis=-1) / (2.0 * steps.diagonal())
    np.testing.assert_allclose(jacobians, numeric, rtol=1e-6)
    assert derived.digest != times_model(servers[0], model=model).digest
    assert cost_of_run(derived) == 1.5


def test_that_a_server_without_derivatives_is_named(servers: list[str]) -> None:
    found = times_model(servers[0], jacobian=True).find_server_faults()
    assert found == (f"server {servers[0]} gives no derivatives of the model 'times'; set jacobian = false",)
    with pytest.raises(AdapterError, match=r"jacobian_cost: must be a number of runs, at least 0, was -1\.0"):
        times_model(servers[0], jacobian_cost=-1.0)


def test_that_the_endpoint_with_fewer_requests_is_used() -> None:
    support = {"Gradient": True, "ApplyJacobian": True}
    field, data = Quantity("k", "1", tuple(range(100))), Quantity("h", "m", tuple(range(5)))
    assert choose_endpoint(support, [field], [data]) == "Gradient"
    assert choose_endpoint(support, [data], [field]) == "ApplyJacobian"
    assert choose_endpoint({"Gradient": 1, "Evaluate": True}, [data], [field]) == ""


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
        np.testing.assert_array_equal(outcome.outputs, expected_outputs(values))
    assert at_once > 1.5
    printed = [re.findall(r"24 runs in .* s, ([\d.]+) at once on average", r.message) for r in caplog.records]
    assert len(printed) == attempts
    assert float(printed[-1][0]) > 1.5
    assert 1.5 < concurrency.average < 2.05


def test_that_requests_that_wait_in_a_serial_server_do_not_count_as_runs(servers: list[str]) -> None:
    model = times_model(servers[0], config={"seconds": 0.05}, connections=4)
    values = np.repeat(VALUES, 8, axis=0) + np.arange(24.0)[:, None]
    concurrency = Concurrency()
    outcome = evaluate(model, values, context(24), concurrency=concurrency)
    np.testing.assert_array_equal(outcome.outputs, expected_outputs(values))
    assert 0.5 < concurrency.average < 1.5  # 3.6 requests at once on average


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
    np.testing.assert_array_equal(outcome.outputs, expected_outputs(values))
    assert ["it gets no more runs of this batch" in record.message for record in caplog.records] == [True]


def test_that_a_single_row_does_not_need_the_first_server(servers: list[str]) -> None:
    model = times_model(f"http://127.0.0.1:{free_port()}", servers[0])
    np.testing.assert_array_equal(model.evaluate(VALUES[:1], context(1)).outputs, expected_outputs(VALUES[:1]))
    assert model.evaluate(VALUES[:0], context(0)).outputs.shape == (0, 3)


def test_that_servers_that_cannot_be_used_are_named(servers: list[str]) -> None:
    absent = f"http://127.0.0.1:{free_port()}"
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:  # accepts connections and answers nothing
        silent = f"http://127.0.0.1:{listener.getsockname()[1]}"
        refused, hangs = times_model(servers[0], absent, silent, timeout=0.5).find_server_faults()
    assert refused.startswith(f"server {absent} cannot be reached")
    assert hangs.startswith(f"server {silent} does not say what it offers")
    (unfit,) = times_model(servers[0], model="other").find_server_faults()
    assert "offers no model 'other'" in unfit


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
    np.testing.assert_array_equal(outcome.outputs, expected_outputs(VALUES))


def test_that_an_interrupted_row_is_sent_to_another_server(servers: list[str]) -> None:
    """The bad server is much quicker than the good one: it would use up every row's tries."""
    with raw_server(sends(b"")) as hangs_up:
        model = times_model(hangs_up.url, servers[0], retries=1, config={"seconds": 0.02})
        values = np.repeat(VALUES, 4, axis=0)
        np.testing.assert_array_equal(model.evaluate(values, context(12)).outputs, expected_outputs(values))
        assert hangs_up.asked > 0


def test_that_a_model_that_does_not_evaluate_is_reported(servers: list[str]) -> None:
    outcome = times_model(servers[0], model="inert").evaluate(VALUES, context(3))
    assert outcome.messages[0].endswith("does not evaluate the model 'inert'")


def test_that_a_server_without_model_information_is_not_waited_for() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        outcome = times_model(url, timeout=0.3).evaluate(np.repeat(VALUES, 10, axis=0), context(30))
    assert outcome.messages[29] == (
        f"run site-29: server {url} does not say what it offers: no whole answer within 0.3 s"
    )


def test_that_a_server_without_model_information_costs_no_row(
    servers: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        values = np.repeat(VALUES, 4, axis=0)
        model = times_model(url, servers[0], timeout=1.0, config={"seconds": 0.2})
        outcome = model.evaluate(values, context(12))
    assert outcome.status == (Status.OK,) * 12, outcome.messages
    assert f"{url} does not say what it offers" in caplog.text


@pytest.mark.slow
def test_that_ctrl_c_does_not_wait_for_the_servers() -> None:
    with ExitStack() as stack:
        urls = [stack.enter_context(raw_server(lambda _: time.sleep(30))).url for _ in range(2)]
        seconds, errors = interrupt_client(urls)
    assert seconds < 20
    assert errors.strip().endswith("KeyboardInterrupt")


def interrupt_client(urls: list[str]) -> tuple[float, str]:
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
