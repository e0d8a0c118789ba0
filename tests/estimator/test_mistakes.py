"""Mistakes in the use of the estimator are sentences."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from helpers.curve import NEW, POSTERIOR_ONLY, X
from invgp.core.training import Blocks, MiniBatches
from invgp.estimator import SAVIGP
from invgp.likelihoods import BlackBox, Gaussian, Poisson, StudentT


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "periodic"}, "kernel must be one of squared exponential"),
        ({"posterior": "cubic"}, "posterior must be 'full' or 'diagonal', was 'cubic'"),
        ({"inducing": 1000}, "inducing must be between 1 and the number of sites, 60, was 1000"),
        ({"inducing": 5, "placement": "random"}, "placement must be"),
        ({"inducing": 5.5}, "inducing must be None, a number, or inputs of shape .*, had shape"),
        ({"inducing": np.ones((3, 2))}, r"inducing must be .* \(M, 1\) or \(1, M, 1\), had shape \(3, 2\)"),
        ({"inducing": "many"}, "inducing must be .*, was 'many'"),
        ({"inducing": 1, "placement": "grid"}, r"inducing must be at least 2 for a grid \(D = 1\), was 1"),
        ({"length_scale": -1.0}, "length_scale must be positive, was -1"),
        ({"length_scale": [1.0, 2.0]}, r"length_scale must be a number, .*, had shape \(2,\)"),
        (
            {"length_scale": [1.0, 2.0], "ard": False},
            r"length_scale must be a number, or of shape \(1, 1\), without ard",
        ),
        ({"ard": "yes"}, "ard must be True or False, was 'yes'"),
        ({"variance": 0.0}, "variance must be positive, was 0"),
        ({"variance": np.nan}, "variance must be .*, had numbers that are not finite"),
        ({"prior_mean": [1.0, 2.0]}, r"prior_mean must be .*, had shape \(2,\)"),
        ({"components": 0}, "components must be a whole number of at least 1, was 0"),
        ({"samples": 3}, r"samples must be a whole number of at least 6 \(Q = 1\), was 3"),
        ({"method": MiniBatches(samples=3)}, r"samples must be a whole number of at least 6 \(Q = 1\), was 3"),
        ({"method": "adam"}, "method must be Blocks or MiniBatches, was 'adam'"),
        ({"dtype": "float16"}, "dtype must be 'float64' or 'float32', was 'float16'"),
        ({"device": "gpu"}, "device must be 'cpu' or 'cuda' or 'auto', was 'gpu'"),
        ({"kernel": 3}, "kernel must be one of squared exponential.*, was 3"),
        ({"length_scale": np.inf}, r"length_scale must be .*, had numbers that are not finite .*, such as inf"),
        ({"likelihood": Gaussian}, r"likelihood must be .*, was the class Gaussian: write Gaussian\(\.\.\.\)"),
        ({"method": Blocks}, r"method must be Blocks or MiniBatches, was the class Blocks: write Blocks\(\.\.\.\)"),
        (
            {"initial_mean": [1.0]},
            r"initial_mean must be one number for each of 60 inducing inputs, .*, had shape \(1,\)",
        ),
        ({"checkpoint": 3}, "checkpoint must be the name of a file, was 3"),
        ({"checkpoint": "."}, r"checkpoint must be the name of a file, was the folder '\.'"),
        ({"random_state": -1}, "random_state must be a whole number of at least 0, was -1"),
        (
            {"likelihood": Poisson(np.zeros(60))},
            r"y must be numbers of shape \(N, 60\), had shape \(60, 1\): a likelihood takes numbers for each site in",
        ),
        ({"likelihood": "gaussian"}, "likelihood must be one of invgp.likelihoods, .*, was 'gaussian'"),
    ],
)
def test_that_wrong_settings_are_reported(settings, message, noisy_data):
    with pytest.raises(ValueError, match=message):
        SAVIGP(**{"likelihood": Gaussian(0.3), **settings}).fit(X, noisy_data)


def test_that_wrong_shapes_are_reported(noisy_data):
    for wrong, message in {
        "ravelled": r"X must be finite numbers .*, had shape \(60,\)\. Reshape your data: X\[:, None\] has one",
        "scalar": r"X must be .*, had shape \(\)",
        "empty": r"X must be .*, had 0 feature\(s\) \(shape=\(60, 0\)\)",
        "complex": "X must be .*, was an array of complex128",
    }.items():
        values = {"ravelled": X[:, 0], "scalar": 1.0, "empty": X[:, :0], "complex": X + 1j}[wrong]
        with pytest.raises(ValueError, match=message):
            SAVIGP(Gaussian(0.3)).fit(values, noisy_data)
    for wrong in (["a"] * 60, [[1.0], [1.0, 2.0]]):
        with pytest.raises(ValueError, match=r"y must be numbers of shape .*, was "):
            SAVIGP(Gaussian(0.3)).fit(X, wrong)
    with pytest.raises(ValueError, match=r"y must be numbers of shape \(N, 1\) or \(N,\), had shape \(60, 2\)"):
        SAVIGP(Gaussian(0.3, outputs=1)).fit(X, np.ones((60, 2)))
    with pytest.raises(ValueError, match="a row for each site, had 60 and 59"):
        SAVIGP(Gaussian(0.3)).fit(X, noisy_data[1:])
    with pytest.raises(ValueError, match="y must be finite, or NaN"):
        SAVIGP(Gaussian(0.3)).fit(X, np.full(60, np.inf))
    with pytest.raises(ValueError, match="y must have at least one observation, was all NaN"):
        SAVIGP(Gaussian(0.3)).fit(X, np.full(60, np.nan))
    with pytest.raises(ValueError, match=r"X must be finite numbers of shape .*, was a DataFrame that holds others"):
        SAVIGP(Gaussian(0.3)).fit(pd.DataFrame({"easting": X[:, 0], "rock": "shale"}), noisy_data)
    with pytest.raises(ValueError, match="report must be a function, was 3"):
        SAVIGP(Gaussian(0.3)).fit(X, noisy_data, report=3)
    model = SAVIGP(Gaussian(0.3), inducing=5, method=POSTERIOR_ONLY).fit(X, noisy_data)
    with pytest.raises(ValueError, match=r"X has 2 features, but SAVIGP is expecting 1 features as input"):
        model.predict(np.ones((3, 2)))
    with pytest.raises(ValueError, match="a row for each site, had 3 and 60"):
        model.score(X[:3], noisy_data)
    with pytest.raises(ValueError, match="not fitted yet"):
        SAVIGP(Gaussian(0.3)).predict(X)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((NEW, -1, np.random.default_rng(0)), "draws must be a whole number of at least 1, was -1"),
        ((NEW, 0, np.random.default_rng(0)), "draws must be a whole number of at least 1, was 0"),
        ((NEW, 1.5, np.random.default_rng(0)), r"draws must be a whole number of at least 1, was 1\.5"),
        ((NEW, 2, 0), r"rng must be a numpy\.random\.Generator, was 0"),
    ],
)
def test_that_wrong_draws_are_reported(arguments, message, regression):
    with pytest.raises(ValueError, match=message):
        regression.sample_latent(*arguments)


def test_that_a_black_box_that_gives_no_numbers_is_refused(noisy_data):
    def log_density(y, f):
        return np.where(y[:, 0] > 0, np.nan, -0.5 * (y - f)[..., 0] ** 2)

    box = BlackBox(log_density, latents=1, outputs=1)
    for method in (Blocks(), MiniBatches(batch=20)):
        with pytest.raises(
            ValueError, match=r"log_density of BlackBox\(log_density\) must be finite, was not for \d+ of"
        ):
            SAVIGP(box, inducing=5, method=method).fit(X, noisy_data)


@pytest.mark.parametrize("method", [Blocks(), MiniBatches(batch=20)])
@pytest.mark.parametrize("changed", ["y", "f"])
def test_that_a_likelihood_cannot_change_its_arguments(changed, method, noisy_data):
    class Careless:
        latents, outputs, parameters = 1, 1, np.zeros(0)

        def with_parameters(self, parameters):
            return self

        def log_density(self, y, f):
            (y if changed == "y" else f)[...] *= 0.5
            return -0.5 * ((y - f)[..., 0]) ** 2

        def parameter_gradient(self, y, f):
            return None

        def moments(self, f):
            return None

    kept = noisy_data.copy()
    with pytest.raises(ValueError, match="Careless must not change y or f, but work on a copy: "):
        SAVIGP(Careless(), inducing=5, method=method).fit(X, noisy_data)
    np.testing.assert_array_equal(noisy_data, kept)


def test_that_a_log_density_of_the_wrong_shape_is_reported(noisy_data):
    class Own(Gaussian):
        def log_density(self, y, f):
            return super().log_density(y, f).sum()

    with pytest.raises(ValueError, match=r"log_density of Own must have shape \(128, 60\) for f of .*, had \(\)"):
        SAVIGP(Own(0.3), inducing=5).fit(X, noisy_data)


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (None, "likelihood must be one of invgp.likelihoods, .*, was None"),
        (Gaussian(0.3), "likelihood must be StudentT, as in '.*', was Gaussian"),
        (StudentT(0.3, dof=3.0), r"likelihood\.dof must be 4\.0, as in '.*', was 3\.0"),
        (StudentT(0.3, learn=False), "likelihood must have 1 parameters to learn, as in .*, had 0"),
    ],
)
def test_that_a_file_takes_only_its_own_likelihood(likelihood, message, noisy_data, tmp_path):
    SAVIGP(StudentT(0.3), inducing=5, method=POSTERIOR_ONLY).fit(X, noisy_data).save(tmp_path / "model.npz")
    with pytest.raises(ValueError, match=message):
        SAVIGP.load(tmp_path / "model.npz", likelihood)


def _black_box(power, name="log_density"):
    def log_density(y, f):
        """A documentation string, which does not matter."""
        return -0.5 * np.abs(y - f)[..., 0] ** power

    def other_density(y, f):
        return -0.25 * np.abs(y - f)[..., 0] ** power

    return BlackBox({"log_density": log_density, "other": other_density}[name], 1, 1)


@pytest.mark.parametrize(
    ("power", "name", "message"),
    [
        (2.0, "other", r"likelihood\.function must be the function .*log_density, as in .*, was the function .*other"),
        (
            3.0,
            "log_density",
            r"likelihood\.function \(enclosed power\) must be 2\.0, as in .*, was 3\.0: .*other_functions=True",
        ),
    ],
)
def test_that_a_file_takes_only_the_function_that_was_saved(power, name, message, noisy_data, tmp_path):
    model = SAVIGP(_black_box(2.0), inducing=5, method=POSTERIOR_ONLY).fit(X, noisy_data)
    model.save(tmp_path / "model.npz")
    again = SAVIGP.load(tmp_path / "model.npz", _black_box(2.0))
    np.testing.assert_array_equal(again.predict_latent(NEW)[0], model.predict_latent(NEW)[0])
    with pytest.raises(ValueError, match=message):
        SAVIGP.load(tmp_path / "model.npz", _black_box(power, name))
    reported = SAVIGP.load(tmp_path / "model.npz", _black_box(power, name), other_functions=True)
    np.testing.assert_array_equal(reported.predict_latent(NEW)[0], model.predict_latent(NEW)[0])


POWER = 2.0


def _global_power(y, f):
    return -0.5 * np.abs(y - f)[..., 0] ** POWER


def _given_power(power, y, f):
    return -0.5 * np.abs(y - f)[..., 0] ** power


def test_that_arguments_and_global_numbers_of_a_function_are_compared(noisy_data, tmp_path, monkeypatch):
    settings = {"inducing": 5, "method": POSTERIOR_ONLY}
    SAVIGP(BlackBox(partial(_given_power, 2.0), 1, 1), **settings).fit(X, noisy_data).save(tmp_path / "partial.npz")
    SAVIGP.load(tmp_path / "partial.npz", BlackBox(partial(_given_power, 2.0), 1, 1))
    with pytest.raises(ValueError, match=r"likelihood\.function\.args must be \[2\.0\], as in .*, was \[3\.0\]"):
        SAVIGP.load(tmp_path / "partial.npz", BlackBox(partial(_given_power, 3.0), 1, 1))
    box = BlackBox(_global_power, 1, 1)
    SAVIGP(box, **settings).fit(X, noisy_data).save(tmp_path / "global.npz")
    SAVIGP.load(tmp_path / "global.npz", box)
    monkeypatch.setitem(globals(), "POWER", 3.0)
    with pytest.raises(ValueError, match=r"likelihood\.function \(global POWER\) must be 2\.0, as in .*, was 3\.0"):
        SAVIGP.load(tmp_path / "global.npz", box)


def test_that_lambdas_are_recognised_by_their_code(noisy_data, tmp_path):
    first, other = (
        BlackBox(lambda y, f: -((y - f)[..., 0] ** 2), 1, 1),
        BlackBox(lambda y, f: -((f - y)[..., 0] ** 2), 1, 1),
    )
    SAVIGP(first, inducing=5, method=POSTERIOR_ONLY).fit(X, noisy_data).save(tmp_path / "model.npz")
    SAVIGP.load(tmp_path / "model.npz", first)
    with pytest.raises(ValueError, match=r"function \(code\) must be"):
        SAVIGP.load(tmp_path / "model.npz", other)
