"""Every place where a likelihood's arrays may live."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest

from invgp.core.backend import Place, place

STRICT = {}
for _device in array_api_strict.__array_namespace_info__().devices():
    _types = array_api_strict.__array_namespace_info__().dtypes(device=_device, kind="real floating")
    _dtype = "float64" if "float64" in _types else "float32"
    STRICT[f"strict-{str(_device).split(chr(39))[1]}-{_dtype}"] = Place(array_api_strict, _device, _dtype)
# Single precision also where double precision is to be had.
STRICT["strict-single"] = Place(array_api_strict, array_api_strict.Device("device1"), "float32")


@pytest.fixture
def tolerance():
    """tolerance(where, 1e-12) in double precision; in single, `single`."""

    def choose(where: Place, double: float, single: float = 1e-4) -> float:
        return double if where.dtype == "float64" else single

    return choose


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "where" in metafunc.fixturenames:
        places = {"numpy": place("cpu"), **STRICT}
        if metafunc.config.getoption("--device") == "cuda":
            places["cuda"] = place("cuda")
        metafunc.parametrize("where", places.values(), ids=places.keys())


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260202)
