"""Origin of a posterior for its report: runs in the ledger, cost, sources, software and commands."""

from __future__ import annotations

import shlex
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import xarray as xr

from invgp.adapters.protocol import Status
from invgp.formatting import count_noun, format_duration
from invgp.ledger import Ledger
from invgp.ledger.rows import without_removed_directory
from invgp.plots.plot_data import describe_crs

MOST_FAILURES = 8  # in a report


@dataclass(frozen=True)
class LedgerSummary:
    """Summary of the runs of a simulator in a ledger.

    Attributes
    ----------
    file : str
        Name of the ledger.
    counts : dict of str to int
        Number of runs by status.
    seconds, median, longest : float
        Total, median and longest duration of the runs, in seconds.
    failures : list of tuple
        Number, label and message of the first failed runs.
    """

    file: str
    counts: dict[str, int]
    seconds: float
    median: float
    longest: float
    failures: list[tuple[int, str, str]]

    @property
    def total(self) -> int:
        """Number of runs."""
        return sum(self.counts.values())


def summarise_ledger(path: Path, simulator_digest: str) -> LedgerSummary | None:
    """Return a summary of the runs of a simulator in a ledger.

    Parameters
    ----------
    path : Path
        The ledger.
    simulator_digest : str

    Returns
    -------
    LedgerSummary or None
        None if the ledger contains no run of the simulator.

    Raises
    ------
    LedgerError
        The ledger cannot be read.
    """
    with Ledger(path, read_only=True) as ledger:
        model = next((model for model in ledger.models() if model.digest == simulator_digest), None)
        if model is None:
            return None
        runs = list(ledger.runs(model=model))
    if not runs:
        return None
    failed = [run for run in runs if run.status is not Status.OK][:MOST_FAILURES]
    failures = [(run.run, run.label, without_removed_directory(run.message)) for run in failed]
    counts = dict(Counter(run.status.value for run in runs))
    seconds = np.asarray([run.seconds for run in runs])
    return LedgerSummary(
        path.name, counts, float(seconds.sum()), float(np.median(seconds)), float(seconds.max()), failures
    )


CONFIG_NAME = "survey.toml"  # in the report; the posterior does not contain the name of its configuration


def cost_sentences(ds: xr.Dataset, runs: LedgerSummary | None) -> list[str]:
    """Return sentences about the number, failures and duration of the runs."""
    spent, failed, known = (int(ds.attrs.get(f"invgp_runs{s}", 0)) for s in ("", "_failed", "_from_ledger"))
    answered = f", {known:,} of them were in the ledger already" if known else ""
    each = "each for the whole field" if "node" in ds.dims else f"{spent / ds.sizes['site']:,.3g} per site"
    sentences = [f"{count_noun(spent, 'run')} of the simulator, {each}; {failed:,} failed{answered}."]
    if runs is None:
        sentences.append("There is no ledger of these runs beside the posterior, so their duration is unknown.")
    else:
        sentences.append(
            f"The ledger {runs.file} contains {count_noun(runs.total, 'run')} of this simulator, "
            f"{format_duration(runs.seconds)} of simulation in total; the median run took "
            f"{format_duration(runs.median)}, the longest {format_duration(runs.longest)}."
        )
    return sentences


def provenance_rows(ds: xr.Dataset, source: str) -> list[tuple[str, str]]:
    """Return the survey, simulator, settings and conventions as rows of a table."""
    attributes = ds.attrs
    rows = [
        ("Posterior file", source),
        ("Created", str(attributes.get("history", ""))),
        ("Survey file", str(attributes.get("invgp_survey", ""))),
        ("Survey SHA-256", str(attributes.get("invgp_survey_digest", ""))),
        ("Simulator", str(attributes.get("invgp_simulator", ""))),
        ("Simulator digest", str(attributes.get("invgp_simulator_digest", ""))),
        ("Posterior family", str(attributes.get("invgp_posterior", ""))),
        ("Seed", str(attributes.get("invgp_seed", ""))),
        ("Coordinate reference system", describe_crs(ds)),
        ("Conventions", str(attributes.get("Conventions", ""))),
        ("Method", str(attributes.get("references", ""))),
    ]
    return [(name, text) for name, text in rows if text]


def software_versions(ds: xr.Dataset) -> list[str]:
    """Return the names and versions of the software that computed the posterior."""
    return [part.strip() for part in str(ds.attrs.get("invgp_software", "")).split(",") if part.strip()]


def reproduction_commands(ds: xr.Dataset, source: str) -> str:
    """Return the commands that reproduce the posterior and the report."""
    run = ["invgp", "run", CONFIG_NAME, "--seed", str(ds.attrs.get("invgp_seed", 0)), "-o", source]
    survey = str(ds.attrs.get("invgp_survey", ""))
    section = read_config(ds).get("survey", {})
    named = section.get("file", "") if isinstance(section, dict) else ""
    if survey and PurePath(survey).name != PurePath(str(named)).name:  # as of `invgp run --data`
        run += ["--data", survey]
    return "\n".join(shlex.join(line) for line in (["invgp", "check", CONFIG_NAME], run, ["invgp", "report", source]))


def read_config(ds: xr.Dataset) -> dict[str, Any]:
    """Return the configuration in the posterior; empty if it cannot be parsed."""
    try:
        return tomllib.loads(str(ds.attrs.get("invgp_config", "")))
    except tomllib.TOMLDecodeError:
        return {}
