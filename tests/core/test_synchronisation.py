"""Where an iteration waits for its device: transfers and single numbers that the host reads."""

from collections import Counter

import array_api_strict
import numpy as np
import pytest

from helpers.coupled_models import independent_noise, prior_of, sobol
from helpers.gp_regression import regression
from helpers.savigp_models import Q, Quadratic, small_model
from invgp.core.backend import Backend, to_numpy
from invgp.core.coupled.coupled_savigp import CoupledSavigp
from invgp.core.coupled.stage import Stage
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import BLOCKS
from invgp.core.training import MiniBatches
from invgp.likelihoods import BlackBox

ARRAY = type(array_api_strict.asarray(0.0))
# Python 3.12 and later give an array's memory to NumPy by `__buffer__`, earlier ones by `__array__`.
TRANSFERS = ("__array__", "__buffer__", "__dlpack__")
WAITING = ("__float__", "__int__", "__bool__", "__index__", "__complex__", *TRANSFERS)


@pytest.fixture
def waits(monkeypatch):
    """Counts of everything that would make a host wait for a GPU."""
    counts = Counter()
    for name in WAITING:
        original = getattr(ARRAY, name, None)
        if original is None:
            continue

        def count_calls(self, *args, _name=name, _original=original, **kwargs):
            counts[_name] += 1
            return _original(self, *args, **kwargs)

        monkeypatch.setattr(ARRAY, name, count_calls)
    return counts


@pytest.fixture
def device():
    return Backend(array_api_strict, array_api_strict.Device("device1"))


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
@pytest.mark.parametrize(("family", "components"), [("full", 1), ("mixture of two full", 2), ("diagonal", 1)])
def test_that_a_bound_and_its_gradient_wait_only_to_see_whether_all_is_finite(family, components, dense, waits, device):
    bound, parameters, points = small_model(family, ("squared exponential",) * Q, dense)(device)
    density = Quadratic(np.random.default_rng(7)).at(device, parameters.likelihood)
    waits.clear()
    bound.bound_state(parameters).evaluate(density, points, BLOCKS)
    # The covariance of each latent; that of each pair of components, twice; the densities of each component.
    assert waits.pop("__bool__") <= Q + (2 if components > 1 else 0) + components
    assert sum(waits.values()) == 0, waits


def test_that_a_mini_batch_reads_few_numbers(waits, device):
    bound, parameters, data, _ = regression(device, dense=False)
    method, read = MiniBatches(batch=20, epochs=2, natural=0.1), []

    def report(_):
        read.append(dict(waits))
        waits.clear()

    waits.clear()
    method.fit(bound, parameters, data, np.random.default_rng(0), report)
    for epoch in read:
        # Two batches: the bound, the length of the natural step and, if that is long, the bound after it; whether two
        # covariances can be factorised, the densities are finite, twice, and the step of the optimiser is finite.
        assert epoch["__float__"] <= 2 * 4
        assert epoch["__bool__"] <= 2 * 7
        assert set(epoch) <= {"__float__", "__bool__"}


def test_that_a_black_box_gets_its_samples_and_gives_its_values_in_one_transfer_each(waits, device):
    bound, parameters, points = small_model("full", ("squared exponential",) * Q, dense=False)(device)
    box = BlackBox(lambda y, f: -0.5 * np.sum((y - f) ** 2, axis=-1), latents=Q, outputs=Q)
    data = Data(box, device.asarray(np.zeros((bound.X.shape[0], Q))))
    waits.clear()
    bound.bound_state(parameters).evaluate(data.log_density(device.asarray(np.zeros(0)), derivatives=False), points)
    # The observations and the samples; the values come back as a NumPy array.
    assert sum(waits[name] for name in TRANSFERS) == 2, waits


@pytest.mark.parametrize("factorised", [False, True])
def test_that_an_iteration_reads_only_the_numbers_that_decide_its_next_step(factorised, waits, device):
    noise = independent_noise(device, np.zeros((6, 2)), 0.3)
    stage = Stage("hermite", sobol(device, 32, 6, 2), 1e-6)
    algorithm = CoupledSavigp(prior_of(device, np.linspace(0, 1, 6), 2), [stage], noise, factorised=factorised)
    state = algorithm.init()
    valid = device.asmask(np.ones((32, 6)))
    for _ in range(2):
        waits.clear()
        samples = algorithm.ask(state)
        assert sum(waits.values()) == 0, f"asking waits for the device: {waits}"
        state, _ = algorithm.tell(state, samples, valid)
        # The two terms of the bound, and the movement of means and spreads.
        assert waits["__float__"] <= 4, waits
        # Whether runs are missing or lack outputs, twice each, and whether a covariance could be factorised.
        assert waits["__bool__"] <= 5 + factorised, waits
        assert not set(waits) - {"__float__", "__bool__"}, waits
    assert to_numpy(samples).shape == (32, 6, 2)
