"""The runs that the emulator of a posterior was fitted to, as variables of its file."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.errors import ConfigError
from invgp.posterior.data_arrays import make_array
from invgp.problem import Floats

MOST_RUNS, MOST_NUMBERS = 20_000, 2_000_000  # that a file stores; the latest
NAMES = ("emulator_run_site", "emulator_run_latent", "emulator_run_output", "emulator_run_stage")


class StoredRuns(NamedTuple):
    """Runs of the simulators of a site model, oldest first.

    Attributes
    ----------
    sites : array of int, shape (R,)
        Number of the site of each run, from 0.
    latents : array, shape (R, Q), on the scale of the Gaussian processes
    outputs : array, shape (R, P), in the units of the observations
        NaN where the run failed or has no such output.
    stage : array of int, shape (R,)
        Step of the inversion; -1 for runs of earlier inversions.
    """

    sites: NDArray[np.intp]
    latents: Floats
    outputs: Floats
    stage: NDArray[np.intp]


def run_variables(runs: StoredRuns | None) -> dict[str, xr.DataArray]:
    """Return the latest runs as variables; empty if there are none."""
    if runs is None or not len(runs.sites):
        return {}
    each = runs.latents.shape[1] + runs.outputs.shape[1]
    kept = slice(-min(MOST_RUNS, max(MOST_NUMBERS // each, 1)), None)
    about: tuple[tuple[tuple[str, ...], NDArray[Any], str], ...] = (
        (("emulator_run",), (runs.sites + 1).astype(np.int32), "site of the run"),
        (("emulator_run", "process"), runs.latents, "latents of the run, on the scale of the Gaussian processes"),
        (("emulator_run", "output_number"), runs.outputs, "outputs of the run, in the units of the observations"),
        (("emulator_run",), runs.stage.astype(np.int32), "step of the inversion that made the run"),
    )
    found = {}
    for name, (dims, values, text) in zip(NAMES, about, strict=True):
        attributes = {"long_name": text} | ({} if name == "emulator_run_output" else {"units": "1"})
        found[name] = make_array(dims, values[kept], attributes)
    return found


def read_runs(posterior: xr.Dataset) -> StoredRuns | None:
    """Return the runs in a posterior; None if it has none.

    Raises
    ------
    ConfigError
        The variables do not belong together.
    """
    if any(name not in posterior for name in NAMES):
        return None
    sites, latents, outputs, stage = (np.asarray(posterior[name].values) for name in NAMES)
    sizes = (posterior.sizes.get("site", 0), len(sites))
    if latents.ndim != 2 or outputs.ndim != 2 or not np.all((sites >= 1) & (sites <= sizes[0])):
        raise ConfigError("the posterior is damaged: its variables 'emulator_run_...' do not fit its sites")
    if not np.isfinite(latents).all():
        raise ConfigError("the posterior is damaged: its variable 'emulator_run_latent' has values that are not finite")
    return StoredRuns(
        sites.astype(np.intp) - 1, latents.astype(np.float64), outputs.astype(np.float64), stage.astype(np.intp)
    )
