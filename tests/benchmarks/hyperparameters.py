"""Posteriors averaged over learnt hyperparameters, compared with references that are independent of invgp.

python tests/benchmarks/hyperparameters.py [--only linear exponential product parallel] [--seeds 1 2 3] [--coverage 100]

For a linear simulator, the posterior and the evidence have closed forms at given hyperparameters, and the average over
them is a sum over a grid. For other simulators, the reference are chains in plain NumPy that sample fields and
hyperparameters together: Hamiltonian Monte Carlo of the whitened field, and random walks of the hyperparameters with
the whitened field and with the field itself held fixed. The columns are

- spread: standard deviation of invgp relative to the reference, the median over sites, and its 5 and 95% quantiles;
- mean: largest error of the mean, in standard deviations of the reference;
- mass: probability of the 95% intervals of invgp under the reference;
- point: median spread with hyperparameters fixed at their most probable values (posterior = "coupled gaussian");
- parameters: largest error of the mean of a log hyperparameter, in standard deviations, and extremes of the spreads.

With --coverage, truths are drawn from the prior, hyperparameters included, and the share of truths inside the 50, 80
and 95% intervals is counted over this number of surveys.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import invgp

LEVELS = (0.5, 0.8, 0.95)
QUANTILES = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
NUGGET = 1e-10


@dataclass(frozen=True)
class Case:
    """A line of sites with the same kernel type for all latents, and learnt length-scales, spreads and noise.

    Attributes
    ----------
    simulate : outputs (...,) of latents by name.
    slopes : derivatives of the output with respect to each latent, (Q, ...).
    means, stds, length_scales : prior of each latent.
    noise : configured standard deviation of the noise.
    learn : factors of the priors of "length_scale" and "std" of the first latent, and of "noise".
    """

    name: str
    simulate: Callable[..., np.ndarray]
    slopes: Callable[..., tuple[np.ndarray, ...]]
    means: Mapping[str, float]
    stds: Mapping[str, float]
    length_scales: Mapping[str, float]
    noise: float
    learn: Mapping[str, float]
    sites: int = 20
    linear: bool = False

    @property
    def x(self) -> np.ndarray:
        """Positions of the sites."""
        return np.linspace(0.0, 10.0, self.sites)

    @property
    def spreads(self) -> np.ndarray:
        """Prior standard deviations of the log hyperparameters."""
        return np.log(np.array(list(self.learn.values())))

    def hyperparameters(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Length-scale and standard deviation of the first latent, and noise, of theta (..., H)."""
        by_name = dict(zip(self.learn, np.moveaxis(theta, -1, 0), strict=True))
        first = next(iter(self.means))
        zero = np.zeros(theta.shape[:-1])
        return (
            self.length_scales[first] * np.exp(by_name.get("length_scale", zero)),
            self.stds[first] * np.exp(by_name.get("std", zero)),
            self.noise * np.exp(by_name.get("noise", zero)),
        )

    def factors(self, theta: np.ndarray) -> np.ndarray:
        """Cholesky factors (C, Q, N, N) of the prior covariances for hyperparameters (C, H)."""
        scale, std, _ = self.hyperparameters(theta)
        parts = []
        for k, name in enumerate(self.means):
            lengths = scale if k == 0 else np.full(len(theta), self.length_scales[name])
            stds = std if k == 0 else np.full(len(theta), self.stds[name])
            parts.append(stds[:, None, None] ** 2 * correlation(self.x, lengths))
        return np.linalg.cholesky(np.stack(parts, axis=1) + NUGGET * np.eye(self.sites))

    def survey(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Hyperparameters (H,), latents (Q, N) and data (N,) from the prior."""
        theta = self.spreads * rng.standard_normal(len(self.spreads))
        v = rng.standard_normal((len(self.means), self.sites, 1))
        f = (self.factors(theta[None])[0] @ v)[..., 0] + np.array(list(self.means.values()))[:, None]
        _, _, noise = self.hyperparameters(theta)
        return theta, f, self.simulate(*f) + noise * rng.standard_normal(self.sites)

    def problem(self, y: np.ndarray, **inference: Any) -> invgp.Problem:
        """The problem for invgp."""
        latents: dict[str, dict[str, Any]] = {
            name: {
                "unit": "1",
                "mean": mean,
                "std": self.stds[name],
                "kernel": {"kind": "matern 5/2", "length_scale": self.length_scales[name]},
            }
            for name, mean in self.means.items()
        }
        learn = {name: factor for name, factor in self.learn.items() if name != "noise"}
        if learn:
            latents[next(iter(latents))]["learn"] = learn
        noise: dict[str, Any] = {"std": {"y": self.noise}}
        if "noise" in self.learn:
            noise["learn"] = {"y": self.learn["noise"]}
        return invgp.define(
            {"x": self.x, "y": y},
            coordinates={"x": "km"},
            observations={"y": {"unit": "1"}},
            latents=latents,
            noise=noise,
            forward=self.simulate,
            inference=inference,
            output={"quantiles": list(QUANTILES)},
        )


def correlation(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Matérn 5/2 correlations (C, N, N) of positions (N,) for length-scales (C,)."""
    r = np.sqrt(5.0) * np.abs(x[:, None] - x) / lengths[:, None, None]
    return (1.0 + r + r**2 / 3.0) * np.exp(-r)


def double(a: np.ndarray) -> np.ndarray:
    """A linear simulator."""
    return 2.0 * a


def exponential(a: np.ndarray) -> np.ndarray:
    """A mildly nonlinear simulator."""
    return np.exp(0.4 * a)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Only the product of two fields is observed: a bent posterior."""
    return a * b


def parallel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Log conductance of two layers in parallel: the larger one dominates."""
    return np.logaddexp(a, b)


def slope_of_double(a: np.ndarray) -> tuple[np.ndarray, ...]:
    """Derivative of `double`."""
    return (2.0 * np.ones_like(a),)


def slope_of_exponential(a: np.ndarray) -> tuple[np.ndarray, ...]:
    """Derivative of `exponential`."""
    return (0.4 * np.exp(0.4 * a),)


def slopes_of_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    """Derivatives of `product`."""
    return b, a


def slopes_of_parallel(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    """Derivatives of `parallel`."""
    share = 1.0 / (1.0 + np.exp(b - a))
    return share, 1.0 - share


ALL = {"length_scale": 2.0, "std": 2.0, "noise": 2.0}
CASES = {
    case.name: case
    for case in (
        Case("linear", double, slope_of_double, {"a": 0.0}, {"a": 1.0}, {"a": 1.5}, 0.3, ALL, linear=True),
        Case(
            "linear-weak", double, slope_of_double, {"a": 0.0}, {"a": 1.0}, {"a": 1.5}, 2.0,
            {"length_scale": 10.0}, sites=8, linear=True,
        ),
        Case("exponential", exponential, slope_of_exponential, {"a": 0.0}, {"a": 1.0}, {"a": 1.5}, 0.1, ALL),
        Case(
            "product", product, slopes_of_product, {"a": 1.0, "b": 1.0}, {"a": 0.3, "b": 0.3}, {"a": 2.0, "b": 2.0},
            0.1, {"length_scale": 2.0, "std": 1.5},
        ),
        Case(
            "parallel", parallel, slopes_of_parallel, {"a": 0.0, "b": 0.5}, {"a": 1.0, "b": 0.7}, {"a": 1.5, "b": 3.0},
            0.15, {"length_scale": 2.0, "std": 1.5, "noise": 1.5},
        ),
    )
}  # fmt: skip


class Reference(NamedTuple):
    """Draws (S, N, Q) of the latents and (S, H) of the log hyperparameters, and exact moments (N, Q)."""

    mean: np.ndarray
    std: np.ndarray
    draws: np.ndarray
    theta: np.ndarray
    r_hat: float


def reference(case: Case, y: np.ndarray, rng: np.random.Generator) -> Reference:
    """The posterior averaged over hyperparameters."""
    return quadrature(case, y, rng) if case.linear else chains(case, y, rng)


def quadrature(case: Case, y: np.ndarray, rng: np.random.Generator, points: int = 41) -> Reference:
    """Sum over a grid of the hyperparameters, with closed forms at each of them; the simulator doubles its input."""
    H, N = len(case.spreads), case.sites
    axis = np.linspace(-4.5, 4.5, 2001 if H == 1 else points)
    grid = np.array(list(itertools.product(axis, repeat=H))) * case.spreads
    log_weights, means, covariances = np.empty(len(grid)), np.empty((len(grid), N)), np.empty((len(grid), N))
    scale, std, noise = case.hyperparameters(grid)
    for k in range(0, len(grid), 1000):
        part = slice(k, k + 1000)
        prior = std[part, None, None] ** 2 * correlation(case.x, scale[part])
        data = 4.0 * prior + noise[part, None, None] ** 2 * np.eye(N)
        weights = np.linalg.solve(data, 2.0 * prior)
        residual = np.linalg.solve(data, np.broadcast_to(y[:, None], (len(data), N, 1)))[..., 0]
        log_weights[part] = -0.5 * residual @ y - 0.5 * np.linalg.slogdet(data)[1]
        log_weights[part] -= 0.5 * np.sum((grid[part] / case.spreads) ** 2, axis=1)
        means[part] = y @ weights
        covariances[part] = np.diagonal(prior - 2.0 * prior @ weights, axis1=1, axis2=2)
    shares = np.exp(log_weights - log_weights.max())
    shares /= shares.sum()
    mean = shares @ means
    spread = np.sqrt(shares @ (covariances + means**2) - mean**2)
    chosen = rng.choice(len(grid), 20_000, p=shares)
    draws = means[chosen] + np.sqrt(covariances[chosen]) * rng.standard_normal((20_000, N))
    return Reference(mean[:, None], spread[:, None], draws[..., None], grid[chosen], 1.0)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def chains(case: Case, y: np.ndarray, rng: np.random.Generator, count: int = 64, iterations: int = 4000) -> Reference:
    """Chains of the whitened latents and the hyperparameters, in plain NumPy."""
    Q, N, H = len(case.means), case.sites, len(case.spreads)
    means = np.array(list(case.means.values()))[:, None]
    theta, v = 0.3 * case.spreads * rng.standard_normal((count, H)), 0.3 * rng.standard_normal((count, Q, N))
    step, walk, kept = 0.05, 0.5 * case.spreads, []

    def likelihood(theta: np.ndarray, f: np.ndarray) -> np.ndarray:
        noise = case.hyperparameters(theta)[2][:, None]
        residual = (y - case.simulate(*np.moveaxis(f, 1, 0))) / noise
        return -0.5 * np.sum(residual**2, axis=1) - N * np.log(noise[:, 0])

    def hyperprior(theta: np.ndarray) -> np.ndarray:
        return -0.5 * np.sum((theta / case.spreads) ** 2, axis=1)

    def gradient(theta: np.ndarray, factors: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        f = (factors @ v[..., None])[..., 0] + means
        noise = case.hyperparameters(theta)[2][:, None]
        parts = np.moveaxis(f, 1, 0)
        force = (y - case.simulate(*parts)) / noise**2
        slopes = np.stack(case.slopes(*parts), axis=1) * force[:, None]
        value = likelihood(theta, f) - 0.5 * np.sum(v**2, axis=(1, 2))
        return value, (np.swapaxes(factors, -1, -2) @ slopes[..., None])[..., 0] - v

    def accept(
        old: Sequence[np.ndarray], new: Sequence[np.ndarray], gain: np.ndarray
    ) -> tuple[list[np.ndarray], float]:
        rate = np.exp(np.minimum(np.nan_to_num(gain, nan=-np.inf, posinf=-np.inf), 0.0))
        yes = rng.random(len(gain)) < rate
        merged = [np.where(yes.reshape(-1, *[1] * (a.ndim - 1)), b, a) for a, b in zip(old, new, strict=True)]
        return merged, float(1.0 / np.mean(1.0 / np.maximum(rate, 1e-2)))

    factors = case.factors(theta)
    for i in range(iterations):
        # The whitened latents, by Hamiltonian Monte Carlo.
        momentum = rng.standard_normal(v.shape)
        size = step * rng.uniform(0.7, 1.3)
        value, slope = gradient(theta, factors, v)
        old = value - 0.5 * np.sum(momentum**2, axis=(1, 2))
        w, p = v, momentum
        for _ in range(int(rng.integers(10, 41))):
            p = p + 0.5 * size * slope
            w = w + size * p
            value, slope = gradient(theta, factors, w)
            p = p + 0.5 * size * slope
        gain = value - 0.5 * np.sum(p**2, axis=(1, 2)) - old
        (v,), rate = accept([v], [w], gain)
        if i < iterations // 4:
            step *= float(np.exp(0.05 * (rate - 0.8)))
        # The hyperparameters, with the whitened latents held fixed, then with the latents themselves.
        for kind in range(2):
            trial = theta + walk * rng.choice([0.3, 1.0, 2.0], (count, 1)) * rng.standard_normal((count, H))
            others = case.factors(trial)
            f = (factors @ v[..., None])[..., 0] + means
            if kind == 0:
                g, w = (others @ v[..., None])[..., 0] + means, v
                gain = likelihood(trial, g) - likelihood(theta, f)
            else:
                w = np.linalg.solve(others, (f - means)[..., None])[..., 0]
                logs = [np.log(np.diagonal(F, axis1=-2, axis2=-1)).sum(axis=(1, 2)) for F in (factors, others)]
                gain = likelihood(trial, f) - likelihood(theta, f) + logs[0] - logs[1]
                gain -= 0.5 * (np.sum(w**2, axis=(1, 2)) - np.sum(v**2, axis=(1, 2)))
            gain += hyperprior(trial) - hyperprior(theta)
            (theta, v, factors), _ = accept([theta, v, factors], [trial, w, others], gain)
        if i < iterations // 4:
            walk = np.clip(theta.std(axis=0), 0.05, None)
        elif i % 4 == 0:
            kept.append((theta, (factors @ v[..., None])[..., 0] + means))
    thetas, fields = np.stack([t for t, _ in kept]), np.stack([f for _, f in kept])
    by_chain = np.concatenate([fields.reshape(*fields.shape[:2], -1), thetas], axis=-1)
    between, within = by_chain.mean(axis=0).var(axis=0, ddof=1), by_chain.var(axis=0).mean(axis=0)
    draws = np.swapaxes(fields.reshape(-1, Q, N), 1, 2)
    r_hat = float(np.sqrt(1.0 + between / within).max())
    return Reference(draws.mean(axis=0), draws.std(axis=0), draws, thetas.reshape(-1, H), r_hat)


def summaries(case: Case, posterior: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and standard deviation (N, Q), and quantiles (K, N, Q), of a posterior of invgp."""
    mean, std, quantiles = (
        np.stack([posterior[f"{name}{suffix}"].values for name in case.means], axis=-1)
        for suffix in ("", "_std", "_quantile")
    )
    return mean, std, quantiles


def log_hyperparameters(case: Case, posterior: Any) -> np.ndarray:
    """Draws (S, H) of the log hyperparameters of a posterior of invgp."""
    first = next(iter(case.means))
    names = {"length_scale": f"{first}_length_scale_x", "std": f"{first}_std_factor", "noise": "y_noise_factor"}
    units = {"length_scale": case.length_scales[first], "std": 1.0, "noise": 1.0}
    return np.log(np.stack([posterior[f"{names[name]}_sample"].values / units[name] for name in case.learn], axis=-1))


class Comparison(NamedTuple):
    """Differences between invgp and the reference; see the columns of the table."""

    spread: np.ndarray
    mean: float
    mass: float
    point: float
    parameter_mean: float
    parameter_spread: np.ndarray
    r_hat: float
    seconds: float


def compare(case: Case, seed: int) -> Comparison:
    """Compare the posterior of one survey with its reference."""
    rng = np.random.default_rng([seed, 77])
    _, _, y = case.survey(rng)
    exact = reference(case, y, rng)
    started = time.perf_counter()
    posterior = invgp.invert(case.problem(y, posterior="sampled"))
    seconds = time.perf_counter() - started
    mean, std, quantiles = summaries(case, posterior)
    inside = (exact.draws >= quantiles[0]) & (exact.draws <= quantiles[-1])
    _, point, _ = summaries(case, invgp.invert(case.problem(y, posterior="coupled gaussian")))
    theta = log_hyperparameters(case, posterior)
    return Comparison(
        std / exact.std,
        float(np.max(np.abs(mean - exact.mean) / exact.std)),
        float(inside.mean()),
        float(np.median(point / exact.std)),
        float(np.max(np.abs(theta.mean(axis=0) - exact.theta.mean(axis=0)) / exact.theta.std(axis=0))),
        theta.std(axis=0) / exact.theta.std(axis=0),
        exact.r_hat,
        seconds,
    )


def coverage(case: Case, surveys: int) -> tuple[np.ndarray, np.ndarray]:
    """Shares (surveys, 3) of latents and of hyperparameters inside the 50, 80 and 95% intervals."""
    latents, parameters = [], []
    for seed in range(surveys):
        truth, drawn_latents, y = case.survey(np.random.default_rng([seed, 78]))
        f = drawn_latents.T
        posterior = invgp.invert(case.problem(y, posterior="sampled", seed=seed))
        _, _, quantiles = summaries(case, posterior)
        drawn = log_hyperparameters(case, posterior)
        own, learnt = [], []
        for low, high in ((2, 4), (1, 5), (0, 6)):
            own.append(float(np.mean((quantiles[low] <= f) & (f <= quantiles[high]))))
            ends = np.quantile(drawn, [QUANTILES[low], QUANTILES[high]], axis=0)
            learnt.append(float(np.mean((truth >= ends[0]) & (truth <= ends[1]))))
        latents.append(own)
        parameters.append(learnt)
    return np.array(latents), np.array(parameters)


def main(arguments: Sequence[str] | None = None) -> list[Comparison]:
    """Print the table, and return its rows; none with --coverage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES), metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--coverage", type=int, default=0, metavar="SURVEYS")
    chosen = parser.parse_args(arguments)
    if chosen.coverage:
        print(f"{'problem':12s} {'of':15s}" + "".join(f"{level:>16.0%}" for level in LEVELS))
        for name in chosen.only:
            for what, shares in zip(
                ("latents", "hyperparameters"), coverage(CASES[name], chosen.coverage), strict=True
            ):
                error = shares.std(axis=0, ddof=1) / np.sqrt(len(shares))
                cells = [f"{mean:9.1%} +- {e:.1%}" for mean, e in zip(shares.mean(axis=0), error, strict=True)]
                print(f"{name:12s} {what:15s}" + "".join(f"{cell:>16s}" for cell in cells), flush=True)
        return []
    found_rows = []
    print("problem      seed   spread  (5%, 95%)      mean    mass   point   parameters              R-hat  seconds")
    for name in chosen.only:
        for seed in chosen.seeds:
            found = compare(CASES[name], seed)
            found_rows.append(found)
            low, middle, high = np.quantile(found.spread, [0.05, 0.5, 0.95])
            learnt = f"{found.parameter_mean:.3f}, {found.parameter_spread.min():.2f} to "
            learnt += f"{found.parameter_spread.max():.2f}"
            print(
                f"{name:12s} {seed:4d}   {middle:6.3f}  ({low:.3f}, {high:.3f})  {found.mean:5.3f}  "
                f"{found.mass:6.1%}  {found.point:6.3f}   {learnt:22s}  {found.r_hat:.3f}  {found.seconds:7.1f}",
                flush=True,
            )
    return found_rows


if __name__ == "__main__":
    main()
