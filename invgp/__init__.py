"""The fields below a survey, with their uncertainty, from any simulator."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from invgp import netcdf as netcdf
    from invgp import plots as plots
    from invgp.config import define, load
    from invgp.errors import InvgpError
    from invgp.estimator import SAVIGP
    from invgp.inference.invert import invert
    from invgp.maps.predict import predict
    from invgp.problem import Problem

    __version__: str

__all__ = ["SAVIGP", "InvgpError", "Problem", "__version__", "define", "invert", "load", "predict"]

# Loaded on first use: `invgp --help` must not wait for xarray and SciPy.
_HOME = {
    "InvgpError": "invgp.errors",
    "Problem": "invgp.problem",
    "SAVIGP": "invgp.estimator",
    "define": "invgp.config",
    "invert": "invgp.inference.invert",
    "load": "invgp.config",
    "predict": "invgp.maps.predict",
}
_MODULES = ("adapters", "forward_models", "likelihoods", "measures", "netcdf", "plots")


def __dir__() -> list[str]:
    return [*__all__, *_MODULES]


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("invgp")
    if name in _MODULES:
        return import_module(f"invgp.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'invgp' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
