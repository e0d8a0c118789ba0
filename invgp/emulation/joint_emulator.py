"""Emulators of a problem with several sources: one per simulator; direct data are evaluated exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, backend_of, to_numpy
from invgp.emulation.emulator import Emulator
from invgp.emulation.emulator_fit import NEGLIGIBLE, fit_emulator
from invgp.emulation.polynomial import PullBack
from invgp.emulation.training_runs import Integers, Runs
from invgp.problem import DirectModel, EarlierSites, Floats, Part, Problem

STEP = 1e-4  # of the prior standard deviation: step of the differences for nonlinear expressions


class Surrogate(Protocol):
    """What stands in for the simulators of a problem: an `Emulator`, or a `JointEmulator` of several sources."""

    @property
    def name(self) -> str:
        """Name of the regression, for users."""

    @property
    def error(self) -> float:
        """Root mean square error at the latest runs, in noise standard deviations."""

    @property
    def smooth_error(self) -> float:
        """Error without the part that is due to the numerical noise of the simulator."""

    @property
    def solver_noise(self) -> Floats | float:
        """Standard deviation (P,) of the numerical noise, in the units of the observations."""

    def with_solver_noise(self, noise: Floats) -> Surrogate:
        """Return the same with another estimate (P,) of the numerical noise."""

    def site_error(self, sites: Integers) -> Floats:
        """Estimate the error (B,) at sites (B,): the largest over the outputs, in noise standard deviations."""

    def predict(self, latents: Floats, sites: Integers) -> Floats:
        """Predict outputs (S, B, P) for latents (S, B, Q) at sites (B,)."""

    def linearise(self, latents: Array, sites: Integers) -> tuple[Array, PullBack]:
        """Predict outputs, and return the function that multiplies cotangents by the derivatives."""

    def log_success(self, latents: Array, sites: Integers) -> tuple[Array, PullBack] | None:
        """Compute the log probability of success and its derivatives; None if it does not depend on the latents."""

    def output_error(self, sites: Integers) -> tuple[Floats, Floats]:
        """Estimate the smooth and the rough error (B, P) at sites (B,), in noise standard deviations."""

    def trusted_sites(self, latents: Floats, sites: Integers, largest_error: float) -> NDArray[np.bool_]:
        """Return a mask (B,) of the sites where it is accurate enough at latents (S, B, Q)."""


@dataclass(frozen=True)
class ExactModel:
    """The model of direct data in the role of an emulator without error.

    Parameters
    ----------
    problem : Problem
        The direct data as a problem of their own.
    """

    problem: Problem

    def predict(self, latents: Floats, sites: Integers) -> Floats:
        """Compute the values (S, B, P) for latents (S, B, Q) at sites (B,)."""
        problem, model = self.problem, self.problem.forward
        if not isinstance(model, DirectModel | EarlierSites):
            raise TypeError("the data are not direct")
        rows = problem.to_simulator(problem.to_physical(latents), sites)
        return problem.from_simulator(model.compute(rows), len(latents))

    def linearise(self, latents: Array, sites: Integers) -> tuple[Array, PullBack]:
        """Compute the values, and return the function that multiplies cotangents by the derivatives.

        The derivatives are central differences: exact for linear expressions.
        """
        xp, backend, host = array_namespace(latents), backend_of(latents), to_numpy(latents)
        _, std = self.problem.prior_moments()
        model = self.problem.forward
        steps = std * (1.0 if isinstance(model, DirectModel | EarlierSites) and model.linear else STEP)

        def pull_back(cotangents: Array) -> Array:
            slopes = []
            for j, step in enumerate(steps):
                shift = step * np.eye(len(steps))[j]
                change = (self.predict(host + shift, sites) - self.predict(host - shift, sites)) / (2.0 * step)
                slopes.append(xp.sum(cotangents * backend.asarray(change), axis=-1))
            return xp.stack(slopes, axis=-1)

        return backend.asarray(self.predict(host, sites)), pull_back


@dataclass(frozen=True)
class JointEmulator:
    """The emulators of several sources. Sites are those of the joint problem.

    Parameters
    ----------
    parts : tuple of Part
        Sources of the joint problem.
    models : tuple of Emulator or ExactModel
        One for each part; exact for direct data.
    outputs : int
        Number of outputs of the joint problem, P.
    solver_noise : array, shape (P,), in the units of the observations, or float
        Standard deviation of the numerical noise of the simulators.
    """

    parts: tuple[Part, ...]
    models: tuple[Emulator | ExactModel, ...]
    outputs: int
    solver_noise: Floats | float = 0.0

    @property
    def emulators(self) -> dict[str, Emulator]:
        """The emulators by the names of their sources."""
        pairs = zip(self.parts, self.models, strict=True)
        return {part.name: model for part, model in pairs if isinstance(model, Emulator)}

    @property
    def name(self) -> str:
        """Name of the regression of each source, for users."""
        found = self.emulators
        if len(found) == 1:
            return next(iter(found.values())).name
        return "; ".join(f"{source}: {emulator.name}" for source, emulator in found.items())

    @property
    def error(self) -> float:
        """Largest error of the emulators."""
        return max(emulator.error for emulator in self.emulators.values())

    @property
    def smooth_error(self) -> float:
        """Largest error of the emulators without the numerical noise."""
        return max(emulator.smooth_error for emulator in self.emulators.values())

    def with_solver_noise(self, noise: Floats) -> JointEmulator:
        """Return the same emulators with another estimate (P,) of the numerical noise."""
        models = tuple(
            model.with_solver_noise(noise[part.columns]) if isinstance(model, Emulator) else model
            for part, model in zip(self.parts, self.models, strict=True)
        )
        return replace(self, models=models, solver_noise=noise)

    def site_error(self, sites: Integers) -> Floats:
        """Estimate the error (B,) at sites (B,): the largest over the outputs, in noise standard deviations."""
        return np.asarray(self.output_error(sites)[0].max(axis=-1))

    def predict(self, latents: Floats, sites: Integers) -> Floats:
        """Predict outputs (S, B, P) for latents (S, B, Q) at sites (B,); NaN for the outputs of other sources."""
        found = np.full((*latents.shape[:2], self.outputs), np.nan)
        for part, model in zip(self.parts, self.models, strict=True):
            positions, own = part.locate(sites)
            if len(positions):
                everywhere = np.ix_(np.arange(len(latents)), positions, part.columns)
                found[everywhere] = model.predict(latents[:, positions], own)
        return found

    def linearise(self, latents: Array, sites: Integers) -> tuple[Array, PullBack]:
        """Predict outputs (S, B, P), 0 for those of other sources, and return the product with the derivatives."""
        xp, backend = array_namespace(latents), backend_of(latents)
        pieces = []
        total: Array = 0.0
        for part, model in zip(self.parts, self.models, strict=True):
            positions, own = part.locate(sites)
            if not len(positions):
                continue
            index = xp.asarray(positions.astype(np.int32), device=backend.device)
            found, pull = model.linearise(xp.take(latents, index, axis=1), own)
            rows = backend.asarray(np.eye(len(sites))[positions])  # (b, B)
            columns = backend.asarray(np.eye(self.outputs)[part.columns])  # (p, P)
            total = total + rows.T @ (found @ columns)
            pieces.append((index, rows, part.columns, pull))

        def pull_back(cotangents: Array) -> Array:
            gradient: Array = 0.0
            for index, rows, columns, pull in pieces:
                own = xp.take(
                    xp.take(cotangents, index, axis=1),
                    xp.asarray(columns.astype(np.int32), device=backend.device),
                    axis=2,
                )
                gradient = gradient + rows.T @ pull(own)
            return gradient

        return total, pull_back

    def log_success(self, latents: Array, sites: Integers) -> tuple[Array, PullBack] | None:
        """Compute the log probability (S, B) that the runs of a site succeed; None if it does not depend on them."""
        xp, backend, pieces = array_namespace(latents), backend_of(latents), []
        total: Array = 0.0
        for part, model in zip(self.parts, self.models, strict=True):
            positions, own = part.locate(sites)
            if not isinstance(model, Emulator) or not len(positions):
                continue
            index = xp.asarray(positions.astype(np.int32), device=backend.device)
            found = model.log_success(xp.take(latents, index, axis=1), own)
            if found is None:
                continue
            rows = backend.asarray(np.eye(len(sites))[positions])  # (b, B)
            total = total + found[0] @ rows
            pieces.append((index, rows, found[1]))
        if not pieces:
            return None

        def pull_back(cotangents: Array) -> Array:
            gradient: Array = 0.0
            for index, rows, pull in pieces:
                gradient = gradient + rows.T @ pull(xp.take(cotangents, index, axis=1))
            return gradient

        return total, pull_back

    def output_error(self, sites: Integers) -> tuple[Floats, Floats]:
        """Estimate the smooth and the rough error (B, P) at sites (B,); 0 for other sources and direct data."""
        smooth, rough = np.zeros((2, len(sites), self.outputs))
        for part, model in zip(self.parts, self.models, strict=True):
            positions, own = part.locate(sites)
            if isinstance(model, Emulator) and len(positions):
                where = np.ix_(positions, part.columns)
                smooth[where], rough[where] = model.output_error(own)
        return smooth, rough

    def trusted_sites(self, latents: Floats, sites: Integers, largest_error: float) -> NDArray[np.bool_]:
        """Return a mask (B,) of the sites where the emulators are accurate enough; direct data are exact."""
        found = np.ones(len(sites), dtype=bool)
        for part, model in zip(self.parts, self.models, strict=True):
            positions, own = part.locate(sites)
            if isinstance(model, Emulator) and len(positions):
                found[positions] = model.trusted_sites(latents[:, positions], own, largest_error)
        return found


def fit_emulators(
    problem: Problem,
    runs: Runs,
    *,
    noise_std: Floats,
    rng: np.random.Generator,
    everywhere: bool = False,
    wanted: float = NEGLIGIBLE,
) -> Emulator | JointEmulator | None:
    """Fit the emulator of each simulator of a problem; see `fit_emulator` for the parameters.

    Returns
    -------
    Emulator, JointEmulator or None
        An `Emulator` for a problem with one source; None if the runs of a source are not enough.
    """
    if not problem.sources:
        return fit_emulator(problem, runs, noise_std=noise_std, rng=rng, everywhere=everywhere, wanted=wanted)
    models: list[Emulator | ExactModel] = []
    for part in problem.parts:
        if part.direct:
            models.append(ExactModel(part.problem))
            continue
        own = select_runs(runs, part)
        if not len(own):
            return None
        emulator = fit_emulator(
            part.problem,
            own,
            noise_std=noise_std[np.ix_(part.sites, part.columns)],
            rng=rng,
            everywhere=everywhere,
            wanted=wanted,
        )
        if emulator is None:
            return None
        models.append(emulator)
    return JointEmulator(problem.parts, tuple(models), noise_std.shape[1])


def select_runs(runs: Runs, part: Part) -> Runs:
    """Return the runs of one source, with its own numbers of sites and outputs."""
    positions, own = part.locate(runs.sites)
    return Runs(own, runs.latents[positions], runs.outputs[np.ix_(positions, part.columns)], runs.stage[positions])


def join_runs(parts: Sequence[tuple[Part, Runs]], outputs: int) -> Runs:
    """Return the runs of several sources with the numbers of sites and outputs of the joint problem."""
    sites, answers = [], []
    for part, runs in parts:
        found = np.full((len(runs), outputs), np.nan)
        found[:, part.columns] = runs.outputs
        sites.append(part.sites[runs.sites])
        answers.append(found)
    return Runs(
        np.concatenate(sites),
        np.concatenate([runs.latents for _, runs in parts]),
        np.concatenate(answers),
        np.concatenate([runs.stage for _, runs in parts]),
    )
