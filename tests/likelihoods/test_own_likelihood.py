"""A user's own likelihood, as in the documentation; and the broken ones that the check refuses."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from array_api_compat import array_namespace

from invgp.likelihoods import BlackBox
from invgp.likelihoods.testing import check_likelihood

S, N = 4, 5


def exponential_waits(y, f):
    """Waiting times with mean exp(f)."""
    return np.where(np.isnan(y), 0.0, -y * np.exp(-f) - f)[..., 0]


@dataclass(frozen=True)
class Exponential:
    """Waiting times with mean exp(f + offset), for any array library."""

    parameters: object
    latents: int = 1
    outputs: int = 1

    def with_parameters(self, parameters):
        return replace(self, parameters=parameters)

    def log_density(self, y, f):
        xp = array_namespace(f)
        log_mean = f + xp.asarray(self.parameters, dtype=f.dtype, device=f.device)
        terms = -y * xp.exp(-log_mean) - log_mean
        return xp.where(xp.isnan(y), xp.zeros_like(terms), terms)[..., 0]

    def parameter_gradient(self, y, f):
        return None

    def moments(self, f):
        xp = array_namespace(f)
        mean = xp.exp(f + xp.asarray(self.parameters, dtype=f.dtype, device=f.device))
        return mean, mean * mean


@pytest.fixture
def waits(rng):
    return rng.exponential(size=(N, 1)), 0.5 * rng.standard_normal((S, N, 1))


GRID = np.linspace(0.0, 100.0, 4001)


def test_that_a_user_writes_a_function(waits, backend):
    y, f = waits
    check_likelihood(BlackBox(exponential_waits, latents=1, outputs=1), backend.asarray(y), backend.asarray(f))
    check_likelihood(BlackBox(exponential_waits, latents=1, outputs=1), y, f, grid=GRID, rtol=1e-3)


def test_that_a_user_writes_a_class(waits, backend):
    y, f = waits
    check_likelihood(Exponential(backend.asarray([0.3])), backend.asarray(y), backend.asarray(f))
    check_likelihood(Exponential(np.array([0.3])), y, f, grid=GRID, rtol=1e-3)


class NoMissing(Exponential):
    def log_density(self, y, f):
        return (-y * np.exp(-f - self.parameters) - f - self.parameters)[..., 0]


class LooksAtOtherSamples(Exponential):
    def log_density(self, y, f):
        return super().log_density(y, f - f.mean(axis=0, keepdims=True))


class LooksAtOtherSites(Exponential):
    def log_density(self, y, f):
        return super().log_density(y, f - f.mean(axis=1, keepdims=True))


class DependsOnPosition(Exponential):
    def log_density(self, y, f):
        return super().log_density(y, f + np.arange(f.shape[1])[:, None])


class WrongShape(Exponential):
    def log_density(self, y, f):
        return super().log_density(y, f)[..., None]


class WrongType(Exponential):
    def log_density(self, y, f):
        return super().log_density(y, f).astype(np.float32)


class WritesIntoLatents(Exponential):
    def log_density(self, y, f):
        f *= 1.5
        return super().log_density(y, f)


class Infinite(Exponential):
    def log_density(self, y, f):
        return super().log_density(y, f) - np.inf


class WrongGradient(Exponential):
    def parameter_gradient(self, y, f):
        return np.where(np.isnan(y), 0.0, y * np.exp(-f - self.parameters) - 0.99)


class GradientOfMissing(Exponential):
    def parameter_gradient(self, y, f):
        return np.nan_to_num(y) * np.exp(-f - self.parameters) - 1.0


class ChangesItself(Exponential):
    def with_parameters(self, parameters):
        object.__setattr__(self, "parameters", parameters)
        return self


class ForgetsParameters(Exponential):
    def with_parameters(self, parameters):
        return self


class NegativeVariance(Exponential):
    def moments(self, f):
        return f, -f * f


class MeanInsteadOfVariance(Exponential):
    def moments(self, f):
        mean = super().moments(f)[0]
        return mean, mean


class WrongMean(Exponential):
    def moments(self, f):
        mean, variance = super().moments(f)
        return mean + 0.1, variance


class NotNormalised(Exponential):
    def log_density(self, y, f):
        return super().log_density(y, f) + np.where(np.isnan(y), 0.0, 0.01)[:, 0]


class NoMoments:
    latents = outputs = 1
    parameters = np.zeros(0)
    with_parameters = log_density = parameter_gradient = None


class NoCounts(Exponential):
    def __init__(self, parameters):
        super().__init__(parameters, latents=1.0)


class ParametersAreANumber(Exponential):
    def __init__(self, parameters):
        super().__init__(0.3)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (NoMissing, "nothing observed .* must have log density 0"),
        (LooksAtOtherSamples, "must not depend on the other samples"),
        (LooksAtOtherSites, "must not depend on other sites"),
        (DependsOnPosition, "must be permuted with the sites"),
        (WrongShape, r"log_density must have shape \(4, 5\), was \(4, 5, 1\)"),
        (WrongType, "must be of the type of f, float64, was float32"),
        (WritesIntoLatents, "must not write into y or f"),
        (Infinite, "log_density must be finite"),
        (WrongGradient, "parameter 0 differs from finite differences"),
        (GradientOfMissing, "parameter_gradient must be 0 where nothing is observed"),
        (ChangesItself, "must not change this one"),
        (ForgetsParameters, r"the parameters of with_parameters\(p\) must be p"),
        (NegativeVariance, "variance of moments must be 0 or positive"),
        (MeanInsteadOfVariance, "variance of moments differs"),
        (WrongMean, "mean of moments differs"),
        (NotNormalised, "must add up to one"),
        (NoCounts, "latents must be a positive int, was 1.0"),
        (ParametersAreANumber, r"parameters must be an array \(K,\)"),
    ],
)
def test_that_the_check_refuses(broken, sentence, waits):
    with pytest.raises(AssertionError, match=sentence):
        check_likelihood(broken(np.array([0.3])), *waits, grid=GRID, rtol=1e-3)


def test_that_the_check_names_what_is_absent(waits):
    with pytest.raises(AssertionError, match="NoMoments has no moments"):
        check_likelihood(NoMoments(), *waits)


def test_that_the_check_rejects_results_on_another_device(waits):
    xp = pytest.importorskip("array_api_strict")

    class OnTheHost(Exponential):
        def log_density(self, y, f):
            return np.zeros(f.shape[:2])

    y, f = (xp.asarray(values, device=xp.Device("device1")) for values in waits)
    with pytest.raises(AssertionError, match="log_density must be on the device of f"):
        check_likelihood(OnTheHost(xp.asarray([0.3], device=xp.Device("device1"))), y, f)


def test_that_a_likelihood_with_parameters_per_site_passes_if_it_declares_them(waits):
    check_likelihood(DependsOnPosition(np.array([0.3])), *waits, site_specific=True)


@pytest.mark.parametrize(
    ("y", "f", "sentence"),
    [
        (np.zeros((1, 1)), np.zeros((2, 1, 1)), "needs f of shape"),
        (np.zeros((3, 2)), np.ones((2, 3, 1)), "needs y of shape"),
        (np.full((3, 1), np.nan), np.ones((2, 3, 1)), "without missing values"),
        (np.zeros((3, 1)), np.ones((2, 3, 1)), "samples and sites that differ"),
    ],
)
def test_that_the_check_states_which_data_it_needs(y, f, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_likelihood(Exponential(np.array([0.3])), y, f)
