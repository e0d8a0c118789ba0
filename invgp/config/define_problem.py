"""Definition of a problem in Python: the keys of the configuration as arguments, data in memory, a function."""

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
    DirectKeys,
    InferenceKeys,
    LatentKeys,
    NoiseKeys,
    ObservationKeys,
    OutputKeys,
    Unit,
)
from invgp.errors import ConfigError

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import ArrayLike

    from invgp.adapters.protocol import ForwardModel, Quantity
    from invgp.problem import Problem


IN_MEMORY = "a dataset"  # in the place of the file of an earlier posterior


def define(
    data: Mapping[str, ArrayLike] | str | Path | Any,
    *,
    coordinates: Mapping[str, Unit | ColumnKeys] | None = None,
    observations: Mapping[str, Unit | ObservationKeys],
    latents: Mapping[str, LatentKeys],
    forward: Callable[..., Any] | ForwardModel | Mapping[str, Any],
    noise: NoiseKeys | Mapping[str, float | Sequence[float] | str | Sequence[str]],
    covariates: Mapping[str, Unit | ColumnKeys] | None = None,
    direct: Mapping[str, DirectKeys] | None = None,
    prior: str | Path | xr.Dataset | None = None,
    grid: Mapping[str, AxisKeys] | None = None,
    dimensions: Mapping[str, Sequence[int] | Sequence[str]] | None = None,
    crs: str | None = None,
    title: str = "",
    inference: InferenceKeys | None = None,
    output: OutputKeys | None = None,
) -> Problem:
    """Define a problem in Python; the keys are those of the configuration file.

    Parameters
    ----------
    data : pandas.DataFrame, xarray.Dataset, mapping, str or Path
        The sites, one row each: a table, a dataset whose variables have one dimension of sites (converted if they have
        `units`), a mapping of columns (N,), or the path of a CSV or netCDF file.
    coordinates : mapping of str to str or dict
        One to three coordinates by name: the unit of the column with that name, or a table of keys. They can be left
        out for a field model, or if all latents are scalars.
    observations : mapping of str to str or dict
        Observations by name: the unit of the column with that name, or a table with `columns` and `dimension`.
    latents : mapping of str to dict
        Unknown fields by name; `mean` and `std` in the unit of the latent, `kernel["length_scale"]` in that of the
        coordinates. One with ``domain="scalar"`` is a number that is the same everywhere.
    forward : callable, ForwardModel or mapping
        The simulator. A function receives its arguments by name: latents, covariates or coordinates, as arrays (B,), or
        (B, L) for a latent with L labels, of B models at once, in their own units. It returns (B,) or (B, L) for one
        observation, or a dictionary by name for several. A mapping is the table [forward]; its `function` can be a
        function, and `inputs` and `outputs` can be omitted for a function.
    noise : mapping
        Standard deviation of each observation, in its unit: a number, one per label, a percentage such as "5%", or the
        columns that contain it; or a table with `std`, `kind` and the other keys of [noise].
    covariates : mapping of str to str or dict, optional
        Other columns that the simulator needs, as `coordinates`.
    direct : mapping of str to dict, optional
        Direct data by name, such as boreholes: the tables [direct.NAME]. They need no simulator run.
    prior : str, Path or xarray.Dataset, optional
        Posterior of an earlier inversion of the same latents, whose data count as part of the prior.
    grid : mapping of str to dict, optional
        For a field model, the coordinates of its regular grid by name. A function then receives all nodes of a latent,
        (B, G), one number of a scalar, (B,), and all sites of a column, (B, N), and returns (B, N). If all latents are
        scalars, a field model needs no grid: it is requested by ``forward={"kind": "field", ...}``.
    dimensions : mapping of str to sequence, optional
        Labels by the name of a dimension, such as ``{"layer": [1, 2]}``.
    crs : str, optional
        Coordinate reference system, as PROJ understands it.
    title : str
    inference, output : dict, optional
        The tables of the same names.

    Returns
    -------
    Problem
        For `invgp.invert`.

    Raises
    ------
    ConfigError
        An argument is not valid; there is one sentence per mistake.

    Examples
    --------
    >>> problem = invgp.define(
    ...     {"x": [0.0, 100.0, 200.0], "time": [0.105, 0.112, 0.121]},
    ...     coordinates={"x": "m"},
    ...     observations={"time": "s"},
    ...     latents={"depth": {"unit": "m", "mean": 100, "std": 20, "kernel": {"length_scale": 300}}},
    ...     forward=lambda depth: 2.0 * depth / 2000.0,
    ...     noise={"time": 0.005},
    ... )
    >>> problem.survey.size, problem.latent_count
    (3, 1)
    """
    # `import invgp` does not wait for pydantic, xarray and PROJ.
    from pydantic import ValidationError  # noqa: PLC0415

    from invgp.adapters.protocol import ForwardModel  # noqa: PLC0415
    from invgp.config.build_problem import assemble_problem, file_digest, first_coordinate_column  # noqa: PLC0415
    from invgp.config.tables_in_memory import as_table  # noqa: PLC0415
    from invgp.errors import Mistakes  # noqa: PLC0415
    from invgp.settings.configuration import Config  # noqa: PLC0415
    from invgp.settings.section import sentences  # noqa: PLC0415

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
            "coordinates": _with_units(coordinates or {}),
            "covariates": _with_units(covariates or {}),
            "observations": {name: {"columns": [name]} | keys for name, keys in _with_units(observations).items()},
        },
        "grid": None if grid is None else {"coordinates": dict(grid)},
        "latents": dict(latents),
        "direct": dict(direct or {}),
        "prior": None if prior is None else str(prior) if isinstance(prior, str | Path) else IN_MEMORY,
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
    table = mistakes.collect(lambda: as_table(data, first_coordinate_column(config)))
    earlier = None if prior is None or isinstance(prior, str | Path) else prior
    problem = assemble_problem(config, table, Path.cwd(), mistakes, earlier)
    if isinstance(data, str | Path):
        problem = replace(problem, survey=replace(problem.survey, file=str(data), digest=file_digest(Path(data))))
    return problem if model is None else _with_model(problem, model)


def _with_units(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Replace units by tables."""
    return {name: {"unit": keys} if isinstance(keys, str) else keys for name, keys in tables.items()}


def _plain(value: Any) -> Any:
    """Convert arrays, tuples and paths to the types of TOML."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _forward(given: Any, observations: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the table [forward] of a function, or complete the given table."""
    if not isinstance(given, Mapping):
        given = {"function": given}
    if "adapter" in given and given["adapter"] != "callable":
        return given
    function = given.get("function")
    inputs = _parameters(function, names) if callable(function) else list(names)
    found: dict[str, Any] = {"adapter": "callable", "inputs": inputs, "outputs": list(observations)} | dict(given)
    if isinstance(found.get("coarse"), Mapping):
        found["coarse"] = {"adapter": "callable"} | dict(found["coarse"])
    return found


def _parameters(function: Callable[..., Any], names: Sequence[str]) -> list[str]:
    """Return the arguments of a function: those without a default, and those with a known name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a compiled function may have no signature
        return list(names)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return list(names)
    return [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL and (p.default is p.empty or p.name in names)]


def _of_model(model: ForwardModel) -> dict[str, Any]:
    """Return a table with the inputs and outputs of a model, so that their units are checked; it is not called."""

    def ends(quantities: tuple[Quantity, ...]) -> list[dict[str, str]]:
        return [{"name": quantity.name, "unit": quantity.unit} for quantity in quantities]

    return {
        "adapter": "callable",
        "function": lambda **values: values,
        "inputs": ends(model.inputs),
        "outputs": ends(model.outputs),
    }


def _with_model(problem: Problem, model: ForwardModel) -> Problem:
    """Replace the simulator of the problem by a model, after a check of the sizes of its inputs and outputs."""
    wrong = [
        f"forward.{side}: {own.name!r} must have {ours.size} numbers, like the variable of the problem, had {own.size}"
        for side in ("inputs", "outputs")
        for own, ours in zip(getattr(model, side), getattr(problem.forward, side), strict=True)
        if own.size != ours.size
    ]
    if wrong:
        raise ConfigError(wrong)
    return replace(problem, forward=model)
