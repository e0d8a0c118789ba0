"""Draws from the prior, and the data that the simulator computes for some of them, against the observed data."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from invgp.errors import ArgumentError, RunsFailedError
from invgp.execution.pools import open_pool
from invgp.execution.run_directories import make_run_directory
from invgp.execution.simulator import Simulator, TooManyFailures
from invgp.inference.invert import blas_threads, open_recorders
from invgp.inference.prior_conflict import find_prior_conflicts
from invgp.posterior.coordinates import label_coordinates
from invgp.problem import Floats, Problem
from invgp.validation.simulated_surveys import draw_prior

SHOWN_DRAWS = 20  # draws of the fields in the file
SITE_DRAWS = 10  # draws of the data at each site
FEWEST_DRAWS = 4
SITE_RUNS, FIELD_RUNS = 100, 20  # by default
HARD = 3.0  # distance from the simulated data, in standard deviations, of data that the prior can hardly produce


class SimulatedData(NamedTuple):
    """Data under the prior.

    Attributes
    ----------
    outputs : array, shape (S, N, P)
        Outputs at draws from the prior; NaN at sites without runs, and where a run failed.
    runs, reused : int
        Number of runs, and how many of them were taken from the ledger.
    """

    outputs: Floats
    runs: int
    reused: int


def simulate_data(
    problem: Problem, f: Floats, runs: int, *, directory: Path, workers: int | None, ledger: Path | None
) -> SimulatedData:
    """Run the simulator at draws from the prior: at a few sites, or whole fields.

    Parameters
    ----------
    problem : Problem
    f : array, shape (S, N, Q) or (S, G, Q)
        Draws of the processes at the sites, or at the nodes of a field model.
    runs : int
        Number of runs.
    directory : Path
        Directory of the runs.
    workers : int or None
    ledger : Path or None
        Ledger in which the runs are recorded.

    Raises
    ------
    RunsFailedError
        Too many runs failed.
    """
    N, P = problem.survey.Y.shape
    outputs = np.full((len(f), N, P), np.nan)
    with (
        threadpool_limits(blas_threads(problem)),
        open_pool(problem.inference, workers=workers) as pool,
        make_run_directory(directory) as folder,
        open_recorders(problem, ledger) as recorders,
    ):
        first, *others = [part.name for part in problem.parts if not part.direct]
        simulator = Simulator(
            problem,
            folder,
            pool,
            recorder=recorders.get(first),
            source_recorders={name: recorders[name] for name in others if name in recorders},
        )
        try:
            if problem.grid is None:
                sites = _choose_sites(problem, max(runs // len(f), 1))
                batch = simulator.run(f[:, sites], "prior", sites)
                outputs[:, sites] = np.where(batch.valid[..., None], batch.outputs, np.nan)
            else:
                fields = simulator.run_fields(f, "prior")
                outputs = np.where(fields.valid[:, None, None], fields.outputs, np.nan)
        except TooManyFailures:
            sentence = "too many runs at draws from the prior failed"
            raise RunsFailedError(simulator.describe_failures(sentence)) from None
    return SimulatedData(outputs, simulator.runs, simulator.reused)


def _choose_sites(problem: Problem, count: int) -> NDArray[np.intp]:
    """Return the numbers of some sites with data, evenly spaced in their order."""
    observed = np.flatnonzero(np.isfinite(problem.survey.Y).any(axis=1))
    return observed[np.unique(np.linspace(0, len(observed) - 1, min(count, len(observed))).round().astype(np.intp))]


def prior_scores(problem: Problem, outputs: Floats) -> Floats:
    """Return the distance (N, P) of each datum from the simulated data, in standard deviations; NaN without runs.

    The spread at a site, from few draws, is averaged with the median spread of the output over the sites.
    """
    with np.errstate(invalid="ignore"):
        count = np.isfinite(outputs).sum(axis=0)
        enough = count >= FEWEST_DRAWS
        filled = np.where(enough, outputs, np.nan)
        total = np.maximum(count, 1)
        mean = np.where(enough, np.nansum(filled, axis=0) / total, np.nan)
        variance = np.where(enough, np.nansum((filled - mean) ** 2, axis=0) / np.maximum(total - 1, 1), np.nan)
        typical = np.nanmedian(np.where(enough.any(axis=0), variance, 0.0), axis=0)
        spread = 0.5 * (variance + typical)
        return np.asarray((problem.survey.Y - mean) / np.sqrt(spread * (1.0 + 1.0 / total) + problem.noise_std**2))


def check_prior(
    problem: Problem, runs: int | None, seed: int, *, directory: Path, workers: int | None, ledger: Path | None
) -> xr.Dataset:
    """Draw from the prior and compare simulated with observed data; see `invgp.prior`."""
    if runs is not None and runs < 0:
        raise ArgumentError(f"runs: must be at least 0, was {runs}")
    wanted = (SITE_RUNS if problem.grid is None else FIELD_RUNS) if runs is None else runs
    simulated = wanted
    if problem.grid is None:
        observed = int(np.isfinite(problem.survey.Y).any(axis=1).sum())
        simulated = max(min(SITE_DRAWS, wanted), wanted // observed)
    rng = np.random.default_rng([seed, 2])
    f = np.stack([draw_prior(problem, rng) for _ in range(max(SHOWN_DRAWS, simulated))])
    data = SimulatedData(np.full((0, *problem.survey.Y.shape), np.nan), 0, 0)
    if wanted:
        data = simulate_data(problem, f[:simulated], wanted, directory=directory, workers=workers, ledger=ledger)
    S, N, P = data.outputs.shape
    conflicts = find_prior_conflicts(problem, data.outputs.reshape(S * N, P), np.tile(np.arange(N), S)) if S else []
    count = problem.survey.size if problem.grid is None else problem.grid.size  # without sites of site models
    return _to_dataset(problem, problem.to_physical(f[:SHOWN_DRAWS, :count]), data, conflicts)


def _to_dataset(problem: Problem, values: Floats, data: SimulatedData, conflicts: list[str]) -> xr.Dataset:
    places = problem.survey if problem.grid is None else problem.grid
    where = "site" if problem.grid is None else "node"
    coordinates = {
        ("site_" if problem.grid is not None else "") + c.name: (
            "site",
            c.values,
            _about(c.long_name or c.name, c.unit),
        )
        for c in problem.survey.coordinates
    }
    if problem.grid is not None:
        coordinates |= {c.name: ("node", c.values, _about(c.long_name or c.name, c.unit)) for c in places.coordinates}
    scores = prior_scores(problem, data.outputs) if len(data.outputs) else np.full(problem.survey.Y.shape, np.nan)
    variables: dict[str, object] = {}
    dims: tuple[str, ...]
    for latent in problem.latents:
        own, about = (
            values[..., problem.latent_slices[latent.name]],
            _about(latent.long_name or latent.name, latent.unit),
        )
        if latent.is_scalar:
            own, dims = own[:, 0], ("realization",)
        else:
            dims = ("realization", where)
        if latent.dimension is None:
            variables[f"{latent.name}_prior_sample"] = (dims, own[..., 0], about)
        else:
            variables[f"{latent.name}_prior_sample"] = ((*dims, latent.dimension), own, about)
    for o in problem.survey.observations:
        columns, about = problem.observation_slices[o.name], _about(o.long_name or o.name, o.unit)
        dims = ("site",) if o.dimension is None else ("site", o.dimension)
        shape = problem.survey.Y[:, columns].shape if o.dimension is not None else (problem.survey.size,)
        variables[f"{o.name}_observed"] = (dims, o.values.reshape(shape), about)
        outputs = data.outputs[..., columns]
        variables[f"{o.name}_simulated"] = (("run", *dims), outputs.reshape(len(outputs), *shape), about)
        text = f"distance of {o.long_name or o.name} from the simulated data, in standard deviations"
        variables[f"{o.name}_prior_score"] = (dims, scores[:, columns].reshape(shape), _about(text, "1"))
    return xr.Dataset(
        variables,
        {**coordinates, **label_coordinates(problem)},
        {
            "title": "Draws from the prior and their data",
            "invgp_answer": "prior",
            "invgp_coordinates": " ".join(c.name for c in places.coordinates),
            "invgp_site_coordinates": " ".join(str(name) for name, (dim, *_) in coordinates.items() if dim == "site"),
            "invgp_latents": " ".join(latent.name for latent in problem.latents),
            "invgp_observations": " ".join(o.name for o in problem.survey.observations),
            "invgp_runs": data.runs,
            "invgp_runs_from_ledger": data.reused,
            "invgp_conflicts": "\n".join(conflicts),
        },
    )


def _about(name: str, unit: str) -> dict[str, str]:
    return {"long_name": name, "units": unit}


class PriorRow(NamedTuple):
    """Observed against simulated data of one observation and label.

    Attributes
    ----------
    observation, label, unit : str
    compared : int
        Number of data that were compared.
    observed : float
        Median of the data.
    low, high : float
        Range of the middle 90% of the simulated data.
    hard : int
        Data that are more than 3 standard deviations away from the simulated ones.
    largest : float
        Largest distance, in standard deviations.
    hardest_site : int
        Its site, from 1.
    """

    observation: str
    label: str
    unit: str
    compared: int
    observed: float
    low: float
    high: float
    hard: int
    largest: float
    hardest_site: int


def prior_rows(found: xr.Dataset) -> list[PriorRow]:
    """Return the comparison of observed and simulated data; empty without runs."""
    rows = []
    for name in str(found.attrs["invgp_observations"]).split():
        score = found[f"{name}_prior_score"]
        dimension = next((str(d) for d in score.dims if d != "site"), None)
        labels = [""] if dimension is None else found.get(f"{dimension}_label", found[dimension]).values.tolist()
        for k in range(len(labels)):
            at = {dimension: k} if dimension else {}
            z = score.isel(at).values
            known = np.isfinite(z)
            if not known.any():
                continue
            simulated = found[f"{name}_simulated"].isel(at).values
            low, high = np.nanquantile(simulated, (0.05, 0.95))
            worst = int(np.nanargmax(np.abs(z)))
            rows.append(
                PriorRow(
                    name,
                    str(labels[k]),
                    str(found[f"{name}_observed"].attrs["units"]),
                    int(known.sum()),
                    float(np.median(found[f"{name}_observed"].isel(at).values[known])),
                    float(low),
                    float(high),
                    int(np.sum(np.abs(z[known]) > HARD)),
                    float(z[worst]),
                    worst + 1,
                )
            )
    return rows
