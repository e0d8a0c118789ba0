import numpy as np
import pytest

from invgp import measures

Y = np.asarray([1.0, 2.0, 4.0, 5.0])


def test_that_predicting_the_mean_has_a_standardised_squared_error_of_one():
    assert measures.standardised_squared_error(Y, np.full(4, Y.mean())) == pytest.approx(1.0)
    assert measures.standardised_squared_error(Y, Y) == 0.0


def test_that_the_root_mean_squared_error_is_in_the_unit_of_the_observations():
    assert measures.root_mean_squared_error(Y, Y + 3.0) == pytest.approx(3.0)


def test_that_log_densities_are_averaged_and_turned_round():
    assert measures.negative_log_predictive_density(np.log([0.5, 0.25])) == pytest.approx(1.5 * np.log(2))


def test_that_errors_are_counted_for_class_numbers_and_for_one_hot_rows():
    probabilities = np.asarray([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    labels = np.asarray([0, 1, 1, 1])
    assert measures.error_rate(labels, probabilities) == 0.25
    assert measures.error_rate(np.eye(2)[labels], probabilities) == 0.25
