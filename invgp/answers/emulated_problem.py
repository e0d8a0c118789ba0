"""The problem of a posterior with the emulator of its simulator, from the runs in the file or in the ledger.

Questions about other priors, noise or data are answered on this emulator: no simulator is run.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.bounded_links import link_attributes
from invgp.core.backend import select_backend, to_numpy
from invgp.core.coupled.coupled_gaussian import SiteFactors
from invgp.core.coupled.gaussian_posterior import GaussianPosterior, movement
from invgp.emulation import Runs, Surrogate, join_runs
from invgp.emulation.joint_emulator import select_runs
from invgp.emulation.run_schedule import simulated_parts
from invgp.errors import ArgumentError, ConfigError
from invgp.execution.simulator import Simulator
from invgp.inference.earlier_runs import earlier_runs
from invgp.inference.emulated_posterior import EmulatedPosterior
from invgp.inference.emulator_search import fit, optimise_on_emulator
from invgp.inference.invert import open_recorders
from invgp.inference.optimisation import ENDED, Stop
from invgp.inference.runner import Runner
from invgp.inference.search_state import SearchState
from invgp.inference.site_model import SiteModel, prepare_site_model, uses_emulator
from invgp.latent_model.learnt_parameters import with_learned_hyperparameters
from invgp.latent_model.noise_density import noise_log_density
from invgp.links import Link
from invgp.posterior.data_variables import read_runs
from invgp.problem import Floats, Part, Problem
from invgp.problem.sources import Integers

MOST_STEPS = 6  # of the optimisation, each with the noise that the one before has learnt
ROWS_AT_ONCE = 50_000  # of the emulator, to limit memory
CHECKED = 32  # draws at which the runs must surround a Gaussian posterior
MOST_UNCOVERED = 0.1  # share of the sites with data at which the runs may not cover a posterior that is still sampled
STEPS_OUTSIDE = 3  # of the checks of an optimisation, successively with more such sites, after which it ends


@dataclass(frozen=True, eq=False)
class EmulatedProblem:
    """A problem with an emulator of its simulators, and the Gaussian approximation of its posterior on it.

    Attributes
    ----------
    model : SiteModel
    runner : Runner
        With a budget of no runs.
    state : SearchState
        With the runs, the emulator and the Gaussian approximation.
    """

    model: SiteModel
    runner: Runner
    state: SearchState

    @property
    def problem(self) -> Problem:
        """The problem, with its own noise."""
        return self.model.problem

    @property
    def emulator(self) -> Surrogate:
        """The emulator of all sources."""
        if self.state.emulator is None:
            raise ValueError("there is no emulator")
        return self.state.emulator

    @property
    def gaussian(self) -> GaussianPosterior:
        """The Gaussian approximation of the posterior."""
        return self.state.posterior

    @cached_property
    def noisy_problem(self) -> Problem:
        """The problem with the error of the emulator in its noise, which is what is sampled."""
        return with_learned_hyperparameters(self.model.with_emulator_error(self.emulator), self.gaussian)

    @cached_property
    def posterior(self) -> EmulatedPosterior:
        """The posterior on the emulator as a log density."""
        model = self.model
        return EmulatedPosterior(
            self.noisy_problem, self.emulator, model.all_sites, self.gaussian.prior, self.model.backend
        )

    def predict(self, latents: Floats) -> Floats:
        """Predict the outputs (R, N, P) for latents (R, N, Q), in the units of the observations."""
        step = max(ROWS_AT_ONCE // latents.shape[1], 1)
        parts = [
            self.emulator.predict(latents[i : i + step], self.model.all_sites) for i in range(0, len(latents), step)
        ]
        return np.concatenate(parts)

    def log_likelihood(self, predicted: Floats) -> Floats:
        """Compute the log likelihood (R, N) of each site from predicted outputs (R, N, P)."""
        density = noise_log_density(self.noisy_problem, self.model.backend)
        known = np.where(np.isfinite(self.problem.survey.Y), predicted, 0.0)  # NaN for the outputs of other sources
        return to_numpy(density(self.model.backend.asarray(known)))


def check_site_model(problem: Problem) -> None:
    """Raise `ArgumentError` unless the question can be answered on an emulator of the problem."""
    if problem.grid is not None:
        raise ArgumentError(
            "posterior: must be that of a site model, was that of a field model, whose regression holds only for its "
            "own prior and data; invert the problem again with the ledger: its runs are reused"
        )
    if not uses_emulator(problem):
        raise ArgumentError("posterior: must have been computed with an emulator, was computed without")


def emulate(
    problem: Problem,
    runs: Runs,
    seed: int,
    start: SiteFactors | None = None,
    *,
    patient: bool = True,
    among_runs: bool = False,
) -> EmulatedProblem:
    """Fit the emulator of a problem to runs, and find the Gaussian approximation of the posterior on it.

    Parameters
    ----------
    problem : Problem
    runs : Runs
        With the sites of the problem.
    seed : int
    start : SiteFactors, optional
        Site factors near the solution; by default the search begins at the prior.
    patient : bool
        Whether the emulator is fitted again for the posterior that was found, until both have converged.
    among_runs : bool
        Whether the search ends early if it leaves the region of the runs, beyond which the emulator is not valid; only
        with `start`.

    Raises
    ------
    ConfigError
        The runs are not enough for an emulator, or there is no posterior on it.
    """
    check_site_model(problem)
    backend = select_backend("cpu")
    runner = Runner(Simulator(problem, Path(), budget=0))
    model, state = prepare_site_model(problem, backend, runner, seed)
    state = replace(state, runs=runs)
    if start is not None:
        algorithm = model.algorithm(model.emulator_stages)
        factors = SiteFactors(*(backend.asarray(part) for part in _observed_factors(problem, start)))
        with suppress(np.linalg.LinAlgError):  # the search begins at the prior
            state = replace(state, start=algorithm.posterior(factors, state.start.hyper))
    posterior = state.start
    for _ in range(MOST_STEPS if patient else 1):
        state = fit(model, state, posterior)
        if state.emulator is None:
            names = ", ".join(part.name for part in simulated_parts(problem))
            raise ConfigError(f"posterior: must hold enough runs of {names} for an emulator, held {len(runs):,}")
        stop = leaves_runs(model, state.emulator) if among_runs and start is not None else None
        state = optimise_on_emulator(model, runner, state, posterior, stop=stop)
        if state.candidate is None:
            raise ConfigError("posterior: no posterior of the changed problem could be found on the emulator")
        if state.result == ENDED:
            break
        moved, posterior = movement(posterior, state.posterior), state.posterior
        if moved < model.options.step_converged:
            break
    return EmulatedProblem(model, runner, state)


def uncovered_sites(model: SiteModel, emulator: Surrogate, gaussian: GaussianPosterior) -> NDArray[np.bool_]:
    """Return a mask (N,) of the sites with data where an emulator is not accurate at draws from a Gaussian posterior.

    It is accurate if the draws lie among its runs and its estimated error is small.
    """
    problem = model.problem
    normals = np.random.default_rng(0).standard_normal((CHECKED, 1, problem.latent_count, 1))
    draws = to_numpy(gaussian.marginals.mean) + (to_numpy(gaussian.factor) @ normals)[..., 0]
    trusted = emulator.trusted_sites(draws, model.all_sites, problem.inference.emulator_error)
    return np.asarray(~trusted & simulated_with_data(model))


def simulated_with_data(model: SiteModel) -> NDArray[np.bool_]:
    """Return a mask (N,) of the sites that have data of a simulator."""
    observed = np.isfinite(model.problem.survey.Y).any(axis=1)
    return np.asarray(observed & np.isin(model.all_sites, model.problem.simulated))


def leaves_runs(model: SiteModel, emulator: Surrogate) -> Stop:
    """Return the function that ends a search after several steps without enough runs near the posterior."""
    counted, outside, steps = simulated_with_data(model).sum(), 0, 0

    def stop(posterior: GaussianPosterior) -> bool:
        nonlocal outside, steps
        steps += 1
        if steps % 2:  # a check takes nearly as long as a step
            return False
        share = uncovered_sites(model, emulator, posterior).sum() / max(counted, 1)
        outside = outside + 1 if share > MOST_UNCOVERED else 0
        return outside >= STEPS_OUTSIDE

    return stop


def hide_data(problem: Problem, mask: NDArray[np.bool_]) -> Problem:
    """Return a problem without some of its data (N, P)."""
    columns = problem.observation_slices
    observations = tuple(
        replace(one, values=np.where(mask[:, columns[one.name]], np.nan, one.values))
        for one in problem.survey.observations
    )
    return replace(problem, survey=replace(problem.survey, observations=observations))


def _observed_factors(problem: Problem, factors: SiteFactors) -> SiteFactors:
    """Return site factors as host arrays, without information at sites that have no data."""
    observed = np.asarray(np.isfinite(problem.survey.Y).any(axis=1))
    precision, shift = (to_numpy(part) for part in factors)
    return SiteFactors(np.where(observed[:, None, None], precision, 0.0), np.where(observed[:, None], shift, 0.0))


def runs_of(posterior: xr.Dataset, problem: Problem, ledger: Path | None) -> Runs:
    """Return the runs of a problem: those in its posterior, or all in its ledger.

    Raises
    ------
    ConfigError
        There are none.
    """
    stored = read_runs(posterior)
    if stored is not None:
        if stored.latents.shape[1] != problem.latent_count or stored.outputs.shape[1] != problem.noise_std.shape[1]:
            raise ArgumentError("config: must have the latents and observations of the posterior, had others")
        return Runs(*stored)
    if ledger is None or not ledger.is_file():
        raise ArgumentError(
            "posterior: must hold the runs of its emulator, or its ledger must exist; the file is of an earlier "
            "version of invgp: repeat the inversion"
        )
    with open_recorders(problem, ledger) as recorders:
        own = [recorders.get(part.name) for part in simulated_parts(problem)]
        return earlier_runs(problem, own, 0, everything=True)


def stored_factors(posterior: xr.Dataset) -> SiteFactors | None:
    """Return the site factors in a posterior; None if it has none, or if they are those of inducing points."""
    if "site_precision" not in posterior or "site_shift" not in posterior:
        return None
    return SiteFactors(posterior["site_precision"].values, posterior["site_shift"].values)


def transfer_runs(runs: Runs, old: Problem, new: Problem) -> Runs:
    """Return the runs of one problem for another with the same simulators.

    The sources are matched by name, and their sites by the columns that the simulator takes. Runs of sources and sites
    that the other problem does not have are left out; if the simulator takes no column, all sites are equivalent. Runs
    with values that the other problem excludes by its bounds are left out, too.
    """
    by_name = {part.name: part for part in simulated_parts(old)}
    found = []
    for part in simulated_parts(new):
        if part.name not in by_name:
            raise ArgumentError(f"sources: must be those of the posterior, had a new simulator {part.name!r}")
        before = by_name[part.name]
        own = select_runs(runs, before)
        sites = _match_sites(before, part)[own.sites]
        if np.all(sites < 0) and not _site_columns(part):
            sites = np.arange(len(own)) % part.problem.survey.size
        latents = _convert_latents(own.latents, old, new)
        kept = (sites >= 0) & np.isfinite(latents).all(axis=1)
        found.append((part, Runs(sites[kept], latents[kept], own.outputs[kept], own.stage[kept])))
    return join_runs(found, new.noise_std.shape[1])


def has_same_scales(old: Problem, new: Problem) -> bool:
    """Return whether the same values of the latent processes are the same physical values in both problems."""
    first, second = (np.eye(p.latent_count) if p.mixing is None else p.mixing for p in (old, new))
    same = np.array_equal(first, second)
    return same and all(_is_same_link(a.link, b.link) for a, b in zip(old.latents, new.latents, strict=True))


def _is_same_link(old: Link, new: Link) -> bool:
    first, second = link_attributes(old), link_attributes(new)
    return first.keys() == second.keys() and all(np.array_equal(first[key], second[key]) for key in first)


def _convert_latents(latents: Floats, old: Problem, new: Problem) -> Floats:
    """Return the processes (R, Q) of a problem with the physical values of those of another one; see `Problem.mixing`.

    They are not finite beyond the bounds of the new problem.
    """
    if has_same_scales(old, new):
        return latents
    f = np.array(old.mix(latents))
    for a, b in zip(old.latents, new.latents, strict=True):
        if not _is_same_link(a.link, b.link):
            part = old.latent_slices[a.name]
            f[:, part] = b.link.inverse(a.link(f[:, part]))
    return new.unmix(f)


def _site_columns(part: Part) -> list[str]:
    """Return the coordinates and covariates that the simulator of a source takes."""
    known = {c.name for c in (*part.problem.survey.coordinates, *part.problem.survey.covariates)}
    return [variable.name for variable in part.problem.inputs if variable.name in known]


def _match_sites(old: Part, new: Part) -> Integers:
    """Return the site of the new problem, or -1, for each site of the old one, from 0 within the source."""
    columns = _site_columns(new)
    if not columns:
        return np.arange(old.problem.survey.size) % new.problem.survey.size
    tables = [
        np.stack([c.values for c in (*p.survey.coordinates, *p.survey.covariates) if c.name in columns], axis=-1)
        for p in (old.problem, new.problem)
    ]
    if np.array_equal(tables[0], tables[1]):
        return np.arange(old.problem.survey.size)
    same = np.all(np.isclose(tables[0][:, None], tables[1][None], rtol=1e-9, atol=0.0), axis=-1)
    return np.where(np.any(same, axis=1), np.argmax(same, axis=1), -1)
