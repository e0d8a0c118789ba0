"""Arguments that make no sense are refused, with a sentence."""

import numpy as np
import pytest

from invgp.likelihoods import GPRN, BlackBox, Gaussian, Laplace, Poisson, Softmax, StudentT, Warped


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Gaussian(0.0), "std must be positive"),
        (lambda: Gaussian([1.0, -1.0]), "std must be positive"),
        (lambda: Gaussian(np.nan), "std must be finite"),
        (lambda: Gaussian(np.ones((2, 2, 2))), r"std must be a number, \(P,\) or \(N, P\)"),
        (lambda: Gaussian([1.0, 2.0], outputs=3), "std has 2 outputs, but outputs = 3"),
        (lambda: Laplace(-1.0), "scale must be positive"),
        (lambda: StudentT(1.0, dof=0.0), "dof must be a number above 0"),
        (lambda: StudentT(1.0, dof="heavy"), "dof must be a number above 0, was 'heavy'"),
        (lambda: Softmax(2.5), r"classes must be a whole number of at least 2, was 2\.5"),
        (lambda: Gaussian(0.1, outputs=1.5), r"outputs must be a whole number of at least 1, was 1\.5"),
        (lambda: Gaussian("loud"), "std must be finite numbers, was 'loud'"),
        (lambda: BlackBox(3, latents=1, outputs=1), "log_density must be a function, was 3"),
        (lambda: Softmax(1), "classes must be a whole number of at least 2, was 1"),
        (lambda: Poisson(np.inf), "offset must be finite"),
        (lambda: GPRN(1.0, nodes=0), "nodes must be a whole number of at least 1, was 0"),
        (lambda: Warped(1.0, a=[1.0], b=[1.0]), r"a, b and c must have one shape"),
        (lambda: Warped(1.0, a=[-1.0], b=[1.0], c=[0.0]), "a must be 0 or positive"),
        (lambda: Warped(1.0, a=[0.0], b=[1.0], c=[0.0], learn="noise and warp"), "a must be positive"),
        (lambda: Warped(1.0, a=[1.0], b=[0.0], c=[0.0]), "b must be positive"),
        (lambda: Warped([1.0, 2.0]), "std must be a number"),
        (lambda: Warped(1.0, learn="all"), "learn must be one of"),
        (lambda: BlackBox(print, latents=0, outputs=1), "latents must be a whole number of at least 1, was 0"),
        (lambda: BlackBox(print, latents=1, outputs=1, parameters=1.0), r"parameters must have shape \(K,\)"),
    ],
)
def test_that_nonsense_is_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_natural_values_come_back():
    np.testing.assert_allclose(Gaussian([0.1, 20.0]).std, [0.1, 20.0], rtol=1e-12)
    np.testing.assert_allclose(Laplace(3.0, outputs=2).scale, 3.0, rtol=1e-12)
    np.testing.assert_allclose(Gaussian(0.1).with_parameters([np.log(0.7)]).std, 0.7, rtol=1e-12)
    assert Gaussian(0.1, outputs=3).parameters.shape == (1,)
    assert Gaussian([0.1, 0.2, 0.3]).parameters.shape == (3,)
    assert Poisson(np.zeros((4, 2))).parameters.shape == (0,)
    assert GPRN([0.1, 0.2, 0.3], nodes=2).latents == 8
    assert Warped(0.1, a=[1.0], b=[2.0], c=[3.0], learn="noise and warp").parameters.shape == (4,)


def test_that_a_black_box_of_the_wrong_shape_is_refused():
    box = BlackBox(lambda y, f: (y - f).sum(), latents=1, outputs=1, moments=lambda f: (f[0], f[0]))
    with pytest.raises(ValueError, match=r"black box's log_density must have shape \(3, 2\), was \(\)"):
        box.log_density(np.zeros((2, 1)), np.zeros((3, 2, 1)))
    with pytest.raises(ValueError, match=r"black box's mean must have shape \(3, 2, 1\), was \(2, 1\)"):
        box.moments(np.zeros((3, 2, 1)))


def test_that_a_black_box_that_cannot_omit_an_output_is_reported():
    box = BlackBox(lambda y, f: -((y - f) ** 2).sum(-1), latents=2, outputs=2)
    y = np.array([[0.0, 0.0], [np.nan, 0.0], [np.nan, np.nan]])
    with pytest.raises(ValueError, match="NaN at site 1, at which some outputs are missing"):
        box.log_density(y, np.zeros((3, 3, 2)))
    np.testing.assert_array_equal(box.log_density(y[[0, 2]], np.ones((3, 2, 2))), [[-2.0, 0.0]] * 3)


def test_that_a_black_box_may_write_into_its_samples():
    def careless(y, f):
        f -= y
        return -np.abs(f[..., 0])

    f = np.ones((3, 2, 1))
    BlackBox(careless, latents=1, outputs=1).log_density(np.ones((2, 1)), f)
    np.testing.assert_array_equal(f, 1.0)


def _double(y, f, parameters):
    y *= 2.0
    return -np.abs((y - f)[..., 0])


def _forget(y, f, parameters):
    parameters[0] = 0.0
    return -np.abs((y - f)[..., 0])


@pytest.mark.parametrize("function", [_double, _forget])
def test_that_a_black_box_cannot_change_observations_and_parameters(function):
    y, box = np.ones((2, 1)), BlackBox(function, latents=1, outputs=1, parameters=[1.0])
    with pytest.raises(
        ValueError, match=r"black box's log_density must not change y or the parameters: work on a copy"
    ):
        box.log_density(y, np.ones((3, 2, 1)))
    np.testing.assert_array_equal(y, 1.0)
    assert y.flags.writeable
    np.testing.assert_array_equal(box.parameters, 1.0)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: BlackBox(lambda y: y, 1, 1),
            r"log_density must be .* called as log_density\(y, f\), was log_density\(y\)",
        ),
        (lambda: BlackBox(lambda y, f: f, 1, 1, parameters=[0.0]), r"called as log_density\(y, f, parameters\), was"),
        (
            lambda: BlackBox(lambda y, f, p: f, 1, 1),
            r"called as log_density\(y, f\), was .*missing a required argument: 'p'",
        ),
        (
            lambda: BlackBox(lambda f, y: f, 1, 1),
            r"called as log_density\(y, f\), in this order, was log_density\(f, y\)",
        ),
        (lambda: BlackBox(np.add, 1, 1, moments=lambda y, f: f), r"moments must be .* called as moments\(f\), was"),
    ],
)
def test_that_functions_with_other_arguments_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_that_moments_must_be_two():
    box = BlackBox(lambda y, f: f[..., 0], 1, 1, moments=lambda f: f)
    with pytest.raises(ValueError, match="black box's moments must be a mean and a variance, was array"):
        box.moments(np.zeros((3, 2, 1)))
