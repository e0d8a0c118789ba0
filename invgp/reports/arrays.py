"""The numbers in a page: what its explorer draws, packed as small as the eye allows."""

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
    predict_between_sites,
    read_curves,
    read_interval,
    read_names,
    read_values,
)

MOST_NUMBERS = 900_000  # in a page, some 2.4 MB; of more sites, every so many are in the page
FEW = 2000  # sites, up to which numbers have single precision; beyond, steps of 1/65534 of their range
MISSING = 65535
_SPAN = 100.0
SHADES = 24
MAPPED = ("mean", "std", "prior", "information")


def explorer(ds: xr.Dataset) -> dict[str, Any]:
    """All that the explorer needs, for JSON: constants as numbers, other arrays as base64."""
    latents, observations = read_names(ds, "latents"), _observations(ds)
    processes = sum(len(read_curves(ds, name)) for name in latents)
    columns = sum(len(read_curves(ds, f"{name}_observed")) for name in observations)
    step = max(1, math.ceil(ds.sizes["site"] * (5 * processes + 3 * columns + 2) / MOST_NUMBERS))
    whole, every = ds, ds.sizes["site"]
    ds = ds.isel(site=slice(None, None, step))
    return {
        "sites": _packed(ds["site"].values, few=every),
        "point": str(ds.attrs.get("invgp_points", "site")).capitalize(),
        "count": ds.sizes["site"],
        "every": every,
        "step": step,
        "coordinates": _coordinates(ds),
        "latents": [_latent(ds, name) for name in latents],
        "between": _between(whole, latents),
        "observations": [_observation(ds, name) for name in observations],
        "correlation": _correlation(ds, processes),
        "hatchBelow": MIN_INFORMATION,
        "palettes": {name: _shades(quantity.colour_map) for name, quantity in QUANTITIES.items()},
    }


def _observations(ds: xr.Dataset) -> list[str]:
    return read_names(ds, "observations") if str(ds.attrs.get("invgp_observations", "")).split() else []


def _coordinates(ds: xr.Dataset) -> list[dict[str, Any]]:
    """Where the sites are, each coordinate from its first value: it has more digits than a small number can hold."""
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
                "values": _packed(values - origin, few=values.size),
            }
        )
    return found


def _between(ds: xr.Dataset, latents: list[str]) -> dict[str, Any] | None:
    """The latents on a grid over the sites of a map, columns across fastest; None where the file cannot tell."""
    names = read_names(ds, "coordinates")
    grid = predict_between_sites(ds) if len(names) == 2 and "invgp_points" not in ds.attrs else ds
    if grid is ds:
        return None
    letters = read_axis_letters(ds, names)
    factor, _ = length_unit([ds[name] for name in names])
    across, up = (grid[name].values / factor for name in sorted(names, key=lambda name: letters[name]))
    points = flatten_grid(grid)
    layers = [[_layer(points, name, curve) for curve in read_curves(points, name)] for name in latents]
    return {
        "across": {"from": float(across[0]), "to": float(across[-1]), "count": across.size},
        "up": {"from": float(up[0]), "to": float(up[-1]), "count": up.size},
        "latents": [[{key: layer[key] for key in MAPPED if key in layer} for layer in ones] for ones in layers],
    }


def _latent(ds: xr.Dataset, name: str) -> dict[str, Any]:
    return {
        **_named(ds[name], name),
        "down": increases_downwards(ds[name]),
        "layers": [_layer(ds, name, curve) for curve in read_curves(ds, name)],
    }


def _layer(ds: xr.Dataset, name: str, curve: Curve) -> dict[str, Any]:
    low, high = read_interval(ds, name, curve)
    found = {"label": curve.label, "colour": to_hex(curve.colour), "low": _packed(low), "high": _packed(high)}
    variables = {"mean": name, "std": f"{name}_std", "prior": f"{name}_prior", "priorStd": f"{name}_prior_std"}
    variables["information"] = f"{name}_information"
    return found | {
        key: _packed(read_values(ds, variable, curve)) for key, variable in variables.items() if variable in ds
    }


def _observation(ds: xr.Dataset, name: str) -> dict[str, Any]:
    variables = {key: f"{name}_{key}" for key in ("observed", "predicted")}
    variables |= {"noise": f"{name}_noise_std", "predictedStd": f"{name}_predicted_std"}
    layers = [
        {"label": curve.label, "colour": to_hex(curve.colour)}
        | {key: _packed(read_values(ds, variable, curve)) for key, variable in variables.items()}
        for curve in read_curves(ds, f"{name}_observed")
    ]
    return {**_named(ds[f"{name}_observed"], name), "layers": layers}


def _named(array: xr.DataArray, name: str) -> dict[str, str]:
    return {"name": name, "words": quantity_name(array), "unit": unit_label(array)}


def _correlation(ds: xr.Dataset, processes: int) -> str | None:
    """The lower triangles of the matrices, in hundredths."""
    if "correlation" not in ds or ds.sizes["process"] != processes or processes < 2:
        return None
    rows, columns = np.tril_indices(processes, -1)
    values = np.nan_to_num(ds["correlation"].values[:, rows, columns])
    if values.size > MOST_NUMBERS:
        return None
    return _base64(np.clip(np.rint(100.0 * values), -100, 100).astype(np.int8))


def _packed(values: NDArray[Any], few: int = FEW) -> float | dict[str, Any] | None:
    """A number if all are the same, None if all are missing, or else base64: of 32-bit numbers, or of 16-bit steps."""
    numbers = np.asarray(values, dtype=np.float64)
    known = numbers[np.isfinite(numbers)]
    if not known.size:
        return None
    if known.size == numbers.size and np.all(numbers == numbers[0]):
        return float(numbers[0])
    if numbers.size <= few:
        return {"f32": _base64(numbers.astype("<f4"))}
    # Steps of the logarithm where values span powers of ten, so that the small ones keep their digits.
    logarithmic = bool(known.min() > 0.0 and known.max() > _SPAN * known.min())
    scaled = np.log(numbers, where=np.isfinite(numbers), out=np.full_like(numbers, np.nan)) if logarithmic else numbers
    low, high = float(np.nanmin(scaled[np.isfinite(numbers)])), float(np.nanmax(scaled[np.isfinite(numbers)]))
    steps = np.full(numbers.size, MISSING, dtype="<u2")
    share = (scaled[np.isfinite(numbers)] - low) / ((high - low) or 1.0)
    steps[np.isfinite(numbers)] = np.rint(share * (MISSING - 1)).astype("<u2")
    return {"u16": _base64(steps), "low": low, "high": high, "logarithmic": logarithmic}


def _base64(values: NDArray[Any]) -> str:
    return b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")


def _shades(name: str) -> list[str]:
    return [to_hex(colour) for colour in colormaps[name](np.linspace(0.0, 1.0, SHADES))]
