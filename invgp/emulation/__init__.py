"""Emulators: regressions of the simulator outputs on the inputs, fitted to all runs of all sites."""

from invgp.emulation.emulator import Emulator
from invgp.emulation.emulator_fit import fit_emulator
from invgp.emulation.training_runs import Runs

__all__ = ["Emulator", "Runs", "fit_emulator"]
