"""Where a posterior comes from: what it cost, its provenance, and how to make it again."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import PurePath
from typing import Any

import xarray as xr

from invgp.formatting import count_noun, format_duration
from invgp.reports.ledger import RunsKept

CONFIG = "survey.toml"  # as the page calls the config, whose name the posterior does not hold


def cost(ds: xr.Dataset, runs: RunsKept | None) -> list[str]:
    """Runs, failures and time, a sentence each."""
    spent, failed, known = (int(ds.attrs.get(f"invgp_runs{s}", 0)) for s in ("", "_failed", "_from_ledger"))
    answered = f", {known:,} of them answered by the ledger of an earlier call" if known else ""
    each = "each of the whole field" if "node" in ds.dims else f"{spent / ds.sizes['site']:,.3g} a site"
    sentences = [f"{count_noun(spent, 'run')} of the simulator, {each}; {failed:,} failed{answered}."]
    if runs is None:
        sentences.append("No ledger of these runs lies beside the posterior, so that the time they took is not known.")
    else:
        sentences.append(
            f"The ledger {runs.file} contains {count_noun(runs.total, 'run')} of this simulator, "
            f"{format_duration(runs.seconds)} of simulation in total; the median run took "
            f"{format_duration(runs.median)}, the longest {format_duration(runs.longest)}."
        )
    return sentences


def provenance(ds: xr.Dataset, source: str) -> list[tuple[str, str]]:
    """What was read, run and used, as rows of a table."""
    attributes = ds.attrs
    crs = ds["crs"].attrs if "crs" in ds else {}
    rows = [
        ("Posterior file", source),
        ("Made", str(attributes.get("history", ""))),
        ("Survey file", str(attributes.get("invgp_survey", ""))),
        ("Survey SHA-256", str(attributes.get("invgp_survey_digest", ""))),
        ("Simulator", str(attributes.get("invgp_simulator", ""))),
        ("Simulator digest", str(attributes.get("invgp_simulator_digest", ""))),
        ("Posterior family", str(attributes.get("invgp_posterior", ""))),
        ("Seed", str(attributes.get("invgp_seed", ""))),
        ("Coordinate reference system", str(crs.get("projected_crs_name", crs.get("geographic_crs_name", "")))),
        ("Conventions", str(attributes.get("Conventions", ""))),
        ("Method", str(attributes.get("references", ""))),
    ]
    return [(name, text) for name, text in rows if text]


def versions(ds: xr.Dataset) -> list[str]:
    """Names and versions of the software that made the posterior."""
    return [part.strip() for part in str(ds.attrs.get("invgp_software", "")).split(",") if part.strip()]


def commands(ds: xr.Dataset, source: str) -> str:
    """The commands that make the posterior and this page again."""
    run = ["invgp", "run", CONFIG, "--seed", str(ds.attrs.get("invgp_seed", 0)), "-o", source]
    survey = str(ds.attrs.get("invgp_survey", ""))
    told = config_of(ds).get("survey", {})
    named = told.get("file", "") if isinstance(told, dict) else ""
    if survey and PurePath(survey).name != PurePath(str(named)).name:  # as of `invgp run --data`
        run += ["--data", survey]
    return "\n".join(shlex.join(line) for line in (["invgp", "check", CONFIG], run, ["invgp", "report", source]))


def config_of(ds: xr.Dataset) -> dict[str, Any]:
    """The config, as far as it can be read."""
    try:
        return tomllib.loads(str(ds.attrs.get("invgp_config", "")))
    except tomllib.TOMLDecodeError:
        return {}
