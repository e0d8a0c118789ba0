"""Figures of posteriors, maps, calibrations and comparisons.

Each function takes a dataset that `invgp run`, `predict`, `calibrate` or `compare` writes, and returns a matplotlib
`Figure` with the size of a journal page or column. Functions with one panel also draw into given Axes (`ax`). `plot`
writes figures to files.
"""

from __future__ import annotations

from invgp.plots.design_figure import plot_design
from invgp.plots.draws import plot_draws
from invgp.plots.figure_options import QUANTITIES, SUMMARY, FigureOptions
from invgp.plots.figures import KINDS, check_format, plot, save_figure, suitable_kinds
from invgp.plots.fit import plot_fit
from invgp.plots.hyperparameter_figure import plot_hyperparameters
from invgp.plots.inference_figures import plot_convergence, plot_correlation
from invgp.plots.known_values import KnownValues, Misfit, compare_with_values, read_known_values
from invgp.plots.map_figures import plot_map
from invgp.plots.place_figures import plot_cross_validation, plot_difference, plot_influence
from invgp.plots.plot_data import select_latents, slice_grid
from invgp.plots.prior_figure import plot_prior
from invgp.plots.profile_figure import plot_profile
from invgp.plots.scalar_figure import plot_scalars
from invgp.plots.sections import plot_section
from invgp.plots.validation_figures import plot_calibration, plot_comparison, plot_evidence

__all__ = [
    "KINDS",
    "QUANTITIES",
    "SUMMARY",
    "FigureOptions",
    "KnownValues",
    "Misfit",
    "check_format",
    "compare_with_values",
    "plot",
    "plot_calibration",
    "plot_comparison",
    "plot_convergence",
    "plot_correlation",
    "plot_cross_validation",
    "plot_design",
    "plot_difference",
    "plot_draws",
    "plot_evidence",
    "plot_fit",
    "plot_hyperparameters",
    "plot_influence",
    "plot_map",
    "plot_prior",
    "plot_profile",
    "plot_scalars",
    "plot_section",
    "read_known_values",
    "save_figure",
    "select_latents",
    "slice_grid",
    "suitable_kinds",
]
