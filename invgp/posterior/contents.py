"""What the dataset of a posterior contains: its latents, its modes, and the sources of its data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.errors import ArgumentError, ConfigError
from invgp.formatting import count_noun
from invgp.problem import Floats


def latent_names(dataset: xr.Dataset) -> list[str]:
    """Return the names of all latents, in the order of the processes.

    Parameters
    ----------
    dataset : Dataset
        A posterior or a map.

    Returns
    -------
    list of str
    """
    return str(dataset.attrs["invgp_latents"]).split()


def scalar_names(dataset: xr.Dataset) -> list[str]:
    """Return the names of the latents that are scalars.

    Parameters
    ----------
    dataset : Dataset
        A posterior or a map.

    Returns
    -------
    list of str
    """
    return str(dataset.attrs.get("invgp_scalars", "")).split()


def field_names(dataset: xr.Dataset) -> list[str]:
    """Return the names of the latents that depend on the position.

    Parameters
    ----------
    dataset : Dataset
        A posterior or a map.

    Returns
    -------
    list of str
    """
    scalars = scalar_names(dataset)
    return [name for name in latent_names(dataset) if name not in scalars]


def mode_probabilities(posterior: xr.Dataset) -> Floats:
    """Return the probabilities (K,) of the modes of a posterior, the most probable first.

    Parameters
    ----------
    posterior : Dataset
        A posterior. If it is a Gaussian, or an earlier version of invgp wrote it, it has one mode.

    Returns
    -------
    array, shape (K,)
    """
    return np.atleast_1d(np.asarray(posterior.attrs.get("invgp_mode_probabilities", 1.0), dtype=np.float64))


def draws_of_mode(posterior: xr.Dataset, variable: str, mode: int) -> NDArray[np.bool_]:
    """Return which draws are of a mode.

    Parameters
    ----------
    posterior : Dataset
    variable : str
        Variable with the mode of each draw: ``"mode"`` or ``"draw_mode"``.
    mode : int
        Number of the mode, from 1.

    Returns
    -------
    array of bool, shape (R,)

    Raises
    ------
    ConfigError
        The posterior has no such mode, or no draw of it.
    """
    count = len(mode_probabilities(posterior))
    if not 1 <= mode <= count:
        valid = "1, since the posterior has one mode" if count == 1 else f"from 1 to {count}"
        raise ArgumentError(f"mode: must be {valid}, was {mode}")
    if variable not in posterior:
        raise ConfigError(
            "the posterior lacks the modes of its draws: it was written by an earlier version of invgp (repeat the "
            "inversion; runs in its ledger are reused)"
        )
    chosen = np.asarray(posterior[variable].values == mode)
    if not chosen.any():
        raise ConfigError(f"the posterior contains no draw of mode {mode}: its probability is too small")
    return chosen


class SourceSummary(NamedTuple):
    """One source of a posterior.

    Attributes
    ----------
    name : str
    sites : int
        Number of its sites or places.
    direct : bool
        Whether its data are direct.
    runs, failed : int
        Simulator runs, and those that failed.
    chi_square : dict of str to float
        Mean squared normalised residual of each of its observations.
    emulator_error : float or None
        Root mean square error of the emulator at runs that verify it, in noise standard deviations; None for direct
        data, and if there is no such error in the file.
    """

    name: str
    sites: int
    direct: bool
    runs: int
    failed: int
    chi_square: dict[str, float]
    emulator_error: float | None

    def describe(self) -> str:
        """Return the source as one line of text."""
        fit = ", ".join(f"{name} {value:.2g}" for name, value in self.chi_square.items())
        where = count_noun(self.sites, "place" if self.direct else "site")
        runs = "direct data" if self.direct else f"{count_noun(self.runs, 'run')}, {self.failed:,} failed"
        return f"{self.name}: {where}, {runs}; mean squared residual over noise: {fit}"


def summarise_sources(posterior: xr.Dataset) -> list[SourceSummary]:
    """Summarise the sources of a posterior; an empty list for a single survey.

    Parameters
    ----------
    posterior : Dataset
        From `invgp.invert`.

    Returns
    -------
    list of SourceSummary
    """
    if "invgp_sources" not in posterior.attrs:
        return []
    names, direct = posterior.attrs["invgp_sources"].split(), posterior.attrs["invgp_direct_sources"].split()
    runs, failed = (
        np.broadcast_to(posterior.attrs.get(f"invgp_source_{key}", 0), len(names)) for key in ("runs", "runs_failed")
    )
    found = []
    for k, name in enumerate(names):
        places = f"{name}_place" if f"{name}_place" in posterior.dims else "site"
        own = np.arange(posterior.sizes[places])
        if places == "site" and "source" in posterior:
            own = np.flatnonzero(posterior["source"].values == k)
        part = posterior.isel({places: own})
        found.append(
            SourceSummary(
                name,
                len(own),
                name in direct,
                int(runs[k]),
                int(failed[k]),
                _chi_squares(part, places),
                None if name in direct else _emulator_error(part),
            )
        )
    return found


def sites_of_observation(posterior: xr.Dataset, name: str) -> NDArray[np.intp]:
    """Return the indices of the sites of the sources that have an observation; of a single survey, all sites.

    Parameters
    ----------
    posterior : Dataset
    name : str
        An observation.

    Returns
    -------
    array of int
    """
    if "source" not in posterior:
        return np.arange(posterior.sizes["site"])
    known = np.zeros(posterior.sizes["site"], dtype=bool)
    for variable in (f"{name}_noise_std", f"{name}_predicted"):
        values = posterior[variable].transpose("site", ...).values
        known |= np.isfinite(values).reshape(len(known), -1).any(axis=1)
    of = posterior["source"].values[known]
    return np.flatnonzero(np.isin(posterior["source"].values, of))


def _chi_squares(part: xr.Dataset, places: str) -> dict[str, float]:
    """Return the mean squared normalised residual of each observation at these places that has one."""
    found = {}
    for variable in map(str, part.data_vars):
        name = variable.removesuffix("_residual")
        if name == variable or f"{name}_noise_std" not in part or places not in part[variable].dims:
            continue
        values = (part[variable].values / part[f"{name}_noise_std"].values) ** 2
        if np.isfinite(values).any():
            found[name] = float(np.nanmean(values))
    return found


def _emulator_error(part: xr.Dataset) -> float | None:
    if "emulator_error" not in part or not np.isfinite(part["emulator_error"]).any():
        return None
    return float(np.sqrt(np.nanmean(part["emulator_error"].values ** 2)))
