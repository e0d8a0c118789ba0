"""Infer subsurface fields with uncertainty from a survey and any simulator.

Define a problem with `load` or `define`, compute its posterior with `invert`, and use it with `predict`, `plot`,
`report` and `export`. `compare` and `calibrate` test it. The packages `adapters`, `kernels`, `likelihoods`, `measures`
and `plots` are available as attributes.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from invgp import adapters, forward_models, kernels, likelihoods, measures, netcdf, plots
    from invgp.api import (
        calibrate,
        compare,
        crossvalidate,
        design,
        difference,
        export,
        influence,
        open_posterior,
        plot,
        prior,
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
    "influence",
    "invert",
    "kernels",
    "likelihoods",
    "load",
    "measures",
    "netcdf",
    "open_posterior",
    "plot",
    "plots",
    "predict",
    "prior",
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
    "influence": "invgp.api",
    "invert": "invgp.inference.invert",
    "load": "invgp.config",
    "open_posterior": "invgp.api",
    "plot": "invgp.api",
    "predict": "invgp.maps.predict",
    "prior": "invgp.api",
    "report": "invgp.api",
    "revise": "invgp.api",
    "weigh": "invgp.api",
    "write": "invgp.api",
}


class _AccessorRegistration:
    """Finder of modules that registers ``dataset.invgp`` when xarray is imported; `import invgp` does not import it."""

    searching = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        if name != "xarray" or self.searching:
            return None
        self.searching = True
        try:
            spec = import_module("importlib.util").find_spec(name)
        finally:
            self.searching = False
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            import_module("invgp.accessor")

        spec.loader.exec_module = execute_and_register
        return cast("ModuleSpec", spec)


if "xarray" in sys.modules:
    import_module("invgp.accessor")
else:
    sys.meta_path.insert(0, _AccessorRegistration())


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
