"""Complete fits here and in GPflow: the bound on new samples, the held-out log density and the time.

GPflow and TensorFlow go into a virtual environment of their own, as in `against_gpflow.py`.

    OPENBLAS_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 python tests/benchmarks/estimator.py
    python tests/benchmarks/estimator.py --only poisson "student t" --without-gpflow

Both sides have the same inducing inputs, initial kernels and likelihoods, and learn everything except the inducing
inputs. GPflow uses its SVGP with L-BFGS, and Adam where its likelihood draws samples (softmax). Its time is that of the
fit alone, without the import of TensorFlow. A dash marks what GPflow does not offer without code of one's own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import environments
import numpy as np
from against_gpflow import REQUIREMENTS
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from invgp import SAVIGP
from invgp.likelihoods import (
    GPRN,
    BlackBox,
    Gaussian,
    HeteroscedasticGaussian,
    Logistic,
    Ordinal,
    Poisson,
    Softmax,
    StudentT,
)

SIDE = Path(__file__).with_name("_estimator_gpflow_side.py")


class Row(NamedTuple):
    """Data of a comparison: inputs and observations to fit and to predict, and what GPflow calls the likelihood."""

    X: Any
    y: Any
    X_new: Any
    y_new: Any
    likelihood: Callable[[], Any]
    inducing: int
    gpflow: str | None
    settings: dict[str, Any]


def _split(X, y, count, likelihood, inducing, gpflow, **settings) -> Row:
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:count], order[count : count + 1000]
    scaler = StandardScaler().fit(X[train])
    return Row(
        scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test], likelihood, inducing, gpflow, settings
    )


def _real(name: str) -> Row:
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        return _split(X, (y - y.mean()) / y.std(), 330, lambda: Gaussian(0.7), 50, "gaussian")
    if name == "wine":
        X, y = load_wine(return_X_y=True)
        return _split(X, y, 130, lambda: Softmax(3), 40, "softmax")
    if name == "cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return _split(X, y, 400, Logistic, 50, "bernoulli")
    X, y = load_digits(return_X_y=True)
    keep = X.std(axis=0) > 0
    return _split(X[:, keep], y, 1500, lambda: Softmax(10), 100, "softmax", ard=False)


def zero_inflated(y, f, parameters):
    """Counts with the mean exp(f), or 0 with a probability that is learnt."""
    p = 1.0 / (1.0 + np.exp(-parameters[0]))
    counts, log_factorial = y[:, 0], np.cumsum(np.log(np.maximum(np.arange(200.0), 1.0)))[y[:, 0].astype(int)]
    poisson = counts * f[..., 0] - np.exp(f[..., 0]) - log_factorial
    return np.where(counts > 0, np.log1p(-p) + poisson, np.logaddexp(np.log(p), np.log1p(-p) + poisson))


def squares(y, f):
    """Observations of f^2 with noise of standard deviation 0.1."""
    return -0.5 * ((y[:, 0] - f[..., 0] ** 2) / 0.1) ** 2 - np.log(0.1 * np.sqrt(2 * np.pi))


def _simulate_data(name: str) -> Row:
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 10, (1000, 1))
    f = np.sin(1.5 * X[:, 0]) + 0.5 * np.cos(0.7 * X[:, 0])
    noise = rng.standard_normal(1000)
    weights = np.column_stack([1 + X[:, 0] / 12, 0.8 * np.cos(X[:, 0]) - 1])
    zero = rng.random(1000) < 0.3
    y, likelihood, gpflow = {
        "poisson": (rng.poisson(np.exp(f)), lambda: Poisson(0.0, learn=False), "poisson"),
        "zero-inflated": (
            np.where(zero, 0, rng.poisson(np.exp(1 + f))),
            lambda: BlackBox(zero_inflated, 1, 1, parameters=[-1.0]),
            None,
        ),
        "heteroscedastic": (f + np.exp(-2 + np.sin(X[:, 0])) * noise, HeteroscedasticGaussian, "heteroscedastic"),
        "ordinal": (np.digitize(2 * f + rng.logistic(size=1000), [-1.5, 0.0, 1.5]), lambda: Ordinal(4), None),
        "student t": (f + 0.1 * rng.standard_t(3, 1000), lambda: StudentT(0.3, dof=3.0), "student"),
        "network": (
            weights * f[:, None] + 0.1 * rng.standard_normal((1000, 2)),
            lambda: GPRN(0.3, nodes=1, outputs=2),
            None,
        ),
        "y = f^2": (f**2 + 0.1 * noise, lambda: BlackBox(squares, 1, 1), None),
    }[name]
    return _split(X, np.asarray(y, dtype=np.float64), 300 if gpflow is None else 500, likelihood, 20, gpflow)


REAL = ("diabetes", "wine", "cancer", "digits")
SIMULATED = ("poisson", "zero-inflated", "heteroscedastic", "ordinal", "student t", "network", "y = f^2")


class Outcome(NamedTuple):
    """Bound and its standard error (nats), held-out log density per site, and seconds of a fit."""

    bound: float
    error: float
    density: float
    seconds: float


def ours(row: Row) -> tuple[Outcome, SAVIGP, float]:
    """Fit here; also return the model and its bound from more samples."""
    model = SAVIGP(row.likelihood(), inducing=row.inducing, **row.settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        start = time.process_time()
        model.fit(row.X, row.y)
        spent = time.process_time() - start
    model.samples_ = max(model.samples_, 4096)
    true = float(model.bound(row.X, row.y))
    return Outcome(model.bound_, model.bound_std_error_, model.score(row.X_new, row.y_new), spent), model, true


def theirs(python: Path, row: Row, model: SAVIGP) -> Outcome | None:
    """Fit in GPflow, with the inducing inputs with which the fit here started."""
    start = SAVIGP(row.likelihood(), inducing=row.inducing, **row.settings)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "row.npz"
        ard = row.settings.get("ard", True)
        D = row.X.shape[1]
        scale = np.sqrt(D) * row.X.std(axis=0) if ard else np.sqrt(row.X.var(axis=0).sum())
        np.savez(file, X=row.X, y=row.y, X_new=row.X_new, y_new=row.y_new, Z=model.inducing_inputs_[0], scale=scale)
        task = json.dumps({"file": str(file), "likelihood": row.gpflow, "latents": start.likelihood.latents})
        found = subprocess.run([python, SIDE, task], capture_output=True, text=True, check=False)
    if found.returncode:
        print(found.stderr[-1500:])
        return None
    return Outcome(**json.loads(found.stdout.splitlines()[-1]))


def main(arguments: Sequence[str] | None = None) -> dict[str, tuple[Outcome, Outcome | None]]:
    """Measure, and print one line per row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[*REAL, *SIMULATED], choices=[*REAL, *SIMULATED])
    parser.add_argument("--without-gpflow", action="store_true")
    parser.add_argument("--environment", type=Path, default=environments.cache_folder("gpflow"))
    chosen = parser.parse_args(arguments)
    python = None
    if not chosen.without_gpflow:
        python = environments.environment(chosen.environment, [REQUIREMENTS], ["gpflow"], "GPflow")
    print(
        f"{'':16s} {'bound':>19s} {'4,096 samples':>13s} {'held-out':>9s} {'time':>8s}   GPflow: bound, held-out, time"
    )
    results = {}
    for name in chosen.only:
        row = _real(name) if name in REAL else _simulate_data(name)
        here, model, true = ours(row)
        there = theirs(python, row, model) if python is not None and row.gpflow is not None else None
        other = "-" if there is None else f"{there.bound:10.2f} {there.density:8.3f} {there.seconds:7.1f} s"
        line = (
            f"{name:16s} {here.bound:10.2f} +- {here.error:5.3f} {true:13.2f} {here.density:9.3f} {here.seconds:6.1f} s"
        )
        print(f"{line}   {other}", flush=True)
        results[name] = here, there
    return results


if __name__ == "__main__":
    main()
