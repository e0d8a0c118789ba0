"""Modes of a posterior: their probabilities, and the draws of each."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.errors import ArgumentError, ConfigError
from invgp.problem import Floats


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
