"""Kernels of all kinds and their compositions, against definitions, scikit-learn and central differences."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sklearn_kernels

from helpers.kernels import Sinc, kernels_of_all_kinds
from invgp.core.backend import to_numpy
from invgp.core.hyperpriors import Hyperprior, Hyperpriors
from invgp.core.kernels import (
    KINDS,
    Mapped,
    Product,
    Rotated,
    Trended,
    directions,
    kernel_from_description,
    scale_by_map,
)
from invgp.kernels import (
    Constant,
    Coregionalised,
    Exponential,
    Kernel,
    Linear,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
    White,
    check_kernel,
)

KERNELS = kernels_of_all_kinds()


@pytest.mark.parametrize("name", KERNELS)
def test_that_every_kernel_passes_the_conformance_check(name, backend, rng):
    X = backend.asarray(rng.standard_normal((8, 2)))
    check_kernel(KERNELS[name].on_backend(backend), X, rtol=1e-5 if backend.dtype == "float64" else 0.05)


def test_that_a_coregionalised_kernel_passes_the_conformance_check(backend, rng):
    X = np.column_stack([rng.standard_normal((9, 2)), rng.permutation([0, 1, 2] * 3)])
    kernel = Matern52(1.2, [0.8, 1.1]).on(0, 1) * Coregionalised(rng.standard_normal((3, 2)), [0.1, 0.2, 0.3]).on(2)
    # Moving the number of an output by a small step does not change the output.
    check_kernel(kernel.on_backend(backend), backend.asarray(X), rtol=1e-5 if backend.dtype == "float64" else 0.05)


SAME = {
    "squared exponential": (SquaredExponential(1.0, [0.7, 1.4]), sklearn_kernels.RBF([0.7, 1.4])),
    "exponential": (Exponential(1.0, [0.7, 1.4]), sklearn_kernels.Matern([0.7, 1.4], nu=0.5)),
    "matern 3/2": (Matern32(1.0, [0.7, 1.4]), sklearn_kernels.Matern([0.7, 1.4], nu=1.5)),
    "matern 5/2": (Matern52(1.0, 0.9), sklearn_kernels.Matern(0.9, nu=2.5)),
    "rational quadratic": (RationalQuadratic(1.0, 0.8, 0.6), sklearn_kernels.RationalQuadratic(0.8, 0.6)),
    "linear": (Linear(1.0, 1.0) + Constant(0.49), sklearn_kernels.DotProduct(0.7)),
    "constant": (Constant(1.7), sklearn_kernels.ConstantKernel(1.7)),
    "white": (White(0.3), sklearn_kernels.WhiteKernel(0.3)),
    "sum of products": (
        Constant(2.0) * SquaredExponential(1.0, 0.6) + White(0.2),
        sklearn_kernels.ConstantKernel(2.0) * sklearn_kernels.RBF(0.6) + sklearn_kernels.WhiteKernel(0.2),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_that_kernels_are_those_of_scikit_learn(name, rng):
    ours, theirs = SAME[name]
    X = rng.standard_normal((7, 2))
    np.testing.assert_allclose(ours(X, X), theirs(X), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(ours.diagonal(X), theirs.diag(X), rtol=1e-12)
    np.testing.assert_allclose(ours(X[:3], X[3:]), theirs(X[:3], X[3:]), rtol=1e-12, atol=1e-13)


def test_that_the_periodic_kernel_is_that_of_scikit_learn_and_repeats(rng):
    X = rng.standard_normal((7, 1))
    kernel = Periodic(1.0, 0.8, 1.7)
    np.testing.assert_allclose(kernel(X, X), sklearn_kernels.ExpSineSquared(0.8, 1.7)(X), rtol=1e-12)
    np.testing.assert_allclose(kernel(X + 3 * 1.7, X), kernel(X, X), rtol=1e-10)
    # In several dimensions it is the product of those of each dimension.
    pair = rng.standard_normal((6, 2))
    both = Periodic(2.0, [0.8, 0.5], [1.7, 0.9])(pair, pair)
    single = [Periodic(1.0, scale, p)(pair[:, [d]], pair[:, [d]]) for d, scale, p in ((0, 0.8, 1.7), (1, 0.5, 0.9))]
    np.testing.assert_allclose(both, 2.0 * single[0] * single[1], rtol=1e-12)


def test_that_coregionalisation_is_a_kronecker_product(rng):
    x, outputs = rng.standard_normal((5, 2)), 3
    weights, own = rng.standard_normal((outputs, 2)), np.asarray([0.1, 0.5, 0.9])
    shared = Matern32(1.3, [0.7, 1.1])
    kernel = shared.on(0, 1) * Coregionalised(weights, own).on(2)
    X = np.column_stack([np.tile(x, (outputs, 1)), np.repeat(np.arange(outputs), len(x))])
    expected = np.kron(weights @ weights.T + np.diag(own), shared(x, x))
    np.testing.assert_allclose(kernel(X, X), expected, rtol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(X), np.diag(expected), rtol=1e-12)


@pytest.mark.parametrize(("number", "shown"), [(2.0, "2"), (-1.0, "-1"), (0.5, "0.5"), (np.nan, "nan")])
def test_that_a_coregionalised_kernel_is_defined_for_its_outputs_only(number, shown, rng):
    part = Coregionalised([[1.0], [-1.0]], 0.1).on(2)
    X = np.column_stack([rng.standard_normal((4, 2)), [0.0, 1.0, 1.0, number]])
    for kernel in (part, Matern52() * part, White(0.1) + Matern52() * part, (White() * part).on(0, 1, 2)):
        kernel.check_inputs(X[:3])
        with pytest.raises(ValueError, match=f"must have the output numbers 0 to 1, had {shown}$"):
            kernel.check_inputs(X)
        nearest = kernel.nearest_inputs(X[~np.isnan(X[:, 2])])
        kernel.check_inputs(nearest)
        np.testing.assert_array_equal(nearest[:, :2], X[: len(nearest), :2])
    Matern52().check_inputs(X)


def test_that_white_noise_belongs_to_points_with_equal_coordinates():
    X = np.asarray([[0.0, 1.0], [0.0, 2.0], [0.0, 1.0]])
    np.testing.assert_array_equal(White(2.0)(X, X), [[2, 0, 2], [0, 2, 0], [2, 0, 2]])


def test_that_dimensions_select_and_order_the_inputs(rng):
    X = rng.standard_normal((5, 3))
    kernel = Matern52(1.0, [0.5, 2.0])
    np.testing.assert_allclose(kernel.on(2, 0)(X, X), kernel(X[:, [2, 0]], X[:, [2, 0]]))
    order = [2, 0, 1]
    composed = kernel.on(2, 0) * Periodic(1.0, [0.5, 0.7, 0.9], 1.3) + Matern32(0.4, [1.0, 2.0, 3.0]) + White(0.1)
    np.testing.assert_allclose(composed.permute(order)(X[:, order], X[:, order]), composed(X, X), rtol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_that_a_kernel_is_rebuilt_from_its_description_and_scaled(name, rng):
    kernel, X = KERNELS[name], rng.standard_normal((5, 2))
    again = kernel_from_description(kernel.describe())
    np.testing.assert_array_equal(again(X, X), kernel(X, X))
    scaled = kernel.with_variance(3.0)
    assert float(scaled.variance) == pytest.approx(3.0)
    np.testing.assert_allclose(scaled(X, X), 3.0 / float(kernel.variance) * kernel(X, X), rtol=1e-12)


def test_that_sums_and_products_are_flat_and_readable():
    kernel = Matern52() + White(0.1) + Linear().on(0) * Periodic()
    assert kernel.formula == "matern 5/2 + white + linear * periodic"
    assert repr(Matern52(2.0, [1.0, 3.0]) + White(0.1)) == (
        "Matern52(variance=2, length_scale=[1, 3]) + White(variance=0.1)"
    )
    assert repr((Constant() + White()).on(1)) == "(Constant(variance=1) + White(variance=1)).on(1)"
    names = ("matern 5/2.variance", "matern 5/2.length_scale", "white.variance", "linear.variance")
    assert kernel.qualified_names[:4] == names
    with pytest.raises(TypeError):
        kernel + 1.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Matern52(-1.0), "variance must be a positive number, was -1.0"),
        (lambda: Matern52(1.0, [1.0, 0.0]), "length_scale must be a positive number, or one per dimension, was"),
        (lambda: Periodic(period="year"), "period must be a positive number, or one per dimension, was 'year'"),
        (lambda: Linear(centre=np.inf), "centre must be a finite number, or one per dimension, was inf"),
        (lambda: Matern52().on(), "dimensions must be different whole numbers from 0, were"),
        (lambda: Coregionalised([1.0, 2.0]), "weights must be numbers of shape"),
        (lambda: Coregionalised([[1.0], [2.0]], [1.0, 2.0, 3.0]), "own must be a number or one for each of 2 outputs"),
        (lambda: Matern52(1.0, [1.0, 2.0])(np.ones((2, 1)), np.ones((2, 1))), "length_scale must be one number or one"),
        (lambda: Matern52().on(3)(np.ones((2, 2)), np.ones((2, 2))), "less than the number of input dimensions, 2"),
        (lambda: Coregionalised([[1.0]])(np.ones((2, 2)), np.ones((2, 2))), "must be on one dimension, was on 2"),
        (lambda: Coregionalised([[1.0], [1.0, 2.0]]), "weights must be numbers of shape"),
        (lambda: Coregionalised([[np.nan], [1.0]]), "weights must be numbers of shape"),
        (lambda: Coregionalised(np.asarray([["a"], ["b"]])), "weights must be numbers of shape"),
        (lambda: kernel_from_description({"kind": "matern"}), "must be one of .*matern 5/2.*import the module"),
        (lambda: kernel_from_description({"kind": "white", "length": 1}), "a kernel of kind 'white' is wrong"),
        (lambda: kernel_from_description([1]), "must be described by its kind and its parameters"),
        (lambda: Hyperprior(factor=0.5), "factor must be at least 1, was 0.5"),
        (lambda: Hyperprior(low=2.0, high=1.0), "low must be at least 0 and less than high"),
        (lambda: Hyperprior(factor="2"), "factor, low and high must be numbers"),
    ],
)
def test_that_mistakes_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: Matern52() + 1.0,
            r"only be added to a kernel; Matern52.* was added to 1\.0: use Constant\(1\.0\), or set",
        ),
        (lambda: 1 + Matern52(), "only be added to a kernel; .* was added to 1: use Constant"),
        (lambda: 2.0 * Matern52(), r"only be multiplied by a kernel; .* was multiplied by 2\.0: use Constant\(2\.0\)"),
        (lambda: Matern52() * White, r"only be multiplied by a kernel; .*<class .*White'>: write White\(\.\.\.\)"),
        (lambda: Matern52() + "white", "only be added to a kernel; .* was added to 'white'$"),
    ],
)
def test_that_operands_that_are_no_kernels_are_named(build, message):
    with pytest.raises(TypeError, match=message):
        build()


def test_that_kernels_are_summed_and_dimensions_may_be_integers_of_numpy(rng):
    X = rng.standard_normal((4, 2))
    np.testing.assert_array_equal(sum([Matern52(), White()])(X, X), (Matern52() + White())(X, X))
    assert Matern52().on(np.int64(1)).describe() == Matern52().on(1).describe()


@dataclass(frozen=True, eq=False)
class Broken(Sinc):
    """A kernel with one of several mistakes."""

    kind: ClassVar[str] = "broken kernel of the tests"
    mistake: str = ""

    @property
    def parameter_names(self):
        return ("scale", "variance") if self.mistake == "variance" else super().parameter_names

    def __call__(self, X1, X2):
        found = super().__call__(X1, X2)
        if self.mistake == "asymmetric":
            found = found + 0.1 * X1[:, :1]
        if self.mistake == "indefinite":
            found = found - 2.0
        return found

    def diagonal(self, X):
        return super().diagonal(X) + (self.mistake == "diagonal")

    def linearise(self, X1, X2):
        found = super().linearise(X1, X2)
        if self.mistake == "gradient":
            return found._replace(
                pull_back=lambda c: found.pull_back(c)._replace(parameters=2.0 * found.pull_back(c).parameters)
            )
        return found


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("asymmetric", "must be symmetric"),
        ("indefinite", "positive semi-definite"),
        ("diagonal", "diagonal must return the variances"),
        ("variance", "must be logarithms of factors on the kernel"),
        ("gradient", "linearise: the gradient of the parameters must be"),
    ],
)
def test_that_the_conformance_check_finds_mistakes(mistake, message, rng):
    X = rng.standard_normal((8, 2))
    check_kernel(Broken(1.2, 0.9), X)
    with pytest.raises(AssertionError, match=message):
        check_kernel(Broken(1.2, 0.9, mistake), X)


def test_that_the_conformance_check_needs_a_kernel_of_its_own_kind(rng):
    @dataclass(frozen=True, eq=False)
    class Unnamed(Sinc):
        """A subclass without a kind of its own."""

    for wrong, message in ((Unnamed(), "kind must be a name of its own"), (3.0, "must be a subclass of Kernel")):
        with pytest.raises(AssertionError, match=message):
            check_kernel(wrong, rng.standard_normal((8, 2)))
    assert KINDS["sinc of the tests"] is Sinc
    assert issubclass(Unnamed, Kernel)


PRIORS = {
    "variance": Hyperprior(factor=3.0),
    "white.variance": Hyperprior(factor=1.0),
    "length_scale": Hyperprior(low=0.5, high=4.0),
    "period": Hyperprior(factor=1.5, low=1.0),
}


def test_that_bounds_and_priors_of_parameters_are_as_defined(backend, tolerance, rng):
    kernel = (Matern52(2.0, [1.0, 3.9]) + Periodic(0.5, 0.6, 2.0) + White(0.3)).on_backend(backend)
    priors = Hyperpriors.build([kernel], PRIORS, backend)
    free, start = to_numpy(kernel.parameters), priors.unconstrain(kernel.parameters)
    close = {"rtol": tolerance(backend, 1e-9, 1e-4), "atol": tolerance(backend, 1e-9, 1e-4)}
    np.testing.assert_allclose(to_numpy(priors.constrain(start)), free, **close)
    assert float(priors.log_density(start)) == pytest.approx(0.0, abs=1e-6)
    values = np.exp(to_numpy(priors.constrain(start + 30.0)))
    assert values[-1] == pytest.approx(0.3)  # a factor of 1 keeps the value
    assert np.all(values[[1, 2, 4]] <= 4.0 * (1 + 1e-6))
    assert values[0] == pytest.approx(2.0 * np.exp(30.0), rel=1e-4)  # a prior without bounds
    t = start + backend.asarray(0.3 * rng.standard_normal(7))
    change = to_numpy(priors.constrain(t)) - free
    expected = -0.5 * (np.sum(change[[0, 3]] ** 2) / np.log(3.0) ** 2 + (change[5] / np.log(1.5)) ** 2)
    assert float(priors.log_density(t)) == pytest.approx(expected, rel=tolerance(backend, 1e-9, 1e-3))


def test_that_the_gradient_of_priors_is_that_of_finite_differences(numpy_backend, rng):
    kernels = [Matern52(2.0, [1.0, 3.9]) + Periodic(0.5, 0.6, 2.0) + White(0.3)]
    priors = Hyperpriors.build(kernels, PRIORS, numpy_backend)
    t = priors.unconstrain(kernels[0].parameters) + 0.3 * rng.standard_normal(7)
    weights = rng.standard_normal(7)

    def scalar(at):
        return float(weights @ priors.constrain(at) + priors.log_density(at))

    numeric = [(scalar(t + step) - scalar(t - step)) / 2e-6 for step in 1e-6 * np.eye(7)]
    np.testing.assert_allclose(priors.pull_back(t, weights), numeric, rtol=1e-6, atol=1e-8)


def test_that_unknown_names_and_starts_outside_the_bounds_are_refused(numpy_backend):
    for priors, message in (
        ({"scale": Hyperprior(2.0)}, "length_scale, .*variance.*had 'scale'"),
        ({"variance": Hyperprior(low=2.0)}, "variance must be between its bounds 2 and inf, was 1"),
    ):
        with pytest.raises(ValueError, match=message):
            Hyperpriors.build([Matern52()], priors, numpy_backend)


def test_that_a_product_keeps_one_scale(rng):
    kernel = Matern52(2.0) * Periodic(3.0) * Coregionalised([[1.0]]).on(0)
    assert kernel.scale_mask == (True, *(False,) * 6)
    assert float(kernel.variance) == pytest.approx(6.0)
    with pytest.raises(ValueError, match="must be multiplied by Constant"):
        Coregionalised([[1.0]]).with_variance(2.0)
    assert replace(Matern52(), variance=2.0).variance == 2.0


def test_that_maps_and_trends_are_kernels(backend):
    rng = np.random.default_rng(3)
    X = backend.asarray(rng.uniform(0.5, 3.5, (8, 2)))
    axes = np.asarray([-1.0, 0.11, 2.03, 5.0]), np.asarray([0.0, 1.97, 4.0])
    scale = Mapped(axes, 1.0 + rng.random((4, 3)))
    trend = (Constant(4.0), Linear(9.0, 2.0, 1.0).on(1), Mapped((axes[0],), rng.random(4), 2.0).on(0))
    for kernel in (
        Product((Matern52(1.5, 0.7), scale)),
        Trended(Matern52(1.5, 0.7), trend),
        scale_by_map(Trended(SquaredExponential(1.0, 2.0) + White(0.2), trend), scale),
    ):
        check_kernel(kernel.on_backend(backend), X)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_that_a_rotated_kernel_has_its_length_scales_along_strike_and_dip(backend, dimensions):
    rng = np.random.default_rng(4)
    lengths = np.asarray([5.0, 1.0, 0.3])[:dimensions]
    kernel = Rotated(Matern52(2.0, lengths), directions(dimensions, 30.0, 20.0)).on_backend(backend)
    check_kernel(kernel, backend.asarray(rng.standard_normal((8, dimensions))), rtol=1e-3)
    strike, dip = np.radians(30.0), np.radians(20.0 if dimensions == 3 else 0.0)
    along = np.asarray([np.cos(dip) * np.cos(strike), np.cos(dip) * np.sin(strike), np.sin(dip)])[:dimensions]
    across = np.asarray([-np.sin(strike), np.cos(strike), 0.0])[:dimensions]
    points = backend.asarray(np.stack([np.zeros(dimensions), 5.0 * along, across]))
    found = to_numpy(kernel(points[:1, :], points[1:, :]))
    expected = 2.0 * (1.0 + np.sqrt(5.0) + 5.0 / 3.0) * np.exp(-np.sqrt(5.0))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    permuted = kernel.permute(list(range(dimensions))[::-1])
    turned = backend.asarray(to_numpy(points)[:, ::-1].copy())
    np.testing.assert_allclose(to_numpy(permuted(turned, turned)), to_numpy(kernel(points, points)), rtol=1e-5)
