"""Jacobians of field models by the variables of the modes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from invgp.latent_model.data_whitening import Whitening
from invgp.latent_model.grid_modes import Field
from invgp.problem import Floats, Part, Problem

STEP = 1e-4  # prior standard deviations: step of the differences through links and units
NUMBERS_AT_ONCE = 2**24  # latents in one block of variables, to limit memory


def compute_slopes(
    problem: Problem, field: Field, latents: Floats, jacobians: Sequence[tuple[Part, Floats, Floats]]
) -> Floats:
    """Convert Jacobians of simulators to derivatives of the observations by the variables of the modes.

    Parameters
    ----------
    problem : Problem
    field : Field
        Modes of the latents.
    latents : array, shape (n, G, Q)
        Latent processes of the runs.
    jacobians : sequence of (Part, array, array)
        For each simulator: its source, the outputs (n, O) of the runs, and their Jacobians (n, O, I), in its units.

    Returns
    -------
    array, shape (n, N, P, R)
        In the units of the observations; NaN for outputs of no simulator.
    """
    R = sum(basis.size for basis in field.bases)
    slopes = np.full((len(latents), *problem.noise_std.shape, R), np.nan)
    step = max(NUMBERS_AT_ONCE // latents[0].size, 1)
    centre = field.latents(np.zeros((1, R)))
    for first in range(0, R, step):
        numbers = np.arange(first, min(first + step, R))
        modes = field.latents(np.eye(R)[numbers]) - centre  # (r, G, Q)
        for run, at in enumerate(latents):
            both = [problem.to_physical(at + sign * STEP * modes) for sign in (1.0, -1.0)]
            for part, outputs, jacobian in jacobians:
                rows = [part.problem.field_to_simulator(values) for values in both]
                by_variable = (rows[0] - rows[1]) @ jacobian[run].T / (2.0 * STEP)  # (r, O)
                found = _convert(part.problem, outputs[run], by_variable)
                slopes[run][np.ix_(part.sites, part.columns, numbers)] = np.moveaxis(found, 0, -1)
    return slopes


def _convert(problem: Problem, outputs: Floats, slopes: Floats) -> Floats:
    """Convert derivatives (r, O) of outputs (O,) of a simulator to those (r, N, P) of the observations."""
    largest = np.abs(slopes).max()
    step = 1e-4 * max(float(np.abs(outputs).max()), 1e-300) / largest if largest > 0.0 else 1.0
    both = [problem.field_from_simulator(outputs + sign * step * slopes) for sign in (1.0, -1.0)]
    return np.asarray((both[0] - both[1]) / (2.0 * step))


def whiten_slopes(whitening: Whitening, slopes: Floats) -> Floats | None:
    """Scale derivatives (n, N, P, R) as outputs are scaled: (n, D, R); None if an observed output has none."""
    if np.isnan(slopes[:, whitening.observed]).any():
        return None
    n, R = slopes.shape[0], slopes.shape[-1]
    flat = np.moveaxis(np.nan_to_num(slopes), -1, 1).reshape(n * R, *slopes.shape[1:3])
    return np.asarray(whitening(flat).reshape(n, R, -1).swapaxes(1, 2))
