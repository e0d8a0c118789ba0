"""A regression on all runs so far, pooled over the sites, that stands in for the simulator."""

from invgp.inference.emulation.emulator import Emulator
from invgp.inference.emulation.fit import fit_emulator
from invgp.inference.emulation.runs import Runs

__all__ = ["Emulator", "Runs", "fit_emulator"]
