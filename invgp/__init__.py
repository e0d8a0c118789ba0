"""Infer subsurface fields with uncertainty from a survey and any simulator.

Define a problem with `load` or `define`, compute its posterior with `invert`, and use it with `predict`, `plot`,
`report` and `export`. `compare` and `calibrate` test it. The packages `adapters`, `likelihoods`, `measures` and `plots`
are available as attributes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from invgp import adapters, forward_models, likelihoods, measures, netcdf, plots
    from invgp.api import (
        calibrate,
        compare,
        crossvalidate,
        design,
        difference,
        export,
        open_posterior,
        plot,
        report,
        revise,
        weigh,
        write,
    )
    from invgp.config import define, load
    from invgp.errors import InvgpError
    from invgp.estimator import SAVIGP
    from invgp.inference.invert import invert
    from invgp.maps.predict import predict
    from invgp.posterior.attributes import has_converged
    from invgp.problem import Problem

    __version__: str

__all__ = [
    "SAVIGP",
    "InvgpError",
    "Problem",
    "__version__",
    "adapters",
    "calibrate",
    "compare",
    "crossvalidate",
    "define",
    "design",
    "difference",
    "export",
    "forward_models",
    "has_converged",
    "invert",
    "likelihoods",
    "load",
    "measures",
    "netcdf",
    "open_posterior",
    "plot",
    "plots",
    "predict",
    "report",
    "revise",
    "weigh",
    "write",
]

# Imported on first use: `invgp --help` must not wait for xarray and SciPy.
_MODULES = {
    "InvgpError": "invgp.errors",
    "Problem": "invgp.problem",
    "SAVIGP": "invgp.estimator",
    "calibrate": "invgp.api",
    "compare": "invgp.api",
    "crossvalidate": "invgp.api",
    "define": "invgp.config",
    "design": "invgp.api",
    "difference": "invgp.api",
    "export": "invgp.api",
    "has_converged": "invgp.posterior.attributes",
    "invert": "invgp.inference.invert",
    "load": "invgp.config",
    "open_posterior": "invgp.api",
    "plot": "invgp.api",
    "predict": "invgp.maps.predict",
    "report": "invgp.api",
    "revise": "invgp.api",
    "weigh": "invgp.api",
    "write": "invgp.api",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("invgp")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    if name in __all__:
        return import_module(f"invgp.{name}")
    raise AttributeError(f"module 'invgp' has no attribute {name!r}")
