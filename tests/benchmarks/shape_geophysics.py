"""Field problems of geophysics with curved posteriors, for `shapes.py`: nothing in invgp was tuned on them.

The depth of a basin from gravity with gaps in the profile, straight rays between boreholes with log-normal velocities,
and the intensity of waves, which does not depend on the sign of their sources. The physics act on physical values.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from shape_fields import FIELDS, REALIZATIONS, FieldCase, FieldSurvey, FieldTarget

import invgp


@dataclass(frozen=True)
class Basin:
    """Gravity (mGal) of sediments below a profile with three gaps, for their depth (km) in 20 cells of 1 km."""

    contrast: float = 400.0  # kg m-3

    @cached_property
    def nodes(self) -> np.ndarray:
        """Centres of the cells (20, 1) in km."""
        return np.arange(20.0)[:, None] + 0.5

    @cached_property
    def _squares(self) -> np.ndarray:
        """Squared distances (P, G) of stations and cells in km2."""
        x = np.arange(0.25, 20.0, 0.75)
        kept = ~(((x > 3.0) & (x < 5.0)) | ((x > 9.0) & (x < 12.0)) | ((x > 16.0) & (x < 17.5)))
        return (x[kept, None] - self.nodes[:, 0]) ** 2

    def __call__(self, field: np.ndarray) -> np.ndarray:
        """Data (B, P): columns of sheets from 0.1 km to the depth; two-dimensional sources."""
        scale = 2.0 * 6.6743e-11 * self.contrast * 1e5 * 1000.0  # of one cell
        return scale * 0.5 * np.sum(np.log((self._squares + field[:, None] ** 2) / (self._squares + 0.01)), axis=-1)

    def pulled(self, field: np.ndarray, misfit: np.ndarray) -> np.ndarray:
        """The transposed Jacobian times a misfit (B, P)."""
        scale = 2.0 * 6.6743e-11 * self.contrast * 1e5 * 1000.0
        return scale * field * (misfit[:, None] @ (1.0 / (self._squares + field[:, None] ** 2)))[:, 0]


@dataclass(frozen=True)
class Crosshole:
    """Travel times (ms) along straight rays between two boreholes, for velocities (km/s) in 7 x 7 cells of 10 m."""

    @cached_property
    def nodes(self) -> np.ndarray:
        """Centres of the cells (49, 2) in m; the last coordinate varies fastest."""
        axis = 10.0 * np.arange(7) + 5.0
        return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)

    @cached_property
    def _lengths(self) -> np.ndarray:
        """Lengths (P, G) of the rays in the cells, in m; a third of the pairs is missing."""
        depths = np.linspace(3.0, 67.0, 6)
        rows = []
        for i, source in enumerate(depths):
            for j, receiver in enumerate(depths):
                if (i + j) % 3 == 2:
                    continue
                share = (np.arange(700) + 0.5) / 700
                x, z = 70.0 * share, source + (receiver - source) * share
                cells = 7 * (x // 10.0).astype(int) + (z // 10.0).astype(int)
                rows.append(np.bincount(cells, minlength=49) * np.hypot(70.0, receiver - source) / 700)
        return np.array(rows)

    def __call__(self, field: np.ndarray) -> np.ndarray:
        """Data (B, P)."""
        return np.asarray((1.0 / field) @ self._lengths.T)

    def pulled(self, field: np.ndarray, misfit: np.ndarray) -> np.ndarray:
        """The transposed Jacobian times a misfit."""
        return np.asarray(-(misfit @ self._lengths) / field**2)


@dataclass(frozen=True)
class Intensity:
    """Squared amplitudes at 12 receivers of waves from a line of sources, whose common sign does not matter."""

    @cached_property
    def nodes(self) -> np.ndarray:
        """Positions (40, 1) of the sources."""
        return ((np.arange(40) + 0.5) / 40)[:, None]

    @cached_property
    def _waves(self) -> np.ndarray:
        """Complex amplitudes (P, G) of unit sources."""
        r = np.hypot(np.linspace(0.0, 1.0, 12)[:, None] - self.nodes[:, 0], 0.2)
        return np.exp(8.0j * r) / np.sqrt(r) / 40.0

    def __call__(self, field: np.ndarray) -> np.ndarray:
        """Data (B, P)."""
        return np.abs(field @ self._waves.T) ** 2

    def pulled(self, field: np.ndarray, misfit: np.ndarray) -> np.ndarray:
        """The transposed Jacobian times a misfit."""
        amplitude = field @ self._waves.T
        return 2.0 * np.real((misfit * np.conj(amplitude)) @ self._waves)


@dataclass(frozen=True)
class GridCase(FieldCase):
    """A field on the nodes of its physics; mean and standard deviation are those of the physical values."""

    length_scale: float = 1.0
    link: str = "identity"

    def correlation(self) -> np.ndarray:
        """Prior correlation (G, G)."""
        nodes = self.physics.nodes
        r = np.sqrt(5.0) * np.linalg.norm(nodes[:, None] - nodes[None], axis=-1) / self.length_scale
        return np.asarray((1.0 + r + r**2 / 3.0) * np.exp(-r))

    def process(self) -> tuple[float, float]:
        """Mean and standard deviation of the Gaussian process."""
        if self.link == "identity":
            return self.mean, self.std
        variance = np.log1p((self.std / self.mean) ** 2)
        return float(np.log(self.mean) - 0.5 * variance), float(np.sqrt(variance))

    def survey(self, seed: int) -> GridSurvey:
        """Truth and data."""
        rng = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        nodes = len(self.physics.nodes)
        factor = np.linalg.cholesky(self.correlation() + 1e-10 * np.eye(nodes))
        mean, std = self.process()
        truth = mean + std * (factor @ rng.standard_normal(nodes))
        clean = self.physics((np.exp(truth) if self.link == "log" else truth)[None])[0]
        noise = np.full(clean.shape, self.noise)
        return GridSurvey(self, seed, clean + noise * rng.standard_normal(clean.shape), noise)


class GridSurvey(FieldSurvey):
    """Data (P,) of one field problem on the nodes of its physics."""

    def target(self) -> GridTarget:
        """The posterior of the whitened field."""
        return GridTarget(self)

    def problem(self, **inference: Any) -> invgp.Problem:
        """The same problem for invgp."""
        case, nodes = self.case, self.case.physics.nodes
        grid = {}
        for name, values in zip("xz", nodes.T, strict=False):
            axis = np.unique(values)
            step = float(axis[1] - axis[0])
            grid[name] = {"unit": "m", "start": axis[0], "stop": axis[-1] + 0.1 * step, "step": step}
        return invgp.define(
            {"number": np.arange(1.0, len(self.data) + 1.0), "datum": self.data},
            title=case.name,
            coordinates={"number": "1"},
            observations={"datum": "1"},
            latents={
                "field": {
                    "unit": "1",
                    "mean": case.mean,
                    "std": case.std,
                    "link": case.link,
                    "kernel": {"kind": "matern 5/2", "length_scale": case.length_scale},
                }
            },
            grid=grid,
            forward=case.physics.__call__,
            noise={"datum": case.noise},
            inference={"workers": 1, "seed": self.seed, **inference},
            output={"quantiles": (0.025, 0.5, 0.975), "realizations": REALIZATIONS},
        )


class GridTarget(FieldTarget):
    """Log likelihood of whitened fields, and its gradient."""

    def __init__(self, survey: GridSurvey) -> None:
        self.survey, self.case, self.dimension = survey, survey.case, len(survey.case.physics.nodes)
        self.mean, std = survey.case.process()
        self.factor = std * np.linalg.cholesky(survey.case.correlation() + 1e-10 * np.eye(self.dimension))

    def force(self, z: np.ndarray) -> np.ndarray:
        """Gradient (C, G)."""
        with np.errstate(all="ignore"):
            values = self.values(z)[..., 0]
            misfit = (self.survey.data - self.case.physics(values)) / self.survey.noise**2
            slopes = self.case.physics.pulled(values, misfit)
            slopes = (slopes * values if self.case.link == "log" else slopes) @ self.factor
        return np.nan_to_num(slopes, nan=0.0, posinf=0.0, neginf=0.0)

    def values(self, z: np.ndarray) -> np.ndarray:
        """Physical values (C, G, 1)."""
        process = self.mean + z @ self.factor.T
        return (np.exp(np.minimum(process, 50.0)) if self.case.link == "log" else process)[..., None]


GEOPHYSICS: dict[str, GridCase] = {
    case.name: case
    for case in (
        GridCase("basin-gaps", Basin(), 1.0, 0.5, mean=1.5, length_scale=3.0, link="log"),
        GridCase("crosshole-log", Crosshole(), 1.0, 0.3, mean=2.5, length_scale=30.0, link="log"),
        GridCase("intensity", Intensity(), 1.0, 0.02, mean=0.3, length_scale=0.25),
    )
}
ALL_FIELDS: dict[str, FieldCase] = FIELDS | GEOPHYSICS
