"""Averages of a field along a line: config, simulator and exact posterior."""

from __future__ import annotations

import numpy as np

import invgp

CONFIG = """
version = 1
title = "Averages of a field along a line"

[survey]
file = "survey.csv"

[survey.coordinates.position]
unit = "m"

[survey.observations.average]
columns = ["average"]
unit = "m"

[grid.coordinates.position]
unit = "m"
start = 0
stop = 98
step = 2

[latents.depth]
unit = "m"
mean = 20
std = 4
kernel = { kind = "squared exponential", length_scale = 12 }
positive = "down"

[forward]
kind = "field"
adapter = "callable"
function = "averages:averages"
vectorised = false
inputs = ["depth", "position"]
outputs = [{ name = "average", unit = "cm" }]

[noise]
std.average = 0.5

[inference]
seed = 3
kept_variance = 0.999
"""

FUNCTION = """
import numpy as np

NODES = np.arange(0.0, 99.0, 2.0)


def weights(position):
    windows = np.exp(-0.5 * ((position[:, None] - NODES) / 6.0) ** 2)
    return windows / windows.sum(axis=1, keepdims=True)


def averages(depth, position):
    return 100.0 * (weights(position) @ depth)


def half_fail(depth, position):
    if depth[0] > 20.0:
        raise ValueError("too deep")
    return averages(depth, position)


def always_fails(depth, position):
    raise ValueError("never")

"""

POSITIONS = np.arange(3.0, 98.0, 7.0)


def covariance(X: np.ndarray) -> np.ndarray:
    return np.asarray(16.0 * np.exp(-0.5 * ((X[:, None] - X[None]) / 12.0) ** 2))


def windows(nodes: np.ndarray) -> np.ndarray:
    found = np.exp(-0.5 * ((POSITIONS[:, None] - nodes) / 6.0) ** 2)
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def exact_moments(problem: invgp.Problem, noise: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the depth on the grid, for noise of a covariance (N, N), in closed form."""
    assert problem.grid is not None
    nodes = problem.grid.X[:, 0]
    noise = 0.25 * np.eye(POSITIONS.size) if noise is None else noise
    seen = ~np.isnan(problem.survey.Y[:, 0])
    A, K = windows(nodes)[seen], covariance(nodes)
    gain = K @ A.T @ np.linalg.inv(A @ K @ A.T + noise[np.ix_(seen, seen)])
    mean = 20.0 + gain @ (problem.survey.Y[seen, 0] - 20.0)
    return mean, np.sqrt(np.diagonal(K - gain @ A @ K))
