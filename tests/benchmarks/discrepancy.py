"""Coverage of intervals under a biased simulator, with and without a discrepancy field.

    python tests/benchmarks/discrepancy.py [--surveys 100] [--sites 24] [--length-scale 250]

In each survey the depth of a reflector is drawn from its prior, and reflection times are measured at a near and a far
offset. Those at the far offset have a delay that varies along the line, which the simulator does not know: a sum of two
sines with random amplitudes, phases and wavelengths, not a draw from the process that describes it. The table has the
share of true depths inside the 95% intervals, the mean squared error divided by the variance, and the share of surveys
whose diagnostics doubt the simulator or its noise.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import invgp

VELOCITY = 2000.0  # m/s
OFFSETS = {"near": 20.0, "far": 150.0}  # m, half of the distance between source and receiver
NOISE = {"near": 0.006, "far": 0.002}  # s
SPACING = 100.0  # m
DELAY = 0.01  # s, standard deviation of the delay
LENGTH = 250.0  # m; the Matérn kernel with this length-scale is nearest to the correlation function of the delays
WARNING = "similar at neighbouring sites"
DOUBTS = (WARNING, "fitted worse than its noise allows", "does not explain the data")


def reflection_times(depth):
    """Two-way times (s) of reflections from a depth (m), at each offset."""
    return {name: 2.0 * np.hypot(depth, offset) / VELOCITY for name, offset in OFFSETS.items()}


def delays(x, rng):
    """Delays (N,) in s along a line: two sines with wavelengths of 0.8 to 3 km."""
    total = np.zeros_like(x)
    for _ in range(2):
        wavelength, phase, amplitude = rng.uniform(800.0, 3000.0), rng.uniform(0.0, 2.0 * np.pi), rng.rayleigh(1.0)
        total += amplitude * np.sin(2.0 * np.pi * x / wavelength + phase)
    return DELAY * total / np.sqrt(2.0)  # each sine has a mean square of 1: that of the amplitude is 2


def draw_line(sites, rng):
    """Return coordinates and true depths (N,) of a survey, and its times by offset."""
    x = SPACING * np.arange(sites)
    scaled = np.sqrt(5.0) * np.abs(x[:, None] - x) / 400.0
    covariance = 20.0**2 * (1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled)
    depth = 200.0 + np.linalg.cholesky(covariance + 1e-9 * np.eye(sites)) @ rng.standard_normal(sites)
    data = reflection_times(depth)
    data["far"] = data["far"] + delays(x, rng)
    return x, depth, {name: times + NOISE[name] * rng.standard_normal(sites) for name, times in data.items()}


def line_problem(x, data, *, discrepancy, length_scale=LENGTH):
    """The inverse problem of a survey, with or without a discrepancy field."""
    noise = {"std": NOISE}
    if discrepancy:
        noise["discrepancy"] = {"far": {"std": DELAY, "kernel": {"kind": "matern 5/2", "length_scale": length_scale}}}
    return invgp.define(
        {"x": x, **data},
        coordinates={"x": "m"},
        observations={"near": "s", "far": "s"},
        latents={"depth": {"unit": "m", "mean": 200, "std": 20, "kernel": {"kind": "matern 5/2", "length_scale": 400}}},
        forward=reflection_times,
        noise=noise,
        inference={"posterior": "coupled gaussian"},
    )


def measure(surveys, sites, *, discrepancy, length_scale=LENGTH):
    """Return the share of truths inside 95% intervals, the normalised squared error, and the share of warnings."""
    inside, squares, warned = [], [], []
    for number in range(surveys):
        x, depth, data = draw_line(sites, np.random.default_rng([number, 7]))
        found = invgp.invert(line_problem(x, data, discrepancy=discrepancy, length_scale=length_scale))
        error = (depth - found["depth"].values) / found["depth_std"].values
        inside.append(np.mean(np.abs(error) <= 1.96))
        squares.append(np.mean(error**2))
        warned.append(any(doubt in found.attrs["invgp_diagnostics"] for doubt in DOUBTS))
    return float(np.mean(inside)), float(np.mean(squares)), float(np.mean(warned))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--surveys", type=int, default=100)
    parser.add_argument("--sites", type=int, default=24)
    parser.add_argument("--length-scale", type=float, default=LENGTH)
    given = parser.parse_args()
    print(f"{given.surveys} surveys of {given.sites} sites")
    print("discrepancy  inside 95%  squared error  warned  seconds")
    for discrepancy in (True, False):
        start = time.process_time()
        inside, squares, warned = measure(
            given.surveys, given.sites, discrepancy=discrepancy, length_scale=given.length_scale
        )
        seconds = time.process_time() - start
        print(f"{'on' if discrepancy else 'off':>11}  {inside:10.1%}  {squares:13.2f}  {warned:6.0%}  {seconds:7.0f}")


if __name__ == "__main__":
    main()
