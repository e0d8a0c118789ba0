"""The simulator of this project. Replace it by your own function."""

import numpy as np


def two_way_times(depth, velocity):
    """Two-way times (B, 2) in s of vertical reflections at the bottom of each layer, for B models at once.

    depth : (B, 2), depth of the bottom of each layer in m. velocity : (B, 2), velocity in each layer in m/s.
    """
    thickness = np.diff(depth, axis=-1, prepend=0.0)
    return np.cumsum(2.0 * thickness / velocity, axis=-1)
