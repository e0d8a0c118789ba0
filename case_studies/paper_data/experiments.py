"""Fit each dataset, split, posterior and sparsity of the small experiments of the paper; finished fits are kept."""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from datasets import DATASETS, Dataset, Split
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from invgp import SAVIGP
from invgp.core.optimisers import LBFGS
from invgp.core.training import Blocks
from invgp.likelihoods import Gaussian
from invgp.measures import error_rate, negative_log_predictive_density, standardised_squared_error

sys.path.append(str(Path(__file__).resolve().parents[1]))
from command_line import at_least, run
from recording import write_whole

HERE = Path(__file__).resolve().parent
FULL, DIAGONAL, TWO, EXACT = "full Gaussian", "diagonal Gaussian", "two diagonals", "exact GP"
FAMILIES = {FULL: ("full", 1), DIAGONAL: ("diagonal", 1), TWO: ("diagonal", 2)}
SPARSITY = (0.1, 0.2, 0.5, 1.0)
SPLITS = 5
# A single Gaussian is optimised for each trial of the kernels. A mixture is learnt together with them in one long
# search: many short ones would each lose the estimate of the curvature.
FOR_ONE = Blocks(rounds=20, tolerance=1e-4, optimiser=LBFGS(tolerance=1e-5))
FOR_TWO = Blocks(rounds=1, evaluations=200)
SAMPLES = {"full": 128, "diagonal": 64}  # per site


class Measured(NamedTuple):
    """Errors at the test outputs: SSE or error rate, and NLPD or NLP on the scale of the data.

    Attributes
    ----------
    converged : whether the search has; None of a mixture, whose one round cannot tell.
    settings : of the search; a fit with others is made again.
    """

    dataset: str
    split: int
    family: str
    sparsity: float
    error: float
    nlpd: float
    elbo: float
    converged: bool | None
    seconds: float
    settings: str


class Learnt(NamedTuple):
    """Kernels and free parameters that one Gaussian has learnt, from which another search may start."""

    length_scale: list[list[float]]
    variance: list[float]
    likelihood: list[float]

    @classmethod
    def by(cls, model: SAVIGP) -> Learnt:
        """Return what a fitted model has learnt."""
        lengths, variances = ([getattr(k, name).tolist() for k in model.kernels_] for name in cls._fields[:2])
        return cls(lengths, variances, np.ravel(model.likelihood_.parameters).tolist())


def search(family: str) -> dict[str, Any]:
    """Return the method of the search for a posterior."""
    covariance, components = FAMILIES[family]
    method = FOR_ONE if components == 1 else FOR_TWO
    return {"posterior": covariance, "components": components, "method": method, "samples": SAMPLES[covariance]}


def fit_model(dataset: Dataset, split: Split, family: str, sparsity: float, start: Learnt | None) -> SAVIGP:
    """Fit a model; everything is learnt except for the inducing inputs, which are nested."""
    likelihood, kernels = dataset.likelihood, {}
    if start is not None:
        likelihood = likelihood.with_parameters(np.asarray(start.likelihood)) if start.likelihood else likelihood
        kernels = {"length_scale": start.length_scale, "variance": start.variance}
    model = SAVIGP(
        likelihood,
        ard=dataset.ard,
        inducing=None if sparsity == 1.0 else round(sparsity * len(split.X)),
        placement="subset",
        hyperpriors={},  # the paper has none
        **search(family),
        **kernels,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # `keep` reports it
        return model.fit(split.X, split.y)


def measure_model(dataset: Dataset, split: Split, model: SAVIGP) -> tuple[float, float]:
    """Compute error and NLPD of a model."""
    predicted = model.predict_proba(split.X_new) if dataset.discrete else model.predict(split.X_new)
    density = model.log_predictive_density(split.X_new, split.y_new) - np.log(split.unit)
    measure = error_rate if dataset.discrete else standardised_squared_error
    return measure(split.y_new, predicted), negative_log_predictive_density(density)


def fit_exact_process(split: Split) -> tuple[float, float, float]:
    """Compute error, NLPD and log evidence of the exact Gaussian process of scikit-learn, with learnt kernel."""
    D = split.X.shape[1]
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(np.ones(D), (1e-2, 1e4)) + WhiteKernel(0.25, (1e-6, 1e1))
    model = GaussianProcessRegressor(kernel).fit(split.X, split.y)
    mean, std = model.predict(split.X_new, return_std=True)
    density = -0.5 * ((split.y_new - mean) / std) ** 2 - np.log(std * split.unit) - 0.5 * np.log(2.0 * np.pi)
    nlpd = negative_log_predictive_density(density)
    return standardised_squared_error(split.y_new, mean), nlpd, float(model.log_marginal_likelihood_value_)


def run_splits(
    dataset: Dataset,
    splits: int,
    sparsity: tuple[float, ...],
    folder: Path,
    families: tuple[str, ...] = tuple(FAMILIES),
) -> None:
    """Run all fits of a dataset and write each result; some families start from the result of earlier ones."""
    last = max(list(FAMILIES).index(name) for name in families)
    for number in range(splits):
        run_split(dataset, number, sparsity, folder, list(FAMILIES)[: 1 + last])


def run_split(
    dataset: Dataset, number: int, sparsity: tuple[float, ...], folder: Path, families: Sequence[str]
) -> None:
    """Run all fits of one split.

    One Gaussian starts from scratch. The bound of a diagonal one has many maxima in the kernels: it also starts from
    what the sparser one before has learnt, and the better is kept. Two diagonal ones start from what one has learnt on
    the same inducing inputs.
    """
    split = dataset.split(number)
    (folder / "learnt").mkdir(parents=True, exist_ok=True)
    known: dict[str, Learnt] = {}
    if isinstance(dataset.likelihood, Gaussian):
        run_exact(dataset, number, split, folder)
    for factor in sorted(sparsity):
        for family in families:
            path = folder / f"{dataset.name}_{number}_{family.replace(' ', '-')}_{factor:g}.json"
            learnt, settings = folder / "learnt" / path.name, repr((dataset.likelihood, search(family)))
            if not (learnt.exists() and is_kept(path, settings)):
                clock = time.process_time()
                starts = starting_points(family, known)
                models = [fit_model(dataset, split, family, factor, start) for start in starts]
                model = max(models, key=lambda one: one.trace_[-1])
                error, nlpd = measure_model(dataset, split, model)
                seconds, converged = time.process_time() - clock, None if family == TWO else bool(model.converged_)
                write_whole(learnt, json.dumps(Learnt.by(model)))
                elbo = model.trace_[-1]
                keep(
                    path,
                    Measured(dataset.name, number, family, factor, error, nlpd, elbo, converged, seconds, settings),
                )
            known[family] = Learnt(*json.loads(learnt.read_text(encoding="utf-8")))


def starting_points(family: str, known: Mapping[str, Learnt]) -> list[Learnt | None]:
    """Return the starts of the searches for one posterior from earlier results; None is from scratch."""
    if family == TWO:
        return [known[DIAGONAL]]
    return [None, known[DIAGONAL]] if family == DIAGONAL and DIAGONAL in known else [None]


def run_exact(dataset: Dataset, number: int, split: Split, folder: Path) -> None:
    """Compute the exact process for a Gaussian likelihood."""
    path, clock = folder / f"{dataset.name}_{number}_exact.json", time.process_time()
    if not is_kept(path, EXACT):
        error, nlpd, evidence = fit_exact_process(split)
        seconds = time.process_time() - clock
        keep(path, Measured(dataset.name, number, EXACT, 1.0, error, nlpd, evidence, True, seconds, EXACT))


def is_kept(path: Path, settings: str) -> bool:
    """Return whether there is a result with the same settings."""
    return path.exists() and json.loads(path.read_text(encoding="utf-8")).get("settings") == settings


def keep(path: Path, found: Measured) -> None:
    """Write and print one result."""
    write_whole(path, json.dumps(found._asdict()))
    print(
        f"{found.dataset:8} split {found.split}  {found.family:18} M / N = {found.sparsity:<4g} error {found.error:.4f}"
        f"  NLPD {found.nlpd:.4f}  {found.seconds:.1f} CPU s{', not converged' if found.converged is False else ''}",
        flush=True,
    )


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of the arguments that fits and figures have in common."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument(
        "datasets", nargs="*", default=list(DATASETS), choices=DATASETS, help="names of data sets (default: all)"
    )
    made.add_argument("--splits", type=at_least(1), default=SPLITS, help=f"number of splits (default: {SPLITS})")
    made.add_argument("--sparsity", type=float, nargs="+", default=SPARSITY, help="inducing inputs per training input")
    made.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES, help="families of posteriors")
    made.add_argument("--output", type=Path, default=HERE / "results", help="folder of the results (default: results)")
    return made


def main() -> None:
    """Run the selected fits."""
    asked = parser(__doc__)
    arguments = asked.parse_args()
    for name in arguments.datasets:
        train = DATASETS[name].train
        if not all(round(factor * train) >= 1 and factor <= 1.0 for factor in arguments.sparsity):
            asked.error(
                f"argument --sparsity: each must be from 1 / {train} (for {name}) to 1, was {arguments.sparsity}"
            )
    for name in arguments.datasets:
        run_splits(
            DATASETS[name], arguments.splits, tuple(arguments.sparsity), arguments.output, tuple(arguments.families)
        )


if __name__ == "__main__":
    run(main)
