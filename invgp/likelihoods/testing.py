"""Conformance check for implementations of the protocol `Likelihood`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import is_array_api_obj
from numpy.typing import ArrayLike, NDArray

from invgp.core.backend import Array, array_namespace, device_of, to_numpy
from invgp.likelihoods._arrays import convert_like
from invgp.likelihoods.protocol import Likelihood

__all__ = ["check_likelihood"]

Floats = NDArray[np.float64]


def check_likelihood(
    likelihood: Likelihood,
    y: Array,
    f: Array,
    *,
    outcomes: ArrayLike | None = None,
    grid: ArrayLike | None = None,
    site_specific: bool = False,
    rtol: float | None = None,
) -> None:
    """Check an implementation of the protocol `Likelihood`.

    Parameters
    ----------
    likelihood : Likelihood
        The likelihood to check.
    y : array, shape (N, P)
        Observations of at least two different sites, without missing values.
    f : array, shape (S, N, Q)
        At least two different samples, of the library and on the device of y, at which the log density is finite.
    outcomes : array, shape (M, P), optional
        All values that y can take, for labels (as 0 and 1) and counts (up to a negligible tail). Their probabilities
        must add up to one, and must have the mean and variance of `moments`.
    grid : array, shape (M,), optional
        Increasing values of a continuous y with P = 1. The same checks, with the density integrated over the grid.
    site_specific : bool
        Whether the likelihood holds numbers per site, such as known standard deviations, so that sites cannot be
        exchanged.
    rtol : float, optional
        Relative tolerance for `outcomes` and `grid`; by default 1e-6, or 1e-4 in single precision.

    Raises
    ------
    AssertionError
        The likelihood violates the protocol; the message states how.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import Poisson
    >>> from invgp.likelihoods.testing import check_likelihood
    >>> f = np.random.default_rng(0).standard_normal((3, 2, 1))
    >>> check_likelihood(Poisson(), np.array([[1.0], [4.0]]), f, outcomes=np.arange(100.0)[:, None])
    """
    _check_attributes(likelihood)
    y, f = (values if is_array_api_obj(values) else np.asarray(values, dtype=np.float64) for values in (y, f))
    case = _Case(likelihood, y, f)
    case.check_arguments()
    reference = case.density(y, f)
    _require(bool(np.isfinite(reference).all()), f"log_density must be finite at the values given, was {reference}")
    _check_samples(case, reference)
    _check_sites(case, reference, exchange=not site_specific)
    _check_missing(case, reference)
    _check_parameters(case, reference)
    _check_gradient(case)
    _check_moments(case)
    if outcomes is not None:
        values = np.asarray(outcomes, dtype=np.float64).reshape(-1, likelihood.outputs)
        _check_distribution(case, values, np.ones(len(values)), rtol)
    if grid is not None:
        _require(likelihood.outputs == 1, f"a grid needs one output, this likelihood has {likelihood.outputs}")
        points = np.asarray(grid, dtype=np.float64)
        _check_distribution(case, points[:, None], _trapezoid(points), rtol)


class _Case(NamedTuple):
    """A likelihood with data; the results of its methods are checked for type and shape, and copied to the host."""

    likelihood: Likelihood
    y: Array
    f: Array

    @property
    def precision(self) -> float:
        return float(array_namespace(self.f).finfo(self.f.dtype).eps)

    def check_arguments(self) -> None:
        P, Q = self.likelihood.outputs, self.likelihood.latents
        f_shape, y_shape = tuple(self.f.shape), tuple(self.y.shape)
        _require(
            len(f_shape) == 3 and min(f_shape[:2]) >= 2 and f_shape[2] == Q,
            f"the check needs f of shape (S >= 2, N >= 2, {Q}), got {f_shape}",
        )
        _require(y_shape == (f_shape[1], P), f"the check needs y of shape ({f_shape[1]}, {P}), got {y_shape}")
        _require(not np.isnan(to_numpy(self.y)).any(), "the check needs y without missing values, which it adds itself")
        f = to_numpy(self.f)
        _require(not (f == f[:1]).all() and not (f == f[:, :1]).all(), "the check needs samples and sites that differ")

    def density(self, y: Array, f: Array, likelihood: Likelihood | None = None) -> Floats:
        kept = to_numpy(y).copy(), to_numpy(f).copy()
        result = (likelihood or self.likelihood).log_density(y, f)
        self.check_form("log_density", result, tuple(f.shape[:2]))
        _require(
            np.array_equal(kept[0], to_numpy(y), equal_nan=True) and np.array_equal(kept[1], to_numpy(f)),
            "log_density must not write into y or f",
        )
        return np.asarray(to_numpy(result), dtype=np.float64)

    def gradient(self, y: Array, f: Array) -> Floats | None:
        result = self.likelihood.parameter_gradient(y, f)
        if result is None:
            return None
        self.check_form("parameter_gradient", result, (*f.shape[:2], self.likelihood.parameters.shape[0]))
        return np.asarray(to_numpy(result), dtype=np.float64)

    def moments(self, f: Array) -> tuple[Floats, Floats] | None:
        result = self.likelihood.moments(f)
        if result is None:
            return None
        shape = (*f.shape[:2], self.likelihood.outputs)
        for name, part in zip(("mean", "variance"), result, strict=True):
            self.check_form(f"the {name} of moments", part, shape)
        mean, variance = (np.asarray(to_numpy(part), dtype=np.float64) for part in result)
        return mean, variance

    def check_form(self, name: str, result: Any, shape: tuple[int, ...]) -> None:
        _require(hasattr(result, "shape"), f"{name} must be an array, was {type(result).__name__}")
        _require(tuple(result.shape) == shape, f"{name} must have shape {shape}, was {tuple(result.shape)}")
        _require(
            array_namespace(result) is array_namespace(self.f) and device_of(result) == device_of(self.f),
            f"{name} must be on the device of f, {device_of(self.f)} of {array_namespace(self.f).__name__}, "
            f"was on {device_of(result)} of {array_namespace(result).__name__}",
        )
        _require(result.dtype == self.f.dtype, f"{name} must be of the type of f, {self.f.dtype}, was {result.dtype}")

    def agree(self, one: Floats, other: Floats, sentence: str, factor: float = 50.0) -> None:
        tolerance = factor * self.precision
        _require(
            np.allclose(one, other, rtol=tolerance, atol=tolerance * (1.0 + np.abs(other).max(initial=0.0))),
            f"{sentence}: differs by up to {np.abs(one - other).max(initial=0.0):.3g}",
        )


def _check_attributes(likelihood: Likelihood) -> None:
    names = ("latents", "outputs", "parameters", "with_parameters", "log_density", "parameter_gradient", "moments")
    missing = [name for name in names if not hasattr(likelihood, name)]
    _require(not missing, f"{type(likelihood).__name__} has no {', '.join(missing)}")
    for name in ("latents", "outputs"):
        count = getattr(likelihood, name)
        _require(type(count) is int and count > 0, f"{name} must be a positive int, was {count!r}")
    parameters = likelihood.parameters
    _require(
        hasattr(parameters, "ndim") and parameters.ndim == 1, f"parameters must be an array (K,), was {parameters!r}"
    )
    host = to_numpy(parameters)
    _require(host.dtype.kind == "f", f"parameters must be floating-point numbers, were {host.dtype}")
    _require(bool(np.isfinite(host).all()), f"parameters must be finite, were {host}")


def _check_samples(case: _Case, reference: Floats) -> None:
    xp = array_namespace(case.f)
    alone = case.density(case.y, case.f[:1, ...])
    case.agree(alone, reference[:1], "log_density of a sample must not depend on the other samples")
    turned = case.density(case.y, xp.flip(case.f, axis=0))
    case.agree(turned, reference[::-1], "log_density must be permuted with the samples")


def _check_sites(case: _Case, reference: Floats, *, exchange: bool) -> None:
    xp = array_namespace(case.f)
    for site in (0, case.y.shape[0] - 1):
        here = slice(site, site + 1)
        everywhere = case.density(case.y[here, ...] + xp.zeros_like(case.y), case.f[:, here, :] + xp.zeros_like(case.f))
        case.agree(everywhere[:, here], reference[:, here], "log_density of a site must not depend on other sites")
    if exchange:
        turned = case.density(xp.flip(case.y, axis=0), xp.flip(case.f, axis=1))
        case.agree(
            turned,
            reference[:, ::-1],
            "log_density must be permuted with the sites (unless site_specific=True)",
        )


def _check_missing(case: _Case, reference: Floats) -> None:
    holed = np.asarray(to_numpy(case.y)).copy()
    holed[0] = np.nan
    y = convert_like(holed, case.y)
    density = case.density(y, case.f)
    _require(
        bool((density[:, 0] == 0.0).all()),
        f"a site with nothing observed (NaN in y) must have log density 0, was {density[:, 0]}",
    )
    case.agree(density[:, 1:], reference[:, 1:], "a missing site must not change the log density of the others")
    gradient = case.gradient(y, case.f)
    if gradient is not None:
        _require(bool((gradient[:, 0] == 0.0).all()), "parameter_gradient must be 0 where nothing is observed")
    for output in range(case.y.shape[1]):
        holed = np.asarray(to_numpy(case.y)).copy()
        holed[-1, output] = np.nan
        density, gradient = (
            case.density(convert_like(holed, case.y), case.f),
            case.gradient(convert_like(holed, case.y), case.f),
        )
        _require(
            bool(np.isfinite(density).all()) and (gradient is None or bool(np.isfinite(gradient).all())),
            f"log_density and parameter_gradient must be finite where only output {output} is missing",
        )
        case.agree(density[:, :-1], reference[:, :-1], "a missing output must not change other sites")


def _check_parameters(case: _Case, reference: Floats) -> None:
    likelihood = case.likelihood
    before = np.array(to_numpy(likelihood.parameters), dtype=np.float64)
    parameters = convert_like(likelihood.parameters, case.f)
    same = likelihood.with_parameters(parameters)
    _require(
        type(same) is type(likelihood),
        f"with_parameters must return a {type(likelihood).__name__}, not a {type(same).__name__}",
    )
    case.agree(case.density(case.y, case.f, same), reference, "with_parameters(parameters) must change nothing", 1e3)
    moved = likelihood.with_parameters(parameters + 0.25)
    after = np.asarray(to_numpy(moved.parameters), dtype=np.float64)
    _require(after.shape == before.shape, f"with_parameters must keep K = {len(before)}, got {after.shape}")
    case.agree(after, before + 0.25, "the parameters of with_parameters(p) must be p")
    _require(
        np.array_equal(to_numpy(likelihood.parameters), before)
        and np.array_equal(case.density(case.y, case.f), reference),
        "with_parameters must return a new likelihood and must not change this one",
    )


def _check_gradient(case: _Case) -> None:
    gradient = case.gradient(case.y, case.f)
    if gradient is None:
        return
    _require(bool(np.isfinite(gradient).all()), "parameter_gradient must be finite at the values given")
    step = case.precision ** (1.0 / 3.0)
    xp, parameters = array_namespace(case.f), convert_like(case.likelihood.parameters, case.f)
    for k in range(parameters.shape[0]):
        width = step * max(1.0, abs(float(parameters[k])))
        change = width * xp.eye(parameters.shape[0], dtype=case.f.dtype, device=device_of(case.f))[k, :]
        up, down = (
            case.density(case.y, case.f, case.likelihood.with_parameters(parameters + sign * change))
            for sign in (1.0, -1.0)
        )
        difference = (up - down) / (2.0 * width)
        # Truncation grows with the square of the step, rounding of the density with its inverse.
        scale = 1.0 + np.abs(up).max() + np.abs(difference).max()
        tolerance = 50.0 * (step**2 + case.precision / width) * scale
        error = np.abs(gradient[..., k] - difference).max()
        _require(
            bool(error <= tolerance),
            f"parameter_gradient of parameter {k} differs from finite differences by {error:.3g}, "
            f"more than {tolerance:.3g}",
        )


def _check_moments(case: _Case) -> None:
    moments = case.moments(case.f)
    if moments is None:
        return
    mean, variance = moments
    _require(bool(np.isfinite(mean).all()), "the mean of moments must be finite at the values given")
    _require(bool((variance >= 0.0).all()), f"the variance of moments must be 0 or positive, was {variance.min()}")
    alone = case.moments(case.f[:1, ...])
    _require(alone is not None, "moments must be None always or never")
    if alone is not None:
        case.agree(alone[0], mean[:1], "moments of a sample must not depend on the other samples")


def _check_distribution(case: _Case, values: Floats, weights: Floats, rtol: float | None) -> None:
    """Check that the density over `values` (M, P) with `weights` (M,) sums to 1 and has the right moments."""
    rtol = rtol or (1e-6 if case.precision < 1e-10 else 1e-4)
    total, first, second = 0.0, 0.0, 0.0
    moments = case.moments(case.f)
    centre = 0.0 if moments is None else moments[0]
    for value, weight in zip(values, weights, strict=True):
        y = convert_like(np.broadcast_to(value, case.y.shape), case.f)
        mass = weight * np.exp(case.density(y, case.f))[..., None]
        total, first, second = total + mass, first + mass * (value - centre), second + mass * (value - centre) ** 2
    _require(
        np.allclose(total, 1.0, rtol=0.0, atol=rtol),
        f"the density must add up to one over all values of y, got {np.min(total):.9g} to {np.max(total):.9g}",
    )
    if moments is None:
        return
    spread = math.sqrt(float(np.max(moments[1]))) if np.isfinite(moments[1]).all() else math.inf
    _require(
        np.allclose(first, 0.0, atol=rtol * (spread + np.abs(centre).max())),
        f"the mean of moments differs from that of the density by up to {np.abs(first).max():.3g}",
    )
    _require(
        np.allclose(second, moments[1], rtol=10.0 * rtol, atol=rtol * spread**2),
        f"the variance of moments differs from that of the density by up to {np.abs(second - moments[1]).max():.3g}",
    )


def _trapezoid(points: Floats) -> Floats:
    """Compute the weights of the trapezoidal rule."""
    _require(
        len(points) >= 3 and bool((np.diff(points) > 0.0).all()), "the grid must be three increasing values or more"
    )
    width = np.diff(points)
    return 0.5 * (np.append(width, 0.0) + np.insert(width, 0, 0.0))


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise AssertionError(sentence)
