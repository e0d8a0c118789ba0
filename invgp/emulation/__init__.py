"""A regression on all runs so far, pooled over the sites, that stands in for the simulator."""

from invgp.emulation.emulator import Emulator
from invgp.emulation.emulator_fit import fit_emulator
from invgp.emulation.training_runs import Runs

__all__ = ["Emulator", "Runs", "fit_emulator"]
