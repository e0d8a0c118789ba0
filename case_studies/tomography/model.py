"""Travel times between two boreholes, for the rays of the survey."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from invgp.forward_models import first_arrivals, first_arrivals_with_jacobian, ray_lengths

Floats = NDArray[np.float64]

WIDTH, DEPTH = 30.0, 60.0  # m: distance and depth of the boreholes
SPACINGS = {(round(WIDTH / h) + 1) * (round(DEPTH / h) + 1): h for h in (1.0, 2.0, 3.0)}  # m, by the number of nodes


def bent(velocity: Floats, source_depth: Floats, receiver_depth: Floats) -> Floats:
    """Compute first arrivals (B, N) in s for velocities (B, nodes) in m s-1, by depth from borehole to borehole."""
    h, ends, rays = _geometry(velocity, source_depth, receiver_depth)
    return first_arrivals(_sections(velocity, h), (h, h), *ends)[:, *rays]


def bent_with_jacobian(
    velocity: Floats, source_depth: Floats, receiver_depth: Floats
) -> tuple[Floats, dict[str, Floats]]:
    """Compute the same, and the derivatives (B, N, nodes) by the velocities."""
    h, ends, rays = _geometry(velocity, source_depth, receiver_depth)
    found = [first_arrivals_with_jacobian(section, (h, h), *ends) for section in _sections(velocity, h)]
    slopes = np.stack([jacobian[rays].reshape(len(rays[0]), -1) for _, jacobian in found])
    return np.stack([times[rays] for times, _ in found]), {"velocity": slopes}


def _geometry(
    velocity: Floats, source_depth: Floats, receiver_depth: Floats
) -> tuple[float, list[Floats], tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return the distance of the nodes, the positions of sources and receivers, and those of each ray by number."""
    sources, shot = np.unique(source_depth[0], return_inverse=True)
    receivers, heard = np.unique(receiver_depth[0], return_inverse=True)
    ends = [np.column_stack([np.full(z.size, x), z]) for x, z in ((0.0, sources), (WIDTH, receivers))]
    return SPACINGS[velocity.shape[1]], ends, (shot, heard)


def _sections(velocity: Floats, h: float) -> Floats:
    """Return velocities (B, nodes) as sections (B, I, J)."""
    return velocity.reshape(len(velocity), round(WIDTH / h) + 1, -1)


def straight(velocity: Floats, source_depth: Floats, receiver_depth: Floats) -> Floats:
    """Compute the same along straight rays through cells around the nodes."""
    lengths = _lengths(tuple(source_depth[0]), tuple(receiver_depth[0]), SPACINGS[velocity.shape[1]])
    return np.asarray((1.0 / velocity) @ lengths.T)


@lru_cache
def _lengths(source_depth: tuple[float, ...], receiver_depth: tuple[float, ...], h: float) -> Floats:
    ends = [np.column_stack([np.full(len(z), x), z]) for x, z in ((0.0, source_depth), (WIDTH, receiver_depth))]
    edges = [np.arange(-0.5 * h, extent + h, h) for extent in (WIDTH, DEPTH)]
    return ray_lengths(*ends, *edges).reshape(len(source_depth), -1)
