"""A field model of averages over windows on a line, whose posterior is known."""

from __future__ import annotations

from typing import Any

import numpy as np

import invgp

NODES, SENSORS, NOISE = 30, 6, 0.1
X = np.linspace(0.0, 1.0, NODES)
WINDOWS = np.exp(-0.5 * ((np.linspace(0.1, 0.9, SENSORS)[:, None] - X) / 0.08) ** 2)
WINDOWS /= WINDOWS.sum(axis=1, keepdims=True)
DATA = np.asarray([0.3, -0.4, 0.1, 0.8, 1.2, 0.2])


def averages(field: np.ndarray) -> np.ndarray:
    """Averages over windows, (B, P)."""
    return field @ WINDOWS.T


def quadratic_averages(field: np.ndarray) -> np.ndarray:
    """The same with a quadratic term."""
    return averages(field) + 0.3 * averages(field) ** 2


def field_problem(function: Any = averages, noise: Any = None, **inference: Any) -> invgp.Problem:
    """A field on a line, observed by six sensors."""
    return invgp.define(
        {"sensor": np.linspace(0.1, 0.9, SENSORS), "datum": DATA},
        coordinates={"sensor": "km"},
        observations={"datum": "1"},
        latents={
            "field": {"unit": "1", "mean": 0.0, "std": 1.0, "kernel": {"kind": "matern 5/2", "length_scale": 0.3}}
        },
        grid={"x": {"unit": "km", "start": 0.0, "stop": 1.0, "step": 1.0 / (NODES - 1)}},
        forward=function,
        noise=noise or {"datum": NOISE},
        inference={"workers": 1, **inference},
    )
