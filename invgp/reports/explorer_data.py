"""Data of the interactive part of a report, packed with the precision that a screen needs."""

from __future__ import annotations

import math
from base64 import b64encode
from typing import Any

import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from invgp.maps.grids import read_axis_letters
from invgp.plots.axis_labels import length_unit, quantity_name, unit_label
from invgp.plots.figure_options import MIN_INFORMATION, QUANTITIES
from invgp.plots.plot_data import (
    Curve,
    flatten_grid,
    increases_downwards,
    label_dimension,
    predict_between_sites,
    read_curves,
    read_interval,
    read_names,
    read_prior_interval,
    read_values,
)

MOST_NUMBERS = 900_000  # in a page, about 2.4 MB; of more sites, only every n-th is included
MOST_PRECISE_SITES = 2000  # with single precision; for more sites, values are in steps of 1/65534 of their range
MISSING = 65535
_LOG_RATIO = 100.0  # of the highest to the lowest value, from which the steps are logarithmic
SHADES = 24
GRID_VARIABLES = ("mean", "std", "prior", "information")


def explorer_data(ds: xr.Dataset) -> dict[str, Any]:
    """Return the data of the interactive part of a report, for JSON.

    Parameters
    ----------
    ds : Dataset
        A posterior; that of a field model after `as_points`.

    Returns
    -------
    dict
        Constant arrays are numbers, other arrays base64.
    """
    latents, observations = read_names(ds, "fields"), _observation_names(ds)
    processes = sum(len(read_curves(ds, name)) for name in latents)
    columns = sum(len(read_curves(ds, f"{name}_observed")) for name in observations)
    step = max(1, math.ceil(ds.sizes["site"] * (5 * processes + 3 * columns + 2) / MOST_NUMBERS))
    whole, every = ds, ds.sizes["site"]
    ds = ds.isel(site=slice(None, None, step))
    return {
        "sites": _pack(ds["site"].values, few=every),
        "point": str(ds.attrs.get("invgp_points", "site")).capitalize(),
        "count": ds.sizes["site"],
        "every": every,
        "step": step,
        "coordinates": _coordinate_data(ds),
        "latents": [_latent_data(ds, name) for name in latents],
        "between": _grid_between_sites(whole, latents),
        "observations": [_observation_data(ds, name) for name in observations],
        "correlation": _pack_correlations(ds, processes),
        "hatchBelow": MIN_INFORMATION,
        "palettes": {name: _palette(quantity.colour_map) for name, quantity in QUANTITIES.items()},
    }


def _observation_names(ds: xr.Dataset) -> list[str]:
    return read_names(ds, "observations") if str(ds.attrs.get("invgp_observations", "")).split() else []


def _coordinate_data(ds: xr.Dataset) -> list[dict[str, Any]]:
    """Return the coordinates of the sites relative to their first value, because they have many digits."""
    letters = read_axis_letters(ds, read_names(ds, "coordinates"))  # east is across, north up
    arrays = [ds[name].astype(np.float64) for name in sorted(letters, key=lambda name: letters[name])]
    factor, unit = length_unit(arrays)
    found = []
    for array in arrays:
        values = array.values / factor
        origin = float(values[0])
        found.append(
            {
                "name": quantity_name(array),
                "unit": unit or unit_label(array),
                "origin": origin,
                "values": _pack(values - origin, few=values.size),
            }
        )
    return found


def _grid_between_sites(ds: xr.Dataset, latents: list[str]) -> dict[str, Any] | None:
    """Return the latents on a grid over the sites of a map; None if they cannot be predicted. East varies fastest."""
    names = read_names(ds, "coordinates")
    grid = predict_between_sites(ds) if len(names) == 2 and "invgp_points" not in ds.attrs else ds
    if grid is ds:
        return None
    letters = read_axis_letters(ds, names)
    factor, _ = length_unit([ds[name] for name in names])
    across, up = (grid[name].values / factor for name in sorted(names, key=lambda name: letters[name]))
    points = flatten_grid(grid)
    layers = [[_label_data(points, name, curve) for curve in read_curves(points, name)] for name in latents]
    return {
        "across": {"from": float(across[0]), "to": float(across[-1]), "count": across.size},
        "up": {"from": float(up[0]), "to": float(up[-1]), "count": up.size},
        "latents": [[{key: layer[key] for key in GRID_VARIABLES if key in layer} for layer in ones] for ones in layers],
    }


def _latent_data(ds: xr.Dataset, name: str) -> dict[str, Any]:
    return {
        **_description(ds[name], name),
        "down": increases_downwards(ds[name]),
        "dimension": label_dimension(ds[name]) or "",
        "layers": [_label_data(ds, name, curve) for curve in read_curves(ds, name)],
    }


def _label_data(ds: xr.Dataset, name: str, curve: Curve) -> dict[str, Any]:
    low, high = read_interval(ds, name, curve)
    found = {"label": curve.label, "colour": to_hex(curve.colour), "low": _pack(low), "high": _pack(high)}
    variables = {"mean": name, "std": f"{name}_std", "prior": f"{name}_prior", "priorStd": f"{name}_prior_std"}
    variables["information"] = f"{name}_information"
    prior = read_prior_interval(ds, name, curve) if len(read_names(ds, "coordinates")) == 1 else None
    if prior is not None:  # drawn along a line
        found |= {"priorLow": _pack(prior[0]), "priorHigh": _pack(prior[1])}
    return found | {
        key: _pack(read_values(ds, variable, curve)) for key, variable in variables.items() if variable in ds
    }


def _observation_data(ds: xr.Dataset, name: str) -> dict[str, Any]:
    variables = {key: f"{name}_{key}" for key in ("observed", "predicted")}
    variables |= {"noise": f"{name}_noise_std", "predictedStd": f"{name}_predicted_std"}
    layers = [
        {"label": curve.label, "colour": to_hex(curve.colour)}
        | {key: _pack(read_values(ds, variable, curve)) for key, variable in variables.items()}
        for curve in read_curves(ds, f"{name}_observed")
    ]
    dimension = label_dimension(ds[f"{name}_observed"]) or ""
    return {**_description(ds[f"{name}_observed"], name), "dimension": dimension, "layers": layers}


def _description(array: xr.DataArray, name: str) -> dict[str, str]:
    return {"name": name, "words": quantity_name(array), "unit": unit_label(array)}


def _pack_correlations(ds: xr.Dataset, processes: int) -> str | None:
    """Return the lower triangles of the correlation matrices, in hundredths; None if there are none or too many."""
    if "correlation" not in ds or ds.sizes["process"] != processes or processes < 2:
        return None
    rows, columns = np.tril_indices(processes, -1)
    values = np.nan_to_num(ds["correlation"].values[:, rows, columns])
    if values.size > MOST_NUMBERS:
        return None
    return _base64(np.clip(np.rint(100.0 * values), -100, 100).astype(np.int8))


def _pack(values: NDArray[Any], few: int = MOST_PRECISE_SITES) -> float | dict[str, Any] | None:
    """Pack an array for JSON.

    Parameters
    ----------
    values : array, shape (N,)
        NaN for missing values.
    few : int
        Number of values up to which single precision is used.

    Returns
    -------
    float, dict or None
        A number if all values are equal, None if all are missing, otherwise base64 of 32-bit numbers or 16-bit steps.
    """
    numbers = np.asarray(values, dtype=np.float64)
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return None
    if finite.size == numbers.size and np.all(numbers == numbers[0]):
        return float(numbers[0])
    if numbers.size <= few:
        return {"f32": _base64(numbers.astype("<f4"))}
    # Logarithmic steps for values over several powers of ten, so that small ones keep their digits.
    logarithmic = bool(finite.min() > 0.0 and finite.max() > _LOG_RATIO * finite.min())
    scaled = np.log(numbers, where=np.isfinite(numbers), out=np.full_like(numbers, np.nan)) if logarithmic else numbers
    low, high = float(np.nanmin(scaled[np.isfinite(numbers)])), float(np.nanmax(scaled[np.isfinite(numbers)]))
    steps = np.full(numbers.size, MISSING, dtype="<u2")
    share = (scaled[np.isfinite(numbers)] - low) / ((high - low) or 1.0)
    steps[np.isfinite(numbers)] = np.rint(share * (MISSING - 1)).astype("<u2")
    return {"u16": _base64(steps), "low": low, "high": high, "logarithmic": logarithmic}


def _base64(values: NDArray[Any]) -> str:
    return b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")


def _palette(name: str) -> list[str]:
    return [to_hex(colour) for colour in colormaps[name](np.linspace(0.0, 1.0, SHADES))]
