"""Physics that invgp ships: pure functions of arrays in SI units, and the sources of their executables."""

from .columns import ColumnResponse, order_tops
from .eikonal import first_arrivals
from .eikonal_jacobian import first_arrivals_with_jacobian
from .gravity import boxes_gravity, columns_gravity, rectangles_gravity
from .heat import cells_temperature, layers_temperature
from .magnetics import columns_magnetics, field_components
from .magnetotelluric import magnetotelluric_sounding, surface_impedance
from .rays import ray_lengths
from .resistivity import resistivity_transform, schlumberger_sounding
from .seismic import two_way_times

__all__ = [
    "ColumnResponse",
    "boxes_gravity",
    "cells_temperature",
    "columns_gravity",
    "columns_magnetics",
    "field_components",
    "first_arrivals",
    "first_arrivals_with_jacobian",
    "layers_temperature",
    "magnetotelluric_sounding",
    "order_tops",
    "ray_lengths",
    "rectangles_gravity",
    "resistivity_transform",
    "schlumberger_sounding",
    "surface_impedance",
    "two_way_times",
]
