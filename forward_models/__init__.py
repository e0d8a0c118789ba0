"""Physics that invgp ships: pure functions of arrays in SI units, and the sources of their executables."""

from .gravity import boxes_gravity, rectangles_gravity
from .seismic import two_way_times

__all__ = ["boxes_gravity", "rectangles_gravity", "two_way_times"]
