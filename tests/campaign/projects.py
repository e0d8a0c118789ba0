"""Small projects, one for each kind of inversion, whose simulator counts its runs."""

from __future__ import annotations

from pathlib import Path

import xarray as xr

from invgp.errors import ConfigError
from invgp.ledger import Ledger

LEDGER = "posterior.ledger.sqlite"
# What differs between two inversions that are the same: when, where and how they were made.
OF_ONE_INVERSION_ONLY = ("history", "invgp_config", "invgp_runs_at_once", "invgp_runs_from_ledger", "invgp_survey")

CONFIG = """\
title = "A short line"

[survey]
file = "sites.csv"
coordinates.position.unit = "m"
observations.time = { columns = ["t"], unit = "s" }

[latents.depth]
unit = "m"
mean = 500
std = "15%"
kernel = { length_scale = 1000 }
LATENT

[forward]
adapter = "executable"
command = ["./simulator.sh", "{depth}"]
inputs = ["depth"]
outputs = ["time"]
timeout = 60

[noise]
std.time = 0.02
NOISE

[inference]
seed = 3
INFERENCE
"""
SITES = ["0,0.50", "400,0.52", "800,0.49", "1200,0.47", "1600,", "2000,0.51", "2400,0.53", "2800,0.50"]
FIELD = """\
title = "Averages of a field along a line"

[survey]
file = "sites.csv"
coordinates.position.unit = "m"
observations.average = { columns = ["t"], unit = "s" }

[grid.coordinates]
position = { unit = "m", start = 0, stop = 2800, step = 400 }

[latents.depth]
unit = "m"
mean = 500
std = 80
kernel = { kind = "matern 5/2", length_scale = 1500 }

[forward]
kind = "field"
adapter = "executable"
command = ["./simulator.sh"]
inputs = ["depth"]
outputs = ["average"]
input_files = [{ template = "depths.tpl", path = "depths.txt" }]
timeout = 60

[noise]
std.average = 0.02

[inference]
seed = 3
max_runs = 60
INFERENCE
"""
# It logs its start, takes its time, answers, and logs its end as its last act.
SITE_PROGRAM = """\
#!/bin/sh
here=$(dirname "$0")
echo "$1" >> "$here/started"
sleep SECONDS
awk "BEGIN { printf \\"%.15g\\\\n\\", 2 * $1 / 2000 + 1e-4 * sin($1) }"
"""
FIELD_PROGRAM = """\
#!/bin/sh
here=$(dirname "$0")
tr '\\n' ' ' < depths.txt | sed 's/ *$/\\n/' | tr ' ' , >> "$here/started"
sleep SECONDS
awk '{ printf "%.15g\\n", 2 * $1 / 2000 + 1e-4 * sin($1) }' depths.txt
"""
# What is added to the config of each kind: to the latent, to the noise, to the inference.
KINDS = {
    "emulated": ("", "", 'posterior = "coupled gaussian"'),
    "direct": ("", "", "emulator = false\nsamples = 5\nmax_runs = 160"),
    "factorised": ("", "", 'posterior = "full gaussian"\nemulator = false\nsamples = 6\nmax_evaluations = 6'),
    "sparse": ("", "", "inducing = 4"),
    "mini-batch": ("", "", "emulator = false\nbatch = 3\nsamples = 5\nmax_runs = 160"),
    "learnt": ("learn = { length_scale = 2, std = 2 }", "", ""),
    "Student-t": ("", 'kind = "student-t"', ""),
    "sampled": ("", "", 'posterior = "sampled"'),
    "field": ("", "", 'posterior = "coupled gaussian"'),
    "sampled field": ("", "", 'posterior = "sampled"'),
}


def write_project(kind: str, folder: Path, seconds: float) -> None:
    """Write the config, survey and simulator of a kind of inversion; a run takes so many seconds."""
    folder.mkdir(parents=True)
    latent, noise, inference = KINDS[kind]
    config, program = (FIELD, FIELD_PROGRAM) if "field" in kind else (CONFIG, SITE_PROGRAM)
    config = config.replace("LATENT", latent).replace("NOISE", noise).replace("INFERENCE", inference)
    if "field" in kind:
        (folder / "depths.tpl").write_text("{depth[*]}\n")
    (folder / "survey.toml").write_text(config)
    sites = SITES[:4] if "samples" in inference else SITES
    (folder / "sites.csv").write_text("\n".join(["position,t", *sites]) + "\n")
    simulator = folder / "simulator.sh"
    simulator.write_text(program.replace("SECONDS", f"{seconds:g}"))
    simulator.chmod(0o755)


def inputs(line: str) -> tuple[float, ...]:
    return tuple(map(float, line.rstrip(",\n").split(",")))


def started_inputs(folder: Path) -> list[tuple[float, ...]]:
    """The inputs of all runs that were ever started, in order, by the simulator's own count."""
    file = folder / "started"
    return [inputs(line) for line in file.read_text().split()] if file.exists() else []


def recorded_inputs(folder: Path) -> set[tuple[float, ...]]:
    """The inputs of the runs in the ledger."""
    if not (folder / LEDGER).exists():
        return set()
    try:
        with Ledger(folder / LEDGER, read_only=True) as ledger:
            return {tuple(run.inputs.tolist()) for run in ledger.runs()}
    except ConfigError as error:
        if str(error).endswith("it is empty"):  # its process was killed before it made the tables
            return set()
        raise


def posterior(folder: Path) -> xr.Dataset:
    """What an inversion found, without what tells one inversion from another."""
    dataset = xr.load_dataset(folder / "posterior.nc")
    return dataset.assign_attrs(dict.fromkeys(OF_ONE_INVERSION_ONLY, ""))
