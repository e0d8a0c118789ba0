"""Emulators: regressions of the simulator outputs on the inputs, fitted to all runs of all sites."""

from invgp.emulation.emulator import Emulator
from invgp.emulation.emulator_fit import fit_emulator
from invgp.emulation.joint_emulator import JointEmulator, Surrogate, fit_emulators, join_runs
from invgp.emulation.training_runs import Runs

__all__ = ["Emulator", "JointEmulator", "Runs", "Surrogate", "fit_emulator", "fit_emulators", "join_runs"]
