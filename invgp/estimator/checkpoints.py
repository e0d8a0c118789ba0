"""Checkpoints of a fit: files from which an interrupted fit continues with bit-identical results.

The file also describes the data and the settings, so that a fit cannot continue from the checkpoint of another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import is_array_api_obj

from invgp.core.backend import Array, Backend, to_numpy
from invgp.core.parameters import BLOCKS, Parameters
from invgp.core.training import Progress
from invgp.estimator.arguments import Floats
from invgp.estimator.descriptions import describe_value, is_from_code
from invgp.estimator.settings import ModelSettings
from invgp.files.archives import CHECKPOINT, Keys, read_archive, write_archive

KEYS: Keys = {"settings": dict, "round": int, "status": str, "optimiser": (dict, type(None))}
EARLIER_SETTINGS = {"method.anew": "method.profile_posterior"}  # names in files of earlier versions
FIT_LENGTHS = ("rounds", "epochs", "final_epochs")  # settings of a method that may change when a fit continues


class FitState(NamedTuple):
    """State of a fit: its last round or epoch, and the bound after each one so far."""

    progress: Progress
    trace: list[float]


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint file of one fit.

    Parameters
    ----------
    path : Path
        The file; it need not exist yet.
    settings : mapping of str to str
        Descriptions of the data and settings, by name. They must be equal to those in the file.
    """

    path: Path
    settings: Mapping[str, str]

    def write(self, fit_state: FitState) -> None:
        """Replace the content of the file by this state."""
        progress, state = fit_state.progress, fit_state.progress.optimiser
        arrays = {name: to_numpy(getattr(progress.parameters, name)) for name in BLOCKS}
        arrays["trace"] = np.asarray(fit_state.trace)
        numbers: dict[str, Any] = {}
        for part in () if state is None else fields(state):
            value = getattr(state, part.name)
            if is_array_api_obj(value):
                arrays[f"optimiser_{part.name}"] = to_numpy(value)
            else:
                numbers[part.name] = value
        about = {
            "settings": dict(self.settings),
            "round": progress.round,
            "converged": progress.converged,
            "status": progress.status,
            "samples": progress.samples,
            "optimiser": None if state is None else numbers,
        }
        write_archive(self.path, CHECKPOINT, about, arrays)

    def read(self, backend: Backend, prior_mean: Array, state: type | None = None) -> FitState | None:
        """Read the state of the fit.

        Parameters
        ----------
        backend : Backend
            Where the arrays are created.
        prior_mean : array, shape (Q,)
            Used if the file is of an earlier version, which did not store it.
        state : type, optional
            Class of the optimiser's state, a dataclass of arrays and numbers; None if the optimiser has no state.

        Returns
        -------
        FitState or None
            None if the file does not exist.

        Raises
        ------
        ValueError
            The file is not a checkpoint, or the data or settings differ from those of the checkpoint.
        """
        if not self.path.exists():
            return None
        about, arrays = read_archive(self.path, CHECKPOINT, KEYS)
        self._compare(about["settings"])
        arrays["kernels"] = arrays["kernels"].ravel()  # earlier versions wrote one row per latent
        arrays.setdefault("prior_mean", to_numpy(prior_mean))
        parameters = Parameters(*(backend.asarray(arrays[name]) for name in BLOCKS))
        trace, optimiser = arrays["trace"].tolist(), None
        if state is not None and about["optimiser"] is not None:
            held = {name: backend.asarray(arrays[key]) for name, key in _optimiser_arrays(arrays).items()}
            optimiser = state(**held, **about["optimiser"])
        fit_state = Progress(
            about["round"],
            trace[-1],
            parameters,
            _read_converged(about),
            about["status"],
            optimiser,
            about.get("samples", 0),
        )
        return FitState(fit_state, trace)

    def _compare(self, settings: Mapping[str, str]) -> None:
        settings = {EARLIER_SETTINGS.get(name, name): value for name, value in settings.items()}
        for name in {**self.settings, **settings}:
            if is_from_code(name) and name not in settings:  # in files of earlier versions
                continue
            now, must = self.settings.get(name, "absent"), settings.get(name, "absent")
            if now != must:
                raise ValueError(
                    f"{name} must be {must} to continue from the checkpoint {str(self.path)!r}, was {now}: "
                    "use another file to start a new fit"
                )


def describe_fit(settings: ModelSettings, X: Floats, Y: Floats, weights: Floats | None) -> Checkpoint | None:
    """Describe data and settings of a fit for its checkpoint; only the device and the length of the fit may change.

    Parameters
    ----------
    settings : ModelSettings
        The model.
    X : array, shape (N, D)
        Inputs.
    Y : array, shape (N, P)
        Observations.
    weights : array, shape (N,), optional
        Weights of the sites.

    Returns
    -------
    Checkpoint or None
        None for a model without a checkpoint.
    """
    if settings.checkpoint is None:
        return None
    words = (
        describe_value("X", X)
        | describe_value("y", Y)
        | ({} if weights is None else describe_value("sample_weight", weights))
        | describe_value("method", settings._method, leave_out=FIT_LENGTHS)
    )
    for setting in fields(settings):
        if setting.name not in ("method", "device", "checkpoint", "verbose"):
            words |= describe_value(setting.name, getattr(settings, setting.name))
    return Checkpoint(Path(settings.checkpoint), words)


def _read_converged(about: Mapping[str, Any]) -> bool:
    """Whether a fit had converged; earlier versions of invgp called this ``settled``."""
    return bool(about.get("converged", about.get("settled", False)))


def _optimiser_arrays(arrays: Mapping[str, Any]) -> dict[str, str]:
    """Map the array fields of the optimiser's state to the names of their arrays in the file."""
    return {key.removeprefix("optimiser_"): key for key in arrays if key.startswith("optimiser_")}
