"""Field problems with curved posteriors: the part of `shapes.py` where one run takes a whole field.

One-dimensional steady diffusion with an uncertain conductivity, and the cube of local averages. The references are the
same as those of coupled sites (`shape_references.py`), with exact gradients.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import invgp

NODES, SENSORS = 40, 12
LENGTH_SCALE = 0.2  # of a domain of unit length, Matérn 5/2
REALIZATIONS = 200


@dataclass(frozen=True)
class Diffusion:
    """Heads in -(k u')' = source, u(0) = u(1) = 0, for the logarithm of the conductivity k in cells.

    The flow at s is C - source s, where C makes the head at 1 zero, so that u is a sum over cells.
    """

    source: float

    def __call__(self, field: np.ndarray) -> np.ndarray:
        """Heads (B, P) at the sensors."""
        resistance, flow, _ = self._flow(field)
        return np.cumsum(flow * resistance, axis=-1)[:, _sensors()]

    def pulled(self, field: np.ndarray, misfit: np.ndarray) -> np.ndarray:
        """The transposed Jacobian (B, G, P) times a misfit (B, P)."""
        resistance, flow, total = self._flow(field)
        reach = np.cumsum(resistance, axis=-1)[:, _sensors()] / total
        later = np.zeros((len(field), NODES))
        np.add.at(later, (slice(None), _sensors()), misfit)
        later = np.cumsum(later[:, ::-1], axis=1)[:, ::-1]  # misfits of sensors at or beyond a cell
        return -resistance * flow * (later - np.sum(misfit * reach, axis=1, keepdims=True))

    def _flow(self, field: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        resistance = np.exp(-field) / NODES
        taken = self.source * _nodes()
        total = np.sum(resistance, axis=-1, keepdims=True)
        return resistance, np.sum(taken * resistance, axis=-1, keepdims=True) / total - taken, total


@dataclass(frozen=True)
class Cubic:
    """The cube of local averages."""

    def _weights(self) -> np.ndarray:
        windows = np.exp(-0.5 * ((_nodes()[_sensors()][:, None] - _nodes()[None]) / 0.05) ** 2)
        return windows / windows.sum(axis=1, keepdims=True)

    def __call__(self, field: np.ndarray) -> np.ndarray:
        """Data (B, P)."""
        return np.asarray((field @ self._weights().T) ** 3)

    def pulled(self, field: np.ndarray, misfit: np.ndarray) -> np.ndarray:
        """The transposed Jacobian times a misfit."""
        weights = self._weights()
        return np.asarray((misfit * 3.0 * (field @ weights.T) ** 2) @ weights)


def _nodes() -> np.ndarray:
    return (np.arange(NODES) + 0.5) / NODES


def _sensors() -> np.ndarray:
    """Cells at whose right ends, or in whose neighbourhood, the data are."""
    return np.linspace(2, NODES - 3, SENSORS).astype(int)


@dataclass(frozen=True)
class FieldCase:
    """A field problem: the simulator, the prior spread of the field, and the noise."""

    name: str
    physics: Diffusion | Cubic
    std: float
    noise: float
    mean: float = 0.0
    # What the references ask of a case:
    separate: bool = False
    needs: str = ""
    rough: bool = False
    mirrors: tuple[Callable[..., Any], ...] = ()

    def correlation(self) -> np.ndarray:
        """Prior correlation (G, G)."""
        r = np.sqrt(5.0) * np.abs(_nodes()[:, None] - _nodes()[None]) / LENGTH_SCALE
        return np.asarray((1.0 + r + r**2 / 3.0) * np.exp(-r))

    def survey(self, seed: int) -> FieldSurvey:
        """Truth and data."""
        rng = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        factor = np.linalg.cholesky(self.correlation() + 1e-10 * np.eye(NODES))
        truth = self.mean + self.std * (factor @ rng.standard_normal(NODES))
        clean = self.physics(truth[None])[0]
        return FieldSurvey(self, seed, clean + self.noise * rng.standard_normal(SENSORS), np.full(SENSORS, self.noise))


@dataclass(frozen=True)
class FieldSurvey:
    """Data (P,) of one field problem."""

    case: FieldCase
    seed: int
    data: np.ndarray
    noise: np.ndarray = field(repr=False)

    def target(self) -> FieldTarget:
        """The posterior of the whitened field."""
        return FieldTarget(self)

    def problem(self, **inference: Any) -> invgp.Problem:
        """The same problem for invgp."""
        axis = _nodes()
        return invgp.define(
            {"sensor": axis[_sensors()], "datum": self.data},
            title=self.case.name,
            coordinates={"sensor": "km"},
            observations={"datum": "1"},
            latents={
                "field": {
                    "unit": "1",
                    "mean": self.case.mean,
                    "std": self.case.std,
                    "kernel": {"kind": "matern 5/2", "length_scale": LENGTH_SCALE},
                }
            },
            grid={"x": {"unit": "km", "start": axis[0], "stop": axis[-1] + 0.1 / NODES, "step": 1.0 / NODES}},
            forward=self.case.physics.__call__,
            noise={"datum": self.case.noise},
            inference={"workers": 1, "seed": self.seed, **inference},  # type: ignore[typeddict-item]
            output={"quantiles": (0.025, 0.5, 0.975), "realizations": REALIZATIONS},
        )


class FieldTarget:
    """Log likelihood of whitened fields z (C, G), and its gradient."""

    def __init__(self, survey: FieldSurvey) -> None:
        self.survey, self.case, self.dimension = survey, survey.case, NODES
        self.factor = survey.case.std * np.linalg.cholesky(survey.case.correlation() + 1e-10 * np.eye(NODES))

    def __call__(self, z: np.ndarray) -> np.ndarray:
        """Log likelihood (C,)."""
        with np.errstate(all="ignore"):
            misfit = (self.survey.data - self.case.physics(self.values(z)[..., 0])) / self.survey.noise
            terms = -0.5 * np.sum(misfit**2, axis=-1)
        return np.where(np.isfinite(terms), terms, -np.inf)

    def force(self, z: np.ndarray) -> np.ndarray:
        """Gradient (C, G)."""
        with np.errstate(all="ignore"):
            fields = self.values(z)[..., 0]
            misfit = (self.survey.data - self.case.physics(fields)) / self.survey.noise**2
            slopes = self.case.physics.pulled(fields, misfit) @ self.factor
        return np.nan_to_num(slopes, nan=0.0, posinf=0.0, neginf=0.0)

    def values(self, z: np.ndarray) -> np.ndarray:
        """Fields (C, G, 1)."""
        return (self.case.mean + z @ self.factor.T)[..., None]


FIELDS: dict[str, FieldCase] = {
    case.name: case
    for case in (
        FieldCase("diffusion", Diffusion(1.0), 1.0, 0.01),
        FieldCase("diffusion-wide", Diffusion(1.0), 2.0, 0.01),
        FieldCase("strong-source", Diffusion(10.0), 1.0, 0.02),
        FieldCase("cubic", Cubic(), 1.0, 0.1),
    )
}
