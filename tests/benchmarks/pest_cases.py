"""PEST cases of three styles, from `invgp init --from-pest` to a posterior, beside independent references.

python tests/benchmarks/pest_cases.py [--only zones pilots tables] [--pyemu]

No file of the cases is edited. With --pyemu, the exported ensemble is read by pyEMU, in an environment of its own. For
all members, pyEMU writes the input files with the templates, the model command lines are run, and pyEMU reads the
outputs with the instructions. These are compared with the outputs of the same members by invgp. pyEMU also writes the
covariance file of the pilot points in its binary formats, which invgp must read as the same matrix.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr
from environments import cache_folder, environment

import invgp
from invgp.adapters import RunContext
from invgp.adapters.pest.matrices import read_covariance

sys.path.append(str(Path(__file__).resolve().parents[1]))
from helpers import pest_cases
from helpers.pest_cases import Reference

INVGP = Path(sysconfig.get_path("scripts")) / "invgp"
SOURCE = Path(__file__).resolve().parents[2] / "forward_models" / "steady_heads.c"
PYEMU_SIDE = Path(__file__).resolve().parent / "_pyemu_side.py"


def write_zones(folder: Path) -> Path:
    program = folder / "steady_heads"
    subprocess.run(["cc", "-std=c99", "-O2", "-o", str(program), str(SOURCE), "-lm"], check=True)
    return pest_cases.write_zones(folder, Path("./steady_heads"))


CASES: dict[str, tuple[str, Callable[[Path], Path], Callable[[Path], Reference]]] = {
    "zones": ("older style, C program, tied, fixed, prior information", write_zones, pest_cases.zones_reference),
    "pilots": ("pilot points, covariance file", pest_cases.write_pilot_points, pest_cases.pilot_reference),
    "tables": ("enhanced format, external tables, two commands", pest_cases.write_tables, pest_cases.tables_reference),
}


def command(folder: Path, *arguments: str) -> str:
    done = subprocess.run([INVGP, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"invgp {' '.join(arguments)} failed: {done.stderr}")
    return done.stdout


def compare(ensemble: Path, reference: Reference) -> tuple[float, float, float]:
    """Largest error of a mean in standard deviations, and smallest and largest ratio of the widths of 90% intervals."""
    with ensemble.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    errors, ratios = [], []
    for name, (mean, std) in reference.moments.items():
        draws = np.array([float(row[name]) for row in rows])
        draws = np.log10(draws) if name in reference.log else draws
        errors.append(abs(draws.mean() - mean) / std)
        ratios.append(np.subtract(*np.quantile(draws, [0.95, 0.05])) / reference.widths[name])
    return max(errors), min(ratios), max(ratios)


def round_trip(python: Path, control: Path, ensemble: Path) -> float:
    """Largest relative difference between the outputs of the way of PEST and of invgp, over all members."""
    done = subprocess.run([python, PYEMU_SIDE, "run", control, ensemble], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"pyEMU failed: {done.stderr[-2000:]}")
    theirs = [{k: float(v) for k, v in (pair.split("=") for pair in line.split())} for line in done.stdout.splitlines()]
    model = invgp.load(control.parent / "survey.toml").forward
    free = [name for quantity in model.inputs for name in quantity.names or ()]
    observed = [name for quantity in model.outputs for name in quantity.names or ()]
    with ensemble.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if len(rows) != len(theirs):
        raise SystemExit(f"pyEMU ran {len(theirs)} of {len(rows)} members")
    values = np.array([[float(row[name]) for name in free] for row in rows])
    with tempfile.TemporaryDirectory() as runs:
        ours = model.evaluate(values, RunContext([f"r{i}" for i in range(len(values))], Path(runs))).outputs
    wanted = np.array([[row[name] for name in observed] for row in theirs])
    return float(np.max(np.abs(ours - wanted) / np.abs(wanted)))


def check_binary_covariance(python: Path, cov: Path) -> list[str]:
    """Return the names of the files that pyEMU writes; all must contain the matrix of the text file."""
    done = subprocess.run([python, PYEMU_SIDE, "binary", cov], capture_output=True, text=True, check=True)
    expected = read_covariance("control", cov)
    for line in done.stdout.splitlines():
        found = read_covariance("control", Path(line))
        if found.names != expected.names or not np.array_equal(found.matrix, expected.matrix):
            raise SystemExit(f"{line} contains another matrix than {cov}")
    return [Path(line).name for line in done.stdout.splitlines()]


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=list(CASES), help="cases to run")
    parser.add_argument("--pyemu", action="store_true", help="make the round trip through pyEMU")
    parser.add_argument("--workers", default="2", help="parallel runs")
    options = parser.parse_args()
    python = environment(cache_folder("pyemu"), [["pyemu"]], ["pyemu"], "pyEMU") if options.pyemu else None
    print("| case | runs | largest error of a mean | ratio of 90% intervals | round trip through pyEMU |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    for name in options.only:
        what, write, refer = CASES[name]
        with tempfile.TemporaryDirectory() as directory:
            folder = Path(directory)
            control = write(folder)
            before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
            command(folder, "init", "--from-pest", control.name)
            command(folder, "run", "survey.toml", "--workers", options.workers)
            command(folder, "export", "posterior.nc", "--format", "pest")
            changed = [path for path, content in before.items() if path.read_bytes() != content]
            if python is not None and (folder / "prior.cov").exists():
                print("same matrix:", *check_binary_covariance(python, folder / "prior.cov"), file=sys.stderr)
            if changed:
                raise SystemExit(f"files of the case have changed: {changed}")
            ensemble = folder / "posterior.ensemble.csv"
            error, low, high = compare(ensemble, refer(control))
            trip = "not made" if python is None else f"{round_trip(python, control, ensemble):.1e}"
            print(
                f"| {name}: {what} | {count_runs(folder)} | {error:.2f} | {low:.2f} to {high:.2f} | {trip} |",
                flush=True,
            )


def count_runs(folder: Path) -> int:
    """Return the number of runs of the inversion."""
    with xr.open_dataset(folder / "posterior.nc") as posterior:
        return int(posterior.attrs["invgp_runs"])


if __name__ == "__main__":
    main()
