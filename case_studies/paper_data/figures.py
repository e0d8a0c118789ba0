"""Box plots over the splits, and results.json, from the results of experiments.py."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from datasets import DATASETS
from experiments import EXACT, FAMILIES, HERE, SPARSITY, SPLITS, Measured, parser

sys.path.append(str(HERE.parent))
from command_line import run
from recording import record

ROOT = HERE.parents[1]
COLOURS = {"full Gaussian": "#0072B2", "diagonal Gaussian": "#E69F00", "two diagonals": "#009E73", EXACT: "0.5"}
# The means that the paper's authors publish of a full Gaussian on every training input: SSE or error rate, NLPD or NLP.
PUBLISHED = {"boston": (0.104, 2.484), "abalone": (0.454, 2.033), "cancer": (0.036, 0.095), "usps": (0.025, 0.124)}
TITLES = {
    "boston": "Boston housing, Gaussian noise",
    "abalone": "Abalone, warped",
    "cancer": "Breast cancer, logistic",
    "usps": "USPS digits 4, 7 and 9, softmax",
}
BESIDE = "the authors' mean"
REMARKS = {
    "abalone": "The warp is learnt together with the noise; the authors kept it fixed. ",
    "cancer": "One length-scale for all inputs was chosen after both options had been tested on three of the splits, "
    "including their test errors. ",
}
Key = tuple[str, float]  # family and sparsity


def read_results(dataset: str, folder: Path) -> dict[Key, list[Measured]]:
    """Read all results of a dataset, by family and sparsity."""
    by_key: dict[Key, list[Measured]] = defaultdict(list)
    for path in sorted(folder.glob(f"{dataset}_*.json")):
        one = Measured(**json.loads(path.read_text(encoding="utf-8")))
        by_key[one.family, one.sparsity].append(one)
    return by_key


def measures(dataset: str) -> tuple[str, str]:
    """Return the names of the error and the density."""
    return ("error rate", "NLP") if DATASETS[dataset].discrete else ("SSE", "NLPD")


def boxplots(dataset: str, by_key: dict[Key, list[Measured]], path: Path) -> None:
    """Draw one box per family and sparsity, with the mean of the paper for all inputs as a line."""
    drawn, panels = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    names = [name for name in (*FAMILIES, EXACT) if any(family == name for family, _ in by_key)]
    for ax, measure, name, published in zip(
        panels, ("error", "nlpd"), measures(dataset), PUBLISHED[dataset], strict=True
    ):
        place, ticks, labels = 0, [], []
        for family in names:
            for _, sparsity in sorted(key for key in by_key if key[0] == family):
                values = [getattr(one, measure) for one in by_key[family, sparsity]]
                if len(values) == 1:
                    ax.plot(place, values[0], "o", color=COLOURS[family])
                else:
                    box = ax.boxplot(
                        values, positions=[place], widths=0.7, patch_artist=True, medianprops={"color": "k"}
                    )
                    box["boxes"][0].set_facecolor(COLOURS[family])
                ticks.append(place)
                labels.append("" if family == EXACT else f"{sparsity:g}")
                place += 1
            place += 1
        ax.axhline(published, color="#D55E00", linestyle="--", linewidth=1)
        ax.set_xticks(ticks, labels)
        ax.set(xlabel="M / N, inducing inputs per training input", ylabel=name)
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[name]) for name in names]
    handles.append(plt.Line2D([], [], color="#D55E00", linestyle="--"))
    legend = [*names, f"{BESIDE}, full Gaussian, M / N = 1"]
    drawn.legend(handles, legend, loc="outside lower center", ncols=len(legend), frameon=False, fontsize=9)
    drawn.suptitle(TITLES[dataset], fontsize=11)
    drawn.savefig(path, dpi=150)
    plt.close(drawn)


def rows(dataset: str, by_key: dict[Key, list[Measured]]) -> Iterator[dict[str, object]]:
    """Compute means and standard deviations over the splits."""
    for (family, sparsity), all_splits in sorted(
        by_key.items(), key=lambda item: ([*FAMILIES, EXACT].index(item[0][0]), item[0][1])
    ):
        for i, (measure, name) in enumerate(zip(("error", "nlpd"), measures(dataset), strict=True)):
            values = np.asarray([getattr(one, measure) for one in all_splits])
            row = {
                "measure": name,
                "setting": family if family == EXACT else f"{family}, M / N = {sparsity:g}",
                "ours": float(values.mean()),
                "spread": float(values.std(ddof=1)) if len(values) > 1 else 0.0,
            }
            if (family, sparsity) == ("full Gaussian", 1.0):
                row |= {"reference": PUBLISHED[dataset][i], "source": BESIDE}
            yield row


def still_open(by_key: dict[Key, list[Measured]]) -> str:
    """Describe what has not been run."""
    open_ = {
        family: [f"{sparsity:g}" for sparsity in SPARSITY if (family, sparsity) not in by_key] for family in FAMILIES
    }
    reported = [f"{family} with M / N = {', '.join(factors)}" for family, factors in open_.items() if factors]
    return "; ".join(reported)


def entry(dataset: str, by_key: dict[Key, list[Measured]]) -> dict[str, object]:
    """Return the entry for the page of results."""
    return {
        "experiment": dataset,
        "command": f"bash case_studies/paper_data/run.sh {dataset}",
        "page": "paper_data.md",
        "figure": f"{dataset}.png",
        "caption": f"{TITLES[dataset]}: {' and '.join(measures(dataset))} over {SPLITS} splits",
        "remark": f"{REMARKS.get(dataset, '')}The paper shows boxplots. The reference means are those that its authors "
        f"published. Spreads are standard deviations over {SPLITS} random splits.",
        "still_open": still_open(by_key),
        "rows": list(rows(dataset, by_key)),
    }


def main() -> None:
    """Draw the existing results and print their table; on request, record those with all splits."""
    asked = parser(__doc__)
    asked.add_argument("--record", action="store_true", help="update results.json and the figures in docs")
    arguments = asked.parse_args()
    folder = ROOT / "docs" / "figures" if arguments.record else arguments.output
    for dataset in arguments.datasets:
        by_key = read_results(dataset, arguments.output)
        if arguments.record:
            by_key = complete(by_key)
        if not by_key:
            continue
        boxplots(dataset, by_key, folder / f"{dataset}.png")
        for row in rows(dataset, by_key):
            spread = f" ± {row['spread']:.4f}" if row["spread"] else ""
            beside = f"   {BESIDE}: {row['reference']:g}" if "reference" in row else ""
            print(f"{dataset:8} {row['measure']:11} {row['setting']:32} {row['ours']:.4f}{spread}{beside}")
        if arguments.record:
            record(HERE, entry(dataset, by_key))


def complete(by_key: dict[Key, list[Measured]]) -> dict[Key, list[Measured]]:
    """Select the results that have all splits."""
    first = {key: [one for one in measured if one.split < SPLITS] for key, measured in by_key.items()}
    return {key: measured for key, measured in first.items() if len(measured) == SPLITS}


if __name__ == "__main__":
    run(main)
