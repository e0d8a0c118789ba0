"""Reductions that `invgp design` promises against those that inversions with the new data realise.

    python tests/benchmarks/design_study.py [--surveys 60] [--only linear product modes] [--seed 1]

For each problem a survey is simulated and inverted. `invgp design` promises a reduction of the standard deviation of a
target by each candidate. Then true fields are taken from the draws of the posterior; each candidate is measured there
with noise, and the survey with the new data is inverted again with the simulator. The realised reduction is that of
the root mean posterior variance over these surveys. The variance without the new data is the mean over inversions with
several random seeds. The standard error contains the spread over the surveys and over the seeds. The realised
reductions of the linear problem are those of the closed form. The new site has a third of the noise of the others, and
the better data have 30% of the noise.
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
NOISE, DIRECT, NEW_NOISE, BETTER = 0.3, 0.3, 0.1, 0.3  # standard deviations, and a factor of the noise
SEEDS = 12  # of inversions without new data
PROBLEMS = {  # simulator, and prior mean and standard deviation of both latents
    "linear": (lambda a, b: a + 0.5 * b, (2.0, 3.0), (0.6, 0.9)),
    "product": (lambda a, b: a * b, (2.0, 3.0), (0.6, 0.9)),  # a bent posterior: only the product is known
    "modes": (lambda a, b: a**2 + 0.2 * b, (0.3, 0.0), (1.0, 0.5)),  # two modes: the sign of a is nearly unknown
}
MEASURED = {"linear": "a + 0.5*b", "product": "a * b", "modes": "a**2 + 0.2*b"}  # the simulators as expressions


class Measurement(NamedTuple):
    """A candidate: a direct value of a latent, or data with this noise at a place of the survey or a new one.

    The target is a latent, or what the simulator computes, at the place of the measurement.
    """

    quantity: str | None
    place: float
    noise: float
    target: str | None = None


CANDIDATES = {
    "value of b": Measurement("b", PLACE, DIRECT, "a"),
    "value of a": Measurement("a", PLACE, DIRECT, "a"),
    "new site": Measurement(None, NEW, NEW_NOISE),
    "better noise": Measurement(None, PLACE, BETTER * NOISE),
}
LEFT_OUT = {("modes", "value of b")}  # it does not reduce the uncertainty of a, which is that of its sign


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


def make_problem(name, x, y, direct=None, noise=None, seed=1):
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
        {"x": x, "y": y, "noise": np.full(len(x), NOISE) if noise is None else noise},
        coordinates={"x": "m"},
        observations={"y": "1"},
        latents=latents,
        forward=lambda a, b: {"y": simulator(a, b)},
        noise={"y": "noise"},
        output={"realizations": 4000},
        inference={"seed": seed, **({"posterior": "coupled gaussian"} if name == "linear" else {})},
        **more,
    )


def target_variance(posterior, target, place):
    """Posterior variance of an expression of a and b at a site."""
    site = int(np.flatnonzero(posterior["x"].values == place)[0])
    a, b = (posterior[f"{name}_sample"].values[:, site] for name in "ab")
    return float(np.var(evaluate(target, a, b), ddof=1))


def evaluate(expression, a, b):
    """Return the values of an expression of this script."""
    found = [simulator(a, b) for name, (simulator, _, _) in PROBLEMS.items() if MEASURED[name] == expression]
    return found[0] if found else {"a": a, "b": b}[expression]


def closed_form(measurement, target):
    """Return the reduction in the linear problem, whose posteriors are Gaussian and do not depend on the datum."""
    weights = {"a": (1.0, 0.0), "b": (0.0, 1.0), MEASURED["linear"]: (1.0, 0.5)}
    problem = make_problem("linear", X, np.zeros(len(X)))
    rows = [(x, weights[MEASURED["linear"]]) for x in X]
    rows += [
        (measurement.place, weights[measurement.quantity or MEASURED["linear"]]),
        (measurement.place, weights[target]),
    ]
    places, maps = np.asarray([[x] for x, _ in rows]), np.asarray([row for _, row in rows])
    prior = sum(
        std**2 * np.outer(maps[:, k], maps[:, k]) * problem.latents[k].kernel(places, places)
        for k, std in enumerate(PROBLEMS["linear"][2])
    )
    noise = np.full(len(X) + 1, NOISE**2)
    noise[-1] = extra_noise(measurement) ** 2

    def variance(used):
        K, k = prior[:used, :used] + np.diag(noise[:used]), prior[:used, -1]
        return prior[-1, -1] - k @ np.linalg.solve(K, k)

    return 1.0 - np.sqrt(variance(len(X) + 1) / variance(len(X)))


def extra_noise(measurement):
    """Return the noise of the new datum; better data are the present ones together with such a datum."""
    if measurement.quantity is None and measurement.place in X:
        return (measurement.noise**-2 - NOISE**-2) ** -0.5
    return measurement.noise


def remeasure(name, y, measurement, truth, rng, seed):
    """Return the problem with a simulated new measurement; truth is the values of a and b at its place."""
    datum = evaluate(measurement.quantity or MEASURED[name], *truth) + extra_noise(measurement) * rng.standard_normal()
    if measurement.quantity is not None:
        return make_problem(name, X, y, (measurement.quantity, datum), seed=seed)
    noise = np.full(len(X), NOISE)
    if measurement.place not in X:
        x, y, noise = np.append(X, measurement.place), np.append(y, datum), np.append(noise, measurement.noise)
        return make_problem(name, x, y, noise=noise, seed=seed)
    site, both = measurement.place == X, np.asarray([NOISE, extra_noise(measurement)]) ** -2.0
    y, noise = y.copy(), np.where(site, measurement.noise, noise)
    y[site] = (both[0] * y[site] + both[1] * datum) / both.sum()
    return make_problem(name, X, y, noise=noise, seed=seed)


def candidate_table(candidates):
    """Return the file of candidates for `invgp design`."""
    lines = ["name,x,quantity,std,site,noise_factor"]
    for label, one in candidates.items():
        if one.quantity is not None:
            lines.append(f"{label},{one.place},{one.quantity},{one.noise},,")
        elif one.place in X:
            lines.append(f"{label},{one.place},,,{int(np.flatnonzero(one.place == X)[0]) + 1},{one.noise / NOISE}")
        else:
            lines.append(f"{label},{one.place},,,,{one.noise / NOISE}")
    return "\n".join([*lines, ""])


def study(name, surveys, seed, candidates):
    """Return a row for each candidate of a problem."""
    rng = np.random.default_rng([seed, list(PROBLEMS).index(name)])
    simulator, means, stds = PROBLEMS[name]
    covariance = np.exp(-np.abs(X[:, None] - X) / 3.0) + 1e-9 * np.eye(len(X))
    truth = [m + s * rng.multivariate_normal(np.zeros(len(X)), covariance) for m, s in zip(means, stds, strict=True)]
    y = simulator(*truth) + NOISE * rng.standard_normal(len(X))
    problem = make_problem(name, X, y)
    posterior = invgp.invert(problem)
    field = read_posterior_field(posterior)
    drawn = draw_jointly(field, np.asarray([[PLACE], [NEW]]), seed)
    drawn = rng.permutation(drawn)[:surveys]
    first = [] if name == "linear" else [invgp.invert(make_problem(name, X, y, seed=100 + k)) for k in range(SEEDS)]
    rows = []
    for label, one in candidates.items():
        target = one.target or MEASURED[name]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "places.csv"
            file.write_text(candidate_table({label: one}))
            found = invgp.design(
                posterior, file, target=[target], region=f"x={one.place}", best=1, config=problem, seed=seed
            )
        promised, promised_error = (float(found[key].values[0, 0]) for key in ("reduction", "reduction_error"))
        if name == "linear":
            rows.append(Row(name, label, promised, promised_error, closed_form(one, target), 0.0))
            continue
        before = [variance_at(own, target, one.place, seed) for own in first]
        after = [
            target_variance(invgp.invert(remeasure(name, y, one, values, rng, k + 2)), target, one.place)
            for k, values in enumerate(drawn[:, int(one.place == NEW)])
        ]
        ratio = np.sqrt(np.mean(after) / np.mean(before))
        errors = [np.std(own, ddof=1) / np.sqrt(len(own)) / np.mean(own) for own in (before, after)]
        rows.append(Row(name, label, promised, promised_error, 1.0 - ratio, 0.5 * ratio * float(np.hypot(*errors))))
    return rows


def variance_at(posterior, target, place, seed):
    """Posterior variance of an expression at a place without data, or at a site."""
    if place in X:
        return target_variance(posterior, target, place)
    draws = draw_jointly(read_posterior_field(posterior), np.asarray([[place]]), seed)[:, 0]
    return float(np.var(evaluate(target, draws[:, 0], draws[:, 1]), ddof=1))


def main(arguments=None):
    """Print the table and return its rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--surveys", type=int, default=60, help="simulated new data of each candidate, at least 2")
    parser.add_argument("--only", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--candidates", nargs="+", choices=list(CANDIDATES), default=list(CANDIDATES))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    rows = []
    print(f"{'problem':10}{'candidate':14}{'promised':>18}{'realised':>18}{'ratio':>8}")
    for name in options.only:
        chosen = {k: CANDIDATES[k] for k in options.candidates if (name, k) not in LEFT_OUT}
        for row in study(name, max(options.surveys, 2), options.seed, chosen):
            rows.append(row)
            promised, realised = (
                f"{value:.1%} ± {error:.1%}"
                for value, error in ((row.promised, row.promised_error), (row.realised, row.realised_error))
            )
            print(f"{row.problem:10}{row.candidate:14}{promised:>18}{realised:>18}{row.ratio:8.2f}", flush=True)
    return rows


if __name__ == "__main__":
    main()
