"""Where an iteration waits for its device: transfers and single numbers that the host reads."""

from collections import Counter

import array_api_strict
import numpy as np
import pytest
from test_savigp import dense_savigp

from invgp.core import backend
from invgp.core.backend import Place
from invgp.core.kernels import CORRELATIONS, Kernel

ARRAY = type(array_api_strict.asarray(0.0))
WAITING = ("__float__", "__int__", "__bool__", "__index__", "__complex__", "__array__")


@pytest.fixture
def waits(monkeypatch):
    """Counts of everything that would make a host wait for a GPU."""
    counts = Counter()
    for name in WAITING:
        original = getattr(ARRAY, name, None)
        if original is None:
            continue

        def counted(self, *args, _name=name, _original=original, **kwargs):
            counts[_name] += 1
            return _original(self, *args, **kwargs)

        monkeypatch.setattr(ARRAY, name, counted)
    return counts


def test_that_an_iteration_reads_only_the_numbers_that_decide_its_next_step(waits):
    where = Place(array_api_strict, array_api_strict.Device("device1"))
    X = np.linspace(0, 1, 6)[:, None]
    kernels = [Kernel(c, where.asarray(1.0), where.asarray([0.5])) for c in list(CORRELATIONS.values())[:2]]
    algorithm = dense_savigp(where, X, kernels, np.zeros(2), np.zeros((6, 2)), 0.3, samples=32)
    state = algorithm.init()
    valid = where.asmask(np.ones((32, 6)))
    for _ in range(3):
        waits.clear()
        samples = algorithm.ask(state)
        assert sum(waits.values()) == 0, f"asking waits for the device: {waits}"
        state, _ = algorithm.tell(state, samples, valid)
        # The bound, its two terms and the count of valid runs; then L-BFGS: one slope, three products.
        assert waits["__float__"] <= 4 + 4, waits
        # Whether the factorisation of a natural-gradient step succeeded.
        assert waits["__bool__"] <= 1, waits
        assert waits["__int__"] == waits["__index__"] == waits["__array__"] == 0, waits
    assert backend.to_numpy(samples).shape == (32, 6, 2)
