"""Figures of a posterior: sections, maps, the fit to the data, correlations, draws, convergence; and of a calibration.

Every function takes the Dataset that `invgp run` (or `invgp predict`, `invgp calibrate`) writes, in memory or opened
from its netCDF file, and returns a matplotlib `Figure` sized for the page of a journal. `plot` writes the figures that
suit it.
"""

from __future__ import annotations

from invgp.plots.calibration import calibration
from invgp.plots.comparison import comparison
from invgp.plots.convergence import convergence
from invgp.plots.correlation import correlation
from invgp.plots.draws import draws
from invgp.plots.figures import KINDS, check_format, plot, save, suitable
from invgp.plots.fit import data_fit
from invgp.plots.grids import cut
from invgp.plots.look import QUANTITIES, Look
from invgp.plots.maps import maps
from invgp.plots.reading import choose
from invgp.plots.sections import section

__all__ = [
    "KINDS",
    "QUANTITIES",
    "Look",
    "calibration",
    "check_format",
    "choose",
    "comparison",
    "convergence",
    "correlation",
    "cut",
    "data_fit",
    "draws",
    "maps",
    "plot",
    "save",
    "section",
    "suitable",
]
