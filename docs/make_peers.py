"""Write docs/peers.md from what the benchmarks beside other packages measured: python docs/make_peers.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parent / "tests" / "benchmarks"
# Records that `tests/benchmarks/tables.py` wrote, with the commands that measure them.
COMMANDS = {
    "peers.json": "python tests/benchmarks/peers.py --record",
    "estimator.json": "python tests/benchmarks/estimator.py --record",
}
CURVES = BENCHMARKS / "peers_curves.json"
FIGURE = HERE / "figures" / "peers_curves.png"
MEASURES = {
    "mean": "error of mean (standard deviations)",
    "spread": "error of spread (logarithm)",
    "joint": "error of joint predictions (logarithm)",
}
ACCURATE = 0.1
EQUAL = 1.1  # ratio of numbers of runs that count as equal
ABOUT_CURVES = """## Accuracy against runs
`python tests/benchmarks/peers_curves.py --record` measures this section: the accuracy of each method after a number of
simulator runs, for seven problems of [the battery](shapes.md) and for one site of one of them. One run is one run of a
field model, or one run at each site; the runs are the only cost that is compared. The first row of the figure is the
root mean square error of the posterior mean, in exact standard deviations. The second is the median error of the
standard deviations, as the absolute logarithm of their ratio to the exact ones (0.1 is 10%). The third is the same for
joint predictions, which depend on correlations: the sum of a latent over all sites, differences between neighbouring
sites, and sums of latents. For invgp they come from the 200 draws of its file, whose standard deviations have an error
of about 0.05 by chance. One survey and one seed of each problem.

![Errors of the mean, of the spread and of joint predictions against simulator runs](figures/peers_curves.png)

At the sites of `product-30-separate`, `square`, `sine` and `step` the unknowns are independent of those of other sites.
Localised smoothers use this, and so does invgp. The samplers treat all sites at once; somebody who uses them would
sample each site alone, as in `product-30, one site`.

`IES` stands for the iterative ensemble smoother of PEST++, which is not on PyPI: both make Gauss-Newton steps of an
ensemble towards perturbed data. The other packages on PyPI that were tried add no further method: pyEMU 1.7 contains no
smoother; ert 23 calls iterative_ensemble_smoother and graphite-maps, which are measured here; dageo 1.1 and resmda 1.0
contain ES-MDA; the iterative smoother of dapper 1.7 (`iEnKS`) is the same method for models that step from one time of
observation to the next; history-matching 0.1 rules values out with emulators and returns no posterior. The Python
Ensemble Toolbox is not on PyPI: `PET`, `pipt` and `popt` are other programs there.

The settings follow the documentation of each package where it gives advice:
"""
SETTINGS = {
    "invgp": "default settings; in field problems `max_runs` of 50, 100 and 200.",
    "ES-MDA": "`ESMDA` of iterative_ensemble_smoother, four assimilations of equal weight as in Emerick and Reynolds "
    "(2013), where the default of the package is five; as many members as the runs allow.",
    "ES-MDA, localised": "`LocalizedESMDA`; the gain is multiplied by the function of Gaspari and Cohn, which is 1 at "
    "the datum and 0 at a distance of four prior length-scales.",
    "ES-MDA, adaptive": "`AdaptiveESMDA`, the newer update of the package; correlations below 3 / sqrt(members) are "
    "set to zero, its default.",
    "IES": "`SIES` of iterative_ensemble_smoother 0.6, the last version that contains it (Evensen et al., 2019); eight "
    "iterations with the step lengths that the package recommends, without localisation, which it does not offer.",
    "EnIF": "the ensemble information filter of graphite-maps: one update with the exact precision of the prior; the "
    "sensitivities are fitted by LASSO, its default; up to 400 runs, because these fits take minutes with more.",
    "emcee": "stretch moves; two walkers per unknown and two more, at least 32, from the prior; the first half of the "
    "steps is discarded.",
    "zeus": "ensemble slice sampling; the same with at least 10 walkers.",
    "PyVBMC": "default options, plausible bounds at one prior standard deviation; one site only.",
    "sbi": "neural posterior estimation (NPE) with its default network, one round; one site only.",
}
INTRODUCTION = """# Comparison with other packages
This page compares the cost of invgp with that of other packages: simulator runs and seconds until an accurate
posterior, one evaluation of a bound with its gradient, one run of a program, and complete fits of models. The values of
each table were measured on one machine. The commands create a separate environment for each package. Compare ratios;
the seconds depend on the machine. `python docs/make_peers.py` generates this page from the output of the commands.
"""


def _names(rows: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Problems and methods, in the order of their settings."""
    problems, methods = (list(dict.fromkeys(row[key] for row in rows)) for key in ("problem", "method"))
    return problems, sorted(methods, key=[*SETTINGS, *methods].index)


def curves_section(record: dict[str, Any]) -> list[str]:
    """Lines of the section on accuracy against runs, of a record that `tests/benchmarks/peers_curves.py` wrote."""
    rows = record["rows"]
    problems, methods = _names(rows)
    lines = [
        ABOUT_CURVES,
        *(f"- **{method}**: {SETTINGS[method]}" for method in methods if method in SETTINGS),
        "",
        f"The table shows the runs from which on all three errors are at most {ACCURATE:g}. For a method that did not "
        "get there, it shows in brackets the error of the mean after its largest number of runs. An empty cell was not "
        "measured; [the battery](shapes.md) has the accuracy of invgp for more problems.",
        "",
        f"| problem | {' | '.join(methods)} |",
        f"| --- |{' --- |' * len(methods)}",
    ]
    better = []
    for problem in problems:
        cells = []
        for method in methods:
            found = [row for row in rows if (row["problem"], row["method"]) == (problem, method)]
            found.sort(key=lambda row: row["runs"])
            accurate = [all(row[key] <= ACCURATE for key in MEASURES) for row in found]
            reached = [row["runs"] for i, row in enumerate(found) if all(accurate[i:])]
            cells.append(f"{reached[0]:,.0f}" if reached else f"({found[-1]['mean']:.2f})" if found else "")
        lines.append(f"| {problem} | {' | '.join(cells)} |")
        better += [f"- {sentence}" for sentence in _where_better(rows, problem)]
    used = ", ".join(f"{package} {number}" for package, number in record["versions"].items())
    reading = [
        "Where another method is more accurate than invgp in one of the three measures, with as many runs or, compared "
        "with the largest number of runs of invgp, with any number:",
        "",
        *better,
        "",
    ]
    return [*lines, "", *(reading if better else []), _when_measured(rows), "", f"With {used}.", ""]


def _when_measured(rows: list[dict[str, Any]]) -> str:
    """Sentences on the runs of the command that measured the rows."""
    runs: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in rows:
        problems = runs.setdefault((row.get("day", ""), row.get("commit", "")), {}).setdefault(row["method"], [])
        if row["problem"] not in problems:
            problems.append(row["problem"])
    known = [
        f"on {day} at commit {commit}: "
        + ", ".join(f"{method} ({', '.join(names)})" for method, names in found.items())
        for (day, commit), found in sorted(runs.items())
        if day
    ]
    earlier = "All other rows are from earlier runs of the command, of which the commit was not recorded."
    return (
        "The rows were measured in several runs of the command"
        + (f"; {'; '.join(known)}. " if known else ". ")
        + (earlier if ("", "") in runs else "")
    ).strip()


def _where_better(rows: list[dict[str, Any]], problem: str) -> list[str]:
    """Sentences about methods that are more accurate than invgp in any measure: with as many runs, or with more."""
    ours = sorted((r for r in rows if (r["problem"], r["method"]) == (problem, "invgp")), key=lambda row: row["runs"])
    others = [row for row in rows if row["problem"] == problem and row["method"] != "invgp"]
    sentences = []
    for place, base in enumerate(ours):
        is_last = place == len(ours) - 1
        for method in dict.fromkeys(row["method"] for row in others):
            parts = []
            for key in MEASURES:
                found = [
                    row
                    for row in others
                    if row["method"] == method
                    and row[key] < base[key]
                    and (is_last or row["runs"] <= EQUAL * base["runs"])
                ]
                if found:
                    first = min(found, key=lambda row: row["runs"])
                    parts.append(f"{key} {first[key]:.3f} after {first['runs']:,.0f} runs")
            if parts:
                own = ", ".join(f"{key} {base[key]:.3f}" for key in MEASURES)
                sentences.append(f"{problem}: {method}, {', '.join(parts)} (invgp, {base['runs']:,.0f} runs: {own}).")
    return sentences


def draw_curves(record: dict[str, Any], path: Path) -> None:
    """One column per problem and one row per measure."""
    import matplotlib as mpl  # noqa: PLC0415 - only for the figure

    mpl.use("agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    rows = record["rows"]
    problems, methods = _names(rows)
    colours = dict(zip(methods, ["black", *(plt.get_cmap("tab10")(i) for i in range(10))], strict=False))
    figure, axes = plt.subplots(
        len(MEASURES),
        len(problems),
        figsize=(2.0 * len(problems), 6.4),
        sharex=True,
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for j, problem in enumerate(problems):
        for i, (key, label) in enumerate(MEASURES.items()):
            axis = axes[i, j]
            axis.axhline(ACCURATE, color="0.8", linewidth=1)
            for method in methods:
                found = sorted(
                    (row["runs"], max(row[key], 1e-3))
                    for row in rows
                    if (row["problem"], row["method"]) == (problem, method)
                )
                if found:
                    marker = {"marker": "o", "zorder": 3} if method == "invgp" else {"marker": ".", "linewidth": 1}
                    axis.loglog(*zip(*found, strict=True), color=colours[method], label=method, **marker)
            if i == 0:
                axis.set_title(problem, fontsize=8)
            if j == 0:
                axis.set_ylabel(label, fontsize=8)
            if i == len(MEASURES) - 1:
                axis.set_xlabel("runs", fontsize=8)
            axis.tick_params(labelsize=7)
    handles = {
        label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), fontsize=8)
    figure.savefig(path, dpi=130)


def page(records: dict[str, dict[str, Any]], curves: dict[str, Any]) -> str:
    """Return the whole page, from records by the command that measures them, and that of `peers_curves.py`."""
    lines = [INTRODUCTION, *curves_section(curves)]
    for command, record in records.items():
        lines += [line for table in record["tables"] for line in section(table, command, record["machine"])]
    return "\n".join(lines).rstrip() + "\n"


def section(table: dict[str, Any], command: str, machine: str) -> Iterator[str]:
    """Yield the lines of the section of one table."""
    rows = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
    used = ", ".join(f"{package} {number}" for package, number in table["versions"].items())
    reading = [f"- {sentence}" for sentence in table["reading"]]
    yield from (f"## {table['title']}", table["about"], "", *(f"| {' | '.join(row)} |" for row in rows), "")
    yield from (*reading, *([""] if reading else []))
    yield from (f"Command: `{command}`. Machine: {machine}. With {used}.", "")


def read_records() -> dict[str, dict[str, Any]]:
    """Read the records in the repository, by command."""
    return {command: json.loads((BENCHMARKS / name).read_text(encoding="utf-8")) for name, command in COMMANDS.items()}


def main() -> None:
    """Write the page."""
    curves = json.loads(CURVES.read_text(encoding="utf-8"))
    (HERE / "peers.md").write_text(page(read_records(), curves), encoding="utf-8")
    draw_curves(curves, FIGURE)


if __name__ == "__main__":
    main()
