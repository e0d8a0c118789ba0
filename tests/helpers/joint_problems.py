"""Joint problems of a line with two latents, and their closed-form posterior if all data are linear."""

import numpy as np

import invgp

SITES = np.linspace(0.0, 1900.0, 20)
LENGTH = {"depth": 400.0, "velocity": 700.0}
MEAN = {"depth": 100.0, "velocity": 50.0}
STD = {"depth": 20.0, "velocity": 8.0}
NOISE = 3.0
WELLS = {
    "coordinates": {"x": [150.0, 1020.0, 1850.0]},
    "values": {
        "top": {"quantity": "depth", "value": [112.0, 95.0, 88.0], "std": [2.0, 3.0, 4.0]},
        "gap": {"quantity": "depth - 2 * velocity", "value": [12.0, -3.0, 4.0], "std": 1.5},
    },
}
LOG = {
    "coordinates": {"x": {"start": [300.0, 1200.0], "stop": [500.0, 1700.0]}},
    "values": {"mean_velocity": {"quantity": "velocity", "value": [55.0, 47.0], "std": 0.5}},
}

COMPOSED = {
    "kind": "sum",
    "parts": [
        {"kind": "matern 5/2", "length_scale": 400.0, "share": 2.0},
        {
            "kind": "product",
            "share": 1.0,
            "parts": [
                {"kind": "squared exponential", "length_scale": 3000.0},
                {"kind": "periodic", "period": 700.0, "length_scale": 1.2},
            ],
        },
    ],
}


def composed_correlation(a, b) -> np.ndarray:
    """Prior correlation (A, B) of `COMPOSED` between points."""
    r = np.abs(a[:, None] - b)
    s = np.sqrt(5.0) * r / 400.0
    seasons = np.exp(-0.5 * (r / 3000.0) ** 2) * np.exp(-2.0 * (np.sin(np.pi * r / 700.0) / 1.2) ** 2)
    return (2.0 * (1.0 + s + s**2 / 3.0) * np.exp(-s) + seasons) / 3.0


def linear_combination(depth, velocity):
    """One linear combination of the latents."""
    return 0.6 * depth + 1.1 * velocity


def observations() -> np.ndarray:
    """Data of the survey, with a missing one."""
    y = 115.0 + 12.0 * np.sin(SITES / 300.0)
    y[4] = np.nan
    return y


def latents(**changes):
    """The latents; `changes` are added to both."""
    return {
        name: {"unit": "1", "mean": MEAN[name], "std": STD[name], "kernel": {"length_scale": LENGTH[name]}} | changes
        for name in MEAN
    }


def line_problem(direct, *, forward=linear_combination, noise=None, latent_keys=None, output=None, **inference):
    """The problem of the line with direct data, by default with a Gaussian posterior."""
    return invgp.define(
        {"x": SITES, "y": observations()},
        coordinates={"x": "m"},
        observations={"y": "1"},
        latents=latents() if latent_keys is None else latent_keys,
        forward=forward,
        noise={"std": {"y": NOISE}} if noise is None else noise,
        direct=direct,
        inference={"posterior": "coupled gaussian"} | inference,
        output=output or {},
    )


class ClosedForm:
    """Posterior of the two latents at any points, given linear data."""

    def __init__(self, groups=(), *, survey=True, kernel=None) -> None:
        self.kernel = kernel
        self.rows, self.y, self.noise = [], [], []
        if survey:
            for x, y in zip(SITES, observations(), strict=True):
                if np.isfinite(y):
                    self._add({"depth": 0.6, "velocity": 1.1}, [x], [1.0], y, NOISE)
        for group in groups:
            self._add_group(group)

    def _add(self, weights, nodes, shares, y, noise) -> None:
        self.rows.append({name: (np.asarray(nodes), weight * np.asarray(shares)) for name, weight in weights.items()})
        self.y.append(y - sum(weight * MEAN[name] for name, weight in weights.items()))
        self.noise.append(noise)

    def _add_group(self, group) -> None:
        where = group["coordinates"]["x"]
        nodes, shares = np.polynomial.legendre.leggauss(40)
        for value in group["values"].values():
            weights = {"depth": {"depth": 1.0}, "velocity": {"velocity": 1.0}}.get(
                value["quantity"], {"depth": 1.0, "velocity": -2.0}
            )
            for k, y in enumerate(value["value"]):
                std = np.broadcast_to(value["std"], len(value["value"]))[k]
                if isinstance(where, dict):
                    middle, half = (
                        0.5 * (where["start"][k] + where["stop"][k]),
                        0.5 * (where["stop"][k] - where["start"][k]),
                    )
                    self._add(weights, middle + half * nodes, 0.5 * shares, y, std)
                else:
                    self._add(weights, [where[k]], [1.0], y, std)

    def covariance(self, a, b) -> float:
        """Prior covariance of two functionals."""
        return sum(STD[n] ** 2 * a[n][1] @ self.correlation(a[n][0], b[n][0], n) @ b[n][1] for n in a.keys() & b.keys())

    def correlation(self, a, b, name) -> np.ndarray:
        """Prior correlation (A, B) of a latent between points; `kernel`, if given, is that of both latents."""
        if self.kernel is not None:
            return self.kernel(a, b)
        return np.exp(-0.5 * ((a[:, None] - b) / LENGTH[name]) ** 2)

    def at(self, points):
        """Mean (B, 2) and covariance (2 B, 2 B), ordered by latent, at points (B,)."""
        wanted = [{name: (np.asarray([x]), np.ones(1))} for name in MEAN for x in points]
        K = np.asarray([[self.covariance(a, b) for b in self.rows] for a in self.rows])
        across = np.asarray([[self.covariance(a, b) for b in self.rows] for a in wanted])
        prior = np.asarray([[self.covariance(a, b) for b in wanted] for a in wanted])
        gain = np.linalg.solve(K + np.diag(np.square(self.noise)), across.T).T
        mean = np.repeat([*MEAN.values()], len(points)) + gain @ np.asarray(self.y)
        return mean.reshape(2, -1).T, prior - gain @ across.T

    def evidence(self) -> float:
        """Log marginal likelihood of all data."""
        K = np.asarray([[self.covariance(a, b) for b in self.rows] for a in self.rows]) + np.diag(np.square(self.noise))
        y = np.asarray(self.y)
        return float(-0.5 * (y @ np.linalg.solve(K, y) + np.linalg.slogdet(2.0 * np.pi * K)[1]))


def deviations(posterior, exact: ClosedForm, points, sites) -> float:
    """Largest deviation of means and standard deviations at sites from the closed form at points, in std."""
    mean, covariance = exact.at(points)
    std = np.sqrt(np.diagonal(covariance)).reshape(2, -1).T
    errors = []
    for j, name in enumerate(MEAN):
        errors.append(np.abs(posterior[name].values[sites] - mean[:, j]) / std[:, j])
        errors.append(np.abs(posterior[f"{name}_std"].values[sites] / std[:, j] - 1.0))
    return float(np.max(errors))
