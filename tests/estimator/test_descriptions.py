"""Files recognise functions, objects and classes of likelihoods by what they compute."""

import functools
import types

import numpy as np
import pytest
import scipy.interpolate
import scipy.stats

from helpers.curve import POSTERIOR_ONLY, X
from invgp.estimator import SAVIGP
from invgp.estimator.descriptions import describe_value
from invgp.likelihoods import BlackBox, Gaussian

SCALES = [0.3, {"inner": 1.0}]


def square(residual):
    return residual**2


def twice(residual):
    return -residual if residual > 9 else recursive(residual)


def recursive(residual):
    return twice(2.0 * residual)


class Density:
    """A log density as a callable object and as a method."""

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, y, f):
        return -0.5 * ((y[:, 0] - f[..., 0]) / self.scale) ** 2

    def method(self, y, f):
        return self(y, f)


class Slotted:
    __slots__ = ("scale",)

    def __init__(self, scale):
        self.scale = scale


def density_with(helper):
    """A log density that uses global values and a helper."""
    used = {"__name__": "helpers", "helper": helper, "SCALES": SCALES}
    exec("def density(y, f):\n    return -sum(helper((y - f)[..., 0] / one) for one in SCALES[:1])", used)
    return used["density"]


class Other(Density):
    def __call__(self, y, f):
        return -np.abs(y[:, 0] - f[..., 0]) / self.scale


def own_likelihood(width, power=2.0, name="Own"):
    """A class of likelihoods with a constant and a method of its own."""

    def log_density(self, y, f):
        return np.where(np.isnan(y), 0.0, -(np.abs((y - f) / self.WIDTH) ** power))[..., 0]

    members = {
        "latents": 1,
        "outputs": 1,
        "WIDTH": width,
        "parameters": np.zeros(0),
        "with_parameters": lambda self, parameters: self,
        "log_density": log_density,
        "parameter_gradient": lambda self, y, f: None,
        "moments": lambda self, f: (f, f**2),
    }
    return type(name, (), members)()


Renamed = types.new_class("Density", (Other,))
CASES = {
    "object of a method": (Density(0.3).method, Density(0.5).method, r"function \(object\)\.scale must be 0\.3"),
    "attribute of an object": (Density(0.3), Density(0.5), r"function\.scale must be 0\.3, as in .*, was 0\.5"),
    "code of an object": (Density(0.3), Renamed(0.3), r"function\.__call__ \(code\) must be SHA-256"),
    "code of the class of a method": (
        Density(0.3).method,
        Renamed(0.3).method,
        r"function \(object\)\.__call__ \(code\)",
    ),
    "helper": (density_with(square), density_with(np.abs), r"function \(global helper\) must be the function square"),
    "slots": (
        functools.partial(lambda s, y, f: -((y - f)[..., 0] ** 2) / s.scale, Slotted(0.3)),
        functools.partial(lambda s, y, f: -((y - f)[..., 0] ** 2) / s.scale, Slotted(0.5)),
        r"function\.args.*scale must be 0\.3",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_that_a_file_takes_only_a_function_that_computes_the_same(name, noisy_data, tmp_path):
    saved, other, message = CASES[name]
    model = SAVIGP(BlackBox(saved, 1, 1), inducing=5, method=POSTERIOR_ONLY).fit(X, noisy_data)
    model.save(tmp_path / "model.npz")
    SAVIGP.load(tmp_path / "model.npz", BlackBox(saved, 1, 1))
    with pytest.raises(ValueError, match=rf"likelihood\.{message}"):
        SAVIGP.load(tmp_path / "model.npz", BlackBox(other, 1, 1))


def test_that_a_file_takes_only_the_class_of_likelihoods_that_was_saved(noisy_data, tmp_path):
    SAVIGP(own_likelihood(0.3), inducing=5, method=POSTERIOR_ONLY).fit(X, noisy_data).save(tmp_path / "model.npz")
    SAVIGP.load(tmp_path / "model.npz", own_likelihood(0.3))
    with pytest.raises(ValueError, match=r"likelihood \(constant WIDTH\) must be 0\.3, as in .*, was 9\.0"):
        SAVIGP.load(tmp_path / "model.npz", own_likelihood(9.0))
    with pytest.raises(ValueError, match=r"likelihood\.log_density \(enclosed power\) must be 2\.0"):
        SAVIGP.load(tmp_path / "model.npz", own_likelihood(0.3, power=1.0))
    SAVIGP.load(tmp_path / "model.npz", own_likelihood(0.3, power=1.0), other_functions=True)


def test_that_a_checkpoint_belongs_to_the_code_of_its_likelihood(noisy_data, tmp_path):
    settings = {"inducing": 5, "method": POSTERIOR_ONLY, "checkpoint": tmp_path / "fit.npz"}
    SAVIGP(own_likelihood(0.3), **settings).fit(X, noisy_data)
    SAVIGP(own_likelihood(0.3), **settings).fit(X, noisy_data)
    with pytest.raises(ValueError, match=r"likelihood \(constant WIDTH\) must be 0\.3 to continue from the checkpoint"):
        SAVIGP(own_likelihood(9.0), **settings).fit(X, noisy_data)


def test_that_global_values_and_helpers_are_described(monkeypatch):
    before = describe_value("f", density_with(square))
    assert before["f (global SCALES)[0]"] == "0.3"
    assert before["f (global SCALES)[1]['inner']"] == "1.0"
    assert before["f (global helper) (code)"].startswith("SHA-256")
    assert before == describe_value("f", density_with(square))
    monkeypatch.setitem(SCALES[1], "inner", 2.0)
    after = describe_value("f", density_with(square))
    assert {name for name in before if before[name] != after[name]} == {"f (global SCALES)[1]['inner']"}


def test_that_what_refers_to_itself_has_a_description():
    endless = Density(0.3)
    endless.itself = endless
    assert describe_value("v", endless)["v.itself"] == "a Density"
    assert "v (global recursive) (code)" in describe_value("v", twice)


def test_that_code_of_packages_and_their_caches_are_left_out():
    frozen = scipy.stats.norm(0.0, 2.0)
    before = describe_value("f", frozen.logpdf)
    assert before["f (object).args"] == "[0.0, 2.0]"
    frozen.entropy(), frozen.ppf(0.3), scipy.stats.norm.vecentropy()  # which fills caches
    assert describe_value("f", frozen.logpdf) == before
    assert not any(name.endswith("(code)") for name in before | describe_value("g", Gaussian(0.3)))
    first, second = (scipy.interpolate.CubicSpline([0.0, 1.0, 2.0], [1.0, 2.0, z]) for z in (3.0, 4.0))
    assert describe_value("s", first) != describe_value("s", second)
