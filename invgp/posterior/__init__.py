"""The posterior as one xarray dataset, with names, units and provenance."""

from invgp.posterior.dataset import to_dataset
from invgp.posterior.solution import Diagnostics, EmulatorReport, HyperparameterDraws, Samples, Solution, StoredRuns

__all__ = ["Diagnostics", "EmulatorReport", "HyperparameterDraws", "Samples", "Solution", "StoredRuns", "to_dataset"]
