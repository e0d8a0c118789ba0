"""One trial of a calibration: a simulated survey is inverted, and its posterior compared with the truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.special import ndtr, ndtri
from threadpoolctl import threadpool_limits

from invgp.errors import RunsFailedError
from invgp.execution.run_directories import remove_run_directories
from invgp.inference.invert import invert
from invgp.problem import Floats, InferenceSettings, Problem
from invgp.validation.coverage import DRAWS, INTERVALS
from invgp.validation.simulated_surveys import SimulatedSurvey, draw_survey

SCORES = np.linspace(-4.0, 4.0, 65)  # standard normal quantiles at which each posterior is evaluated
# Levels of the quantiles of each posterior: those of SCORES, and the ends of the intervals.
LEVELS = tuple(
    np.unique([*ndtr(SCORES), *((1 + sign * interval) / 2 for interval in INTERVALS for sign in (-1, 1))]).tolist()
)


class Trial(NamedTuple):
    """Result of one simulated survey.

    Attributes
    ----------
    number : int
        Number of the survey, from 1.
    scores : xarray.Dataset or None
        Truths, their posterior probabilities and ranks by site or node; None if the inversion failed.
    failure : str
        Why the inversion failed.
    """

    number: int
    scores: xr.Dataset | None
    failure: str = ""


class Ledgers(NamedTuple):
    """Ledgers of one simulated survey, from which an interrupted calibration continues.

    They are separate, because an inversion uses all earlier runs in its ledger.

    Attributes
    ----------
    truth : Path
        For the runs at the truth.
    inversion : Path
        For the runs of the inversion.
    """

    truth: Path
    inversion: Path

    @classmethod
    def in_folder(cls, folder: Path, number: int, identity: str) -> Ledgers:
        """Return the ledgers of survey `number` of a calibration, which `identity` distinguishes from others."""
        prefix = f"survey{number:05d}.{identity[:12]}"
        return cls(folder / f"{prefix}.truth.sqlite", folder / f"{prefix}.ledger.sqlite")

    def remove(self) -> None:
        """Remove the files, if there are any."""
        for path in self:
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)


def run_trial(
    problem: Problem, drawn_from: Problem, number: int, seed: int, directory: Path, ledgers: Ledgers | None = None
) -> Trial:
    """Simulate survey `number` and invert it; the result depends only on the seed and the number.

    Parameters
    ----------
    problem : Problem
        Problem that is inverted, with other data.
    drawn_from : Problem
        Problem with the prior, the simulator and the noise of truth and data.
    number : int
    seed : int
    directory : Path
        Directory of the simulator runs.
    ledgers : Ledgers, optional
        Where the runs are recorded.

    Raises
    ------
    RunsFailedError
        The simulator fails at all truths that are drawn.
    """
    # One random stream per purpose, as in an inversion.
    streams = np.random.SeedSequence(seed, spawn_key=(number - 1,)).spawn(4)
    truths, noise, picks = (np.random.default_rng(stream) for stream in streams[:3])
    inversion_seed = int(streams[3].generate_state(1)[0])
    with threadpool_limits(1):  # the number of threads changes the rounding of BLAS, and workers must agree
        truth, inversion = (None, None) if ledgers is None else ledgers
        drawn = draw_survey(drawn_from, truths, noise, directory, truth)
        simulated = with_data(problem, drawn.data)
        try:
            posterior = invert(simulated, seed=inversion_seed, run_directory=directory, ledger=inversion)
        except RunsFailedError as error:
            return Trial(number, None, str(error))
    remove_run_directories(directory)  # directories of failed runs
    scores = score_posterior(problem, drawn, posterior)
    point, size = ("site", problem.survey.size) if problem.grid is None else ("node", problem.grid.size)
    scores[f"rank_{point}"] = int(picks.integers(size)) + 1
    return Trial(number, scores)


def with_data(problem: Problem, data: Floats) -> Problem:
    """Return the problem with other data (N, P), and with the output that `score_posterior` needs."""
    observations = tuple(
        replace(observation, values=data[:, problem.observation_slices[observation.name]])
        for observation in problem.survey.observations
    )
    return replace(
        problem,
        survey=replace(problem.survey, observations=observations),
        inference=with_serial_runs(problem.inference),
        output=problem.output.replace(quantiles=LEVELS, realizations=DRAWS),
    )


def with_serial_runs(settings: InferenceSettings) -> InferenceSettings:
    """Return the settings with serial runs: surveys are inverted in parallel, not their runs."""
    default = InferenceSettings()
    return settings.replace(
        workers=1, backend=default.backend, scheduler=default.scheduler, worker_timeout=default.worker_timeout
    )


def score_posterior(problem: Problem, drawn: SimulatedSurvey, posterior: xr.Dataset) -> xr.Dataset:
    """Compute scores, probabilities and ranks of the truth in the posterior marginals, by site or node and label."""
    variables = {name: posterior[name] for name in ("crs",) if name in posterior}
    for latent in problem.latents:
        name, what = latent.name, latent.long_name or latent.name
        mean = posterior[name]
        truth = drawn.truth[:, problem.latent_slices[name]]
        truth = (truth[:1] if latent.is_scalar else truth).reshape(mean.shape)
        spread = posterior[f"{name}_std"].values
        score = normal_scores(truth, posterior[f"{name}_quantile"].values, spread)
        rank = np.sum(posterior[f"{name}_sample"].values < truth, axis=0)
        for suffix, values, long_name, unit in (
            ("truth", truth, f"true {what}", latent.unit),
            ("mean", mean.values, f"posterior mean of {what}", latent.unit),
            ("std", spread, f"posterior standard deviation of {what}", latent.unit),
            ("score", score, f"standardised error of {what}", "1"),
            ("pit", ndtr(score), f"posterior probability of less than the true {what}", "1"),
            ("rank", rank, f"rank of the true {what} among {DRAWS} posterior draws", "1"),
        ):
            attributes = {key: mean.attrs[key] for key in ("grid_mapping",) if key in mean.attrs}
            labelled = mean.copy(data=values)
            labelled.attrs = {"long_name": long_name, "units": unit, **attributes}
            variables[f"{name}_{suffix}"] = labelled
    for observation in problem.survey.observations:
        variables[f"{observation.name}_observed"] = posterior[f"{observation.name}_observed"].drop_attrs()
        variables[f"{observation.name}_observed"].attrs = {
            "long_name": f"simulated {observation.long_name or observation.name}",
            "units": observation.unit,
        }
    scores = xr.Dataset(
        variables, attrs={name: value for name, value in posterior.attrs.items() if name != "invgp_runs_at_once"}
    )
    scores["redrawn"] = drawn.redrawn
    scores["runs"] = int(posterior.attrs["invgp_runs"])
    scores["converged"] = np.int8(posterior.attrs["invgp_converged"] == "yes")
    return scores


def normal_scores(truth: Floats, quantiles: Floats, std: Floats) -> Floats:
    """Transform truths (...) to standard normal scores with posterior quantiles (G, ...) at `LEVELS`.

    Between two quantiles the score is linear in the truth, and beyond the outermost it has the slope of a Gaussian with
    the posterior standard deviation (...). For a Gaussian marginal this is exact, and the score is (truth - mean) /
    standard deviation. Draws can have equal quantiles, and their outermost quantiles can be close together.
    """
    levels = ndtri(np.asarray(LEVELS))
    scores = np.broadcast_to(levels.reshape(-1, *([1] * truth.ndim)), quantiles.shape)
    above = np.clip(np.sum(quantiles <= truth, axis=0, keepdims=True), 1, len(LEVELS) - 1)
    (x0, z0), (x1, z1) = (
        (np.take_along_axis(quantiles, at, axis=0)[0], np.take_along_axis(scores, at, axis=0)[0])
        for at in (above - 1, above)
    )
    share = np.divide(truth - x0, x1 - x0, out=np.full_like(truth, 0.5), where=x1 > x0)
    inner = z0 + (z1 - z0) * np.clip(share, 0.0, 1.0)
    below, beyond = np.minimum(truth - quantiles[0], 0.0), np.maximum(truth - quantiles[-1], 0.0)
    return np.asarray(inner + (below + beyond) / std)
