"""Physics that invgp ships: pure functions of arrays in SI units, and the sources of their executables."""

from .seismic import two_way_times

__all__ = ["two_way_times"]
