"""Four layers with folded tops below a map, for the tests and for `of_choclo.py`; needs NumPy only."""

import numpy as np

EAST_EDGES = np.array([0.0, 2000.0, 4000.0, 6000.0, 9000.0])  # m
NORTH_EDGES = np.array([-1000.0, 1500.0, 4000.0, 7000.0])  # m
BASE = 9000.0  # m
DENSITY = np.array([2170.0, 2570.0, 2390.0, 2680.0])  # kg m-3
SUSCEPTIBILITY = np.array([2.7e-4, 7.8e-4, 3.4e-5, 1.5e-3])  # SI
FIELD = np.array([3592.9, 27550.0, 47800.0])  # nT, east, north and up
STATIONS = np.array([  # easting, northing and depth, m: one above a corner of columns, one above an edge, one outside
    [1100.0, 300.0, -0.5],
    [4000.0, 1500.0, -0.5],
    [4000.0, 3100.0, -80.0],
    [-700.0, 8100.0, -0.5],
])  # fmt: skip
_I, _J = np.meshgrid(np.arange(4), np.arange(3), indexing="ij")
TOPS = np.stack([  # (layer, column east, column north), m
    np.zeros(_I.shape),
    1530.0 + 90.0 * np.sin(1.7 * _I) + 35.0 * _J,
    2210.0 + 160.0 * np.cos(1.1 * _I - _J),
    4480.0 + 1370.0 * np.sin(0.8 * _I + 1.3 * _J),
])  # fmt: skip
