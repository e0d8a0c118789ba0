"""The simulator of this project: replace it by yours."""

import numpy as np


def two_way_times(depth, velocity):
    """Two-way times of reflections, straight down through flat layers and up again.

    depth : (B, 2), of the bottom of each layer in m. velocity : (B, 2), of each layer in m/s. B models come at once.
    Returns the times (B, 2), in s.
    """
    thickness = np.diff(depth, axis=-1, prepend=0.0)
    return np.cumsum(2.0 * thickness / velocity, axis=-1)
