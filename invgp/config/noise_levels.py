"""Checks of standard deviations of noise."""

from __future__ import annotations

import numpy as np

from invgp.config.toml_document import LARGEST, SMALLEST
from invgp.errors import ConfigError
from invgp.problem import Floats

SMALLEST_SHARE = 1e-12  # of a datum: differences of outputs are then rounding errors


def check_noise_std(values: Floats, std: Floats, key: str, *, datum: str, place: str, share: object = None) -> None:
    """Check standard deviations of noise wherever there are data.

    Parameters
    ----------
    values : array, shape (N, p)
        Data; NaN where there are none.
    std : array, shape (N, p)
        Standard deviations of their noise, in the same unit.
    key : str
        Key of the standard deviations.
    datum, place : str
        What a value and a row are called in messages, for example "observation" and "site".
    share : object
        The percentage from which `std` was computed, if any.

    Raises
    ------
    ConfigError
        A standard deviation is missing or not positive, or so small that it is lost in rounding.
    """
    present = ~np.isnan(values)
    wrong = np.argwhere(present & ~((std >= SMALLEST) & (std <= LARGEST)))
    if wrong.size:
        row, column = wrong[0]
        was = "missing" if np.isnan(std[row, column]) else f"{std[row, column]:g}"
        if share is not None:
            was = f"{share} of {_article(datum)} {datum} of {values[row, column]:g}"
        raise ConfigError(
            f"{key}: must be positive wherever there is {_article(datum)} {datum}, was {was} at {place} {row + 1}"
        )
    sizes = np.abs(values)
    largest = float(np.max(sizes, initial=0.0, where=present))
    small = np.argwhere(present & (std < SMALLEST_SHARE * np.where(sizes == 0.0, largest, sizes)))
    if small.size:
        row, column = small[0]
        raise ConfigError(
            f"{key}: must be at least {SMALLEST_SHARE:g} times the {datum}, or times the largest one where it is 0, "
            f"because double precision resolves no less, was {std[row, column]:g} for {values[row, column]:g} at "
            f"{place} {row + 1}"
        )


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"
