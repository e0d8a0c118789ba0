"""`invgp serve`: the simulator of a configuration as an UM-Bridge server."""

from __future__ import annotations

import ipaddress
import os
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import click

from invgp.cli.console import print_line, print_note, print_warning
from invgp.cli.options import config_argument, source_option
from invgp.config import load
from invgp.errors import ConfigError
from invgp.operating_system import remove_if_empty

if TYPE_CHECKING:
    from invgp.adapters.protocol import ForwardModel, Quantity
    from invgp.serving import ModelServer


@click.command(epilog="Examples: invgp serve survey.toml; invgp serve survey.toml --port 4243 --workers 4")
@config_argument
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; the default is reachable from this machine only.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=4242, show_default=True, help="Port; 0 selects a free port."
)
@click.option(
    "--workers", type=click.IntRange(min=1), help="Number of parallel runs; further requests wait.  [default: config]"
)
@source_option
def command(config: Path, host: str, port: int, workers: int | None, source: str | None) -> None:
    """Serve the simulator of CONFIG as an UM-Bridge server until Ctrl-C.

    Inputs and outputs are blocks of numbers in the units of the simulator, in the order of CONFIG. There is no
    password: anyone who can reach the address can run the simulator.
    """
    problem = load(config).source(source)
    directory = Path(mkdtemp(prefix="invgp-serve-"))
    try:
        with start_server(problem.forward, directory, host, port, workers or problem.inference.workers) as server:
            print_address(server, host)
            server.serve_forever()
    except KeyboardInterrupt:
        print_note("stopped")
    finally:
        remove_if_empty(directory)
    if directory.exists():
        click.echo(f"{directory}: the directories of failed runs", err=True)


def start_server(model: ForwardModel, directory: Path, host: str, port: int, workers: int) -> ModelServer:
    """Start the server; raise `ConfigError` if it cannot listen."""
    from invgp.serving import ModelServer  # noqa: PLC0415 - errors are reported without importing joblib

    try:
        return ModelServer(model, directory, host, port, workers)
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise ConfigError(
            f"--host, --port: must be an address of this machine and a port that is free, were {host!r} and {port} "
            f"({reason})"
        ) from error


def print_address(server: ModelServer, host: str) -> None:
    """Print the address, the inputs and the outputs."""
    model = server.model
    if not is_loopback(host):
        print_warning("anyone who can reach this address can run the simulator; there is no password")
    print_line(f"Serving {model.name!r} at {server.url}")
    print_line(f"  in   {describe_quantities(model.inputs)}")
    print_line(f"  out  {describe_quantities(model.outputs)}")


def describe_quantities(quantities: tuple[Quantity, ...]) -> str:
    """Return ``depth (2, in m), elevation (1, in m)``."""
    return ", ".join(f"{q.name} ({q.size}, in {q.unit})" for q in quantities)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
