"""Write docs/results.md from what the case studies found: python docs/make_results.py.

`paper_experiments.toml` lists the paper's experiments; `results.json` of each case study, and of the
benchmarks, has what came out of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

HERE = Path(__file__).resolve().parent
INTRODUCTION = """# Experiments of the paper
This page lists all experiments of the paper (Bonilla, Krauth and Dezfouli, *Generic inference in latent Gaussian
process models*) in their order. It compares the results of invgp with those of the paper, or states why there are none.
A row holds if the value of invgp is better than the reference, or differs from it by no more than the spread after the
±. Each section states what the spread refers to. Rows without a verdict are for information.
`python docs/make_results.py` generates this page from the `results.json` files of the case studies and benchmarks.

N is the number of training sites (or digits, flights) and M is the number of inducing inputs. SSE is the mean squared
error divided by the variance of the test outputs, and RMSE is the root mean squared error in their unit. NLPD is the
negative mean log predictive density of the test outputs in nats, and NLP is the same for classes. ELBO is the evidence
lower bound in nats.
"""
BEYOND = """## Beyond the paper
These case studies are not in the paper. For other packages, see [Comparison with other packages](peers.md).
"""


class Strict(BaseModel):
    """Unknown and missing fields are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(Strict):
    """One figure, and one to set it beside."""

    measure: str
    setting: str
    ours: float
    spread: float = 0.0  # of ours, or of its difference from the reference; the remark says over what
    reference: float | None = None
    source: str = ""  # of the reference: "paper", "exact GP", "slice sampling"
    better: Literal["lower", "higher", "equal"] = "lower"
    judged: bool = True  # whether the reference is one to reach, or only to look at

    @property
    def holds(self) -> bool | None:
        """Whether ours is as good as the reference, or within the spread of it; None without one to reach."""
        if self.reference is None or not self.judged:
            return None
        excess = {
            "lower": self.ours - self.reference,
            "higher": self.reference - self.ours,
            "equal": abs(self.ours - self.reference),
        }[self.better]
        return excess <= self.spread


class Finding(Strict):
    """What a case study found in one experiment."""

    experiment: str  # a key of paper_experiments.toml, or a new one
    title: str = ""  # of an experiment that is not in the paper
    command: str
    page: str = ""  # of the case study, in docs
    figure: str = ""  # in docs/figures
    caption: str = ""  # of the figure
    instead: str = ""  # what stands in for the paper's data or size; empty if they are the same
    remark: str = ""
    still_open: str = ""  # what of the experiment has not been run
    rows: tuple[Row, ...]

    @property
    def status(self) -> str:
        """In a few words."""
        held = [row.holds for row in self.rows if row.holds is not None]
        if not held:
            return "measured; no reference value"
        if self.title:
            return f"{sum(held)} of {len(held)} rows hold"
        if self.instead:
            return f"on other data, {sum(held)} of {len(held)} rows hold"
        if all(held) and not self.still_open:
            return "reproduced"
        return f"in part: {sum(held)} of {len(held)} rows hold{', the rest is open' if self.still_open else ''}"


class Experiment(Strict):
    """One of the paper."""

    key: str
    title: str
    where: str
    status: Literal["not reproducible here", "open"] = "open"
    missing: str = ""


def experiments(path: Path) -> list[Experiment]:
    """All of the paper."""
    return [Experiment(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8"))["experiment"]]


def findings(*folders: Path) -> dict[str, Finding]:
    """Of all case studies and benchmarks, by experiment."""
    found: dict[str, Finding] = {}
    for path in sorted(path for folder in folders for path in folder.glob("*/results.json")):
        for entry in TypeAdapter(list[Finding]).validate_json(path.read_text(encoding="utf-8")):
            if entry.experiment in found:
                raise ValueError(f"{path}: experiment '{entry.experiment}' has results elsewhere too")
            found[entry.experiment] = entry
    return found


def format_number(value: float) -> str:
    """Four figures at most, and no needless zeros behind large numbers."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def table(rows: Iterable[Row]) -> list[str]:
    """One line a row."""
    lines = ["| measure | setting | invgp | reference | holds |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        ours = format_number(row.ours) + (f" ± {row.spread:.2g}" if row.spread else "")
        beside = "" if row.reference is None else f"{format_number(row.reference)} ({row.source})"
        holds = {None: "", True: "yes", False: "**no**"}[row.holds]
        lines.append(f"| {row.measure} | {row.setting} | {ours} | {beside} | {holds} |")
    return [*lines, ""]


def section(title: str, status: str, where: str, found: Finding | None, missing: str = "") -> list[str]:
    """One experiment."""
    lines = [f"### {title}", f"{where}**{status[:1].upper()}{status[1:]}.**"]
    if found is None:
        return [*lines, *([missing] if missing else []), ""]
    printed = [f"Data used instead of those of the paper: {found.instead}"] if found.instead else []
    printed += [found.remark] if found.remark else []
    printed += [f"Not run yet: {found.still_open}."] if found.still_open else []
    reported = f"Command: `{found.command}`" + (f" ([case study]({found.page}))." if found.page else ".")
    lines += [*printed, reported, "", *table(found.rows)]
    if found.figure:
        lines += [f"![{found.caption or title}](figures/{found.figure})", ""]
    return lines


def page(paper: list[Experiment], found: dict[str, Finding]) -> str:
    """The whole page."""
    keys = {experiment.key for experiment in paper}
    others = [entry for key, entry in found.items() if key not in keys]
    overview, sections = ["| experiment | in the paper | status |", "| --- | --- | --- |"], []
    for experiment in paper:
        entry = found.get(experiment.key)
        status = entry.status if entry else experiment.status
        overview.append(f"| {experiment.title} | {experiment.where} | {status} |")
        sections += section(experiment.title, status, f"{experiment.where}. ", entry, experiment.missing.strip())
    if others:
        sections.append(BEYOND)
        for entry in others:
            sections += section(entry.title or entry.experiment, entry.status, "", entry)
    return "\n".join([INTRODUCTION, *overview, "", "## Details", "", *sections]).rstrip() + "\n"


def main() -> None:
    """Write the page."""
    found = findings(HERE.parent / "case_studies", HERE.parent / "tests")
    (HERE / "results.md").write_text(page(experiments(HERE / "paper_experiments.toml"), found), encoding="utf-8")


if __name__ == "__main__":
    main()
