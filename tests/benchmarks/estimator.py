"""Complete fits here and in GPflow: the bound on new samples, the held-out log density and the time.

GPflow and TensorFlow go into a virtual environment of their own, as in `against_gpflow.py`.

    OPENBLAS_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 python tests/benchmarks/estimator.py
    python tests/benchmarks/estimator.py --only poisson "student t" --without-gpflow

Both sides have the same inducing inputs, initial kernels, likelihoods and hyperpriors, which are the defaults of invgp,
and learn everything except the inducing inputs. In rows called "flat" neither side has hyperpriors, the default of
GPflow. GPflow uses its SVGP with L-BFGS, and Adam where its likelihood draws samples (softmax). Its time is the
processor time of the fit alone, without the import of TensorFlow. Likelihoods that it does not have are written in
TensorFlow in `_estimator_gpflow_side.py`. `--record` keeps the table in `estimator.json`, from which
`python docs/make_peers.py` generates a part of docs/peers.md.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import environments
import numpy as np
import tables
from against_gpflow import REQUIREMENTS
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

import invgp
from invgp import SAVIGP
from invgp.estimator.initialisation import WEAK_PRIORS
from invgp.estimator.labels import is_classifier
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
RECORD = Path(__file__).with_name("estimator.json")
FACTOR = WEAK_PRIORS["variance"].factor  # of the hyperpriors of classifiers
SAMPLES = 4096  # per site, of the bound that is compared
BOUND_TOLERANCE, DENSITY_TOLERANCE = 0.05, 0.001  # nats in all and per site: smaller differences count as none
REPORT_TOLERANCE = 0.01  # nats: the standard error of points that fill the space evenly may be much smaller


class Row(NamedTuple):
    """Data of a comparison: inputs and observations to fit and to predict, and what GPflow calls the likelihood."""

    X: Any
    y: Any
    X_new: Any
    y_new: Any
    likelihood: Callable[[], Any]
    inducing: int
    gpflow: str
    settings: dict[str, Any]
    random_start: bool = False  # of the posterior mean in GPflow; invgp searches for modes itself


def _split(X, y, count, likelihood, inducing, gpflow, **settings) -> Row:
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:count], order[count : count + 1000]
    scaler = StandardScaler().fit(X[train])
    return Row(
        scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test], likelihood, inducing, gpflow, settings
    )


def _real(name: str) -> Row:
    dataset, _, flat = name.partition(", ")
    settings: dict[str, Any] = {"hyperpriors": {}} if flat else {}
    if dataset == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        return _split(X, (y - y.mean()) / y.std(), 330, lambda: Gaussian(0.7), 50, "gaussian")
    if dataset == "wine":
        X, y = load_wine(return_X_y=True)
        return _split(X, y, 130, lambda: Softmax(3), 40, "softmax", **settings)
    if dataset == "cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return _split(X, y, 400, Logistic, 50, "bernoulli", **settings)
    X, y = load_digits(return_X_y=True)
    keep = X.std(axis=0) > 0
    return _split(X[:, keep], y, 1500, lambda: Softmax(10), 100, "softmax", ard=False)


def zero_inflated(y, f, parameters):
    """Counts with the mean exp(f), or 0 with a probability that is learnt."""
    p = 1.0 / (1.0 + np.exp(-parameters[0]))
    counts, log_factorial = y[:, 0], np.cumsum(np.log(np.maximum(np.arange(200.0), 1.0)))[y[:, 0].astype(int)]
    poisson = counts * f[..., 0] - np.exp(f[..., 0]) - log_factorial
    return np.where(counts > 0, np.log1p(-p) + poisson, np.logaddexp(np.log(p), np.log1p(-p) + poisson))


def squares(y, f, parameters):
    """Observations of f^2 with Gaussian noise, whose standard deviation is learnt."""
    residual = (y[:, 0] - f[..., 0] ** 2) * np.exp(-parameters[0])
    return -0.5 * residual**2 - parameters[0] - 0.5 * np.log(2 * np.pi)


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
            "zero-inflated",
        ),
        "heteroscedastic": (f + np.exp(-2 + np.sin(X[:, 0])) * noise, HeteroscedasticGaussian, "heteroscedastic"),
        "ordinal": (np.digitize(2 * f + rng.logistic(size=1000), [-1.5, 0.0, 1.5]), lambda: Ordinal(4), "ordinal"),
        "student t": (f + 0.1 * rng.standard_t(3, 1000), lambda: StudentT(0.3, dof=3.0), "student"),
        "network": (
            weights * f[:, None] + 0.1 * rng.standard_normal((1000, 2)),
            lambda: GPRN(0.3, nodes=1, outputs=2),
            "network",
        ),
        "y = f^2": (f**2 + 0.1 * noise, lambda: BlackBox(squares, 1, 1, parameters=[0.0]), "squares"),
    }[name]
    row = _split(X, np.asarray(y, dtype=np.float64), 500, likelihood, 20, gpflow)
    return row._replace(random_start=gpflow in ("squares", "network"))


REAL = ("diabetes", "wine", "wine, flat", "cancer", "cancer, flat", "digits")
SIMULATED = ("poisson", "zero-inflated", "heteroscedastic", "ordinal", "student t", "network", "y = f^2")


MODES = {"two modes, K = 1": 1, "two modes, K = 2": 2}


EVERY = (*REAL, *SIMULATED, *MODES)


def _row(name: str) -> Row:
    """Return the data of a row."""
    if name in MODES:
        return _two_modes(name)
    return _real(name) if name in REAL else _simulate_data(name)


def squares_or_values(y, f):
    """Observations of f^2 in the first column and of f in the second, with Gaussian noise of 0.1; NaN if missing."""
    residual = np.stack([y[:, 0] - f[..., 0] ** 2, y[:, 1] - f[..., 0]], axis=-1) / 0.1
    density = -0.5 * residual**2 - np.log(0.1 * np.sqrt(2 * np.pi))
    return np.sum(np.where(np.isnan(y), 0.0, density), axis=-1)


def _two_modes(name: str) -> Row:
    """Fit squares of a latent, whose sign stays unknown; predict values of the latent with either sign."""
    rng, sites = np.random.default_rng(0), 60
    X, missing = np.linspace(0, 6, sites)[:, None], np.full(2 * sites, np.nan)
    curve = 1 + 0.5 * np.sin(1.5 * X[:, 0])
    y = np.column_stack([curve**2 + 0.1 * rng.standard_normal(sites), missing[:sites]])
    values = np.concatenate([curve, -curve]) + 0.1 * rng.standard_normal(2 * sites)
    return Row(
        X,
        y,
        np.concatenate([X, X]),
        np.column_stack([missing, values]),
        lambda: BlackBox(squares_or_values, 1, 2),
        10,
        "",
        {"components": MODES[name]},
    )


class Outcome(NamedTuple):
    """Bound and its standard error (nats), held-out log density per site, and seconds of a fit."""

    bound: float
    error: float
    density: float
    seconds: float


class Fit(NamedTuple):
    """A fit here: what it reports, and the bound from more samples with its standard error."""

    outcome: Outcome
    model: SAVIGP
    true: float
    true_error: float

    @property
    def reports_truth(self) -> bool:
        """Whether the reported bound agrees with that from more samples, within two standard errors."""
        error = math.hypot(self.outcome.error, self.true_error)
        return abs(self.outcome.bound - self.true) <= max(2.0 * error, REPORT_TOLERANCE)


def ours(row: Row) -> Fit:
    """Fit here."""
    model = SAVIGP(row.likelihood(), inducing=row.inducing, **row.settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        start = time.process_time()
        model.fit(row.X, row.y)
        spent = time.process_time() - start
    model.samples_ = max(model.samples_, SAMPLES)
    true, error = model.bound(row.X, row.y, entropy="monte carlo", return_std_error=True)
    outcome = Outcome(model.mixture_bound_, model.mixture_bound_std_error_, model.score(row.X_new, row.y_new), spent)
    return Fit(outcome, model, true, error)


def theirs(python: Path, row: Row, model: SAVIGP, versions: dict[str, str]) -> Outcome | None:
    """Fit in GPflow, with the inducing inputs with which the fit here started; add the versions of its packages."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "row.npz"
        ard = row.settings.get("ard", True)
        D = row.X.shape[1]
        scale = np.sqrt(D) * row.X.std(axis=0) if ard else np.sqrt(row.X.var(axis=0).sum())
        np.savez(file, X=row.X, y=row.y, X_new=row.X_new, y_new=row.y_new, Z=model.inducing_inputs_[0], scale=scale)
        task = {
            "file": str(file),
            "likelihood": row.gpflow,
            "latents": model.likelihood.latents,
            "factor": FACTOR if is_classifier(model.likelihood) and model.hyperpriors is None else 0.0,
            "random_start": row.random_start,
        }
        found = subprocess.run([python, SIDE, json.dumps(task)], capture_output=True, text=True, check=False)
    if found.returncode:
        print(found.stderr[-1500:])
        return None
    outcome = json.loads(found.stdout.splitlines()[-1])
    versions |= outcome.pop("versions")
    return Outcome(**outcome)


def verdict(here: Fit, there: Outcome) -> str:
    """State in what a fit here is behind; "at least equal" if in nothing."""
    allowed = max(BOUND_TOLERANCE, 2.0 * math.hypot(here.true_error, there.error))
    behind = {
        "bound": here.true < there.bound - allowed,
        "density": here.outcome.density < there.density - DENSITY_TOLERANCE,
        "time": here.outcome.seconds > there.seconds,
        "reported bound": not here.reports_truth,
    }
    return (
        "behind: " + ", ".join(name for name, yes in behind.items() if yes)
        if any(behind.values())
        else "at least equal"
    )


def cells(name: str, row: Row, here: Fit, there: Outcome | None) -> tuple[str, ...]:
    """One row of the table."""
    own, outcome = here.outcome, there
    rest = ("-",) * 4
    if outcome is not None:
        rest = (f"{outcome.bound:.2f}", f"{outcome.density:.4f}", f"{outcome.seconds:.1f}", verdict(here, outcome))
    size = f"{len(row.X):,}, {row.X.shape[1]}, {here.model.inducing_inputs_.shape[1]}, {here.model.likelihood.latents}"
    reported = f"{own.bound:.2f} +- {own.error:.3f}"
    return (name, size, reported, f"{here.true:.2f}", f"{own.density:.4f}", f"{own.seconds:.1f}", *rest)


COLUMNS = (
    "model",
    "N, D, M, Q",
    "reported bound",
    f"bound, {SAMPLES:,} samples",
    "held-out density",
    "CPU s",
    "GPflow: bound",
    "held-out density",
    "CPU s",
    "invgp is",
)
ABOUT = (
    "Complete fits of posterior, kernels and likelihood, with M fixed inducing inputs and Q latents. Bounds are in "
    "nats, and held-out log densities in nats per site. Both sides have the same inducing inputs and initial values. "
    "GPflow uses SVGP with L-BFGS, 2,000 steps of Adam for softmax, whose bound it samples, and 1,000 steps of Adam "
    "before L-BFGS for heteroscedastic, because L-BFGS alone ends at a poor optimum. Its bounds "
    "are computed with up to 200 quadrature nodes after the fit. zero-inflated, ordinal, network and y = f^2 have "
    "likelihoods that were written in TensorFlow for this comparison. For network and y = f^2, GPflow starts at a "
    "random posterior mean, because its default is a saddle point. For classes (wine, cancer, digits and ordinal), "
    f"both sides have the default hyperpriors of invgp, log-normal with the factor {FACTOR:g} on variances and "
    "length-scales. In the rows called flat, neither has hyperpriors, the default of GPflow. 'cancer, flat' is for "
    "information: its classes can be separated, so the bound increases with the variance up to very large ones. The "
    "higher bound of invgp belongs to a larger variance and to worse predictions, which is why classifiers have "
    "hyperpriors by default. "
    "In the rows called two modes, the sign of the latent is unknown, K is the number of Gaussians, the bounds have "
    "the Monte Carlo entropy, and the held-out values have either sign; GPflow has no mixtures. "
    f"Differences below {BOUND_TOLERANCE:g} nats or two standard errors of "
    f"the bounds, and below {DENSITY_TOLERANCE:g} of the densities, count as equal. The reported bound must be within "
    f"two standard errors, or {REPORT_TOLERANCE:g} nats, of that from more samples."
)


def main(arguments: Sequence[str] | None = None) -> tables.Table:
    """Measure, and print one line per row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=EVERY, choices=EVERY)
    parser.add_argument("--without-gpflow", action="store_true")
    parser.add_argument("--environment", type=Path, default=environments.cache_folder("gpflow"))
    parser.add_argument(
        "--record",
        nargs="?",
        type=Path,
        const=RECORD,
        metavar="FILE",
        help="replace the measured rows of a record (default: estimator.json)",
    )
    chosen = parser.parse_args(arguments)
    python, versions = None, {"invgp": invgp.__version__, "numpy": np.__version__}
    if not chosen.without_gpflow:
        python = environments.environment(chosen.environment, [REQUIREMENTS], ["gpflow"], "GPflow")
    rows = {}
    for name in chosen.only:
        row = _row(name)
        here = ours(row)
        there = None if python is None or not row.gpflow else theirs(python, row, here.model, versions)
        rows[name] = cells(name, row, here, there)
        print("  ".join(rows[name]), flush=True)
        if chosen.record:
            earlier = {one[0]: tuple(one) for one in recorded_rows(chosen.record)}
            known = recorded_versions(chosen.record) | versions
            tables.write(chosen.record, tables.machine(), [table_of(earlier | rows, known, tuple(rows))])
    table = table_of(rows, versions)
    print(f"\n{table}")
    return table


def table_of(
    rows: dict[str, tuple[str, ...]], versions: dict[str, str], latest: Sequence[str] | None = None
) -> tables.Table:
    """Return the table of the measured rows, with sentences on those that are older than the `latest` or missing."""
    compared = [cells for cells in rows.values() if cells[-1] != "-"]
    fine = sum(cells[-1] == "at least equal" for cells in compared)
    reading = [f"invgp is at least equal in {fine} of {len(compared)} rows."] if compared else []
    if latest is not None and len(latest) < len(rows):
        reading.append(f"The last run of the command measured {'; '.join(latest)}. Earlier runs measured the others.")
    missing = [name for name in EVERY if name not in rows]
    if missing:
        reading.append(f"Not measured yet: {', '.join(missing)}.")
    ordered = tuple(rows[name] for name in EVERY if name in rows)
    return tables.Table("Complete fits", ABOUT, COLUMNS, ordered, versions, tuple(reading))


def recorded_rows(record: Path) -> list[list[str]]:
    """Return the rows of an earlier record."""
    return json.loads(record.read_text(encoding="utf-8"))["tables"][0]["rows"] if record.exists() else []


def recorded_versions(record: Path) -> dict[str, str]:
    """Return the versions of packages in an earlier record; those of rows that are not measured again remain."""
    return json.loads(record.read_text(encoding="utf-8"))["tables"][0]["versions"] if record.exists() else {}


if __name__ == "__main__":
    main()
