"""Reductions that `invgp design` promises against those that inversions with the new data realise.

    python tests/benchmarks/design_study.py [--surveys 12] [--only linear product modes] [--seed 1]

For each problem a survey is simulated and inverted. `invgp design` promises a reduction of the standard deviation of a
target by each candidate. Then true fields are taken from the draws of the posterior; each candidate is measured there
with noise, and the survey with the new datum is inverted again with the simulator. The realised reduction is that of
the root mean posterior variance over these surveys; its standard error contains the spread over the surveys and the
error of the draws of the first inversion. The linear problem has Gaussian posteriors without draws, whose variance does
not depend on the datum. The new site has a third of the noise of the others.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

import invgp
from invgp.answers.joint_values import draw_jointly
from invgp.maps.read_posterior_field import read_posterior_field

X = np.arange(0.0, 8.0)
PLACE, NEW = 3.0, 3.5  # of target and direct measurement, and of a new site
NOISE, DIRECT, NEW_NOISE = 0.3, 0.3, 0.1  # standard deviations
PROBLEMS = {  # simulator, and prior mean and standard deviation of both latents
    "linear": (lambda a, b: a + 0.5 * b, (2.0, 3.0), (0.6, 0.9)),
    "product": (lambda a, b: a * b, (2.0, 3.0), (0.6, 0.9)),  # a bent posterior: only the product is known
    "modes": (lambda a, b: a**2 + 0.2 * b, (0.3, 0.0), (1.0, 0.5)),  # two modes: the sign of a is nearly unknown
}
CANDIDATES = {"value of b": ("b", PLACE), "value of a": ("a", PLACE), "new site": (None, NEW)}


class Row(NamedTuple):
    """Promised and realised reduction, both with standard errors, for one problem and candidate."""

    problem: str
    candidate: str
    promised: float
    promised_error: float
    realised: float
    realised_error: float

    @property
    def ratio(self) -> float:
        """Promised over realised reduction."""
        return self.promised / self.realised


def make_problem(name, x, y, direct=None, seed=1):
    """Return the inverse problem of data y (N,) at x (N,); `direct` is a latent and its value at `PLACE`."""
    simulator, means, stds = PROBLEMS[name]
    latents = {
        latent: {"unit": "1", "mean": mean, "std": std, "kernel": {"length_scale": 3.0}}
        for latent, mean, std in zip("ab", means, stds, strict=True)
    }
    more = {}
    if direct is not None:
        latent, value = direct
        measured = {"quantity": latent, "value": float(value), "std": DIRECT}
        more["direct"] = {"well": {"coordinates": {"x": PLACE}, "values": {"measured": measured}}}
    return invgp.define(
        {"x": x, "y": y, "noise": np.where(x == NEW, NEW_NOISE, NOISE)},
        coordinates={"x": "m"},
        observations={"y": "1"},
        latents=latents,
        forward=lambda a, b: {"y": simulator(a, b)},
        noise={"y": "noise"},
        inference={"seed": seed, **({"posterior": "coupled gaussian"} if name == "linear" else {})},
        **more,
    )


def target_variance(posterior):
    """Posterior variance of a at `PLACE`, the target, and its relative error from the number of draws."""
    place = int(np.flatnonzero(posterior["x"].values == PLACE)[0])
    effective = posterior.get("a_effective_sample_size")
    error = 0.0 if effective is None else np.sqrt(2.0 / float(effective.values[place]))
    return float(posterior["a_std"].values[place]) ** 2, error


def study(name, surveys, seed, candidates):
    """Return a row for each candidate of a problem."""
    rng = np.random.default_rng([seed, list(PROBLEMS).index(name)])
    simulator, means, stds = PROBLEMS[name]
    covariance = np.exp(-np.abs(X[:, None] - X) / 3.0) + 1e-9 * np.eye(len(X))
    truth = [m + s * rng.multivariate_normal(np.zeros(len(X)), covariance) for m, s in zip(means, stds, strict=True)]
    y = simulator(*truth) + NOISE * rng.standard_normal(len(X))
    problem = make_problem(name, X, y)
    posterior = invgp.invert(problem)
    with tempfile.TemporaryDirectory() as folder:
        lines = [
            f"{k},{place},{latent},{DIRECT}," if latent else f"{k},{place},,,{NEW_NOISE / NOISE}"
            for k, (latent, place) in candidates.items()
        ]
        file = Path(folder) / "places.csv"
        file.write_text("\n".join(["name,x,quantity,std,noise_factor", *lines, ""]))
        found = invgp.design(posterior, file, target=["a"], region=f"x={PLACE}", best=1, config=problem)
    draws = draw_jointly(read_posterior_field(posterior), np.asarray([[PLACE], [NEW]]), seed)
    draws = rng.permutation(draws)[:surveys]
    (before, error_before), rows = target_variance(posterior), []
    for k, (candidate, (latent, place)) in enumerate(candidates.items()):
        after = []
        for one in range(surveys):
            a, b = draws[one, int(place == NEW)]
            if latent is None:
                value = simulator(a, b) + NEW_NOISE * rng.standard_normal()
                again = make_problem(name, np.append(X, place), np.append(y, value), seed=one + 2)
            else:
                value = (a if latent == "a" else b) + DIRECT * rng.standard_normal()
                again = make_problem(name, X, y, (latent, value), seed=one + 2)
            after.append(target_variance(invgp.invert(again))[0])
        mean, error = np.mean(after), np.std(after, ddof=1) / np.sqrt(surveys) if surveys > 1 else 0.0
        ratio = np.sqrt(mean / before)
        realised_error = 0.5 * ratio * float(np.hypot(error / mean, error_before))
        promised = float(found["reduction"].values[k, 0])
        promised_error = float(found["reduction_error"].values[k, 0])
        rows.append(Row(name, candidate, promised, promised_error, 1.0 - ratio, realised_error))
    return rows


def main(arguments=None):
    """Print the table and return its rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--surveys", type=int, default=12, help="simulated new data of each candidate")
    parser.add_argument("--only", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--candidates", nargs="+", choices=list(CANDIDATES), default=list(CANDIDATES))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    rows = []
    print(f"{'problem':10}{'candidate':14}{'promised':>18}{'realised':>18}{'ratio':>8}")
    for name in options.only:
        for row in study(name, options.surveys, options.seed, {k: CANDIDATES[k] for k in options.candidates}):
            rows.append(row)
            promised, realised = (
                f"{value:.1%} ± {error:.1%}"
                for value, error in ((row.promised, row.promised_error), (row.realised, row.realised_error))
            )
            print(f"{row.problem:10}{row.candidate:14}{promised:>18}{realised:>18}{row.ratio:8.2f}", flush=True)
    return rows


if __name__ == "__main__":
    main()
