"""Conventions of scikit-learn."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.utils.estimator_checks import check_estimator

from helpers.curve import NEW, POSTERIOR_ONLY, TRUTH, X
from invgp.core.stochastic_optimisers import Adam
from invgp.core.training import Blocks, MiniBatches
from invgp.estimator import SAVIGP
from invgp.kernels import Linear, Matern52, White
from invgp.likelihoods import (
    Beta,
    Gaussian,
    HeteroscedasticGaussian,
    Logistic,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Softmax,
    StudentT,
)

EXCEPTIONS = {
    "check_sample_weight_equivalence_on_dense_data": "repeated sites change initial length-scales and inducing inputs",
}
NAMES = np.asarray(["clay", "sand", "silt"])


@pytest.mark.parametrize("model", [SAVIGP(Gaussian(0.5)), SAVIGP(Logistic(), method=POSTERIOR_ONLY)])
def test_that_the_checks_of_scikit_learn_pass(model):
    assert failed_checks(model) == set(EXCEPTIONS)


def failed_checks(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(model, on_fail=None, on_skip=None)
    assert len(results) > 50
    return {one["check_name"] for one in results if one["status"] == "failed"}


def documented_checks(likelihood):
    """Read the checks that fail for a likelihood from the table of the documentation."""
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if "`check_" in line and line.startswith("| ")]
    found = [row[1] for row in rows if row[0] == "| all" or f"`{likelihood}`" in row[0]]
    assert len(found) == 2
    return set(re.findall(r"`(check_\w+)`", " ".join(found)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "likelihood", "method"),
    [
        ("Poisson", Poisson(), POSTERIOR_ONLY),
        ("NegativeBinomial", NegativeBinomial(), POSTERIOR_ONLY),
        ("Softmax(3)", Softmax(3), POSTERIOR_ONLY),
        ("Ordinal(3)", Ordinal(3), None),
    ],
)
def test_that_the_documentation_names_the_checks_that_fail(name, likelihood, method):
    assert failed_checks(SAVIGP(likelihood, method=method)) == documented_checks(name)


class OfAnyNumbers(SAVIGP):
    """A model whose observations are converted to those that its likelihood can take."""

    def _outputs(self, y):
        try:
            numbers = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError):
            return super()._outputs(y)
        of_kind = 0.5 + 0.4 * np.tanh(numbers) if isinstance(self.likelihood, Beta) else np.abs(np.round(numbers))
        return super()._outputs(np.where(np.isfinite(numbers), of_kind, numbers))


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [Poisson(), Beta()])
def test_that_checks_fail_only_because_of_their_data(likelihood):
    assert failed_checks(OfAnyNumbers(likelihood, method=POSTERIOR_ONLY)) == set(EXCEPTIONS)


def test_that_a_column_of_observations_is_reported(noisy_data):
    settings = {"length_scale": 1.0, "inducing": 6, "method": POSTERIOR_ONLY}
    for likelihood, y in ((Gaussian(0.3), noisy_data), (Softmax(2), noisy_data > 0)):
        with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
            model = SAVIGP(likelihood, **settings).fit(X, y[:, None])
        np.testing.assert_array_equal(model.predict(X), SAVIGP(likelihood, **settings).fit(X, y).predict(X))


def test_that_tags_follow_the_likelihood():
    assert is_regressor(SAVIGP(Gaussian()))
    assert is_classifier(SAVIGP(Logistic()))
    assert is_classifier(SAVIGP(Softmax(3)))
    assert not hasattr(SAVIGP(Gaussian()), "predict_proba")


def test_that_columns_must_have_the_same_names_and_order(noisy_data):
    table = pd.DataFrame({"easting": X[:, 0], "depth": X[:, 0] ** 2})
    model = SAVIGP(Gaussian(0.3), inducing=6, method=POSTERIOR_ONLY).fit(table, noisy_data)
    assert model.feature_names_in_.tolist() == ["easting", "depth"]
    assert model.predict(table).shape == (60,)
    with pytest.raises(ValueError, match="order"):
        model.predict(table[["depth", "easting"]])
    with pytest.raises(ValueError, match="X has 1 features, but SAVIGP is expecting 2 features"):
        model.predict(X)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("likelihood", [Gaussian(0.3), Logistic(), Ordinal(2)])
def test_that_a_table_of_the_same_columns_gives_no_warning(likelihood, noisy_data):
    table, y = pd.DataFrame({"easting": X[:, 0]}), noisy_data
    if not isinstance(likelihood, Gaussian):
        y = np.where(y > 0, 1, 0)
    model = SAVIGP(likelihood, length_scale=1.0, inducing=8, method=POSTERIOR_ONLY).fit(table, y)
    assert model.score(table, y) == pytest.approx(model.log_predictive_density(table, y).mean())
    assert model.predict(table).shape == model.predict_latent(table)[0][:, 0].shape == (60,)
    assert np.isfinite(model.bound(table, y))
    if hasattr(model, "predict_proba"):
        assert model.predict_proba(table).shape == (60, 2)


@pytest.mark.parametrize("likelihood", [Logistic(), Softmax(3)])
def test_that_labels_may_be_words(likelihood, tmp_path):
    count = 2 if isinstance(likelihood, Logistic) else 3
    numbers = np.digitize(TRUTH, [0.0] if count == 2 else [-0.4, 0.4])
    model = SAVIGP(likelihood, length_scale=1.0, inducing=10, method=POSTERIOR_ONLY).fit(X, NAMES[numbers])
    assert model.classes_.tolist() == NAMES[:count].tolist()
    predicted, shares = model.predict(X), model.predict_proba(X)
    assert set(predicted) <= set(NAMES[:count])
    assert np.mean(predicted == NAMES[numbers]) > 0.8
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    np.testing.assert_array_equal(predicted, model.classes_[shares.argmax(axis=1)])
    assert model.score(X, NAMES[numbers]) == pytest.approx(-log_loss(numbers, shares), abs=2e-3)
    same = SAVIGP(likelihood, length_scale=1.0, inducing=10, method=POSTERIOR_ONLY).fit(X, numbers)
    np.testing.assert_array_equal(same.predict_proba(NEW), model.predict_proba(NEW))
    model.save(tmp_path / "model.npz")
    again = SAVIGP.load(tmp_path / "model.npz", likelihood)
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    with pytest.raises(ValueError, match=r"y must be labels among \['clay', 'sand'.*, had .*gravel"):
        model.score(X[:1], ["gravel"])
    with pytest.raises(ValueError, match=r"labels of \d classes for .*, had 1 class: \['clay'\]"):
        model.fit(X, np.full(60, "clay"))


def test_that_ordered_classes_keep_their_order(tmp_path):
    names = np.asarray(["small", "medium", "large"])
    numbers = np.digitize(TRUTH, [-0.4, 0.4])
    labels = pd.Series(pd.Categorical(names[numbers], categories=names, ordered=True))
    settings = {"length_scale": 1.0, "inducing": 10}
    model = SAVIGP(Ordinal(3), **settings).fit(X, labels)
    assert model.classes_.tolist() == names.tolist()
    assert np.mean(model.predict(X) == names[numbers]) > 0.9
    shares = model.predict_proba(X)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    np.testing.assert_allclose(model.score(X, labels), np.log(shares[np.arange(60), numbers]).mean(), atol=1e-4)
    grades = SAVIGP(Ordinal(3), **settings).fit(X, 5 * numbers - 2)
    assert grades.classes_.tolist() == [-2, 3, 8]
    np.testing.assert_array_equal(grades.predict_proba(NEW), model.predict_proba(NEW))
    model.save(tmp_path / "model.npz")
    again = SAVIGP.load(tmp_path / "model.npz", Ordinal(3))
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    with pytest.raises(ValueError, match="y must be numbers or an ordered categorical column of pandas for Ordinal"):
        model.fit(X, names[numbers])


def test_that_settings_of_kernel_and_likelihood_can_be_searched(noisy_data):
    model = SAVIGP(Gaussian(0.3, learn=False), kernel=Matern52(1.0, 1.0), inducing=6, method=POSTERIOR_ONLY)
    grid = {"likelihood__std": [0.3, 30.0], "kernel__length_scale": [1.0, 0.001]}
    search = GridSearchCV(model, grid, cv=3).fit(X, noisy_data)
    assert search.best_params_ == {"likelihood__std": 0.3, "kernel__length_scale": 1.0}
    assert repr(clone(model).set_params(likelihood__std=0.5).likelihood) == "Gaussian(std=0.5, learn=False)"
    assert SAVIGP(Poisson(0.5)).set_params(likelihood__learn=False).likelihood.parameters.shape == (0,)
    with pytest.raises(ValueError, match=r"likelihood__scale must be a setting of Gaussian\(.*\): std, outputs, learn"):
        model.set_params(likelihood__scale=1.0)
    with pytest.raises(ValueError, match="std must be positive, was -1"):
        model.set_params(likelihood__std=-1.0)


def test_that_settings_of_composed_kernels_can_be_searched(noisy_data):
    kernel = Matern52(1.0, 1.0) + White(0.1) * Linear().on(0)
    model = SAVIGP(Gaussian(0.3, learn=False), kernel=kernel, inducing=6, method=POSTERIOR_ONLY)
    names = {name for name in model.get_params() if name.startswith("kernel__")}
    assert {"kernel__k1__length_scale", "kernel__k2__k1__variance", "kernel__k2__k2__kernel__centre"} <= names
    assert "kernel__parts" not in names
    search = GridSearchCV(model, {"kernel__k1__length_scale": [1.0, 0.001]}, cv=3).fit(X, noisy_data)
    assert search.best_params_ == {"kernel__k1__length_scale": 1.0}
    changed = clone(model).set_params(
        kernel__k1=Matern52(3.0), kernel__k1__length_scale=2.0, kernel__k2__k2__kernel__centre=1.0
    )
    assert repr(changed.kernel) == repr(Matern52(3.0, 2.0) + White(0.1) * Linear(centre=1.0).on(0))
    assert repr(model.kernel) == repr(kernel)
    for name, value in model.get_params().items():
        assert repr(clone(model).set_params(**{name: value})) == repr(model)
    with pytest.raises(ValueError, match=r"kernel__k3 must be a setting of .*: k1, k2$"):
        model.set_params(kernel__k3=White())
    with pytest.raises(ValueError, match=r"kernel__k2__k1__length_scale must be a setting of White\(.*\): variance"):
        model.set_params(kernel__k2__k1__length_scale=1.0)


def test_that_settings_of_several_kernels_and_of_named_kernels_can_be_searched(noisy_data):
    several = SAVIGP(HeteroscedasticGaussian(), kernel=(Matern52() + White(0.1), "matern 3/2"), inducing=6)
    assert "kernel__k1__k2__variance" in several.get_params()
    several.set_params(kernel__k1__k2__variance=0.5, kernel__k2=Matern52())
    assert repr(several.kernel) == repr((Matern52() + White(0.5), Matern52()))
    named = SAVIGP(Gaussian(0.3, learn=False), inducing=6, method=POSTERIOR_ONLY)
    search = GridSearchCV(named, {"kernel__length_scale": [1.0, 0.001]}, cv=3).fit(X, noisy_data)
    assert search.best_estimator_.length_scale == 1.0
    assert named.set_params(kernel__variance=2.0).get_params()["kernel__variance"] == named.variance == 2.0
    with pytest.raises(
        ValueError, match="kernel__period must be a setting of the kernel 'squared exponential': length_scale"
    ):
        named.set_params(kernel__period=1.0)


def test_that_settings_of_an_optimiser_can_be_searched():
    model = SAVIGP(Gaussian(0.3), method=MiniBatches(optimiser=Adam(rate=0.1)))
    assert model.set_params(method__optimiser__rate=0.02).method.optimiser == Adam(rate=0.02)


def test_that_missing_labels_are_left_out():
    labels = np.where(TRUTH > 0, "high", "low").astype(object)
    labels[::3] = None
    kept = np.asarray([label is not None for label in labels])
    with_gaps, without = (
        SAVIGP(Logistic(), length_scale=1.0, inducing=NEW, method=POSTERIOR_ONLY).fit(X[some], labels[some])
        for some in (slice(None), kept)
    )
    np.testing.assert_allclose(with_gaps.predict_proba(NEW), without.predict_proba(NEW), atol=1e-3)


@pytest.mark.parametrize("method", [POSTERIOR_ONLY, MiniBatches(("posterior",), batch=200, epochs=40)])
def test_that_a_weight_of_two_is_the_same_observation_twice(method, noisy_data):
    weights = np.where(np.arange(60) % 2, 2.0, 0.5)
    settings = {"length_scale": 1.0, "inducing": NEW, "method": method}
    weighted = SAVIGP(StudentT(0.3, learn=False), **settings).fit(X, noisy_data, weights)
    times = (2 * weights).astype(int)
    repeated = SAVIGP(StudentT(0.3, learn=False), **settings).fit(
        np.repeat(X, times, axis=0), np.repeat(noisy_data, times), np.full(times.sum(), 0.5)
    )
    np.testing.assert_allclose(weighted.predict(NEW), repeated.predict(NEW), atol=0.02)
    if method is POSTERIOR_ONLY:
        assert weighted.bound_ == pytest.approx(repeated.bound_, abs=0.05)
    plain = SAVIGP(StudentT(0.3, learn=False), **settings).fit(X, noisy_data)
    assert np.abs(plain.predict(NEW) - weighted.predict(NEW)).max() > 0.02
    assert plain.score(X, noisy_data, np.ones(60)) == pytest.approx(plain.score(X, noisy_data))
    only_first = np.eye(60)[0]
    assert plain.score(X, noisy_data, only_first) == pytest.approx(plain.log_predictive_density(X, noisy_data)[0])
    with pytest.raises(ValueError, match="sample_weight must be a number of at least 0 for each of 60 sites"):
        plain.fit(X, noisy_data, np.full(60, -1.0))
    with pytest.raises(ValueError, match=r"sample_weight must be .* each of 60 sites, had shape \(1,\)"):
        plain.fit(X, noisy_data, [1.0])


def test_that_settings_of_the_method_can_be_searched(noisy_data):
    model = SAVIGP(Gaussian(0.5), inducing=5, method=MiniBatches(("posterior",), batch=20, epochs=2))
    search = GridSearchCV(model, {"method__epochs": [1, 30], "inducing": [5]}, cv=3).fit(X, noisy_data)
    assert search.best_params_ == {"method__epochs": 30, "inducing": 5}
    assert model.method.epochs == 2
    assert SAVIGP(Gaussian()).set_params(method__rounds=3).method == Blocks(rounds=3)
    with pytest.raises(ValueError, match="method__steps must be a setting of MiniBatches"):
        model.set_params(method__steps=3)


def test_that_classes_are_cross_validated():
    labels = np.where(TRUTH > 0, "high", "low")
    model = SAVIGP(Logistic(), length_scale=1.0, inducing=8, method=POSTERIOR_ONLY)
    shares = cross_val_predict(
        model, X, labels, cv=StratifiedKFold(3, shuffle=True, random_state=0), method="predict_proba"
    )
    assert shares.shape == (60, 2)


def test_that_random_states_are_those_of_scikit_learn(noisy_data):
    settings = {"inducing": 5, "placement": "subset", "method": POSTERIOR_ONLY}

    def fit_model(random_state):
        return SAVIGP(Gaussian(0.3), random_state=random_state, **settings).fit(X, noisy_data).inducing_inputs_.tolist()

    assert fit_model(1) == fit_model(1) != fit_model(2)
    assert fit_model(np.random.RandomState(1)) == fit_model(np.random.RandomState(1))
    assert fit_model(None) != fit_model(None)


def test_that_progress_is_printed_and_settings_are_shown(noisy_data, capsys):
    SAVIGP(Gaussian(0.3), inducing=5, method=Blocks(rounds=30), verbose=True).fit(X, noisy_data)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("round 1: bound -")
    assert repr(SAVIGP(StudentT(0.3), inducing=5)) == "SAVIGP(inducing=5, likelihood=StudentT(scale=0.3, dof=4))"
    assert repr(Gaussian([0.1, 0.2], learn=False)) == "Gaussian(std=[0.1, 0.2], learn=False)"
    assert repr(Blocks(rounds=3)) == "Blocks(rounds=3)"
    assert repr(MiniBatches(batch=10)) == "MiniBatches(batch=10)"
