"""A live page about an inversion, for a browser on the same machine: `invgp run --watch PORT`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from threading import BoundedSemaphore, Event, Lock, Thread
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from invgp.errors import ArgumentError
from invgp.formatting import format_duration
from invgp.maps.nodes import as_points
from invgp.plots.axis_labels import quantity_name, unit_label
from invgp.plots.plot_data import read_curves, read_names, read_values
from invgp.posterior import Diagnostics, Solution, to_dataset
from invgp.problem import Floats, Problem
from invgp.progress import ProgressState
from invgp.reports.explorer_data import explorer_data
from invgp.reports.page import join_scripts, read_text

HOST = "127.0.0.1"
SCRIPTS = ("numbers.js", "axes.js", "fields.js", "live.js")
MOST_CONNECTIONS = 16
SECONDS_OF_REQUEST = 5.0
SHARE_OF_TIME = 0.05  # most of the time that is spent on maps for the page
SECONDS_BETWEEN_REQUESTS = 4.0  # most of a page that is open: it asks once per second
SECONDS_FOR_LAST_REPLY = 20.0


@dataclass
class LivePage:
    """What the page shows: the progress of an inversion, and maps of its latest posterior.

    Parameters
    ----------
    problem : Problem
        The problem that is inverted.
    progress : ProgressState
        Its monitor. The server reads it while the inversion writes it.
    title : str
        Title of the page.

    Attributes
    ----------
    outcome : str
        Empty while the inversion runs; then a sentence about its end.
    """

    problem: Problem
    progress: ProgressState
    title: str
    outcome: str = ""
    last_request: float = -np.inf
    last_reply: Event = field(default_factory=Event)
    _lock: Any = field(default_factory=Lock)
    _outcome_sent: bool = False
    _fields: bytes = b"null"
    _fields_number: int = 0
    _next_fields: float = 0.0

    def end(self, outcome: str) -> None:
        """Set the sentence about the end of the inversion."""
        self.progress.finish()
        self.outcome = outcome

    def wait_for_last_reply(self) -> None:
        """Wait until a page that is open in a browser has got the outcome and the last maps."""
        deadline = time.monotonic() + SECONDS_FOR_LAST_REPLY
        while time.monotonic() < min(deadline, self.last_request + SECONDS_BETWEEN_REQUESTS):
            if self.last_reply.wait(0.1):
                return

    def html(self) -> tuple[str, str]:
        """Return the page, and its security policy."""
        script, digest = join_scripts(SCRIPTS)
        policy = (
            f"default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; "
            f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        environment = Environment(loader=PackageLoader("invgp.reports", "."), autoescape=True)
        page = environment.get_template("live.html.j2").render(
            title=self.title,
            style=Markup(read_text("page.css")),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own files
        )
        return page, policy

    def progress_json(self) -> bytes:
        """Return the numbers of the progress as JSON."""
        progress, ended = self.progress, bool(self.outcome)
        where, bound, runs = progress.text
        reply = {
            "outcome": self.outcome,
            "where": where,
            "bound": bound,
            "runs": runs,
            "share": progress.share_done,
            "elapsed": format_duration(time.perf_counter() - progress.started),
            "done": progress.done,
            "reused": progress.reused,
            "failed": progress.failed,
            "atOnce": progress.at_once,
            "messages": progress.messages,
            "posteriors": progress.posteriors,
        }
        if ended and self._outcome_sent:  # the page has the last maps, too
            self.last_reply.set()
        self._outcome_sent = ended
        return json.dumps(reply, allow_nan=False).encode()

    def fields_json(self) -> bytes:
        """Return the latest posterior as JSON; an older one if maps would take too much of the time."""
        with self._lock:
            number, moments = self.progress.posteriors, self.progress.moments
            due = bool(self.outcome) or time.monotonic() > self._next_fields
            if moments is not None and number > self._fields_number and due:
                started = time.monotonic()
                self._fields = json.dumps({"number": number, **describe_posterior(self.problem, *moments())}).encode()
                self._fields_number = number
                self._next_fields = started + (time.monotonic() - started) / SHARE_OF_TIME
            return self._fields


def describe_posterior(problem: Problem, mean: Floats, covariance: Floats) -> dict[str, Any]:
    """Return the fields of a posterior as in a report, and its scalars.

    Parameters
    ----------
    problem : Problem
        The problem.
    mean : array, shape (N, Q)
        Mean of the latent processes at the sites or nodes.
    covariance : array, shape (N, Q, Q)
        Their covariance.

    Returns
    -------
    dict
        Data for JSON.
    """
    points = len(mean) if problem.grid is None else problem.grid.size  # the other nodes are sites of site models
    mean, covariance = mean[:points], covariance[:points]
    sites, outputs = problem.survey.Y.shape
    unknown = np.full((sites, outputs), np.nan)
    solution = Solution(
        mean=mean,
        covariance=covariance,
        draws=mean[None],
        processes=None,
        predicted=unknown,
        predicted_std=unknown,
        elbo=np.empty(0),
        runs=np.empty(0, dtype=np.int64),
        runs_total=0,
        runs_failed=0,
        seed=0,
        status="",
        converged=False,
        diagnostics=Diagnostics(np.full(outputs, np.nan), np.full(sites, np.nan), ()),
        few_runs_std=None if problem.grid is None else np.zeros_like(mean),
    )
    dataset = as_points(to_dataset(problem, solution)).assign_attrs(invgp_observations="").drop_vars("correlation")
    scalars = [
        {
            "name": f"{quantity_name(dataset[name])} {curve.label}".strip(),
            "unit": unit_label(dataset[name]),
            "mean": float(read_values(dataset, name, curve)),
            "std": float(read_values(dataset, f"{name}_std", curve)),
        }
        for name in read_names(dataset, "scalars")
        for curve in read_curves(dataset, name)
    ]
    return {"scalars": scalars, "fields": explorer_data(dataset) if problem.has_fields else None}


class _PageServer(ThreadingHTTPServer):
    """Serves one page, with a limited number of connections."""

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, port: int, page: LivePage) -> None:
        self.page = page
        self.html, self.policy = page.html()
        self.free = BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((HOST, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """Do nothing: a browser that goes away is no error of the inversion."""


class _Handler(BaseHTTPRequestHandler):
    server: _PageServer
    timeout = SECONDS_OF_REQUEST

    def do_GET(self) -> None:
        port = self.server.server_address[1]
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            self.send_error(HTTPStatus.FORBIDDEN)  # another site whose name was made to point at this machine
            return
        page = self.server.page
        page.last_request = time.monotonic()
        if self.path == "/":
            self._reply(self.server.html.encode(), "text/html; charset=utf-8")
        elif self.path == "/progress.json":
            self._reply(page.progress_json(), "application/json")
        elif self.path == "/fields.json":
            self._reply(page.fields_json(), "application/json")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _reply(self, body: bytes, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": self.server.policy,
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.server.page.last_request = time.monotonic()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - name of the standard library
        """Do nothing: the terminal shows the progress."""


@contextmanager
def serve_live_page(problem: Problem, progress: ProgressState, port: int, title: str) -> Iterator[tuple[LivePage, str]]:
    """Serve the live page of an inversion on the loopback address, until the block ends.

    Parameters
    ----------
    problem : Problem
        The problem that is inverted in the block.
    progress : ProgressState
        Monitor of the inversion.
    port : int
        Port; 0 for a free one.
    title : str
        Title of the page.

    Yields
    ------
    page : LivePage
        Its attribute `outcome` can be set at the end.
    address : str
        Address for a browser.

    Raises
    ------
    ArgumentError
        The port cannot be used.
    """
    page = LivePage(problem, progress, title)
    try:
        server = _PageServer(port, page)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise ArgumentError(f"watch: must be a port that is free, was {port} ({reason})") from error
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield page, f"http://{HOST}:{server.server_address[1]}/"
    finally:
        page.outcome = page.outcome or "The inversion was stopped."
        page.wait_for_last_reply()
        server.shutdown()
        server.server_close()
        thread.join()
