"""Choice of points that fill the gaps between others."""

from __future__ import annotations

import numpy as np
from scipy.spatial import KDTree

from invgp.emulation.training_runs import Integers
from invgp.problem import Floats


def farthest_points(candidates: Floats, known: Floats, count: int) -> Integers:
    """Choose points one after another, each the farthest from all known and chosen ones.

    Parameters
    ----------
    candidates : array, shape (B, I)
    known : array, shape (R, I)
        At least one point.
    count : int
        Number of points to choose; all candidates if there are fewer.

    Returns
    -------
    array of int, shape (min(count, B),)
        Numbers of the chosen candidates, in the order of the choice.
    """
    distances, chosen = np.asarray(KDTree(known).query(candidates)[0]), list[int]()
    for _ in range(min(count, len(candidates))):
        chosen.append(int(np.argmax(distances)))
        distances = np.minimum(distances, np.linalg.norm(candidates - candidates[chosen[-1]], axis=1))
        distances[chosen[-1]] = -1.0
    return np.asarray(chosen, dtype=np.intp)
