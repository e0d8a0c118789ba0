"""Forecasts of `invgp check` against the runs that inversions use.

python tests/benchmarks/forecasts.py [--only product] [--seeds 1 2] [--posterior sampled] [--config survey.toml ...]

The problems are those of `shapes.py` and some of this file. The forecast was tuned on seeds 1 and 2. `alone` is the
forecast from the settings alone, `pilot` the forecast after a pilot, which made `made` of the runs, `bent` the number
of runs that a bent posterior can take, and `used` the number of runs of the inversion with them. `ratio` is the larger
of pilot / used and used / pilot.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from shape_fields import FIELDS
from shape_problems import CASES, SEPARATE, Case, Unknown

import invgp
from invgp.inference.pilot import expected_cost, pilot_size, run_pilot

SMALL = ("saturating-flow", "product-10-short", "square-line", "cubic")
HEADER = (
    f"{'problem':24s} {'seed':>4s} {'alone':>7s} {'made':>6s} {'pilot':>7s} {'bent':>7s} {'used':>7s} "
    f"{'ratio':>6s}  status"
)


def normal_moveout(time, velocity):
    """Two-way times (s) of a reflector at four offsets: zero-offset time in s, velocity in km/s."""
    return np.sqrt(time[:, None] ** 2 + (np.array([0.2, 0.8, 1.4, 2.0]) / velocity[:, None]) ** 2)


def saturating_flow(capacity, half):
    """A flow that saturates with the head, at three heads (m)."""
    head = np.array([1.0, 4.0, 16.0])
    return capacity[:, None] * head / (half[:, None] + head)


def sounding(upper, lower, depth):
    """Apparent resistivities (ohm m) of two layers at four spacings, by a smooth mixing of their resistivities."""
    weight = 1.0 / (1.0 + (np.array([3.0, 10.0, 30.0, 100.0]) / depth[:, None]) ** 2)
    return np.exp(weight * np.log(upper[:, None]) + (1.0 - weight) * np.log(lower[:, None]))


def magnetic_dipole(depth, moment):
    """Anomaly (nT) above a vertical dipole, at three distances (m)."""
    r2 = np.array([0.0, 20.0, 50.0]) ** 2 + depth[:, None] ** 2
    return moment[:, None] * (3.0 * depth[:, None] ** 2 / r2 - 1.0) / r2**1.5


NEW = {
    case.name: case
    for case in (
        Case(
            "normal-moveout",
            {"time": Unknown(1.0, 0.15), "velocity": Unknown(2.0, 0.3)},
            normal_moveout,
            (0.01,) * 4,
            0.2,
            sites=60,
        ),
        Case(
            "saturating-flow",
            {"capacity": Unknown(5.0, 1.5, "log"), "half": Unknown(4.0, 2.0, "log")},
            saturating_flow,
            (0.1,) * 3,
            0.1,
            sites=12,
        ),
        Case(
            "sounding",
            {
                "upper": Unknown(50.0, 25.0, "log"),
                "lower": Unknown(200.0, 150.0, "log"),
                "depth": Unknown(15.0, 6.0, "log"),
            },
            sounding,
            0.03,
            0.3,
            sites=40,
        ),
        Case(
            "magnetic-dipole",
            {"depth": Unknown(30.0, 8.0, "log"), "moment": Unknown(1e6, 3e5, "log")},
            magnetic_dipole,
            (1.0,) * 3,
            SEPARATE,
            sites=5,
        ),
    )
}


class Row(NamedTuple):
    """One survey."""

    problem: str
    seed: int
    alone: int
    made: int
    pilot: int
    bent: int
    used: int
    status: str

    @property
    def ratio(self) -> float:
        """Factor between the forecast and the runs."""
        return max(self.pilot / self.used, self.used / self.pilot)

    def __str__(self) -> str:
        return (
            f"{self.problem:24s} {self.seed:4d} {self.alone:7,d} {self.made:6,d} {self.pilot:7,d} "
            f"{self.bent:7,d} {self.used:7,d} "
            f"{self.ratio:6.2f}  {self.status}"
        )


def measure(name: str, seed: int, problem: invgp.Problem) -> Row:
    """Forecast the runs of a problem, invert it with the runs of the pilot in its ledger, and count."""
    with TemporaryDirectory() as folder:
        ledger = Path(folder) / "runs.sqlite"
        pilot = run_pilot(problem, pilot_size(problem), directory=Path(folder), ledger=ledger)
        posterior = invgp.invert(problem, ledger=ledger)
    attributes, cost = posterior.attrs, expected_cost(problem, pilot)
    if attributes["invgp_runs_from_ledger"] != pilot.runs:
        raise RuntimeError(f"{name}: {attributes['invgp_runs_from_ledger']} of {pilot.runs} pilot runs were used again")
    return Row(
        name,
        seed,
        expected_cost(problem).runs,
        pilot.runs,
        cost.runs,
        cost.high,
        int(attributes["invgp_runs"]),
        attributes["invgp_status"],
    )


def problems(names: list[str], seeds: list[int], posterior: str) -> Iterator[tuple[str, int, invgp.Problem]]:
    """Yield the problems whose name contains one of some parts."""
    for name, case in (NEW | CASES | FIELDS).items():
        if names and not any(part in name for part in names):
            continue
        if case.needs and importlib.util.find_spec(case.needs) is None:
            continue
        for seed in seeds:
            yield name, seed, case.survey(seed).problem(posterior=posterior)


def main(arguments: list[str] | None = None) -> list[Row]:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", nargs="*", default=[], help="parts of the names of problems")
    options.add_argument("--small", action="store_true", help="a few quick problems")
    options.add_argument("--seeds", nargs="*", type=int, default=[1])
    options.add_argument("--posterior", default="sampled")
    options.add_argument("--config", nargs="*", default=[], help="configurations to measure instead")
    chosen = options.parse_args(arguments)
    names = list(SMALL) if chosen.small else chosen.only
    if chosen.config:
        some = ((path, 0, invgp.load(path).with_inference(max_runs=None)) for path in chosen.config)
        wanted = ((path, seed, problem.with_inference(posterior=chosen.posterior)) for path, seed, problem in some)
    else:
        wanted = problems(names, chosen.seeds, chosen.posterior)
    rows = []
    print(HEADER, flush=True)
    for name, seed, problem in wanted:
        rows.append(measure(name, seed, problem))
        print(rows[-1], flush=True)
    within = sum(row.ratio <= 2.0 for row in rows)
    print(f"{within} of {len(rows)} forecasts are within a factor of two of the runs.")
    inside = sum(row.used <= max(row.bent, 2 * row.pilot) for row in rows)
    print(f"{inside} of {len(rows)} inversions use at most the larger of `bent` and twice the forecast.")
    return rows


if __name__ == "__main__":
    main()
