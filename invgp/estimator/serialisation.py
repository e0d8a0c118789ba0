"""Files of fitted models: `SAVIGP.save` writes them and `SAVIGP.load` reads them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, to_numpy
from invgp.core.bound import Bound, BoundState
from invgp.core.hyperpriors import Hyperprior
from invgp.core.kernels import STATIONARY, Kernel, kernel_from_description
from invgp.core.optimisers import LBFGS
from invgp.core.parameters import BLOCKS, Parameters
from invgp.core.posteriors import Diagonal, Full
from invgp.core.stochastic_optimisers import AdaDelta, Adam
from invgp.core.training import Blocks, MiniBatches
from invgp.estimator.descriptions import FUNCTION, describe_value, is_from_code
from invgp.estimator.fitted_model import FittedModel
from invgp.estimator.labels import class_count, is_classifier
from invgp.files.archives import MODEL, Keys, read_archive, write_archive
from invgp.likelihoods import Likelihood

Model = TypeVar("Model", bound=FittedModel)

CLASSES = {kind.__name__: kind for kind in (Blocks, MiniBatches, LBFGS, Adam, AdaDelta, Hyperprior)}
GIVEN_AGAIN = ("likelihood", "device")
KEYS: Keys = {
    "settings": dict,
    "likelihood": dict,
    "kernels": list,
    "diagonal": bool,
    "jitter": (int, float),
    "fitted": dict,
}
NAMES = ("classes_", "feature_names_in_")  # fitted attributes that not every model has
FITTED = (
    "dense_",
    "posterior_",
    "converged_",
    "status_",
    "samples_",
    "bound_",
    "bound_std_error_",
    "mixture_bound_",
    "mixture_bound_std_error_",
)
# Names in files of earlier versions.
EARLIER_NAMES: dict[str, str] = {
    "settled_": "converged_",
    "seed": "random_state",
    "anew": "profile_posterior",
    "settle": "final_epochs",
}


def write(model: FittedModel, bound_state: BoundState, path: Path) -> None:
    """Write a fitted model as a NumPy archive without pickles."""
    settings, arrays = _settings(model)
    about = {
        "settings": settings,
        "likelihood": _describe_likelihood(model.likelihood, bound_state.parameters.likelihood),
        "kernels": [kernel.describe() for kernel in bound_state.kernels],
        "diagonal": isinstance(bound_state.family, Diagonal),
        "jitter": bound_state.bound.jitter,
        "fitted": {name: getattr(model, name) for name in FITTED}
        | {name: getattr(model, name).tolist() for name in NAMES if hasattr(model, name)},
    }
    arrays |= {name: to_numpy(getattr(bound_state.parameters, name)) for name in BLOCKS}
    arrays["kernels"] = to_numpy(bound_state.bound.kernel_parameters(bound_state.parameters))
    arrays["trace"] = np.asarray(model.trace_)
    write_archive(path, MODEL, about, arrays)


def read(
    kind: type[Model], path: Path, likelihood: Likelihood, device: str, *, other_functions: bool = False
) -> tuple[Model, BoundState]:
    """Read a model with the settings of a file and the given likelihood, and its fitted state."""
    about, arrays = read_archive(path, MODEL, KEYS)
    try:
        _compare(path, about["likelihood"], likelihood, arrays["likelihood"], other_functions=other_functions)
        return _rebuild(kind, about, arrays, likelihood, device)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"{str(path)!r} must be {MODEL}, was a file that invgp did not write") from error


def _rebuild(
    kind: type[Model], about: dict[str, Any], arrays: dict[str, NDArray[Any]], likelihood: Likelihood, device: str
) -> tuple[Model, BoundState]:
    """Build the model and its fitted state from the content of a file."""
    settings = {EARLIER_NAMES.get(name, name): value for name, value in about["settings"].items()}
    values = {name: arrays.get(f"setting_{name}", value) for name, value in settings.items()}
    model = kind(likelihood, device=device, **{name: _from_json(value) for name, value in values.items()})
    for name, value in about["fitted"].items():
        setattr(model, EARLIER_NAMES.get(name, name), np.asarray(value) if name in NAMES else value)
    model._seed = model.random_state if isinstance(model.random_state, int) else 0
    if is_classifier(likelihood) and not hasattr(model, "classes_"):  # in files of earlier versions
        model.classes_ = np.arange(class_count(likelihood))
    model.trace_ = arrays["trace"].tolist()
    backend = model._backend()
    Q, M, D = arrays["inducing"].shape
    arrays["kernels"] = arrays["kernels"].ravel()  # earlier versions wrote one row per latent
    scales = arrays["kernels"].size // Q - 1
    blank = [_kernel(description, scales).on_backend(backend) for description in about["kernels"]]
    family = (Diagonal if about["diagonal"] else Full)(Q, M, model.components)
    nowhere = backend.asarray(np.zeros((0, D)))
    bound = Bound(family, tuple(blank), nowhere, dense=False, jitter=about["jitter"])
    return model, bound.bound_state(Parameters(*(backend.asarray(arrays[name]) for name in BLOCKS)))


def _kernel(description: Any, scales: int) -> Kernel:
    """Build a kernel from its description; earlier versions wrote the name of a kind instead."""
    if isinstance(description, str):
        return STATIONARY[description](1.0, np.ones(scales))
    if not isinstance(description, Mapping):
        raise TypeError(f"a kernel must be described by its kind and its parameters, was {description!r}")
    return kernel_from_description(description)


def _settings(model: FittedModel) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Separate the settings into JSON values and arrays."""
    plain, arrays = {}, {}
    for setting in fields(model):
        value = getattr(model, setting.name)
        if setting.name in GIVEN_AGAIN:
            continue
        if (
            setting.name in ("length_scale", "variance", "prior_mean", "inducing", "initial_mean")
            and np.ndim(value) > 0
        ):
            arrays[f"setting_{setting.name}"] = np.asarray(value, dtype=np.float64)
            value = None
        plain[setting.name] = _to_json(value)
    return plain, arrays


def _to_json(value: Any) -> Any:
    """Convert a setting to a JSON value."""
    if is_dataclass(value) and type(value).__name__ in CLASSES:
        return {"kind": type(value).__name__} | {f.name: _to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Kernel | dict):
        return (
            {"kind": "Kernel", "description": value.describe()}
            if isinstance(value, Kernel)
            else {"kind": "dict", "items": [[name, _to_json(part)] for name, part in value.items()]}
        )
    if isinstance(value, tuple | list):
        return [_to_json(part) for part in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.item()
    return value if isinstance(value, type(None) | bool | int | float | str) else {"kind": type(value).__name__}


def _from_json(value: Any) -> Any:
    """Convert a JSON value back to a setting."""
    if isinstance(value, list):
        return tuple(_from_json(part) for part in value)
    if not isinstance(value, dict):
        return value
    if value["kind"] == "Kernel":
        return kernel_from_description(value["description"])
    if value["kind"] == "dict":
        return {name: _from_json(part) for name, part in value["items"]}
    known = {
        EARLIER_NAMES.get(str(name), str(name)): _from_json(part) for name, part in value.items() if name != "kind"
    }
    lost = [name for name, part in value.items() if isinstance(part, dict) and part["kind"] not in CLASSES]
    for name in lost:
        warnings.warn(
            f"{name} was a {value[name]['kind']}, which cannot be stored in a file: the default is used", stacklevel=4
        )
        del known[EARLIER_NAMES.get(name, name)]
    return CLASSES[value["kind"]](**known) if value["kind"] in CLASSES else None


def _describe_likelihood(likelihood: Likelihood, parameters: Array) -> dict[str, str]:
    """Describe a likelihood with these parameters; functions by their names and digests of their code."""
    learnt = likelihood.with_parameters(to_numpy(parameters)) if parameters.shape[0] else likelihood
    return describe_value("likelihood", learnt)


def _compare(
    path: Path, saved: dict[str, str], likelihood: Likelihood, parameters: NDArray[Any], *, other_functions: bool
) -> None:
    count = to_numpy(likelihood.parameters).shape[0]
    kind = type(likelihood).__name__
    if kind != saved["likelihood"]:
        raise ValueError(f"likelihood must be {saved['likelihood']}, as in {str(path)!r}, was {kind}")
    if count != len(parameters):
        raise ValueError(
            f"likelihood must have {len(parameters)} parameters to learn, as in {str(path)!r}, had {count}"
        )
    now = _describe_likelihood(likelihood, parameters)
    for name in {**saved, **now}:
        was, must = now.get(name, "absent"), saved.get(name, "absent")
        is_function = is_from_code(name) or was.startswith(FUNCTION)
        if is_function and (other_functions or name not in saved):  # earlier versions did not save functions
            continue
        if was != must:
            hint = ": pass other_functions=True if it computes the same" if is_function else ""
            raise ValueError(f"{name} must be {must}, as in {str(path)!r}, was {was}{hint}")
