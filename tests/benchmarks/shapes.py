"""Posteriors of many shapes against exact ones: ridges, several modes, kinks, steps, surface waves.

python tests/benchmarks/shapes.py [--only product] [--seeds 1 2 3] [--posterior "coupled gaussian"]
python tests/benchmarks/shapes.py --markdown tests/benchmarks/shapes.json

Each row is one survey of one problem (`shape_problems.py`). Two references that are independent of invgp
(`shape_references.py`) are computed once and kept in the folder `--cache`. The field problems (`shape_fields.py`,
`shape_geophysics.py`) are inverted with each of `--field-runs`; their names end with the runs.

A posterior is right if, over all sites and unknowns, the median error of the mean is at most 0.1 exact standard
deviations, the median ratio of the spreads is 0.95 to 1.05, and the mean exact mass in the 95% interval is 94 to 96%.
In addition the largest error of a mean must be at most 0.3, and 90% of the ratios between 0.8 and 1.25: a median does
not hide a site in the wrong mode. A file warns if it did not converge or if its diagnostics are not empty.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from shape_fields import FieldSurvey
from shape_geophysics import ALL_FIELDS as FIELDS
from shape_problems import CASES, Survey
from shape_references import Reference, agreement, pool_references, references

import invgp

SMALL = ("product-30-separate", "square", "step", "sine")  # their references are sums over a grid
MEAN_BAR, WORST_BAR = 0.1, 0.3  # standard deviations
SPREAD_BAR, SPREADS_BAR = (0.95, 1.05), (0.8, 1.25)
MASS_BAR = (0.94, 0.96)


@dataclass(frozen=True)
class Row:
    """Measures of one survey; errors in exact standard deviations, spreads as ratios to the exact ones."""

    problem: str
    seed: int
    error: float
    worst: float
    spread: float
    spread_5: float
    spread_95: float
    mass: float
    runs: int
    seconds: float
    converged: bool
    warnings: tuple[str, ...]
    reference: str
    predicted: float = 1.0

    @property
    def right(self) -> bool:
        """Whether all bars are met."""
        return (
            self.error <= MEAN_BAR
            and self.worst <= WORST_BAR
            and _within(self.spread, SPREAD_BAR)
            and _within(self.spread_5, SPREADS_BAR)
            and _within(self.spread_95, SPREADS_BAR)
            and _within(self.mass, MASS_BAR)
            and abs(self.predicted - 1.0) <= 0.1
        )

    @property
    def warned(self) -> bool:
        """Whether the file says that it may be wrong."""
        return not self.converged or bool(self.warnings)

    @property
    def verdict(self) -> str:
        """In words."""
        if self.right:
            return "right, warned" if self.warned else "right"
        return "wrong and warned" if self.warned else "WRONG AND SILENT"

    def __str__(self) -> str:
        spreads = f"{self.spread:.2f} ({self.spread_5:.2f}-{self.spread_95:.2f})"
        return (
            f"{self.problem:22s} {self.seed:4d} {self.error:6.2f} {self.worst:6.2f}  {spreads:18s} "
            f"{100 * self.mass:5.1f} {self.predicted:5.2f} {self.runs:6d} {self.seconds:6.1f} "
            f"{'yes' if self.converged else 'no':4s} {self.verdict:17s} {self.reference}"
        )


HEADER = (
    "problem                seed  error  worst  spread (5-95%)     mass%  pred   runs      s conv verdict"
    "           references"
)


def _within(value: float, bar: tuple[float, float]) -> bool:
    return bar[0] <= value <= bar[1]


def summaries(
    posterior: Any, names: Sequence[str], ends: tuple[float, float] = (0.025, 0.975)
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mean, standard deviation and the ends of an interval (N, Q) of the latents, as a file holds them."""

    def columns(suffix: str, **select: float) -> np.ndarray:
        parts = []
        for name in names:
            variable = posterior[name + suffix]
            if select:
                variable = variable.sel(select)
            values = np.asarray(variable.values, dtype=float)
            parts.append(values.reshape(len(values), -1))
        return np.concatenate(parts, axis=-1)

    low, high = (columns("_quantile", quantile=end) for end in ends)
    return columns(""), columns("_std"), low, high


def measures(posterior: Any, names: Sequence[str], exact: Reference) -> dict[str, Any]:
    """Errors of a posterior against the exact one."""
    mean, std, low, high = summaries(posterior, names)
    error = np.abs(mean - exact.mean) / exact.std
    ratio = std / exact.std
    return {
        "error": float(np.median(error)),
        "worst": float(np.max(error)),
        "spread": float(np.median(ratio)),
        "spread_5": float(np.quantile(ratio, 0.05)),
        "spread_95": float(np.quantile(ratio, 0.95)),
        "mass": float(np.mean(exact.mass(low, high))),
        "runs": int(posterior.attrs["invgp_runs"]),
        "converged": posterior.attrs["invgp_converged"] == "yes",
        "warnings": tuple(line for line in posterior.attrs["invgp_diagnostics"].splitlines() if _doubts(line)),
    }


def predicted_spread(posterior: Any, survey: FieldSurvey, exact: Reference) -> float:
    """Spread of the data that the draws of a file predict, as a ratio to the exact one; median over the data."""
    ours = survey.case.physics(posterior["field_sample"].values.astype(float))
    return float(np.median(ours.std(axis=0) / survey.case.physics(exact.draws[..., 0].astype(float)).std(axis=0)))


def measure_field(survey: FieldSurvey, runs: int, cache: Path, inference: dict[str, Any]) -> Row:
    """Invert one survey of a field with a number of runs and compare."""
    first, second = references(survey, cache)
    problem = survey.problem(**inference, max_runs=runs)
    exact = pool_references(first, second)
    started = time.perf_counter()
    posterior = invgp.invert(problem)
    return Row(
        problem=f"{survey.case.name}-{runs}",
        seed=survey.seed,
        seconds=time.perf_counter() - started,
        reference=str(agreement(first, second)),
        predicted=predicted_spread(posterior, survey, exact),
        **measures(posterior, ["field"], exact),
    )


def measure(survey: Survey, cache: Path, inference: dict[str, Any]) -> Row:
    """Invert one survey and compare."""
    first, second = references(survey, cache)
    problem = survey.problem(**inference)
    started = time.perf_counter()
    posterior = invgp.invert(problem)
    seconds = time.perf_counter() - started
    return Row(
        problem=survey.case.name,
        seed=survey.seed,
        seconds=seconds,
        reference=str(agreement(first, second)),
        **measures(posterior, list(survey.case.unknowns), pool_references(first, second)),
    )


def markdown(recorded: Path) -> str:
    """Return the rows of a file that `--record` wrote as a table in Markdown, without the seconds."""
    lines = [
        "| problem | seed | error | worst | spread (5 to 95%) | mass, % | runs | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in json.loads(recorded.read_text(encoding="utf-8")):
        spread = f"{row['spread']:.2f} ({row['spread_5']:.2f} to {row['spread_95']:.2f})"
        disagree = "; the references differ" if row["reference"].startswith("DISAGREE") else ""
        lines.append(
            f"| {row['problem']} | {row['seed']} | {row['error']:.2f} | {row['worst']:.2f} | {spread} "
            f"| {100 * row['mass']:.1f} | {row['runs']} | {row['verdict']}{disagree} |"
        )
    return "\n".join(lines) + "\n"


def _doubts(line: str) -> bool:
    """Whether a diagnostic puts the numbers in doubt; a list of the modes or the suggestion of a link does not."""
    return (
        bool(line) and "link = 'log'" not in line and not (line.startswith("The posterior has") and " modes, " in line)
    )


def _matches(name: str, part: str) -> bool:
    return name == part or (part not in CASES | FIELDS and part in name)


def default_cache() -> Path:
    """Where references are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "invgp-shapes"


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="this problem, or all whose names contain NAME"
    )
    options.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="surveys (default: 1 2 3)")
    options.add_argument("--posterior", default="", help='such as "coupled gaussian" (default: that of invgp)')
    options.add_argument("--max-runs", type=int, default=0, help="inference.max_runs of the site problems")
    options.add_argument("--field-runs", nargs="+", type=int, default=[100, 200, 500], help="(default: 100 200 500)")
    options.add_argument("--cache", type=Path, default=default_cache(), help="references (default: %(default)s)")
    options.add_argument("--record", type=Path, help="add the rows to this JSON file, or replace them")
    options.add_argument("--markdown", type=Path, metavar="FILE", help="print the rows of such a file as a table")
    options.add_argument("--small", action="store_true", help=f"one survey each of {', '.join(SMALL)}")
    options.add_argument("--references", action="store_true", help="compute and compare the references only")
    options.add_argument("--warnings", action="store_true", help="print the diagnostics of each file")
    return options


def trials(chosen: argparse.Namespace) -> Iterator[tuple[str, Survey | FieldSurvey, int]]:
    """The chosen problems: name, survey, and the runs of a field problem or 0."""
    for name, case in (CASES | FIELDS).items():
        if chosen.only and not any(_matches(name, part) for part in chosen.only):
            continue
        if chosen.small and name not in SMALL:
            continue
        if case.needs and importlib.util.find_spec(case.needs) is None:
            print(f"{name:22s} needs the package {case.needs}: pip install {case.needs}")
            continue
        for seed in [1] if chosen.small else chosen.seeds:
            for runs in chosen.field_runs if name in FIELDS and not chosen.references else [0]:
                yield name, case.survey(seed), runs


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Measure, print one row per survey, and count the verdicts."""
    chosen = parser().parse_args(arguments)
    if chosen.markdown:
        print(markdown(chosen.markdown), end="")
        return []
    inference: dict[str, Any] = {"posterior": chosen.posterior} if chosen.posterior else {}
    rows = []
    print(HEADER, flush=True)
    for name, survey, runs in trials(chosen):
        if chosen.references:
            both = references(survey, chosen.cache)
            taken = ", ".join(f"{one.method} {one.seconds:.0f} s" for one in both)
            print(f"{name:22s} {survey.seed:4d} {agreement(*both)}: {taken}", flush=True)
            continue
        try:
            if isinstance(survey, FieldSurvey):
                row = measure_field(survey, runs, chosen.cache, inference)
            else:
                limit = {"max_runs": chosen.max_runs} if chosen.max_runs else {}
                row = measure(survey, chosen.cache, inference | limit)
        except invgp.InvgpError as error:
            print(f"{name:22s} {survey.seed:4d} failed: {error}", flush=True)
            continue
        rows.append(row)
        print(row, flush=True)
        if chosen.warnings:
            print("".join(f"    {warning}\n" for warning in row.warnings), end="", flush=True)
    verdicts = [row.verdict for row in rows]
    print("; ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in sorted(set(verdicts))))
    if chosen.record:
        record(rows, chosen.record)
    return rows


def record(rows: Sequence[Row], path: Path) -> None:
    """Write rows to a JSON file; they replace rows of the same surveys, and others stay."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    by_survey = {(row["problem"], row["seed"]): row for row in kept}
    by_survey |= {(row.problem, row.seed): asdict(row) | {"verdict": row.verdict} for row in rows}
    path.write_text(json.dumps(list(by_survey.values()), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
