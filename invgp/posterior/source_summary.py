"""Runs, failures and fit of each source of a joint inversion, from its posterior."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr


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
    """

    name: str
    sites: int
    direct: bool
    runs: int
    failed: int
    chi_square: dict[str, float]

    def describe(self) -> str:
        """Return the source as one line of text."""
        fit = ", ".join(f"{name} {value:.2g}" for name, value in self.chi_square.items())
        runs = "direct data" if self.direct else f"{self.runs:,} runs, {self.failed:,} failed"
        return f"{self.name}: {self.sites:,} sites, {runs}; mean squared residual over noise: {fit}"


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
    if "source" not in posterior or "invgp_sources" not in posterior.attrs:
        return []
    names, direct = posterior.attrs["invgp_sources"].split(), posterior.attrs["invgp_direct_sources"].split()
    runs, failed = (
        np.broadcast_to(posterior.attrs.get(f"invgp_source_{key}", 0), len(names)) for key in ("runs", "runs_failed")
    )
    found = []
    for k, name in enumerate(names):
        own = np.flatnonzero(posterior["source"].values == k)
        squares = {}
        for observation in posterior.attrs["invgp_observations"].split():
            residual = posterior[f"{observation}_residual"].isel(site=own).values
            values = (residual / posterior[f"{observation}_noise_std"].isel(site=own).values) ** 2
            if np.isfinite(values).any():
                squares[observation] = float(np.nanmean(values))
        found.append(SourceSummary(name, len(own), name in direct, int(runs[k]), int(failed[k]), squares))
    return found
