"""A problem from Python: the keys of the config as arguments, a table in memory, a function as it is."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invgp.config.toml_document import check_values
from invgp.config.typed_keys import (
    AxisKeys,
    ColumnKeys,
    InferenceKeys,
    LatentKeys,
    NoiseKeys,
    ObservationKeys,
    OutputKeys,
    Unit,
)
from invgp.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from invgp.adapters.protocol import ForwardModel, Quantity
    from invgp.problem import Problem


def define(
    data: Mapping[str, ArrayLike] | str | Path | Any,
    *,
    coordinates: Mapping[str, Unit | ColumnKeys],
    observations: Mapping[str, Unit | ObservationKeys],
    latents: Mapping[str, LatentKeys],
    forward: Callable[..., Any] | ForwardModel | Mapping[str, Any],
    noise: NoiseKeys | Mapping[str, float | Sequence[float] | str | Sequence[str]],
    covariates: Mapping[str, Unit | ColumnKeys] | None = None,
    grid: Mapping[str, AxisKeys] | None = None,
    dimensions: Mapping[str, Sequence[int] | Sequence[str]] | None = None,
    crs: str | None = None,
    title: str = "",
    inference: InferenceKeys | None = None,
    output: OutputKeys | None = None,
) -> Problem:
    """Describe a problem in Python; the keys are those of the config file, and so are the sentences about mistakes.

    Parameters
    ----------
    data : the sites, a row each: a pandas DataFrame, an xarray.Dataset whose variables lie along one
        dimension of sites (and are converted if they carry `units`), a mapping of columns (N,), or the path of a CSV
        or netCDF file.
    coordinates : one to three, by name: the unit of the column of that name, or a table of keys.
    observations : by name: the unit of the column of that name, or a table with `columns` and `dimension`.
    latents : by name, tables of keys; `mean` and `std` in the latent's unit, `kernel["length_scale"]` in that of the
        coordinates.
    forward : the simulator. A function gets its arguments by their names, which are those of latents, covariates or
        coordinates: arrays (B,), or (B, L) for a latent with L labels, of B models at once, in their own units. It
        returns (B,) or (B, L) for one observation, a dictionary by name for several. A mapping is the table
        [forward], where `function` may be a function, and `inputs` and `outputs` may be left out for one. Any
        `ForwardModel` will do, too.
    noise : for each observation its standard deviation, in its unit: a number, one for each label, a percentage such
        as "5%", or the columns that hold it; or a table with `std`, `kind` and the rest of [noise].
    covariates : columns that the simulator wants besides the latents, as `coordinates`.
    grid : of a simulator that takes whole fields, the coordinates of its regular grid, by name. A function then
        gets all nodes of a latent, (B, G), and all sites of a column, (B, N), and returns (B, N).
    dimensions : labels by the name of a dimension, such as ``{"layer": [1, 2]}``.
    crs : of the coordinates, anything that PROJ understands.
    inference, output : the tables of the same names.

    Returns
    -------
    Problem
        For `invgp.invert`.

    Raises
    ------
    ConfigError
        With one sentence for each thing that is wrong.
    """
    # Here, not above: `import invgp` does not wait for pydantic, xarray and PROJ.
    from pydantic import ValidationError  # noqa: PLC0415

    from invgp.adapters.protocol import ForwardModel  # noqa: PLC0415
    from invgp.config.build_problem import assembled, digest_of, position_of  # noqa: PLC0415
    from invgp.config.mistakes import Mistakes  # noqa: PLC0415
    from invgp.config.tables_in_memory import table_of  # noqa: PLC0415
    from invgp.settings.configuration import Config  # noqa: PLC0415
    from invgp.settings.error_messages import sentences  # noqa: PLC0415

    model = forward if isinstance(forward, ForwardModel) else None
    if not (model or callable(forward) or isinstance(forward, Mapping)):
        raise ConfigError(
            "forward: must be a function, a ForwardModel, or a table of the keys of [forward], was "
            f"{reprlib.repr(forward)}"
        )
    keys: dict[str, Any] = {
        "title": title,
        "dimensions": dict(dimensions or {}),
        "survey": {
            "file": "data",
            "crs": crs,
            "coordinates": _with_units(coordinates),
            "covariates": _with_units(covariates or {}),
            "observations": {name: {"columns": [name]} | keys for name, keys in _with_units(observations).items()},
        },
        "grid": None if grid is None else {"coordinates": dict(grid)},
        "latents": dict(latents),
        "forward": {"kind": "site" if grid is None else "field"}
        | (_of_model(model) if model else _forward(forward, observations, [*latents, *(covariates or {})])),
        "noise": dict(noise) if {"std", "covariance"} & noise.keys() else {"std": dict(noise)},
        "inference": dict(inference or {}),
        "output": dict(output or {}),
    }
    keys = _plain(keys)
    check_values(keys)
    try:
        config = Config.model_validate(keys)
    except ValidationError as error:
        raise ConfigError(sentences(error)) from None
    mistakes = Mistakes()
    table = mistakes.of(lambda: table_of(data, position_of(config)))
    problem = assembled(config, table, Path.cwd(), mistakes)
    if isinstance(data, str | Path):
        problem = replace(problem, survey=replace(problem.survey, file=str(data), digest=digest_of(Path(data))))
    return problem if model is None else _with_model(problem, model)


def _with_units(tables: Mapping[str, Any]) -> dict[str, Any]:
    """A unit alone is short for a table."""
    return {name: {"unit": keys} if isinstance(keys, str) else keys for name, keys in tables.items()}


def _plain(value: Any) -> Any:
    """As TOML would give it: lists and numbers of Python's own."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _forward(given: Any, observations: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The table [forward] of a function, or the one given, completed."""
    if not isinstance(given, Mapping):
        given = {"function": given}
    if "adapter" in given and given["adapter"] != "callable":
        return given
    function = given.get("function")
    inputs = _parameters(function, names) if callable(function) else list(names)
    return {"adapter": "callable", "inputs": inputs, "outputs": list(observations)} | dict(given)


def _parameters(function: Callable[..., Any], names: Sequence[str]) -> list[str]:
    """The function's arguments: all that it must have, and those with a default that have a known name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a compiled function may not tell
        return list(names)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return list(names)
    return [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL and (p.default is p.empty or p.name in names)]


def _of_model(model: ForwardModel) -> dict[str, Any]:
    """A table with the same inputs and outputs, whose units are checked; what is called does not matter."""

    def ends(quantities: tuple[Quantity, ...]) -> list[dict[str, str]]:
        return [{"name": quantity.name, "unit": quantity.unit} for quantity in quantities]

    return {
        "adapter": "callable",
        "function": lambda **values: values,
        "inputs": ends(model.inputs),
        "outputs": ends(model.outputs),
    }


def _with_model(problem: Problem, model: ForwardModel) -> Problem:
    """The problem with its own simulator, whose numbers must be as many as those that it stands between."""
    wrong = [
        f"forward.{side}: {own.name!r} must have {ours.size} numbers, as what it is wired to has, had {own.size}"
        for side in ("inputs", "outputs")
        for own, ours in zip(getattr(model, side), getattr(problem.forward, side), strict=True)
        if own.size != ours.size
    ]
    if wrong:
        raise ConfigError(wrong)
    return replace(problem, forward=model)
