"""Our simulators for others: the real client of the package umbridge, and clients that mean no good."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import umbridge
import xarray as xr

from helpers.command_line import CONFIG, MODULE, Command, with_program, write_files
from helpers.running_commands import own_words
from invgp.adapters import Quantity, RunContext, UmbridgeModel
from invgp.adapters.testing import check_forward_model
from invgp.cli.serve import is_loopback

pytestmark = pytest.mark.processes

PATIENCE = 60.0  # s, for a busy machine
# Sleeps a twentieth of a second, fails below zero, dies at 666, waits at 777 until another process has come there, too.
MODEL = f"""\
import glob
import os
import time as clock

PATIENCE = {PATIENCE}
MET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "met-")


def time(depth):
    clock.sleep(0.05)
    if depth == 666:
        os._exit(1)
    if int(depth) == 777:
        open(f"{{MET}}{{os.getpid()}}", "w").close()
        end = clock.monotonic() + PATIENCE
        while len(glob.glob(MET + "*")) < 2 and clock.monotonic() < end:
            clock.sleep(0.01)
        return len(glob.glob(MET + "*"))
    if depth < 0:
        raise ValueError("a depth above the ground")
    return depth / 1000
"""


@contextmanager
def start_server(directory: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`invgp serve` in a process group of its own, as a shell starts it, and its address."""
    command = [*MODULE, "serve", "survey.toml", "--port", "0", *options]
    with subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            lines = "".join(process.stdout.readline() for _ in range(3))
            found = re.fullmatch(
                r"Serving '\S+' at (http://\S+)\n  in   depth \(1, in m\)\n  out  time \(1, in s\)\n", lines
            )
            assert found, lines + process.communicate()[1]
            yield process, found[1]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def end_server(process: subprocess.Popen[str], by: signal.Signals = signal.SIGINT) -> tuple[str, float]:
    """What a server says on standard error, and the seconds until its end."""
    started = time.monotonic()
    os.killpg(process.pid, by)
    _, errors = process.communicate(timeout=PATIENCE)
    return errors, time.monotonic() - started


def has_ended(pid: int) -> bool:
    """Whether a process has ended, now or in a moment; a zombie has."""
    for _ in range(100):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A config whose function takes its time."""
    directory = tmp_path_factory.mktemp("served")
    write_files(directory, CONFIG.replace('"model:time"', '"model:time"\nvectorised = false'))
    (directory / "model.py").write_text(MODEL)
    return directory


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """A server with two workers."""
    with start_server(folder, "--workers", "2") as (_, address):
        umbridge.HTTPModel(address, "time")([[1.0]])  # the workers have started
        yield address


def ask(url: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    """Status and JSON of one request."""
    host = url.removeprefix("http://")
    with closing(http.client.HTTPConnection(host, timeout=PATIENCE)) as client:
        client.request("GET" if body is None else "POST", path, body, headers)
        response = client.getresponse()
        return response.status, json.loads(response.read())


def test_that_the_real_client_gets_what_the_simulator_gives(url: str) -> None:
    assert umbridge.supported_models(url) == ["time"]
    model = umbridge.HTTPModel(url, "time")
    assert model.supports_evaluate()
    others = (model.supports_gradient(), model.supports_apply_jacobian(), model.supports_apply_hessian())
    assert not any(others)
    assert (model.get_input_sizes(), model.get_output_sizes()) == ([1], [1])
    assert model([[500.0]]) == [[0.5]]
    with pytest.raises(Exception, match=r"type InvalidInput: input must have one block for each of depth \(1, in m\)"):
        model([[500.0, 1.0]])
    with pytest.raises(Exception, match=r"type InvalidOutput: run run-\d+: ValueError: a depth above the ground"):
        model([[-1.0]])
    with pytest.raises(Exception, match="Model times not supported by server"):
        umbridge.HTTPModel(url, "times")


def test_that_our_own_client_conforms_through_it(url: str, tmp_path: Path) -> None:
    depth, seconds = Quantity("depth", "m"), Quantity("time", "s")
    model = UmbridgeModel((url,), "time", (depth,), (seconds,), connections=2)
    check_forward_model(model, np.array([[100.0], [250.5]]), tmp_path)
    values = np.linspace(1, 100, 24)[:, None]
    outcome = model.evaluate(values, RunContext([str(i) for i in range(24)], tmp_path))
    np.testing.assert_array_equal(outcome.outputs, values / 1000)
    both = model.evaluate(np.array([[777.0], [777.25]]), RunContext(["a", "b"], tmp_path))
    assert both.outputs.tolist() == [[2.0], [2.0]]  # two workers at once


def test_that_a_worker_that_dies_is_replaced_and_dies_alone(url: str) -> None:
    model = umbridge.HTTPModel(url, "time")
    with ThreadPoolExecutor(2) as pool:
        others = pool.submit(lambda: [model([[500.0]]) for _ in range(6)])
        with pytest.raises(
            Exception, match=r"type InvalidOutput: run run-\d+: the worker process died while it ran 'time'"
        ):
            model([[666.0]])
        assert others.result() == [[[0.5]]] * 6
    assert model([[500.0]]) == [[0.5]]


EVALUATE = {"name": "time", "input": [[1.0]], "config": {}}


@pytest.mark.parametrize(
    ("path", "message", "status", "kind", "sentence"),
    [
        ("/Evaluate", {**EVALUATE, "name": "x"}, 400, "ModelNotFound", "there is no model 'x'; there is 'time'"),
        ("/ModelInfo", {}, 400, "ModelNotFound", "there is no model None; there is 'time'"),
        ("/Evaluate", {**EVALUATE, "config": {"a": 1}}, 400, "InvalidInput", "takes no config, so it must be empty"),
        ("/Evaluate", {"name": "time"}, 400, "InvalidInput", "input must be a list of lists of numbers"),
        ("/Evaluate", {**EVALUATE, "input": [1.0]}, 400, "InvalidInput", "input must be a list of lists of numbers"),
        ("/Evaluate", {**EVALUATE, "input": [[1], [2]]}, 400, "InvalidInput", "it has 2, of sizes [1, 1]"),
        ("/Evaluate", {**EVALUATE, "input": [["1"]]}, 400, "InvalidInput", "input depth must hold finite numbers only"),
        ("/Evaluate", {**EVALUATE, "input": [[True]]}, 400, "InvalidInput", "input depth must hold finite numbers"),
        ("/Evaluate", {**EVALUATE, "input": [[float("nan")]]}, 400, "InvalidInput", "must hold finite numbers only"),
        ("/Gradient", EVALUATE, 400, "UnsupportedFeature", "Gradient is not supported by the model 'time'"),
        ("/ApplyHessian", EVALUATE, 400, "UnsupportedFeature", "ApplyHessian is not supported by the model 'time'"),
        ("/etc/passwd", EVALUATE, 404, "UnsupportedFeature", "there is no POST /etc/passwd"),
        ("/Evaluate", [], 400, "InvalidInput", "the request is not a JSON object"),
    ],
)
def test_that_errors_are_those_of_the_protocol(
    path: str, message: Any, status: int, kind: str, sentence: str, url: str
) -> None:
    got, reply = ask(url, path, json.dumps(message).encode())
    assert (got, list(reply), list(reply["error"]), reply["error"]["type"]) == (
        status, ["error"], ["type", "message"], kind,
    )  # fmt: skip
    assert sentence in reply["error"]["message"]


def test_that_requests_that_are_no_good_are_refused(url: str) -> None:
    assert ask(url, "/Info") == (200, {"protocolVersion": 1.0, "models": ["time"]})
    assert ask(url, "/Evaluate")[0] == 405
    assert ask(url, "/Evaluate", b"hello")[1]["error"]["message"].startswith("the request is not JSON: Expecting value")
    assert "nested" in ask(url, "/Evaluate", b"[" * 60_000)[1]["error"]["message"]
    assert ask(url, "/Evaluate", b" " * 100_000)[0] == 413
    assert ask(url, "/Evaluate", b"{}", **{"Content-Length": "9" * 18})[0] == 413
    assert ask(url, "/Evaluate", b"{}", **{"Content-Length": "-1"})[0] == 400
    assert ask(url, "/Evaluate", b"0\r\n\r\n", **{"Transfer-Encoding": "chunked", "Content-Length": "5"})[0] == 400
    page = json.dumps(EVALUATE).encode()
    assert ask(url, "/Evaluate", page, Origin="http://example.org")[0] == 403
    assert umbridge.HTTPModel(url, "time")([[500.0]]) == [[0.5]]


def test_that_an_inversion_through_it_gives_the_same(
    url: str, folder: Path, invgp_here: Command, tmp_path: Path
) -> None:
    forward = f'adapter = "umbridge"\nurls = ["{url}"]\nmodel = "time"\nconnections = 2'
    write_files(tmp_path, CONFIG.replace('adapter = "callable"\nfunction = "model:time"', forward))
    there = invgp_here("check", "survey.toml", cwd=tmp_path)
    assert (there.returncode, there.stderr) == (0, "")
    assert "  out  time = 0.5 s" in there.stdout
    for directory in (tmp_path, folder):
        assert invgp_here("run", "survey.toml", "-o", tmp_path / f"{directory.name}.nc", cwd=directory).returncode == 0
    with (
        xr.open_dataset(tmp_path / f"{tmp_path.name}.nc") as through,
        xr.open_dataset(tmp_path / f"{folder.name}.nc") as here,
    ):
        for name in ("depth", "depth_std"):
            np.testing.assert_array_equal(through[name], here[name])


def test_that_check_reports_sizes_that_do_not_match(url: str, invgp_here: Command, tmp_path: Path) -> None:
    config = CONFIG.replace('adapter = "callable"\nfunction = "model:time"', f'adapter = "umbridge"\nurls = ["{url}"]')
    config = config.replace('inputs = ["depth"]', 'model = "time"\ninputs = ["depth", "position"]')
    write_files(tmp_path, config)
    result = invgp_here("check", "survey.toml", cwd=tmp_path)
    assert result.returncode == 3
    assert result.stderr == (
        f"invgp: the simulator failed at the prior mean, site 1: run site-1: server {url} takes blocks of sizes [1] "
        "for the model 'time', but inputs must be as many blocks of the same sizes and are depth (1), position (1)\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_that_it_ends_at_once_with_all_its_programs(by: signal.Signals, tmp_path: Path) -> None:
    write_files(tmp_path, with_program(body="echo $$ > ../../started; sleep 60", directory=tmp_path))
    (tmp_path / "tmp").mkdir(exist_ok=True)
    with start_server(tmp_path) as (process, address):
        body = json.dumps({**EVALUATE, "name": "simulator.sh"}).encode()
        pid = tmp_path / "tmp" / "started"
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask, address, "/Evaluate", body)
            deadline = time.monotonic() + PATIENCE
            while not (pid.exists() and pid.read_text()):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            errors, seconds = end_server(process, by)
            assert asked.result()[0] == 500
    assert process.returncode == 0
    assert own_words(errors) == ["invgp: stopped"]
    assert not list((tmp_path / "tmp").glob("invgp-serve-*"))
    assert seconds < 20
    assert has_ended(int(pid.read_text()))


@pytest.mark.slow
def test_that_workers_do_not_outlive_a_server_that_was_killed(folder: Path) -> None:
    with start_server(folder) as (process, address):
        umbridge.HTTPModel(address, "time")([[1.0]])
        workers = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    assert len(workers) > 0
    assert all(has_ended(worker.pid) for worker in workers)


@pytest.mark.slow
def test_that_the_program_of_a_worker_that_was_killed_is_ended(tmp_path: Path) -> None:
    body = "echo $$ > ../../started; read _ _ _ worker _ < /proc/$PPID/stat; kill -9 $worker; sleep 60"
    write_files(tmp_path, with_program(body=body, directory=tmp_path))
    (tmp_path / "tmp").mkdir(exist_ok=True)
    with start_server(tmp_path) as (_, address):
        status, reply = ask(address, "/Evaluate", json.dumps({**EVALUATE, "name": "simulator.sh"}).encode())
        assert (status, "the worker process died" in reply["error"]["message"]) == (500, True)
        assert has_ended(int((tmp_path / "tmp" / "started").read_text()))


def test_that_a_port_in_use_is_reported_in_one_sentence(url: str, folder: Path, invgp_here: Command) -> None:
    port = url.rpartition(":")[2]
    result = invgp_here("serve", "survey.toml", "--port", port, cwd=folder)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "invgp: --host, --port: must be an address of this machine and a port that is free, were '127.0.0.1' and "
        f"{port} (Address already in use)\n"
    )
    result = invgp_here("serve", "survey.toml", "--host", "192.0.2.1", cwd=folder)
    assert result.returncode == 2
    assert result.stderr.endswith("were '192.0.2.1' and 4242 (Cannot assign requested address)\n")


@pytest.mark.slow
def test_that_only_the_local_machine_is_served_by_default(url: str, folder: Path) -> None:
    assert url.startswith("http://127.0.0.1:")
    with start_server(folder, "--host", "0.0.0.0") as (process, _):
        assert "anyone who can reach this address can run the simulator" in end_server(process)[0]
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("example.org")
