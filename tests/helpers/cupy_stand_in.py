"""A stand-in for CuPy that computes with NumPy, for tests without a GPU.

It has the functions and arguments of CuPy (cupy_names.json) and its strict rules:

- arrays are never converted to NumPy implicitly, and NumPy arrays are no operands: only `asarray`, `array` and `get`
  copy;
- `linalg.solve` and `cupyx.scipy.linalg.solve_triangular` do not broadcast stacks of matrices;
- the Cholesky factor of an indefinite matrix is wrong without an error, unless `cupyx.errstate(linalg="raise")` is set.

array_api_compat uses it as if it were CuPy. `STAND_IN.calls` records the functions that were called.
"""

from __future__ import annotations

import importlib
import inspect
import json
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

NAMES: dict[str, dict[str, list[str] | None]] = json.loads(
    Path(__file__).with_name("cupy_names.json").read_text(encoding="utf-8")
)
UFUNC_KEYWORDS = {"out", "dtype", "casting"}
FROM_HOST = {"asarray", "array", "ascontiguousarray", "asanyarray"}  # functions that copy NumPy arrays
BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
COMPARISONS = ("lt", "le", "eq", "ne", "gt", "ge")


class Device:
    """The only GPU."""

    def __init__(self, number: Device | int | None = None) -> None:
        self.id = number.id if isinstance(number, Device) else number or 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class ndarray:  # noqa: N801 - the name in CuPy
    """An array on the GPU: its numbers are in the memory of the host, but NumPy cannot read them."""

    __hash__ = None  # type: ignore[assignment]
    device = Device()

    def __init__(self, host: Any) -> None:
        self._host = np.asarray(host)

    def __array__(self, *_: object, **__: object) -> None:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        if method != "__call__" or any(isinstance(one, np.ndarray) for one in inputs):
            raise TypeError(f"Unsupported type for {ufunc.__name__}: a NumPy array")
        return wrap(ufunc(*(unwrap(one) for one in inputs), **{k: unwrap(v) for k, v in keywords.items()}))

    def get(self) -> np.ndarray:
        """Copy to the host."""
        return self._host.copy()

    def astype(self, dtype: Any, *, copy: bool = True, order: str = "K") -> ndarray:
        """Convert to another type."""
        return ndarray(self._host.astype(dtype, copy=copy, order=order))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in NAMES["ndarray"]:
            raise AttributeError(f"CuPy arrays have no attribute {name!r}")
        found = getattr(self._host, name)
        if not callable(found):
            return wrap(found)
        return lambda *arguments, **keywords: wrap(
            found(*(unwrap(a) for a in arguments), **{k: unwrap(v) for k, v in keywords.items()})
        )

    def __getitem__(self, key: Any) -> ndarray:
        return ndarray(self._host[unwrap(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._host[unwrap(key)] = unwrap(value)

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Iterator[ndarray]:
        return (ndarray(part) for part in self._host)

    def __float__(self) -> float:
        return float(self._host)

    def __int__(self) -> int:
        return int(self._host)

    def __bool__(self) -> bool:
        return bool(self._host)

    def __neg__(self) -> ndarray:
        return ndarray(-self._host)

    def __pos__(self) -> ndarray:
        return self

    def __abs__(self) -> ndarray:
        return ndarray(abs(self._host))

    def __invert__(self) -> ndarray:
        return ndarray(~self._host)


def _add_operators() -> None:
    def of(name: str, *, swapped: bool) -> Callable[[ndarray, Any], Any]:
        function = getattr(operator, f"{name}_" if name in ("and", "or") else name)

        def apply(left: ndarray, right: Any) -> Any:
            host = unwrap(right)
            return ndarray(function(host, left._host) if swapped else function(left._host, host))

        return apply

    for name in (*BINARY, *COMPARISONS):
        setattr(ndarray, f"__{name}__", of(name, swapped=False))
    for name in BINARY:
        setattr(ndarray, f"__r{name}__", of(name, swapped=True))


_add_operators()


def unwrap(value: Any) -> Any:
    """Return the numbers of an array, also inside tuples and lists; refuse NumPy arrays."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>: CuPy does not convert it implicitly")
    if type(value) in (tuple, list):
        return type(value)(unwrap(part) for part in value)
    return value


def wrap(value: Any) -> Any:
    """Return NumPy results as arrays of the GPU; CuPy has no scalars."""
    if isinstance(value, np.ndarray | np.generic):
        return ndarray(value)
    if isinstance(value, tuple) and any(isinstance(part, np.ndarray) for part in value):
        parts = [wrap(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return [wrap(part) for part in value] if isinstance(value, list) else value


def signature_of(arguments: list[str]) -> inspect.Signature:
    """Return the signature of a function of CuPy from its arguments in cupy_names.json."""
    kind, found = inspect.Parameter.POSITIONAL_OR_KEYWORD, []
    for name in arguments:
        if name.startswith("**"):
            found.append(inspect.Parameter(name[2:], inspect.Parameter.VAR_KEYWORD))
            continue
        if name.startswith("*"):
            kind = inspect.Parameter.KEYWORD_ONLY
            if len(name) > 1:
                found.append(inspect.Parameter(name[1:], inspect.Parameter.VAR_POSITIONAL))
            continue
        default = None if name.endswith("=") else inspect.Parameter.empty
        found.append(inspect.Parameter(name.rstrip("="), kind, default=default))
    return inspect.Signature(found)


class StandIn:
    """The modules of the stand-in, and the calls of their functions: names and keywords."""

    def __init__(self) -> None:
        self.calls: set[tuple[str, tuple[str, ...]]] = set()
        self.raises = False  # whether the linear algebra reports failures

    def modules(self) -> dict[str, ModuleType]:
        """Return the modules of the stand-in by their names."""
        cupy = self._module("cupy", np)
        for name in ("finfo", "iinfo", "dtype", "newaxis", "pi", "inf", "nan", "e", "integer", "floating", "intp"):
            setattr(cupy, name, getattr(np, name))
        for name in ("bool_", "complex64", "complex128", "float32", "float64"):
            setattr(cupy, name, getattr(np, name))
        for bits in (8, 16, 32, 64):
            for sign in ("int", "uint"):
                setattr(cupy, f"{sign}{bits}", getattr(np, f"{sign}{bits}"))
        cupy.ndarray, cupy.__version__ = ndarray, "14.2.0+stand.in"  # type: ignore[attr-defined]
        cupy.linalg = self._module("cupy.linalg", np.linalg)  # type: ignore[attr-defined]
        cupy.fft = self._module("cupy.fft", np.fft)  # type: ignore[attr-defined]
        cupy.linalg.cholesky = self._check_signature("cupy.linalg", "cholesky", self._cholesky)
        cupy.linalg.solve = self._check_signature("cupy.linalg", "solve", _solve)
        cuda, device, cupyx = ModuleType("cupy.cuda"), ModuleType("cupy.cuda.device"), ModuleType("cupyx")
        cuda.Device = device.Device = Device  # type: ignore[attr-defined]
        cuda.is_available = lambda: True  # type: ignore[attr-defined]
        cuda.runtime = SimpleNamespace(  # type: ignore[attr-defined]
            getDeviceCount=lambda: 1, getDeviceProperties=lambda _: {"name": b"stand-in", "totalGlobalMem": 2**30}
        )
        cuda.device, cupy.cuda = device, cuda  # type: ignore[attr-defined]
        cupyx.errstate = self._errstate  # type: ignore[attr-defined]
        scipy, linalg = ModuleType("cupyx.scipy"), ModuleType("cupyx.scipy.linalg")
        linalg.solve_triangular = self._check_signature(  # type: ignore[attr-defined]
            "cupyx.scipy.linalg", "solve_triangular", _solve_triangular
        )
        cupyx.scipy, scipy.linalg = scipy, linalg  # type: ignore[attr-defined]
        found = (cupy, cupy.linalg, cupy.fft, cuda, device, cupyx, scipy, linalg)
        return {module.__name__: module for module in found}

    def _module(self, name: str, source: ModuleType) -> ModuleType:
        found = ModuleType(name)
        for function in NAMES[name]:
            if hasattr(source, function):
                setattr(found, function, self._check_signature(name, function, getattr(source, function)))
        return found

    def _check_signature(self, module: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that takes only what the function of CuPy takes."""
        arguments, full = NAMES[module][name], f"{module}.{name}"
        signature = None if arguments is None else signature_of(arguments)

        def call(*positional: Any, **keywords: Any) -> Any:
            self.calls.add((full, tuple(sorted(keywords))))
            if signature is not None:
                signature.bind(*positional, **keywords)
            elif not set(keywords) <= UFUNC_KEYWORDS:
                raise TypeError(f"{full} got an unexpected keyword argument: {sorted(set(keywords) - UFUNC_KEYWORDS)}")
            if name in FROM_HOST:
                first = positional[0]
                positional = (first.get() if isinstance(first, ndarray) else first, *positional[1:])
                return wrap(function(*positional, **{k: v for k, v in keywords.items() if k != "blocking"}))
            return wrap(function(*unwrap(positional), **{k: unwrap(v) for k, v in keywords.items()}))

        call.__name__ = name
        return call

    @contextmanager
    def _errstate(self, *, linalg: str = "ignore") -> Iterator[None]:
        self.calls.add(("cupyx.errstate", ("linalg",)))
        before, self.raises = self.raises, linalg == "raise"
        try:
            yield
        finally:
            self.raises = before

    def _cholesky(self, a: np.ndarray) -> np.ndarray:
        try:
            return np.linalg.cholesky(a)
        except np.linalg.LinAlgError:
            if self.raises:
                raise
            return np.tril(a)  # finite, as a factorisation that stopped at the first pivot leaves it


def _solve(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if b.ndim > 1 and a.shape[:-1] != b.shape[:-1]:
        raise ValueError("a must have (..., M, M) shape and b must have (..., M, K) for multidimensional b")
    return np.linalg.solve(a, b)


def _solve_triangular(
    a: np.ndarray, b: np.ndarray, trans: int = 0, lower: bool = False, **unused: object
) -> np.ndarray:
    if unused or a.shape[:-2] != b.shape[: a.ndim - 2] or b.ndim < a.ndim - 1:
        raise ValueError("incompatible batch count")
    triangle = np.tril(a) if lower else np.triu(a)
    return np.linalg.solve(triangle.mT if trans else triangle, b)


STAND_IN = StandIn()


def install() -> Any:
    """Put the modules where `import cupy` finds them, and return a backend on them."""
    if "cupy" in sys.modules and "stand" not in sys.modules["cupy"].__version__:
        raise RuntimeError("CuPy itself has been imported")
    sys.modules.update(STAND_IN.modules())
    return importlib.import_module("invgp.core.backend").select_backend("cuda")
