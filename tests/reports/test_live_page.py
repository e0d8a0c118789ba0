"""The live page of `invgp run --watch`: in a browser, and what it must not do."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.browser import HOSTILE, choose, needs_chromium, text_of
from helpers.command_line import CONFIG, MODULE, SITES, run_in_process
from helpers.problems import map_problem, reflector_map
from invgp import invert
from invgp.progress import ProgressState
from invgp.reports.live_page import describe_posterior, serve_live_page

PATIENCE = 60.0  # s


class EagerState(ProgressState):
    """Computes the moments of each posterior, as a page would."""

    def report_posterior(self, moments: Any) -> None:
        super().report_posterior(moments)
        self.latest = moments()


def get(address: str, path: str, host: str | None = None) -> tuple[int, bytes]:
    connection = HTTPConnection(address.removeprefix("http://").rstrip("/"), timeout=10)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    reply = connection.getresponse()
    return reply.status, reply.read()


def test_that_a_watched_inversion_has_the_same_posterior_and_reports_it() -> None:
    problem = map_problem(posterior="coupled gaussian")
    alone, state = invert(problem), EagerState()
    watched = invert(problem, monitor=state)
    assert watched.drop_attrs().identical(alone.drop_attrs())
    assert state.posteriors > 2
    shown = describe_posterior(problem, *state.latest)
    [resistivity, _] = shown["fields"]["latents"]
    assert resistivity["dimension"] == "layer"
    with serve_live_page(problem, state, 0, "A map") as (_, address):
        assert json.loads(get(address, "/fields.json")[1]) == {"number": state.posteriors, **shown}
        progress = json.loads(get(address, "/progress.json")[1])
    assert progress["done"] == watched.attrs["invgp_runs"]
    mean, covariance = state.latest
    columns = problem.latent_slices["resistivity"]
    expected, _ = problem.latents[0].link.moments(mean[:, columns], covariance[:, columns, columns])
    np.testing.assert_allclose(expected, watched["resistivity"].values, rtol=1e-12)


def test_that_only_this_page_of_this_machine_is_served() -> None:
    with serve_live_page(reflector_map(5), ProgressState(), 0, "A map") as (page, address):
        assert address.startswith("http://127.0.0.1:")
        assert get(address, "/")[0] == 200
        assert get(address, "/", "attacker.example")[0] == 403
        assert get(address, "/../../etc/passwd")[0] == 404
        assert get(address, "/fields.json") == (200, b"null")
        page.end("Finished.")
        assert json.loads(get(address, "/progress.json")[1])["outcome"] == "Finished."
    with pytest.raises(OSError, match="refused"):
        get(address, "/")


def test_that_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    write_slow_project(tmp_path, "0.0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run_in_process("run", "survey.toml", "--watch", str(port), cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr == f"invgp: --watch: must be a port that is free, was {port} (Address already in use)\n"


def write_slow_project(folder: Path, seconds: str) -> None:
    """A line of sites whose runs take a while, and fail for large depths with a message that is markup."""
    config = CONFIG.replace("A short line", "Line <script>alert(1)</script>")
    config = config.replace('positive = "down"', f'positive = "down"\nlong_name = {json.dumps(HOSTILE)}')
    (folder / "survey.toml").write_text(config)
    (folder / "sites.csv").write_text(SITES)
    (folder / "model.py").write_text(
        "import time\n\n\ndef time_(depth):\n"
        f"    time.sleep({seconds})\n"
        "    if depth.max() > 620.0:\n"
        "        raise ValueError('<img src=x onerror=alert(1)> too deep')\n"
        "    return 2.0 * depth / 2000.0\n"
    )
    text = (folder / "survey.toml").read_text()
    (folder / "survey.toml").write_text(text.replace("model:time", "model:time_").replace("std = 0.02", "std = 0.02"))


@needs_chromium
@pytest.mark.slow
def test_that_a_browser_shows_a_run_from_start_to_end(browser: Any, tmp_path: Path) -> None:
    write_slow_project(tmp_path, "0.4")
    command = [*MODULE, "run", "survey.toml", "--watch", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("invgp: live page at http://127.0.0.1:"), line
        browser.get(line.split()[-1])
        wait_until(lambda: browser.execute_script("return document.querySelectorAll('#field path').length") > 3)
        assert text_of(browser, "status").startswith("Running")
        wait_until(lambda: "runs" in text_of(browser, "runs"))
        choose(browser, "quantity", "std")
        assert "Standard deviation" in text_of(browser, "field")
        wait_until(lambda: "<img src=x onerror=alert(1)> too deep" in text_of(browser, "messages"))
        wait_until(lambda: not text_of(browser, "status").startswith("Running"))
        assert text_of(browser, "status").startswith("Finished: "), browser.get_log("browser")
        rest = process.stderr.read()
    assert process.returncode == 0, rest
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    assert browser.execute_script("return document.getElementById('bar').value") == 1.0
    assert [entry for entry in browser.get_log("browser") if "favicon" not in entry["message"]] == []


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_that_a_terminal_shows_a_line_within_a_second(tmp_path: Path) -> None:
    """As a ratio: long before the libraries for the inversion are loaded, whatever the speed of the machine."""
    import os  # noqa: PLC0415
    import pty  # noqa: PLC0415

    write_slow_project(tmp_path, "0.0")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    started = time.monotonic()
    command = [*MODULE, "run", "survey.toml"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=theirs, stdout=subprocess.DEVNULL, env=environment) as process:
        os.close(theirs)
        first = os.read(ours, 1000)
        seconds = time.monotonic() - started
        while process.poll() is None:
            try:
                os.read(ours, 65536)
            except OSError:
                break
    os.close(ours)
    assert first.startswith(b"reading survey.toml")
    assert seconds < 0.4 * (time.monotonic() - started), sys.version
