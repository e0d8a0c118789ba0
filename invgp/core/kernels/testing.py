"""Conformance check for kernels."""

from __future__ import annotations

import json
import math
from dataclasses import is_dataclass

import numpy as np

from invgp.core.backend import Array, array_namespace, device_of, to_numpy
from invgp.core.kernels.base import DIFFERENCE, KINDS, Kernel, kernel_from_description

SMALLEST_EIGENVALUE = 1e-8  # relative to the largest: a smaller negative one may be rounding


def check_kernel(kernel: Kernel, X: Array, *, rtol: float = 1e-4) -> None:
    """Check a kernel: its shapes, symmetry, positive definiteness, parameters, derivatives and description.

    Parameters
    ----------
    kernel : Kernel
        The kernel to check.
    X : array, shape (N, D)
        At least four different inputs, of the library and on the device of the kernel's arrays. The kernel must be
        differentiable at pairs of different inputs.
    rtol : float
        Largest difference between derivatives and central differences, relative to the largest derivative.

    Raises
    ------
    AssertionError
        The kernel violates the protocol `Kernel`; the message states how.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.kernels import Matern52, White, check_kernel
    >>> check_kernel(Matern52(length_scale=2.0) + White(0.1), np.random.default_rng(0).standard_normal((6, 2)))
    """
    _require(isinstance(kernel, Kernel), f"a kernel must be a subclass of Kernel, was {type(kernel).__name__}")
    frozen = is_dataclass(kernel) and getattr(type(kernel), "__dataclass_params__").frozen  # noqa: B009 - no type has it
    _require(frozen, "a kernel must be a frozen dataclass")
    _require(KINDS.get(kernel.kind) is type(kernel), f"kind must be a name of its own, was {kernel.kind!r}")
    _require(X.ndim == 2 and X.shape[0] >= 4, f"the check needs X of shape (N >= 4, D), got {tuple(X.shape)}")
    half = X.shape[0] // 2
    X1, X2 = X[:half, :], X[half:, :]
    _check_values(kernel, X, X1, X2)
    _check_parameters(kernel, X, X1, X2)
    _check_derivatives(kernel, X1, X2, rtol)
    _check_description(kernel, X1, X2)


def _check_values(kernel: Kernel, X: Array, X1: Array, X2: Array) -> None:
    kept = to_numpy(X).copy()
    covariance = kernel(X, X)
    _require(device_of(covariance) == device_of(X), "the covariance must be on the device of its inputs")
    _require(tuple(covariance.shape) == (X.shape[0],) * 2, "the covariance must have shape (N, M)")
    K = to_numpy(covariance)
    _require(bool(np.isfinite(K).all()), "the covariance must be finite")
    _require(np.array_equal(kept, to_numpy(X)), "the covariance must not write into its inputs")
    scale = np.abs(K).max()
    _require(np.allclose(K, K.T, atol=1e-6 * scale), "the covariance must be symmetric: k(x, x') = k(x', x)")
    _require(
        np.allclose(to_numpy(kernel(X1, X2)), K[: X1.shape[0], X1.shape[0] :], atol=1e-6 * scale),
        "the covariance of two inputs must not depend on the other inputs",
    )
    _require(
        np.linalg.eigvalsh(K.astype(np.float64)).min() >= -max(SMALLEST_EIGENVALUE, _precision(X)) * len(K) * scale,
        "the covariance must be positive semi-definite",
    )
    diagonal = kernel.diagonal(X)
    _require(
        tuple(diagonal.shape) == (X.shape[0],) and np.allclose(to_numpy(diagonal), np.diagonal(K), atol=1e-6 * scale),
        "diagonal must return the variances (N,)",
    )


def _check_parameters(kernel: Kernel, X: Array, X1: Array, X2: Array) -> None:
    parameters = kernel.parameters
    count = len(kernel.parameter_names)
    _require(tuple(parameters.shape) == (count,), f"parameters must have shape ({count},), one per parameter name")
    reference = to_numpy(kernel(X1, X2))
    scale = np.abs(to_numpy(kernel(X, X))).max()
    again = to_numpy(kernel.with_parameters(parameters)(X1, X2))
    _require(np.allclose(again, reference, atol=1e-5 * scale), "with_parameters(parameters) must be the same kernel")
    _require(len(kernel.scale_mask) == count, "scale_mask must have one value per parameter")
    if any(kernel.scale_mask):
        xp = array_namespace(parameters)
        mask = xp.asarray(
            np.asarray(kernel.scale_mask, dtype=np.float64), dtype=parameters.dtype, device=device_of(parameters)
        )
        doubled = kernel.with_parameters(parameters + math.log(2.0) * mask)
        _require(
            np.allclose(to_numpy(doubled(X1, X2)), 2.0 * reference, atol=1e-5 * scale),
            "the parameters called 'variance' must be logarithms of factors on the kernel",
        )
    lengths = kernel.correlation_length(X.shape[1])
    _require(tuple(lengths.shape) == (X.shape[1],), "correlation_length must return one length per dimension")


def _check_derivatives(kernel: Kernel, X1: Array, X2: Array, rtol: float) -> None:
    xp = array_namespace(X1)
    rng = np.random.default_rng(0)
    for what, value, found, base in (
        ("linearise", lambda k, X: k(X, X2), kernel.linearise(X1, X2), (X1.shape[0], X2.shape[0])),
        ("pull_back_diagonal", lambda k, X: k.diagonal(X), None, (X1.shape[0],)),
    ):
        cotangent = xp.asarray(rng.standard_normal(base), dtype=X1.dtype, device=device_of(X1))
        if found is None:
            gradient = kernel.pull_back_diagonal(X1, xp.asarray(cotangent, copy=True))
        else:
            _require(
                np.allclose(to_numpy(found.value), to_numpy(kernel(X1, X2)), rtol=1e-5),
                "the value of linearise must be the covariance",
            )
            gradient = found.pull_back(xp.asarray(cotangent, copy=True))

        def scalar(k: Kernel, X: Array, value=value, cotangent=cotangent) -> float:  # type: ignore[no-untyped-def]
            return float(xp.sum(cotangent * value(k, X)))

        free = kernel.parameters
        by_parameters = _differences(lambda p, s=scalar: s(kernel.with_parameters(p), X1), free)
        by_inputs = _differences(lambda X, s=scalar: s(kernel, X), X1)
        for name, ours, theirs in (
            ("the parameters", gradient.parameters, by_parameters),
            ("the inputs", gradient.X1, by_inputs),
        ):
            _require(
                tuple(ours.shape) == theirs.shape, f"{what}: the gradient of {name} must have shape {theirs.shape}"
            )
            close = rtol * max(np.abs(theirs).max(initial=0.0), 1e-6)
            _require(
                np.allclose(to_numpy(ours), theirs, rtol=0.0, atol=close),
                f"{what}: the gradient of {name} must be {theirs}, as by central differences, was {to_numpy(ours)}",
            )


def _check_description(kernel: Kernel, X1: Array, X2: Array) -> None:
    text = json.dumps(kernel.describe())
    rebuilt = kernel_from_description(json.loads(text))
    found = rebuilt(to_numpy(X1), to_numpy(X2))
    _require(
        np.allclose(found, to_numpy(kernel(X1, X2)), rtol=1e-5), f"a description must give the same kernel, was {text}"
    )


def _differences(function, point: Array) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Compute the gradient of a function of an array by central differences."""
    xp = array_namespace(point)
    values, found = to_numpy(point), np.zeros(tuple(point.shape))
    step = max(DIFFERENCE, _precision(point) ** (1.0 / 3.0))
    for index in np.ndindex(found.shape):
        moved = []
        for sign in (1.0, -1.0):
            changed = values.copy()
            changed[index] += sign * step
            moved.append(function(xp.asarray(changed, dtype=point.dtype, device=device_of(point))))
        found[index] = (moved[0] - moved[1]) / (2.0 * step)
    return found


def _precision(array: Array) -> float:
    return float(array_namespace(array).finfo(array.dtype).eps)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
