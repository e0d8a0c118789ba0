"""Figure and tables of the results of mnist.py; on request also results.json and the figure in docs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from mnist import HERE, PARITY, SMALL, TEN, WHOLE, Measured, Setting, read_results

sys.path.append(str(HERE.parent))
from command_line import run
from recording import record

FIGURES = HERE.parents[1] / "docs" / "figures"
FIGURE = "mnist.png"
PAPER = "paper"
FIXED = "fixed, mini-batches"
MEASURES = (("wrong", "error rate"), ("surprise", "NLP"))
# Results of the paper: error rate and NLP, or the error rate alone.
PUBLISHED = {
    Setting(PARITY, 60, learnt=True, stochastic=False): (0.0317, 0.097),
    Setting(PARITY, 240, learnt=True, stochastic=False): (0.0212, 0.068),
    Setting(PARITY, 60, learnt=True): (0.0311, 0.099),
    Setting(PARITY, 240, learnt=True): (0.0268, 0.083),
    Setting(PARITY, 2400, stochastic=False): (0.019, 0.062),
    Setting(TEN, 2400, stochastic=False): (0.0277,),
}
SPREADS = (
    "Spreads are standard errors over the 10,000 test digits; in comparisons with other results of invgp, they are "
    "those of the difference. They do not include the variation between seeds."
)
Measurements = Mapping[Setting, Measured]
Pair = tuple[Setting, Setting]  # ours, and what it is set beside: of the paper's if there is such a figure, or our own


def pairs() -> dict[str, list[Pair]]:
    """Return which settings each experiment of the paper compares."""
    learnt = {(s.task, s.inducing): s for s in WHOLE.settings if s.learnt and s.stochastic}
    fixed = {(s.task, s.inducing): s for s in WHOLE.settings if not s.learnt}
    batch = {(s.task, s.inducing): s for s in WHOLE.settings if not s.stochastic}

    def beside_most(task: str) -> list[Pair]:
        """Beside the paper's figures with the most inducing inputs, fixed; fewer that are fixed are only shown."""
        most = Setting(task, 2400, stochastic=False)
        ours = [s for s in (*fixed.values(), *learnt.values()) if s.task == task]
        return [(s, most if s.learnt or s.inducing == most.inducing else s) for s in ours]

    return {
        "mnist": beside_most(TEN),
        "mnist_binary": beside_most(PARITY),
        "inducing_inputs": [
            *((s, fixed[key]) for key, s in learnt.items() if key in fixed),
            (learnt[PARITY, 60], fixed[PARITY, 1200]),
            (learnt[PARITY, 240], fixed[PARITY, 2400]),
        ],
        "batch_or_stochastic": [
            *((s, s) for s in batch.values()),
            *((learnt[key], learnt[key]) for key in batch),
            *((learnt[key], s) for key, s in batch.items()),
        ],
    }


REMARKS = {
    "mnist": "The result of the paper is for 2,400 fixed inducing inputs, placed by k-means, with all digits at once. "
    "This number for each of ten latents was not tried here.",
    "mnist_binary": "The results of the paper are for 2,400 fixed inducing inputs, placed by k-means, with all digits "
    "at once.",
    "inducing_inputs": "The paper shows a figure without numbers: learnt inducing inputs are much better than the same "
    "number of fixed ones, and about as good as ten times as many.",
    "batch_or_stochastic": "All digits at once uses L-BFGS, as in the paper. For mini-batches the paper uses AdaDelta; "
    "invgp uses natural gradients and Adam. The paper finds mini-batches slightly worse.",
}


def effort(by_setting: Measurements, compared: list[Pair]) -> str:
    """Describe the cost of the fits of an experiment."""
    told_of = dict.fromkeys(s for pair in compared for s in pair if s in by_setting)
    each = []
    for setting in told_of:
        one = by_setting[setting]
        passes = f"{one.passes} passes, " if one.passes is not None else ""
        each.append(f"{setting.name}: {passes}{one.seconds:,.0f} s")
    return f"Passes over the digits and CPU seconds: {'; '.join(each)}."


def rows(by_setting: Measurements, compared: list[Pair]) -> Iterator[dict[str, object]]:
    """Compute means over the test digits; the spread is a standard error, or that of the difference of our own fits."""
    for ours, beside in compared:
        if ours not in by_setting:
            continue
        published = PUBLISHED.get(beside, ()) if ours == beside or beside not in WHOLE.settings else ()
        for i, (measure, called) in enumerate(MEASURES):
            values = getattr(by_setting[ours], measure)
            row = {"measure": called, "setting": ours.name, "ours": float(values.mean())}
            if i < len(published):
                source = PAPER if ours == beside else f"{PAPER}, {beside.name.removeprefix(f'{beside.task}, ')}"
                yield row | {"spread": standard_error(values), "reference": published[i], "source": source}
            elif ours != beside and beside in by_setting:
                theirs = getattr(by_setting[beside], measure)
                reference = {"reference": float(theirs.mean()), "source": beside.name.removeprefix(f"{beside.task}, ")}
                # As in the paper, mini-batches are slightly worse than all digits at once.
                verdict = {} if beside.stochastic else {"judged": False}
                yield row | {"spread": standard_error(values - theirs)} | reference | verdict
            elif ours == beside or beside not in WHOLE.settings:
                yield row | {"spread": standard_error(values)}


def standard_error(values: np.ndarray) -> float:
    """Compute the standard error of a mean over digits."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def draw(by_setting: Measurements, path: Path) -> None:
    """Draw error rate and NLP of odd and even digits by the number of inducing inputs, with those of the paper."""
    drawn, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    kinds = {
        FIXED: ("#0072B2", "o", "-", {}),
        "learnt, mini-batches": ("#D55E00", "s", "-", {"learnt": True}),
        "learnt, all at once": ("#009E73", "^", "--", {"learnt": True, "stochastic": False}),
    }
    published = PUBLISHED if any(s in PUBLISHED for s in by_setting) else {}  # the paper does not use the 5,000 digits
    ticks = sorted({s.inducing for s in (*by_setting, *published) if s.task == PARITY})
    for i, (ax, (measure, called)) in enumerate(zip(panels, MEASURES, strict=True)):
        for label, (colour, marker, line, how) in kinds.items():
            settings = [Setting(PARITY, M, **how) for M in ticks if Setting(PARITY, M, **how) in by_setting]
            counts, means = [s.inducing for s in settings], [getattr(by_setting[s], measure).mean() for s in settings]
            ax.plot(counts, means, line, marker=marker, color=colour, label=label)
            theirs = [(s.inducing, published[s][i]) for s in settings if s in published]
            if theirs:
                ax.plot(*zip(*theirs, strict=True), marker, color=colour, markerfacecolor="none")
        if published:
            most = Setting(PARITY, 2400, stochastic=False)
            ax.plot(most.inducing, published[most][i], "o", color=kinds[FIXED][0], markerfacecolor="none")
            ax.plot([], [], "D", color="0.4", markerfacecolor="none", label="hollow: the paper's")
        ax.set(xscale="log", xlabel="inducing inputs", ylabel=called, ylim=(0, None))
        ax.set_xticks(ticks, [f"{M:,}" for M in ticks])
        ax.minorticks_off()
    handles, labels = panels[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    drawn.savefig(path, dpi=150)
    plt.close(drawn)


def entry(experiment: str, by_setting: Measurements, compared: list[Pair]) -> dict[str, object]:
    """Return the entry for the page of results."""
    lacking = sorted({s.name for pair in compared for s in pair if s in WHOLE.settings and s not in by_setting})
    shown = {"figure": FIGURE, "caption": "Odd and even digits: errors by inducing inputs, fixed or learnt"}
    return {
        "experiment": experiment,
        "command": "bash case_studies/paper_data/run.sh mnist",
        "page": "paper_data.md",
        **(shown if experiment == "inducing_inputs" else {}),
        "remark": f"{REMARKS[experiment]} {effort(by_setting, compared)} {SPREADS}",
        "still_open": "; ".join(lacking),
        "rows": list(rows(by_setting, compared)),
    }


def main() -> None:
    """Print the existing results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="use the results of mnist.py --small")
    parser.add_argument(
        "--output", type=Path, help="folder with the results of mnist.py (default: results/whole or results/small)"
    )
    parser.add_argument("--record", action="store_true", help="update results.json and the figure in docs")
    chosen = parser.parse_args()
    if chosen.small and chosen.record:
        parser.error("argument --record: results.json is for all of MNIST, not for --small")
    folder = chosen.output or HERE / "results" / (SMALL if chosen.small else WHOLE).name
    by_setting = {one.setting: one for one in read_results(folder)}
    if not by_setting:
        return
    draw(by_setting, (FIGURES if chosen.record else folder) / FIGURE)
    for setting, one in by_setting.items():
        reported = f"error rate {one.wrong.mean():.4f}  NLP {one.surprise.mean():.4f}  bound {-one.loss:.4f} a digit"
        print(f"{setting.name:43} {reported}  {one.seconds:.0f} CPU s")
    if chosen.record:
        for experiment, compared in pairs().items():
            reported = entry(experiment, by_setting, compared)
            if reported["rows"]:
                record(HERE, reported)


if __name__ == "__main__":
    run(main)
