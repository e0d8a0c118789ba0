"""Choice of points that fill the gaps between others."""

import numpy as np
from scipy.spatial.distance import cdist

from invgp.emulation.space_filling import farthest_points


def test_that_each_point_is_the_farthest_from_all_others():
    rng = np.random.default_rng(0)
    candidates, known = rng.random((60, 3)), rng.random((5, 3))
    chosen = farthest_points(candidates, known, 12)
    for k, number in enumerate(chosen):
        distances = cdist(candidates, np.concatenate([known, candidates[chosen[:k]]])).min(axis=1)
        assert number == np.argmax(distances)


def test_that_no_point_is_chosen_twice():
    same = np.zeros((4, 2))
    assert sorted(farthest_points(same, same[:1], 10)) == [0, 1, 2, 3]
    assert farthest_points(same[:0], same[:1], 3).size == 0
