"""Problems with posteriors of many shapes, each a function of a seed: the battery of `shapes.py`.

The simulators are plain functions with named arguments, vectorised over models. The truth of a survey is a draw from
the prior. Nothing here uses a sampler of invgp.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import invgp
from invgp.forward_models import two_way_times

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

    def outputs(self, f: np.ndarray) -> np.ndarray:
        """Outputs (B, P) of processes (B, Q)."""
        values, arguments, start = self.physical(f), {}, 0
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
            clean = self.outputs(truth)
            if np.all(np.isfinite(clean)):
                break
        noise = self.noise * np.abs(clean) if isinstance(self.noise, float) else np.broadcast_to(
            np.asarray(self.noise), clean.shape
        )  # fmt: skip
        return Survey(self, seed, truth, clean + noise * rng.standard_normal(clean.shape), np.array(noise))


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
            noise={"y": list(errors)},
            inference={"workers": 1, "seed": self.seed, **case.inference, **inference},  # type: ignore[typeddict-item]
            output={"quantiles": QUANTILES},
        )


# The simulators.


def decay(amount, rate):
    return amount[:, None] * np.exp(-rate[:, None] * np.array([0.5, 1.0, 2.0, 4.0]))


def detection_limit(a):
    return np.maximum(np.exp(a), 0.5)


def two_limits(a):
    """An instrument with a lower and an upper limit."""
    return np.clip(np.exp(1.2 * a), 0.3, 4.0)


def product(a, b):
    return a * b


def square(a):
    return a**2


def wave(a):
    return np.sin(3.0 * a)


def saturation(a):
    return np.tanh(1.5 * a)


OFFSETS = np.array([10.0, 20.0, 40.0, 60.0])  # m


def refraction(upper, lower, thickness):
    """First arrivals (ms): the direct wave, or the head wave where it is earlier."""
    v1, v2, h = upper[:, None], lower[:, None], thickness[:, None]
    head = OFFSETS / v2 + 2.0 * h * np.sqrt(np.maximum(v1**-2.0 - v2**-2.0, 0.0))
    return 1000.0 * np.minimum(OFFSETS / v1, head)


def resonance(a):
    """Amplitude of an oscillator of natural frequency a that is driven at frequency 1."""
    return 1.0 / np.sqrt((1.0 - a**2) ** 2 + (0.2 * a) ** 2)


def step(a):
    return np.where(a > 0.3, 1.0, 0.0)


def solver_noise(a):
    """A smooth function with the error of a solver, 1e-3, that differs from input to input."""
    return np.exp(0.5 * a) + 1e-3 * (2.0 * np.modf(np.abs(43758.5453 * np.sin(12345.678 * a)))[0] - 1.0)


def sum_and_ratio(a, b):
    return np.stack([a + b, a / b], axis=-1)


def otway(depth, velocity):
    return two_way_times(depth, velocity)


def hosaki(a, b):
    """The objective function of Hosaki."""
    return (1.0 - 8.0 * a + 7.0 * a**2 - 7.0 / 3.0 * a**3 + a**4 / 4.0) * b**2 * np.exp(-b)


def cross_section(conductivity, recharge):
    """Heads (m) at two wells in a section of ten zones, drained at its right end.

    The flow at x is recharge times x, so that the head falls by recharge x dx / transmissivity.
    """
    edges = np.linspace(0.0, 1000.0, 11)  # m
    fall = np.diff(edges**2) / 2.0 * recharge[:, None] / (20.0 * conductivity)  # recharge m/d, conductivity m/d, 20 m
    return np.stack([fall[:, 2:].sum(axis=1), fall[:, 7:].sum(axis=1)], axis=-1)


PERIODS = np.geomspace(0.04, 0.5, 8)  # s


def surface_waves(speed, thickness):
    """Phase velocity (km/s) of the fundamental Rayleigh mode at 8 periods.

    Shear velocities (B, 3) in km/s of two layers and a half-space; thickness (B, 2) in m. NaN where the mode was not
    found.
    """
    from disba import DispersionError, PhaseDispersion  # noqa: PLC0415 - only these problems need it

    found = np.full((len(speed), len(PERIODS)), np.nan)
    depths = np.concatenate([thickness / 1000.0, np.ones((len(speed), 1))], axis=-1)
    density = np.full(3, 1.8)
    for row, (vs, h) in enumerate(zip(speed, depths, strict=True)):
        try:
            curve = PhaseDispersion(h, 2.0 * vs, vs, density)(PERIODS, mode=0, wave="rayleigh")
        except (DispersionError, ZeroDivisionError):
            continue
        if len(curve.velocity) == len(PERIODS):
            found[row] = curve.velocity
    return found


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
    )
}  # fmt: skip
