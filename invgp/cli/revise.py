"""`invgp revise`: a posterior with another prior, noise or data, without simulator runs."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path

import click

import invgp
from invgp import api
from invgp.cli.console import json_option, print_json, print_line, print_note, print_warning
from invgp.cli.options import FilePath, without_option
from invgp.errors import ArgumentError
from invgp.formatting import count_noun, format_duration


@click.command(
    epilog="Examples: invgp revise posterior.nc --set latents.depth.std=10% -o narrower.nc; "
    "invgp revise posterior.nc --set noise.std.time=0.02; invgp revise joint.nc --without well"
)
@click.argument("posterior", type=FilePath())
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="New value of a key of the configuration, as in TOML; can be repeated.",
)
@without_option
@click.option("--data", type=FilePath(), help="Survey file with the same columns, to use instead of that of POSTERIOR.")
@click.option("--config", type=FilePath(), help="Configuration of POSTERIOR.  [default: found by its text]")
@click.option("-o", "--output", type=FilePath(), help="Revised posterior.  [default: POSTERIOR.revised.nc]")
@json_option
def command(
    posterior: Path,
    changes: tuple[str, ...],
    without: tuple[str, ...],
    data: Path | None,
    config: Path | None,
    output: Path | None,
) -> None:
    """Compute POSTERIOR with another prior, noise or data on its emulator.

    POSTERIOR is a file of `invgp run`, or its configuration. The simulator is not run. The
    result states whether the runs of the emulator cover the revised posterior.
    """
    started = time.perf_counter()
    posterior, config = api.find_posterior(posterior, config)
    output = output or posterior.with_suffix(".revised.nc")
    found = api.revise(
        posterior, dict(map(parse_change, changes)), without=without, data=data, config=config, output=output
    )
    attributes, seconds = found.attrs, time.perf_counter() - started
    reliable = invgp.has_converged(found)
    print_line(
        f"{output}: {attributes['invgp_status']}; {attributes['invgp_revision_method']}, no runs, "
        f"{format_duration(seconds)}"
    )
    needed = int(attributes["invgp_revision_runs_needed"])
    if not reliable:
        advice = f"; an inversion would make about {count_noun(needed, 'run')}" if needed else ""
        print_warning(f"the revised posterior is not reliable: {attributes['invgp_status']}{advice}")
    for sentence in filter(None, str(attributes["invgp_diagnostics"]).splitlines()):
        print_note(f"note: {sentence}")
    print_json(
        {
            "posterior": output,
            "status": attributes["invgp_status"],
            "reliable": reliable,
            "method": attributes["invgp_revision_method"],
            "k_hat": attributes["invgp_revision_k_hat"],
            "doubtful_sites": attributes["invgp_revision_doubtful_sites"],
            "runs_needed": needed,
            "log_evidence": attributes.get("invgp_log_evidence"),
            "runs": 0,
            "seconds": seconds,
        }
    )


def parse_change(text: str) -> tuple[str, object]:
    """Return the key and the value of ``KEY=VALUE``; a value that is not TOML is text."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ArgumentError(f"changes: must be KEY=VALUE, such as latents.depth.std=50, was {text!r}")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()
