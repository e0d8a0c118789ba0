"""`invgp weigh`: the evidence of alternative models of the same data."""

from __future__ import annotations

from pathlib import Path

import click

from invgp import api
from invgp.cli.console import json_option, print_json, print_line
from invgp.cli.options import FilePath
from invgp.cli.text_tables import print_table


@click.command(
    epilog="Examples: invgp weigh smooth.nc rough.nc; invgp weigh two_layers.nc three_layers.nc --plot odds.png"
)
@click.argument("posteriors", type=FilePath(), nargs=-1, required=True)
@click.option(
    "--config",
    type=FilePath(),
    multiple=True,
    help="Configuration of a posterior, once for each in the same order.  [default: found by its text]",
)
@click.option(
    "--name", "names", multiple=True, help="Name of a model, once for each in the same order.  [default: the files]"
)
@click.option("--plot", type=FilePath(), help="Figure: PNG, SVG or PDF.  [default: none]")
@json_option
def command(posteriors: tuple[Path, ...], config: tuple[Path, ...], names: tuple[str, ...], plot: Path | None) -> None:
    """Compare the evidence of POSTERIORS, alternative models of the same data, without simulator runs."""
    found = api.weigh(*posteriors, config=config, names=names, plot=plot)
    from invgp.answers.evidence import describe_factor  # noqa: PLC0415 - help does not wait for xarray

    labels, origins = (found[name].values.tolist() for name in ("model_label", "origin"))
    logs, errors, factors, factor_errors, shares = (
        found[name].values.tolist()
        for name in (
            "log_evidence",
            "log_evidence_error",
            "log_bayes_factor",
            "log_bayes_factor_error",
            "probability",
        )
    )
    best = factors.index(max(factors))
    words = [
        "best" if k == best else describe_factor(factors[k], factor_errors[k], (origins[k], origins[best]))
        for k in range(len(labels))
    ]
    order = sorted(range(len(labels)), key=lambda k: -logs[k])
    print_table(
        ("", "log evidence", "± error", "log Bayes factor", "probability", "in words"),
        [
            (
                labels[k],
                f"{logs[k]:.2f}",
                f"{errors[k]:.2f}",
                f"{factors[k]:.2f}",
                f"{shares[k]:.3g}",
                words[k],
            )
            for k in order
        ],
    )
    for k in order:
        if origins[k] != "stored":
            print_line(f"{labels[k]}: {origins[k]}")
    if plot is not None:
        print_line(plot)
    rows = zip(labels, logs, errors, factors, shares, origins, words, strict=True)
    keys = ("name", "log_evidence", "error", "log_bayes_factor", "probability", "origin", "in_words")
    print_json({"models": [dict(zip(keys, row, strict=True)) for row in rows], "figure": plot})
