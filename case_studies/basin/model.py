"""Gravity of a sedimentary basin: rectangles below a profile, boxes below a map, from the surface to the basement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from invgp.forward_models import boxes_gravity, rectangles_gravity

Floats = NDArray[np.float64]

CONTRAST = -400.0  # kg m-3
PROFILE_EDGES = np.arange(0.0, 40_001.0, 500.0)  # m
CELL = 1000.0  # m, of the map
SIDE = 15  # cells of the map in each direction


def profile(depth: Floats, station: Floats) -> Floats:
    """Compute gravity (B, N) in m s-2 for basements at depth (B, 80) and stations (B, N) in m, with known contrast."""
    return rectangles_gravity(station[0], PROFILE_EDGES, np.zeros_like(depth), depth, CONTRAST)


def profile_and_contrast(depth: Floats, contrast: Floats, station: Floats) -> Floats:
    """Compute the same for a contrast (B, 80) in kg m-3, which is constant in space."""
    return rectangles_gravity(station[0], PROFILE_EDGES, np.zeros_like(depth), depth, contrast)


def gravity_map(depth: Floats, easting: Floats, northing: Floats) -> Floats:
    """Gravity (B, N) in m s-2 of basements at depth (B, 225) in m, below stations with easting and northing in m."""
    west, south = (side.ravel() for side in np.meshgrid(*[CELL * np.arange(SIDE)] * 2, indexing="ij"))
    flat = np.broadcast_to(np.stack([west, west + CELL, south, south + CELL], axis=-1), (*depth.shape, 4))
    boxes = np.concatenate([flat, -depth[..., None], np.full((*depth.shape, 1), -1.0)], axis=-1)
    contrast = np.full(depth.shape, CONTRAST)
    return boxes_gravity(easting[0], northing[0], np.zeros_like(easting[0]), boxes, contrast)
