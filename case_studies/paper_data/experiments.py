"""Fit every dataset, split, posterior and sparsity of the paper's small experiments; none is done twice."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from datasets import DATASETS, Dataset, Split
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from invgp import SAVIGP
from invgp.core.training import Blocks
from invgp.likelihoods import Gaussian
from invgp.measures import error_rate, negative_log_predictive_density, standardised_squared_error

HERE = Path(__file__).resolve().parent
FAMILIES = {"full Gaussian": ("full", 1), "diagonal Gaussian": ("diagonal", 1), "two diagonals": ("diagonal", 2)}
FULL, EXACT = "full Gaussian", "exact GP"
SPARSITY = (0.1, 0.2, 0.5, 1.0)
SPLITS = 5
# A full Gaussian is found anew for each trial of the kernels. Others are learnt along with them, in one long search:
# many short ones would each forget the curvature.
SEARCH = {"full": Blocks(rounds=20, tolerance=1e-4), "diagonal": Blocks(rounds=1, evaluations=600)}
SAMPLES = {"full": 128, "diagonal": 64}  # a site


class Measured(NamedTuple):
    """How well the outputs left out were predicted: SSE or error rate, NLPD or NLP on the scale of the data."""

    dataset: str
    split: int
    family: str
    sparsity: float
    error: float
    nlpd: float
    elbo: float
    settled: bool
    seconds: float


class Learnt(NamedTuple):
    """What a full Gaussian has learnt, from which another search may start: kernels and free parameters."""

    length_scale: list[list[float]]
    variance: list[float]
    likelihood: list[float]

    @classmethod
    def by(cls, model: SAVIGP) -> Learnt:
        """A model that was fitted."""
        lengths, variances = ([getattr(k, name).tolist() for k in model.kernels_] for name in cls._fields[:2])
        return cls(lengths, variances, np.ravel(model.likelihood_.parameters).tolist())


def fitted(dataset: Dataset, split: Split, family: str, sparsity: float, start: Learnt | None) -> SAVIGP:
    """A model with everything learnt but the inducing inputs, which are nested."""
    covariance, components = FAMILIES[family]
    likelihood, kernels = dataset.likelihood, {}
    if start is not None:
        likelihood = likelihood.with_parameters(np.asarray(start.likelihood)) if start.likelihood else likelihood
        kernels = {"length_scale": start.length_scale, "variance": start.variance}
    return SAVIGP(
        likelihood,
        ard=dataset.ard,
        inducing=None if sparsity == 1.0 else round(sparsity * len(split.X)),
        placement="subset",
        posterior=covariance,
        components=components,
        method=SEARCH[covariance],
        samples=SAMPLES[covariance],
        **kernels,
    ).fit(split.X, split.y)


def measured(dataset: Dataset, split: Split, model: SAVIGP) -> tuple[float, float]:
    """Error and NLPD of a model."""
    predicted = model.predict(split.X_new)
    density = model.log_predictive_density(split.X_new, split.y_new) - np.log(split.unit)
    measure = error_rate if dataset.discrete else standardised_squared_error
    return measure(split.y_new, predicted), negative_log_predictive_density(density)


def exact(split: Split) -> tuple[float, float, float]:
    """Error, NLPD and log evidence of scikit-learn's exact Gaussian process, which learns kernel and noise itself."""
    D = split.X.shape[1]
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(np.ones(D), (1e-2, 1e4)) + WhiteKernel(0.25, (1e-6, 1e1))
    model = GaussianProcessRegressor(kernel).fit(split.X, split.y)
    mean, std = model.predict(split.X_new, return_std=True)
    density = -0.5 * ((split.y_new - mean) / std) ** 2 - np.log(std * split.unit) - 0.5 * np.log(2.0 * np.pi)
    nlpd = negative_log_predictive_density(density)
    return standardised_squared_error(split.y_new, mean), nlpd, float(model.log_marginal_likelihood_value_)


def run(
    dataset: Dataset,
    splits: int,
    sparsity: tuple[float, ...],
    folder: Path,
    families: tuple[str, ...] = tuple(FAMILIES),
) -> None:
    """All fits of a dataset, each written as soon as it is there.

    Full Gaussians start from scratch, or in a chained dataset from what the sparser one before has learnt; diagonal
    ones, whose bound has several maxima in the kernels, from what the full one on the same inducing inputs has.
    """
    for number in range(splits):
        split = dataset.split(number)
        if isinstance(dataset.likelihood, Gaussian):
            run_exact(dataset, number, split, folder)
        start = None
        for factor in sorted(sparsity):
            for family in sorted({FULL, *families}, key=list(FAMILIES).index):
                path = folder / f"{dataset.name}_{number}_{family.replace(' ', '-')}_{factor:g}.json"
                learnt = folder / "learnt" / path.name
                if not path.exists():
                    clock = time.process_time()
                    model = fitted(dataset, split, family, factor, start if dataset.chained or family != FULL else None)
                    error, nlpd = measured(dataset, split, model)
                    seconds, settled = time.process_time() - clock, bool(model.settled_)
                    elbo = model.trace_[-1]
                    if family == FULL:
                        learnt.parent.mkdir(parents=True, exist_ok=True)
                        learnt.write_text(json.dumps(Learnt.by(model)), encoding="utf-8")
                    keep(path, Measured(dataset.name, number, family, factor, error, nlpd, elbo, settled, seconds))
                if family == FULL:
                    start = Learnt(*json.loads(learnt.read_text(encoding="utf-8")))


def run_exact(dataset: Dataset, number: int, split: Split, folder: Path) -> None:
    """What stands beside a Gaussian likelihood."""
    path, clock = folder / f"{dataset.name}_{number}_exact.json", time.process_time()
    if not path.exists():
        error, nlpd, evidence = exact(split)
        seconds = time.process_time() - clock
        keep(path, Measured(dataset.name, number, EXACT, 1.0, error, nlpd, evidence, True, seconds))


def keep(path: Path, found: Measured) -> None:
    """Write one result, and say it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found._asdict()), encoding="utf-8")
    print(
        f"{found.dataset:8} split {found.split}  {found.family:18} M / N = {found.sparsity:<4g} error {found.error:.4f}"
        f"  NLPD {found.nlpd:.4f}  {found.seconds:.1f} CPU s{'' if found.settled else ', not settled'}",
        flush=True,
    )


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="*", default=list(DATASETS), choices=DATASETS, help="(default: all)")
    parser.add_argument("--splits", type=int, default=SPLITS, help=f"(default: {SPLITS})")
    parser.add_argument("--sparsity", type=float, nargs="+", default=SPARSITY, help="inducing inputs a training input")
    parser.add_argument(
        "--output", type=Path, default=HERE / "results", help="folder of the results (default: results)"
    )
    parser.add_argument(
        "--families", nargs="+", default=list(FAMILIES), choices=FAMILIES, help="of posteriors (default: all)"
    )
    arguments = parser.parse_args()
    for name in arguments.datasets:
        run(DATASETS[name], arguments.splits, tuple(arguments.sparsity), arguments.output, tuple(arguments.families))


if __name__ == "__main__":
    main()
