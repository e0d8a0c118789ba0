"""What a kernel is: the base class of all covariance functions, with sums, products and a description for files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from array_api_compat import is_array_api_obj

from invgp.core.backend import Array, Backend, array_namespace, device_of, to_numpy

DIAGONAL_BLOCK = 128  # points at once in the default computation of the diagonal
DIFFERENCE = 1e-5  # relative step of the default derivatives, which are central differences

KINDS: dict[str, Callable[..., Kernel]] = {}  # every class of kernels by the name of its kind


class KernelGradient(NamedTuple):
    """Gradient of a scalar with respect to the free parameters and the first inputs of a covariance matrix.

    Attributes
    ----------
    parameters : array, shape (P,)
    X1 : array, shape (N, D)
    """

    parameters: Array
    X1: Array


class Linearised(NamedTuple):
    """A covariance matrix with its derivatives.

    Attributes
    ----------
    value : array, shape (N, M)
        The covariance; it must not be changed before `pull_back` is called.
    pull_back : callable
        Converts the gradient of a scalar with respect to the covariance (N, M), which it may overwrite, to a
        `KernelGradient`.
    """

    value: Array
    pull_back: Callable[[Array], KernelGradient]


@dataclass(frozen=True, eq=False)
class Kernel:
    """A covariance function k(x, x') with P free parameters.

    A kernel is a frozen dataclass, whose fields are numbers, arrays, strings or other kernels. A subclass with a `kind`
    is found by this name in posterior files as soon as its module is imported. It must define `kind`,
    `parameter_names`, `parameters`, `with_parameters` and `__call__`; the other members have general implementations,
    which a subclass can replace by faster ones. `invgp.kernels.check_kernel` checks a class.
    """

    kind: ClassVar[str] = ""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Register the class by the name of its kind."""
        super().__init_subclass__(**keywords)
        if "kind" in cls.__dict__:
            KINDS[cls.kind] = cls

    # ---- what a subclass must define ----

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names (P,) of the free parameters; ``"variance"`` for the logarithm of a factor on the kernel."""
        raise NotImplementedError

    @property
    def parameters(self) -> Array:
        """Free parameters (P,), on the whole real line: logarithms of positive quantities."""
        raise NotImplementedError

    def with_parameters(self, parameters: Array) -> Self:
        """Return the same kernel with other free parameters (P,).

        Parameters
        ----------
        parameters : array, shape (P,)
            Free parameters: logarithms of positive ones.

        Returns
        -------
        Kernel
        """
        raise NotImplementedError

    def __call__(self, X1: Array, X2: Array) -> Array:
        """Compute the covariance (N, M) between inputs X1 (N, D) and X2 (M, D), as a new array."""
        raise NotImplementedError

    # ---- what a subclass may define ----

    def diagonal(self, X: Array) -> Array:
        """Compute the variances k(x, x), shape (N,), at inputs X (N, D).

        Parameters
        ----------
        X : array, shape (N, D)
            Inputs.

        Returns
        -------
        array, shape (N,)
        """
        xp, N = array_namespace(X), X.shape[0]
        blocks = [X[i : min(i + DIAGONAL_BLOCK, N), :] for i in range(0, N, DIAGONAL_BLOCK)]
        return xp.concat([xp.linalg.diagonal(self(block, block)) for block in blocks] or [X[:, 0]])

    def linearise(self, X1: Array, X2: Array) -> Linearised:
        """Compute the covariance between X1 (N, D) and X2 (M, D) with its derivatives, here by central differences.

        Parameters
        ----------
        X1 : array, shape (N, D)
            First inputs.
        X2 : array, shape (M, D)
            Second inputs.

        Returns
        -------
        Linearised
            Value (N, M), with a method that converts its gradient to that of the parameters and inputs.
        """

        def pull_back(cotangent: Array) -> KernelGradient:
            xp = array_namespace(cotangent)
            parameters, names = self.parameters, self.parameter_names
            by_parameter = [
                xp.sum(cotangent * _difference(lambda p: self.with_parameters(p)(X1, X2), parameters, i, 1.0))
                for i in range(len(names))
            ]
            by_input = [
                xp.sum(cotangent * _difference(lambda X: self(X, X2), X1, d, _scale(X1[:, d], X2[:, d])), axis=1)
                for d in range(X1.shape[1])
            ]
            return KernelGradient(stack_or_empty(by_parameter, parameters), xp.stack(by_input, axis=1))

        return Linearised(self(X1, X2), pull_back)

    def pull_back_diagonal(self, X: Array, cotangent: Array) -> KernelGradient:
        """Convert the gradient with respect to `diagonal` (N,) to one of the parameters and of X (N, D).

        Parameters
        ----------
        X : array, shape (N, D)
            Inputs.
        cotangent : array, shape (N,)
            Gradient with respect to the variances.

        Returns
        -------
        KernelGradient
        """
        xp = array_namespace(X, cotangent)
        parameters = self.parameters
        by_parameter = [
            xp.sum(cotangent * _difference(lambda p: self.with_parameters(p).diagonal(X), parameters, i, 1.0))
            for i in range(len(self.parameter_names))
        ]
        by_input = [cotangent * _difference(self.diagonal, X, d, _scale(X[:, d], X[:, d])) for d in range(X.shape[1])]
        return KernelGradient(stack_or_empty(by_parameter, parameters), xp.stack(by_input, axis=1))

    def check_inputs(self, X: Array) -> None:
        """Raise `ValueError` if the kernel is not defined at some inputs X (N, D); by default it is at all of them.

        Parameters
        ----------
        X : array, shape (N, D)
            Sites, or points of a prediction.
        """

    def nearest_inputs(self, X: Array) -> Array:
        """Return the nearest inputs (N, D) at which the kernel is defined, for inducing inputs between sites.

        Parameters
        ----------
        X : array, shape (N, D)
            Inputs.

        Returns
        -------
        array, shape (N, D)
        """
        return X

    def correlation_length(self, dimensions: int) -> Array:
        """Return the distance (D,) along each input dimension over which the process hardly changes.

        It is infinite along a dimension in which correlations do not decrease to zero, as by default.

        Parameters
        ----------
        dimensions : int
            Number of input dimensions, D.

        Returns
        -------
        array, shape (D,), in the units of the inputs
        """
        parameters = self.parameters
        return array_namespace(parameters).full(
            (dimensions,), math.inf, dtype=parameters.dtype, device=device_of(parameters)
        )

    @property
    def formula(self) -> str:
        """Kinds of the kernel and its parts, such as ``matern 5/2 + white``."""
        return self.kind

    @property
    def qualified_names(self) -> tuple[str, ...]:
        """Names (P,) of the free parameters with the kind of their kernel, such as ``"periodic.period"``."""
        return tuple(f"{self.kind}.{name}" for name in self.parameter_names)

    @property
    def scale_mask(self) -> tuple[bool, ...]:
        """Which parameters (P,), all increased by log c, multiply the kernel by c; none if there are no such."""
        return tuple(name == "variance" for name in self.parameter_names)

    @property
    def variance(self) -> Array:
        """Nominal prior variance, shape (): that of a stationary kernel, otherwise a factor on the kernel."""
        parameters = self.parameters
        chosen = [i for i, scales in enumerate(self.scale_mask) if scales]
        xp = array_namespace(parameters)
        return xp.exp(parameters[chosen[0]]) if chosen else xp.exp(0.0 * xp.sum(parameters))

    def with_variance(self, variance: Array | float) -> Kernel:
        """Return the kernel scaled to another nominal variance.

        Parameters
        ----------
        variance : float or array, shape ()
            The nominal variance.

        Returns
        -------
        Kernel
        """
        parameters = self.parameters
        xp = array_namespace(parameters)
        if any(field.name == "variance" for field in fields(self)):
            return replace(self, **{"variance": as_like(variance, parameters)})
        if not any(self.scale_mask):
            raise ValueError(f"a kernel without a variance must be multiplied by Constant(variance) first, was {self}")
        mask = as_like(np.asarray(self.scale_mask, dtype=np.float64), parameters)
        return self.with_parameters(parameters + mask * xp.log(as_like(variance, parameters) / self.variance))

    def permute(self, order: Sequence[int]) -> Kernel:
        """Return the kernel for inputs whose column i is the column ``order[i]`` of the inputs of this kernel.

        Its parameters have the same order.

        Parameters
        ----------
        order : sequence of int, length D
            For each input dimension of the new kernel, that of this one.

        Returns
        -------
        Kernel
        """
        if list(order) == list(range(len(order))):
            return self
        return self.on(*(list(order).index(d) for d in range(len(order))))

    # ---- what all kernels share ----

    def __add__(self, other: Kernel) -> Kernel:
        _check_operand("added to", self, other)
        return KINDS["sum"]((*_parts(self, "sum"), *_parts(other, "sum")))

    def __radd__(self, other: Any) -> Kernel:
        if type(other) is int and other == 0:  # the start of `sum(kernels)`
            return self
        _check_operand("added to", self, other)
        return NotImplemented

    def __mul__(self, other: Kernel) -> Kernel:
        _check_operand("multiplied by", self, other)
        return KINDS["product"]((*_parts(self, "product"), *_parts(other, "product")))

    def __rmul__(self, other: Any) -> Kernel:
        _check_operand("multiplied by", self, other)
        return NotImplemented

    def on(self, *dimensions: int) -> Kernel:
        """Return the kernel as a function of some input dimensions (from 0), in this order."""
        return KINDS["on dimensions"](self, tuple(int(d) if isinstance(d, np.integer) else d for d in dimensions))

    def on_backend(self, backend: Backend) -> Self:
        """Return the kernel with its numbers and arrays on another array library and device.

        Parameters
        ----------
        backend : Backend
            Array library, device and type.

        Returns
        -------
        Kernel
        """

        def convert(value: Any) -> Any:
            if isinstance(value, Kernel):
                return value.on_backend(backend)
            if isinstance(value, tuple) and value and isinstance(value[0], Kernel):
                return tuple(convert(part) for part in value)
            if is_array_api_obj(value):
                return backend.asarray(to_numpy(value))
            return backend.asarray(value) if isinstance(value, float) else value

        return replace(self, **{field.name: convert(getattr(self, field.name)) for field in fields(self)})

    def describe(self) -> dict[str, Any]:
        """Return the kernel as a JSON object, from which `kernel_from_description` builds it again."""

        def convert(value: Any) -> Any:
            if isinstance(value, Kernel):
                return value.describe()
            if isinstance(value, tuple):
                return [convert(part) for part in value]
            return to_numpy(value).tolist() if is_array_api_obj(value) else value

        return {"kind": self.kind} | {field.name: convert(getattr(self, field.name)) for field in fields(self)}

    def __repr__(self) -> str:
        values = ", ".join(f"{field.name}={_text(getattr(self, field.name))}" for field in fields(self))
        return f"{type(self).__name__}({values})"


def kernel_from_description(description: Mapping[str, Any]) -> Kernel:
    """Build a kernel from the result of `Kernel.describe`.

    Parameters
    ----------
    description : mapping
        Kind, parameters and parts.

    Returns
    -------
    Kernel

    Raises
    ------
    ValueError
        The kind of kernel is unknown, or the description is not one of `Kernel.describe`.
    """
    if not isinstance(description, Mapping) or not isinstance(description.get("kind"), str):
        raise ValueError(  # noqa: TRY004 - a description is data
            f"a kernel must be described by its kind and its parameters, was {description!r}"
        )
    kind = description["kind"]
    if kind not in KINDS:
        raise ValueError(
            f"the kind of a kernel must be one of {', '.join(KINDS)}, was {kind!r}: import the module that defines it"
        )

    def convert(value: Any) -> Any:
        if isinstance(value, Mapping):
            return kernel_from_description(value)
        return tuple(convert(part) for part in value) if isinstance(value, list) else value

    values = {name: convert(value) for name, value in description.items() if name != "kind"}
    try:
        return KINDS[kind](**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the description of a kernel of kind {kind!r} is wrong: {error}") from error


def as_positive(name: str, value: Any, *, vector: bool = False) -> Array:
    """Convert a parameter to an array, of shape () or (D,); numbers that are not positive raise `ValueError`.

    Arrays stay unchanged, so that a search may try any values.
    """
    if is_array_api_obj(value) and not isinstance(value, np.generic):
        return value[None] if vector and value.ndim == 0 else value
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.asarray(np.nan)
    if array.ndim > vector or array.size == 0 or not np.all((array > 0) & np.isfinite(array)):
        what = "a positive number, or one per dimension" if vector else "a positive number"
        raise ValueError(f"{name} must be {what}, was {value!r}")
    return np.atleast_1d(array) if vector else array


def as_finite(name: str, value: Any) -> Array:
    """Convert a parameter to an array of shape (D,); numbers that are not finite raise `ValueError`."""
    if is_array_api_obj(value) and not isinstance(value, np.generic):
        return value
    try:
        array = np.atleast_1d(np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError):
        array = np.asarray([np.nan])
    if array.ndim > 1 or array.size == 0 or not np.isfinite(array).all():
        raise ValueError(f"{name} must be a finite number, or one per dimension, was {value!r}")
    return array


def as_like(value: Any, like: Array) -> Array:
    """Convert a number to an array with the library, type and device of `like`."""
    return array_namespace(like).asarray(value, dtype=like.dtype, device=device_of(like))


def check_dimensions(X: Array, **parameters: Array) -> None:
    """Raise `ValueError` unless each parameter has one number, or one per dimension of inputs X (N, D)."""
    for name, values in parameters.items():
        if values.shape[0] not in (1, X.shape[1]):
            raise ValueError(f"{name} must be one number or one per input dimension, {X.shape[1]}, was {_text(values)}")


def stack_or_empty(values: Sequence[Array], like: Array) -> Array:
    """Stack numbers to a vector; an empty one has the type of `like`."""
    return array_namespace(like).stack(list(values)) if values else like[:0]


def _check_operand(operation: str, kernel: Kernel, other: Any) -> None:
    """Raise `TypeError` unless the other operand is a kernel."""
    if isinstance(other, Kernel):
        return
    hint = ""
    if isinstance(other, type) and issubclass(other, Kernel):
        hint = f": write {other.__name__}(...)"
    elif isinstance(other, int | float):
        hint = f": use Constant({other}), or set the variance of the kernel"
    raise TypeError(f"a kernel can only be {operation} a kernel; {kernel} was {operation} {other!r}{hint}")


def _parts(kernel: Kernel, kind: str) -> tuple[Kernel, ...]:
    return kernel.parts if kernel.kind == kind else (kernel,)  # type: ignore[attr-defined]


def _scale(first: Array, second: Array) -> Array:
    """Return the magnitude, shape (), of inputs along one dimension, for the steps of finite differences."""
    xp = array_namespace(first, second)
    both = xp.concat([first, second])
    spread = xp.max(both) - xp.min(both)
    return xp.where(spread > 0, spread, xp.ones_like(spread))


def _difference(function: Callable[[Array], Array], point: Array, column: int, scale: Array | float) -> Array:
    """Compute the central difference of a function when one column (the last axis) of its argument moves."""
    xp = array_namespace(point)
    unit = xp.zeros_like(point)
    unit[..., column] = 1.0
    step = DIFFERENCE * scale
    return (function(point + step * unit) - function(point - step * unit)) / (2.0 * step)


def _text(value: Any) -> str:
    if is_array_api_obj(value):
        numbers = to_numpy(value)
        return f"{float(numbers):.4g}" if numbers.ndim == 0 else f"[{', '.join(f'{n:.4g}' for n in numbers.ravel())}]"
    if isinstance(value, tuple):
        return f"({', '.join(_text(part) for part in value)}{',' * (len(value) == 1)})"
    return str(value)
