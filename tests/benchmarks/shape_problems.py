"""Problems with posteriors of many shapes, each a function of a seed: the battery of `shapes.py`.

The simulators are in `shape_simulators.py`. The truth of a survey is a draw from
the prior. Nothing here uses a sampler of invgp.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from shape_simulators import (
    chained_squares,
    changing_shape,
    chirp,
    cross_section,
    cubic_pair,
    dead_time,
    decay,
    detection_limit,
    distance,
    fold,
    glacier,
    growing_wave,
    hosaki,
    melt,
    no_influence,
    otway,
    pair_of_five,
    plume,
    product,
    quotient,
    radius,
    refraction,
    resonance,
    saturating_product,
    saturating_sensor,
    saturation,
    solver_noise,
    square,
    step,
    sum_and_ratio,
    surface_waves,
    switch,
    three_factors,
    threshold,
    total,
    tuning,
    two_instruments,
    two_limits,
    unequal_fold,
    wave,
    weakest_link,
    wrapped_phase,
)

import invgp

SEPARATE = 1e-4  # length-scale as a fraction of the line: the sites are independent
QUANTILES = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
LABELS = "part"  # name of the dimension of latents and data with several numbers is this and their count


@dataclass(frozen=True)
class Unknown:
    """A latent: prior mean and standard deviation of the physical quantity, a number or one per label."""

    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]
    link: str = "identity"

    @property
    def labels(self) -> int:
        """Number of labels; 0 for a latent that is one number."""
        return len(self.mean) if isinstance(self.mean, tuple) else 0

    def process(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (L,) of the Gaussian process: of the logarithm for a log link."""
        mean, std = np.broadcast_arrays(np.atleast_1d(self.mean).astype(float), self.std)
        if self.link == "identity":
            return mean.copy(), std.astype(float)
        variance = np.log(1.0 + (std / mean) ** 2)
        return np.log(mean) - variance / 2.0, np.sqrt(variance)


@dataclass(frozen=True)
class Case:
    """A site-local problem on a line of unit length.

    Attributes
    ----------
    simulate : function of the latents by name, arrays (B,) or (B, L), that returns (B,) or (B, P).
    noise : standard deviation of the P data; a float is relative to the data without noise.
    length_scale : of the Matérn 5/2 prior of all latents, as a fraction of the line.
    step : half-width of the finite differences of the references, in prior standard deviations.
    needs : package without which the problem cannot be run.
    rough : whether the output jumps, so that the references move by elliptical slices instead of trajectories.
    local : whether the simulator takes the position of the site too, as `x`.
    degrees : degrees of freedom of Student-t noise; 0 for Gaussian noise.
    mirrors : for problems of one unknown with several modes: involutions of the process that leave the output as it
        is. Each returns the image and the logarithm of its derivative. The references use them to change modes.
    """

    name: str
    unknowns: Mapping[str, Unknown]
    simulate: Callable[..., np.ndarray]
    noise: tuple[float, ...] | float
    length_scale: float
    sites: int = 24
    step: float = 1e-3
    needs: str = ""
    rough: bool = False
    local: bool = False
    degrees: float = 0.0
    mirrors: tuple[Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], ...] = ()
    inference: Mapping[str, Any] = field(default_factory=dict)

    @property
    def separate(self) -> bool:
        """Whether the posterior is a product over sites."""
        return self.sites == 1 or self.length_scale <= SEPARATE

    @property
    def x(self) -> np.ndarray:
        """Positions (N,)."""
        return np.linspace(0.0, 1.0, self.sites) if self.sites > 1 else np.zeros(1)

    @property
    def processes(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations (Q,) of all processes."""
        means, stds = zip(*(unknown.process() for unknown in self.unknowns.values()), strict=True)
        return np.concatenate(means), np.concatenate(stds)

    def correlation(self) -> np.ndarray:
        """Prior correlation (N, N) of each process."""
        r = np.sqrt(5.0) * np.abs(self.x[:, None] - self.x[None]) / self.length_scale
        return np.asarray((1.0 + r + r**2 / 3.0) * np.exp(-r))

    def physical(self, f: np.ndarray) -> np.ndarray:
        """Physical values of processes (..., Q)."""
        parts, start = [], 0
        for unknown in self.unknowns.values():
            part = f[..., start : start + max(1, unknown.labels)]
            parts.append(np.exp(part) if unknown.link == "log" else part)
            start += part.shape[-1]
        return np.concatenate(parts, axis=-1)

    def outputs(self, f: np.ndarray, x: np.ndarray | float = 0.0) -> np.ndarray:
        """Outputs (B, P) of processes (B, Q) at positions (B,)."""
        values, arguments, start = self.physical(f), {}, 0
        if self.local:
            arguments["x"] = np.broadcast_to(np.asarray(x, dtype=float), len(f))
        for name, unknown in self.unknowns.items():
            count = max(1, unknown.labels)
            part = values[:, start : start + count]
            arguments[name] = part if unknown.labels else part[:, 0]
            start += count
        outputs = np.asarray(self.simulate(**arguments))
        return outputs if outputs.ndim == 2 else outputs[:, None]

    def survey(self, seed: int) -> Survey:
        """Truth, data and noise of one survey."""
        rng = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        mean, std = self.processes
        factor = np.linalg.cholesky(self.correlation() + 1e-10 * np.eye(self.sites))
        while True:  # until the simulator can compute all sites
            truth = mean + std * (factor @ rng.standard_normal((self.sites, len(mean))))
            clean = self.outputs(truth, self.x)
            if np.all(np.isfinite(clean)):
                break
        noise = self.noise * np.abs(clean) if isinstance(self.noise, float) else np.broadcast_to(
            np.asarray(self.noise), clean.shape
        )  # fmt: skip
        errors = rng.standard_normal(clean.shape)
        if self.degrees:  # of unit standard deviation
            errors = rng.standard_t(self.degrees, clean.shape) * np.sqrt(1.0 - 2.0 / self.degrees)
        return Survey(self, seed, truth, clean + noise * errors, np.array(noise))

    def log_density(self, residuals: np.ndarray) -> np.ndarray:
        """Log density (...) of data, up to a constant, by residuals (..., P) in noise standard deviations."""
        if not self.degrees:
            return np.asarray(-0.5 * np.sum(residuals**2, axis=-1))
        squares = residuals**2 / (self.degrees - 2.0)
        return np.asarray(-0.5 * (self.degrees + 1.0) * np.sum(np.log1p(squares), axis=-1))


@dataclass(frozen=True)
class Survey:
    """Data (N, P) of one case, with the truth (N, Q) of its processes."""

    case: Case
    seed: int
    truth: np.ndarray
    data: np.ndarray
    noise: np.ndarray

    def problem(self, **inference: Any) -> invgp.Problem:
        """The same problem for invgp."""
        case, count = self.case, self.data.shape[1]
        columns = {f"y{k}": self.data[:, k] for k in range(count)}
        errors = {f"e{k}": self.noise[:, k] for k in range(count)}
        sizes = {unknown.labels for unknown in case.unknowns.values()} | {count}
        latents: dict[str, Any] = {}
        for name, unknown in case.unknowns.items():
            latents[name] = {
                "unit": "1",
                "mean": unknown.mean,
                "std": unknown.std,
                "link": unknown.link,
                "kernel": {"kind": "matern 5/2", "length_scale": case.length_scale},
            } | ({"dimension": f"{LABELS}{unknown.labels}"} if unknown.labels else {})
        return invgp.define(
            {"x": case.x, **columns, **errors},
            title=case.name,
            coordinates={"x": "km"},
            observations={
                "y": {"unit": "1", "columns": list(columns)} | ({"dimension": f"{LABELS}{count}"} if count > 1 else {})
            },
            dimensions={f"{LABELS}{size}": list(range(1, size + 1)) for size in sizes if size > 1},
            latents=latents,
            forward=case.simulate,
            noise={"kind": "student-t", "degrees": case.degrees, "std": {"y": list(errors)}}
            if case.degrees
            else {"y": list(errors)},
            inference={"workers": 1, "seed": self.seed, **case.inference, **inference},  # type: ignore[typeddict-item]
            output={"quantiles": QUANTILES},
        )


def reflection(center: float):
    """The mirror image at a point."""
    return lambda f: (2.0 * center - f, np.zeros_like(f))


def other_side(f):
    """The natural frequency on the other side of the resonance: a^2 and 1.96 - a^2 have the same amplitude."""
    with np.errstate(all="ignore"):
        image = np.sign(f) * np.sqrt(1.96 - f**2)
        return image, np.log(np.abs(f / image))


A = Unknown(0.0, 1.0)
SPEEDS = Unknown((0.2, 0.35, 0.6), (0.05, 0.08, 0.12), "log")
LAYERS = Unknown((5.0, 15.0), (1.5, 4.5), "log")


CRESTS = tuple(reflection(np.pi / 6.0 + k * np.pi / 3.0) for k in range(-3, 3))  # and troughs of sin(3a)


def _products() -> list[Case]:
    cases = []
    for percent in (10, 20, 30):
        for name, length_scale in (("separate", SEPARATE), ("short", 0.1), ("long", 0.5)):
            spread = percent / 100.0
            unknowns = {"a": Unknown(5.0, 5.0 * spread), "b": Unknown(4.0, 4.0 * spread)}
            cases.append(Case(f"product-{percent}-{name}", unknowns, product, (0.4,), length_scale))
    return cases


CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case("decay", {"amount": Unknown(10.0, 2.0), "rate": Unknown(0.5, 0.1)}, decay, (0.2,) * 4, 0.2),
        Case("detection-limit", {"a": A}, detection_limit, (0.05,), SEPARATE),
        Case("detection-limit-line", {"a": A}, detection_limit, (0.05,), 0.1),
        Case("two-limits", {"a": A}, two_limits, (0.08,), SEPARATE, 12),
        *_products(),
        Case("square", {"a": Unknown(0.3, 1.0)}, square, (0.1,), SEPARATE),
        Case("square-line", {"a": Unknown(0.3, 1.0)}, square, (0.1,), 0.1, mirrors=(reflection(0.0),)),
        Case("sine", {"a": A}, wave, (0.1,), SEPARATE),
        Case("sine-line", {"a": A}, wave, (0.1,), 0.1, mirrors=CRESTS),
        Case("tanh", {"a": Unknown(0.5, 1.0)}, saturation, (0.05,), SEPARATE),
        Case("tanh-line", {"a": Unknown(0.5, 1.0)}, saturation, (0.05,), 0.1),
        Case(
            "refraction",
            {"upper": Unknown(800.0, 80.0), "lower": Unknown(2000.0, 300.0), "thickness": Unknown(12.0, 3.5)},
            refraction,
            (1.0,) * 4,
            0.1,
        ),
        Case("resonance", {"a": Unknown(1.1, 0.2)}, resonance, (0.1,), SEPARATE),
        Case("resonance-line", {"a": Unknown(1.1, 0.2)}, resonance, (0.1,), 0.1, mirrors=(other_side,)),
        Case("step", {"a": A}, step, (0.3,), SEPARATE),
        Case("step-line", {"a": A}, step, (0.5,), 0.05, rough=True),
        Case("solver-noise", {"a": A}, solver_noise, (0.02,), SEPARATE, step=0.05),
        Case("solver-noise-line", {"a": A}, solver_noise, (0.02,), 0.1, step=0.05),
        Case(
            "sum-and-ratio",
            {"a": Unknown(1.0, 0.4, "log"), "b": Unknown(2.0, 0.8, "log")},
            sum_and_ratio,
            (0.1, 0.05),
            0.2,
        ),
        Case(
            "otway-log-velocity",
            {
                "depth": Unknown((200.0, 500.0, 1600.0, 2200.0), (30.0, 75.0, 240.0, 330.0)),
                "velocity": Unknown((1950.0, 2300.0, 2750.0, 3650.0), (585.0, 690.0, 825.0, 1095.0), "log"),
            },
            otway,
            (0.025, 0.05, 0.075, 0.1),
            0.1,
            sites=20,
        ),
        Case("hosaki", {"a": Unknown(2.5, 1.0), "b": Unknown(3.0, 1.0)}, hosaki, (0.1,), SEPARATE, 6),
        Case(
            "cross-section",
            {"conductivity": Unknown((10.0,) * 10, (5.0,) * 10, "log"), "recharge": Unknown(1e-3, 4e-4, "log")},
            cross_section,
            (0.05, 0.05),
            1.0,
            sites=1,
        ),
        Case(
            "surface-waves",
            {"speed": SPEEDS, "thickness": LAYERS},
            surface_waves,
            0.02,
            SEPARATE,
            sites=6,
            step=0.01,
            needs="disba",
        ),
        Case(
            "surface-waves-line",
            {"speed": SPEEDS, "thickness": LAYERS},
            surface_waves,
            0.02,
            0.3,
            sites=8,
            step=0.01,
            needs="disba",
        ),
        Case("growing-wave", {"a": Unknown(0.0, 0.5), "b": Unknown(0.5, 1.0)}, growing_wave, (0.1,), SEPARATE, 12),
        Case("distance", {"a": A, "b": A}, distance, (0.1,), SEPARATE, 12),
        Case("saturating-sensor", {"a": Unknown(2.0, 1.5, "log")}, saturating_sensor, (0.2,), SEPARATE),
        Case("fold", {"a": A}, fold, (0.1,), SEPARATE),
        Case("chained-squares", {"a": A, "b": A, "c": A}, chained_squares, (0.1, 0.1), SEPARATE, 8),
        Case("two-instruments", {"a": A}, two_instruments, (0.2, 0.2), SEPARATE),
        Case(
            "heavy-tails",
            {"a": Unknown(5.0, 1.0), "b": Unknown(4.0, 0.8)},
            product,
            (0.4,),
            SEPARATE,
            12,
            degrees=4.0,
        ),
        Case("no-influence", {"a": A, "b": A}, no_influence, (0.1,), SEPARATE, 12),
        Case("total", {"a": Unknown(1.0, 1.0, "log"), "b": Unknown(1.0, 1.0, "log")}, total, (0.1,), SEPARATE, 12),
        Case("changing-shape", {"a": Unknown(2.0, 1.0), "b": A}, changing_shape, (0.1,), SEPARATE, 12, local=True),
        Case("radius", {"a": A, "b": A}, radius, (0.1,), SEPARATE, 12),
        Case("quotient", {"a": A, "b": Unknown(1.0, 0.3)}, quotient, (0.1,), SEPARATE, 12),
        Case("wrapped-phase", {"a": A, "b": A}, wrapped_phase, (0.1,), SEPARATE, 12, rough=True),
        Case("switch", {"a": A, "b": A}, switch, (0.2,), SEPARATE, 12, rough=True),
        Case("chirp", {"a": A}, chirp, (0.2,), SEPARATE),
        Case("threshold", {"a": Unknown(0.3, 0.5), "b": Unknown(2.0, 0.5)}, threshold, (0.1,), SEPARATE, 12),
        Case("dead-time", {"rate": Unknown(2.5, 1.5, "log")}, dead_time, (0.03,), SEPARATE, 12),
        Case(
            "plume",
            {"place": Unknown(0.0, 1.5), "strength": Unknown(2.0, 1.0, "log")},
            plume,
            (0.1, 0.1),
            SEPARATE,
            12,
        ),
        Case("cubic-pair", {"a": Unknown(0.4, 1.0), "b": A}, cubic_pair, (0.15, 0.5), SEPARATE, 12),
        Case(
            "three-factors",
            {"a": Unknown(3.0, 0.9), "b": Unknown(2.0, 0.6), "c": Unknown(4.0, 1.2)},
            three_factors,
            (1.0,),
            SEPARATE,
            8,
        ),
        Case(
            "tuning-line",
            {"thickness": Unknown(20.0, 9.0, "log"), "contrast": Unknown(12.0, 1.5)},
            tuning,
            (0.6,),
            0.2,
            20,
        ),
        Case(
            "melt-line",
            {"temperature": Unknown(1.5, 2.5), "sensitivity": Unknown(4.0, 1.2, "log")},
            melt,
            (0.8,),
            0.2,
            20,
        ),
        Case(
            "glacier-line",
            {
                "thickness": Unknown(200.0, 60.0, "log"),
                "rate": Unknown(1.0, 0.5, "log"),
                "sliding": Unknown(10.0, 6.0),
            },
            glacier,
            (1.5, 0.5),
            0.2,
            20,
            local=True,
        ),
        Case("unequal-fold", {"a": A}, unequal_fold, (0.1,), SEPARATE, 12),
        Case("weakest-link", {"a": Unknown(1.0, 0.5), "b": A}, weakest_link, (0.1,), SEPARATE, 12),
        Case(
            "saturating-product",
            {"a": Unknown(1.0, 0.7, "log"), "b": Unknown(1.5, 1.0, "log")},
            saturating_product,
            (0.1,),
            SEPARATE,
            12,
        ),
        Case("radius-line", {"a": A, "b": A}, radius, (0.1,), 0.2, 12),
        Case("pair-of-five", dict.fromkeys("abcde", A), pair_of_five, (0.2, 0.2), SEPARATE, 6),
    )
}  # fmt: skip
