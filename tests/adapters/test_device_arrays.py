"""Python functions that take and return arrays of other libraries, maybe on a device."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import pytest

import invgp
from invgp.adapters import AdapterError, CallableModel, Quantity, RunContext, Status
from invgp.adapters.device_arrays import to_host
from invgp.adapters.testing import check_forward_model

INPUTS = (Quantity("depth", "m", (1, 2)), Quantity("velocity", "m s-1"))
OUTPUTS = (Quantity("time", "s", (1, 2)),)
ROWS = np.array([[100.0, 250.0, 2000.0], [50.0, 60.0, 1500.0], [1.0, 2.0, 3.0]])
EXPECTED = 2.0 * ROWS[:, :2] / ROWS[:, 2:]
LIBRARIES = ["array_api_strict", "jax", "torch", "cupy"]


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    """A library that is installed; JAX in double precision."""
    name: str = request.param
    module = pytest.importorskip(name)
    if name == "jax":
        module.config.update("jax_enable_x64", True)
    if name == "cupy":
        try:
            module.zeros(1)
        except Exception as error:
            pytest.skip(f"no GPU: {error}")
    return name


class Times:
    """Two-way times, for arrays of one library only."""

    def __init__(self, library: str, *, vectorised: bool = True) -> None:
        self.library, self.vectorised = library, vectorised
        self.seen: set[str] = set()

    def __call__(self, depth: Any, velocity: Any) -> Any:
        self.seen |= {type(array).__module__.split(".")[0] for array in (depth, velocity)}
        shapes = [(2,), ()] if not self.vectorised else [(depth.shape[0], 2), (depth.shape[0],)]
        assert [tuple(array.shape) for array in (depth, velocity)] == shapes
        return 2.0 * depth / (velocity[:, None] if self.vectorised else velocity)


def evaluate(model: CallableModel, rows: np.ndarray, directory: Path) -> Any:
    return model.evaluate(rows, RunContext([str(n) for n in range(len(rows))], directory))


@pytest.mark.parametrize("vectorised", [True, False])
def test_that_a_function_takes_and_returns_arrays_of_a_library(library: str, vectorised: bool, tmp_path: Path) -> None:
    function = Times(library, vectorised=vectorised)
    model = CallableModel(function, INPUTS, OUTPUTS, vectorised=vectorised, arrays=library)
    found = evaluate(model, ROWS, tmp_path)
    assert found.status == (Status.OK,) * 3, found.messages
    np.testing.assert_allclose(found.outputs, EXPECTED, rtol=1e-14)
    kinds = {"jax": {"jax", "jaxlib"}}.get(library, {library})
    assert function.seen
    assert function.seen <= kinds


def test_that_derivatives_may_be_arrays_of_a_library(library: str, tmp_path: Path) -> None:
    xp = importlib.import_module({"jax": "jax.numpy"}.get(library, library))

    def with_jacobian(depth: Any, velocity: Any) -> Any:
        slopes = (2.0 / velocity)[:, None, None] * xp.eye(2, dtype=depth.dtype)[None, :, :]
        return 2.0 * depth / velocity[:, None], {"depth": slopes}

    model = CallableModel(with_jacobian, INPUTS, OUTPUTS, arrays=library, jacobian=True)
    found = evaluate(model, ROWS, tmp_path)
    assert found.status == (Status.OK,) * 3, found.messages
    slopes = np.zeros((3, 2, 3))
    slopes[:, [0, 1], [0, 1]] = 2.0 / ROWS[:, 2:]
    np.testing.assert_allclose(found.outputs, np.hstack([EXPECTED, slopes.reshape(3, -1)]), rtol=1e-14)


def test_that_results_on_the_host_are_not_copied(library: str) -> None:
    xp = importlib.import_module({"jax": "jax.numpy"}.get(library, library))
    array = xp.ones(5)
    if array.__dlpack_device__()[0] != 1:
        pytest.skip("the default device is not the host")
    found = to_host(array)
    assert isinstance(found, np.ndarray)
    if library == "jax":
        assert found.ctypes.data == array.unsafe_buffer_pointer()
    elif library == "torch":
        assert found.ctypes.data == array.data_ptr()
    else:
        array[0] = 7.0
        assert found[0] == 7.0


class OnDevice:
    """An array on a device, as far as a host without one can imitate it: it refuses DLPack and implicit conversion."""

    def __init__(self, values: np.ndarray, move: str) -> None:
        self.values = values
        setattr(self, move, lambda: self.values)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)  # CUDA

    def __dlpack__(self, **_: object) -> object:
        raise BufferError("on a device")

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


@pytest.mark.parametrize("move", ["get", "cpu"])
def test_that_results_on_a_device_are_copied_once(move: str, tmp_path: Path) -> None:
    """The names are those of CuPy and PyTorch."""
    model = CallableModel(lambda depth, velocity: OnDevice(2.0 * depth / velocity[:, None], move), INPUTS, OUTPUTS)
    found = evaluate(model, ROWS, tmp_path)
    np.testing.assert_array_equal(found.outputs, EXPECTED)


def test_that_pytorch_arrays_that_record_derivatives_are_results(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    model = CallableModel(lambda depth, velocity: scale * depth / velocity[:, None], INPUTS, OUTPUTS, arrays="torch")
    np.testing.assert_array_equal(evaluate(model, ROWS, tmp_path).outputs, EXPECTED)


def double(depth: Any, velocity: Any) -> Any:
    return 2.0 * depth / velocity[:, None]


def test_that_the_model_of_a_library_is_a_forward_model(library: str, tmp_path: Path) -> None:
    model = CallableModel(double, INPUTS, OUTPUTS, arrays=library)
    check_forward_model(model, ROWS, tmp_path)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(evaluate(again, ROWS, tmp_path).outputs, evaluate(model, ROWS, tmp_path).outputs)


def test_that_the_digest_contains_the_library_unless_it_is_numpy() -> None:
    plain = CallableModel(double, INPUTS, OUTPUTS)
    assert plain.digest == CallableModel(double, INPUTS, OUTPUTS, arrays="numpy").digest
    assert plain.digest != CallableModel(double, INPUTS, OUTPUTS, arrays="array_api_strict").digest


@pytest.mark.parametrize(
    ("library", "message"), [("nothing_of_this_name", "cannot be imported"), ("json", "must be a library of arrays")]
)
def test_that_a_library_must_exist(library: str, message: str) -> None:
    with pytest.raises(AdapterError, match=message):
        CallableModel(double, INPUTS, OUTPUTS, arrays=library)


def test_that_a_failing_row_fails_alone(tmp_path: Path) -> None:
    def strict(depth: Any, velocity: Any) -> Any:
        if array_api_strict.any(velocity < 10.0):
            raise ValueError("too slow")
        return 2.0 * depth / velocity[:, None]

    model: Callable[..., Any] = CallableModel(strict, INPUTS, OUTPUTS, arrays="array_api_strict").evaluate
    found = model(ROWS, RunContext(["a", "b", "c"], tmp_path))
    assert found.status == (Status.OK, Status.OK, Status.RAISED)


@pytest.mark.slow
def test_that_an_inversion_uses_a_function_of_a_library(library: str) -> None:
    """The library is a setting of [forward]; the posterior is that of the same function of NumPy arrays."""
    posteriors = [
        invgp.invert(
            invgp.define(
                {"x": np.arange(5.0), "level": [0.1, 0.4, 0.2, -0.3, 0.0]},
                coordinates={"x": "m"},
                observations={"level": "m"},
                latents={"height": {"unit": "m", "mean": 0.0, "std": 1.0, "kernel": {"length_scale": 2.0}}},
                grid={"x": {"unit": "m", "start": 0.0, "stop": 4.0, "step": 1.0}},
                forward={"function": lambda height: 2.0 * height, "arrays": arrays},
                noise={"level": 0.1},
            )
        )
        for arrays in (library, "numpy")
    ]
    np.testing.assert_allclose(posteriors[0]["height"], posteriors[1]["height"], rtol=1e-6, atol=1e-9)
