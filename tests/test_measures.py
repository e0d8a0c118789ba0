import numpy as np
import pytest

from invgp import measures

Y = np.asarray([1.0, 2.0, 4.0, 5.0])


def test_that_predicting_the_mean_has_a_standardised_squared_error_of_one():
    assert measures.standardised_squared_error(Y, np.full(4, Y.mean())) == pytest.approx(1.0)
    assert measures.standardised_squared_error(Y, Y) == 0.0


def test_that_outputs_on_other_scales_count_alike():
    y = np.column_stack([Y, 100.0 + 1e-3 * Y, np.full(4, np.nan)])
    predicted = np.column_stack([np.full(4, Y.mean()), y[:, 1], Y])
    assert measures.standardised_squared_error(y, predicted) == pytest.approx(0.5)  # the mean, and exact


def test_that_the_root_mean_squared_error_is_in_the_unit_of_the_observations():
    assert measures.root_mean_squared_error(Y, Y + 3.0) == pytest.approx(3.0)


def test_that_log_densities_are_averaged_and_turned_round():
    assert measures.negative_log_predictive_density(np.log([0.5, 0.25])) == pytest.approx(1.5 * np.log(2))


def test_that_errors_are_counted_for_class_numbers_and_for_one_hot_rows():
    probabilities = np.asarray([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    labels = np.asarray([0, 1, 1, 1])
    assert measures.error_rate(labels, probabilities) == 0.25
    assert measures.error_rate(np.eye(2)[labels], probabilities) == 0.25


def test_that_probabilities_of_the_second_class_and_labels_of_either_sign_will_do():
    probabilities = np.asarray([0.1, 0.8, 0.4, 0.3])
    for labels in ([0, 1, 1, 0], [-1, 1, 1, -1], [False, True, True, False]):
        assert measures.error_rate(labels, probabilities) == 0.25


def test_that_what_is_missing_is_left_out():
    assert measures.root_mean_squared_error([1.0, np.nan, 4.0], [2.0, 0.0, 5.0]) == pytest.approx(1.0)
    assert measures.standardised_squared_error([1.0, np.nan, 4.0], [2.5, 0.0, 2.5]) == pytest.approx(1.0)
    assert measures.negative_log_predictive_density([-1.0, np.nan, -3.0]) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("measure", "arguments", "message"),
    [
        ("root_mean_squared_error", (Y[:, None], Y), r"one shape, \(N,\) or \(N, P\), had \(4, 1\) and \(4,\)"),
        ("standardised_squared_error", (Y, Y[:, None]), r"one shape, .*, had \(4,\) and \(4, 1\)"),
        ("standardised_squared_error", (Y, Y[:3]), r"one shape, .*, had \(4,\) and \(3,\)"),
        ("root_mean_squared_error", (["a"], [1.0]), r"y must be numbers, was \['a'\]"),
        ("negative_log_predictive_density", (Y[:, None],), r"log_density must be numbers of shape \(N,\), had shape"),
        ("standardised_squared_error", ([np.nan], [1.0]), "y must have at least one observation, was all NaN"),
        ("error_rate", ([0, 1, 2, 0], [0.1, 0.2, 0.3, 0.4]), "labels must be class numbers from 0 to 1, had 2"),
        ("error_rate", ([-1, 1, 1], np.eye(3)), "labels must be class numbers from 0 to 2, had -1"),
        ("error_rate", ([[0], [1]], [0.1, 0.2]), r"labels must have shape \(N,\) or \(N, 2\), had \(2, 1\)"),
        ("error_rate", ([0, 1], [0.1, 0.2, 0.3]), "a row for each site, had 2 and 3"),
        ("error_rate", ([[1, 1]], [[0.5, 0.5]]), "must have one 1 in each row"),
        ("error_rate", ([0, 1], [[0.1], [0.2]]), r"probabilities must have shape \(N,\) or \(N, C\), had \(2, 1\)"),
    ],
)
def test_that_shapes_that_do_not_fit_are_reported(measure, arguments, message):
    with pytest.raises(ValueError, match=message):
        getattr(measures, measure)(*arguments)
