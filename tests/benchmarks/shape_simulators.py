"""Simulators of the problems of `shape_problems.py`: plain functions with named arguments, vectorised over models."""

from __future__ import annotations

import numpy as np

from invgp.forward_models import two_way_times


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


def growing_wave(a, b):
    return np.exp(a) * np.sin(b)


def distance(a, b):
    return np.abs(a - b)


def saturating_sensor(a):
    return 10.0 * (1.0 - np.exp(-a))


def fold(a):
    return a**3 - a


def chained_squares(a, b, c):
    return np.stack([b - a**2, c - b**2], axis=-1)


def two_instruments(a):
    """The first allows both signs; the second has modes of its own, only one of which is near."""
    return np.stack([a**2, np.sin(2.0 * a)], axis=-1)


def no_influence(a, b):
    return a**2 + 0.0 * b


def total(a, b):
    return a + b


def changing_shape(a, b, x):
    """A sum at one end of the line, a product at the other."""
    return (1.0 - x) * (a + b) + x * a * b


def radius(a, b):
    return np.hypot(a, b)


def quotient(a, b):
    return a / b


def wrapped_phase(a, b):
    return np.mod(a + 0.5 * b, 2.0)


def switch(a, b):
    """The state of the second unknown decides what is measured."""
    return np.where(b > 0.5, a, -0.5 * a)


def chirp(a):
    return np.sin(2.0 * a**2)


def threshold(a, b):
    """A sensor that measures b if a exceeds a threshold, and nothing below it."""
    return b / (1.0 + np.exp(-np.clip((a - 0.5) / 0.05, -500.0, 500.0)))


def dead_time(rate):
    """Count rate of a detector that each event blocks for a while: low and high rates give the same count."""
    return rate * np.exp(-0.5 * rate)


def plume(place, strength):
    """Concentrations at two sensors beside a source."""
    return strength[:, None] * np.exp(-0.5 * ((np.array([-1.0, 1.2]) - place[:, None]) / 0.6) ** 2)


def cubic_pair(a, b):
    """Up to three unequal modes of the first unknown, which the second datum weights."""
    return np.stack([a**3 - 1.5 * a, b + 0.3 * a**2], axis=-1)


def three_factors(a, b, c):
    return a * b * c


def tuning(thickness, contrast):
    """Amplitude of a 30 Hz wavelet from a thin bed (m, at 2500 m/s) with a reflection contrast (%)."""
    return contrast * np.abs(np.sin(2.0 * np.pi * 30.0 * thickness / 2500.0))


def melt(temperature, sensitivity):
    """Melt (mm/day) by degree-days above a threshold of 1 degC."""
    return sensitivity * np.maximum(temperature - 1.0, 0.0)


def glacier(thickness, rate, sliding, x):
    """Surface speed (m/year) and flux (1000 m2/year) of shallow ice, on a slope that varies along the line."""
    stress = 917.0 * 9.81 * np.sin(np.radians(4.0 + 1.5 * np.sin(3.04 * x)))
    deformation = 0.5e-16 * rate * stress**3 * thickness**4
    return np.stack([deformation + sliding, thickness * (sliding + 0.8 * deformation) / 1e3], axis=-1)


def unequal_fold(a):
    """A kink beyond most of the prior, with different slopes on its sides."""
    return np.abs(a - 1.5) + 0.3 * a


def weakest_link(a, b):
    """The smaller of two strengths, one of them curved."""
    return np.minimum(1.5 * a, 0.5 + b**2)


def saturating_product(a, b):
    """Uptake that saturates with the product of two positive quantities."""
    return 5.0 * a * b / (1.0 + a * b)


def pair_of_five(a, b, c, d, e):
    """Two data of five unknowns."""
    return np.stack([a * b + c, np.exp(0.5 * d) * e + c], axis=-1)
