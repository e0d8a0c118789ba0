"""Damaged posteriors and maps, by a seed: the same seed gives the same damage."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import xarray as xr

VALUES: tuple[Any, ...] = (
    *("", "text", "depth velocity", "days since 1900-01-01", "ä" * 300, "\x00", "1e400"),
    *(0, 1, -1, 2**40, np.nan, np.inf, -0.5, 1e308),
    *([1.0, 2.0], [1, 2, 3], [np.nan] * 2, list(range(50)), ["two", "texts"]),
)
NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, -1e308, 1e-320, 2.0)
TYPES = ("f4", "i1", "i8", "u2", "S1", "str")
ENCODED = ("scale_factor", "add_offset", "_FillValue", "missing_value", "units", "calendar", "dtype", "_Unsigned")


def damage(source: Path, target: Path, seed: int) -> str:
    """Write a damaged copy of a netCDF file.

    Parameters
    ----------
    source : Path
        A whole file.
    target : Path
        The file to write.
    seed : int
        Of the damage.

    Returns
    -------
    str
        What was done to it.
    """
    rng = random.Random(seed)
    if rng.random() < 0.3:
        return _damage_bytes(source, target, rng)
    with xr.open_dataset(source, engine="netcdf4", decode_cf=False) as file:
        dataset = file.load()
    reported = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        change = rng.choice(CHANGES)
        try:
            dataset, words = change(dataset, rng)
        except (IndexError, KeyError, TypeError, ValueError, OverflowError):  # it does not suit this dataset
            continue
        reported.append(words)
    for variable in dataset.variables.values():
        variable.encoding = {}
    try:
        dataset.to_netcdf(target, engine="netcdf4", format="NETCDF4")
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError, OverflowError):
        return _damage_bytes(source, target, rng)  # netCDF has no word for it
    if rng.random() < 0.15:
        reported.append(_declare_more(target, rng))
    return "; ".join(reported) or "nothing"


def _damage_bytes(source: Path, target: Path, rng: random.Random) -> str:
    """Change, cut off, repeat or insert bytes."""
    content = bytearray(source.read_bytes())
    kind = rng.choice(("flip", "flip", "flip", "cut", "zeros", "insert", "head"))
    if kind == "flip":
        for _ in range(rng.choice((1, 2, 8, 64, 512))):
            content[rng.randrange(len(content))] = rng.randrange(256)
    elif kind == "cut":
        del content[rng.randrange(len(content)) :]
    elif kind == "zeros":
        start = rng.randrange(len(content))
        end = min(len(content), start + rng.choice((16, 512, 8192)))
        content[start:end] = bytes(end - start)
    elif kind == "insert":
        start = rng.randrange(len(content))
        content[start:start] = rng.randbytes(rng.choice((1, 7, 512)))
    else:
        content[:8] = rng.choice((b"CDF\x01\x00\x00\x00\x00", b"CDF\x05\x00\x00\x00\x00", b"", bytes(8)))
    target.write_bytes(content)
    return f"bytes: {kind}"


def _declare_more(target: Path, rng: random.Random) -> str:
    """Add what a netCDF file may hold and a posterior does not: groups, types, huge dimensions."""
    kind = rng.choice(("dimension", "huge", "group", "compound", "vlen", "enum", "unlimited"))
    with netCDF4.Dataset(target, "a") as file:
        if kind == "dimension":
            file.createDimension("more", 10**10)
        elif kind == "huge":
            file.createDimension("huge", 10**10)
            file.createVariable("huge", "f8", ("huge",), zlib=True, chunksizes=(1000,))
        elif kind == "group":
            file.createGroup("more").createVariable("inside", "f8", ())
        elif kind == "compound":
            file.createCompoundType(np.dtype([("a", "f8"), ("b", "i4")]), "pair")
        elif kind == "vlen":
            lists = file.createVLType(np.int32, "lists")
            file.createVariable("ragged", lists, ())
        elif kind == "enum":
            colours = file.createEnumType(np.int8, "colours", {"red": 0})
            file.createVariable("colour", colours, ())
        else:
            file.createDimension("time", None)
            file.createVariable("time", "f8", ("time",))
    return f"declared: {kind}"


def _name(dataset: xr.Dataset, rng: random.Random) -> str:
    return rng.choice([str(name) for name in dataset.variables])


def _drop_variable(dataset: xr.Dataset, rng: random.Random) -> tuple[xr.Dataset, str]:
    name = _name(dataset, rng)
    return dataset.drop_vars(name), f"dropped {name}"


def _rename_variable(dataset: xr.Dataset, rng: random.Random) -> tuple[xr.Dataset, str]:
    name, other = _name(dataset, rng), rng.choice(("other", _name(dataset, rng)))
    if other in dataset.variables:
        return dataset.rename({name: "for_now"}).rename({other: name, "for_now": other}), f"swapped {name} and {other}"
    return dataset.rename({name: other}), f"renamed {name}"


def _retype_variable(dataset: xr.Dataset, rng: random.Random) -> tuple[xr.Dataset, str]:
    name, kind = _name(dataset, rng), rng.choice(TYPES)
    variable = dataset[name].variable
    with np.errstate(all="ignore"):
        values = np.asarray(variable.values).astype(object if kind == "str" else kind)
    values = np.vectorize(str, otypes=[object])(values) if kind == "str" and values.size else values
    return dataset.drop_vars(name).assign({name: (variable.dims, values, variable.attrs)}), f"{name} as {kind}"


def _change_values(dataset: xr.Dataset, rng: random.Random) -> tuple[xr.Dataset, str]:
    name, number = _name(dataset, rng), rng.choice(NUMBERS)
    variable = dataset[name].variable
    values = np.array(variable.values, copy=True)
    if rng.random() < 0.5 and values.size:
        values.flat[rng.randrange(values.size)] = number
    else:
        values[...] = number
    return dataset.drop_vars(name).assign({name: (variable.dims, values, variable.attrs)}), f"{name} = {number}"


def _reorder(dataset: xr.Dataset, rng: random.Random) -> tuple[xr.Dataset, str]:
    name = _name(dataset, rng)
    variable = dataset[name].variable
    values = variable.values[..., ::-1] if rng.random() < 0.5 else np.moveaxis(variable.values, 0, -1)
    dims = variable.dims if values.shape == variable.shape else (*variable.dims[1:], variable.dims[0])
    return dataset.drop_vars(name).assign({name: (dims, values, variable.attrs)}), f"reordered {name}"


def _cut_dimension(dataset: xr.Dataset, rng: random.Random) -> tuple[xr.Dataset, str]:
    dimension, size = rng.choice([str(d) for d in dataset.dims]), rng.choice((0, 0, 1, 2))
    return dataset.isel({dimension: slice(0, size)}), f"{dimension} cut to {size}"


def _rename_dimension(dataset: xr.Dataset, rng: random.Random) -> tuple[xr.Dataset, str]:
    dimension = rng.choice([str(d) for d in dataset.dims])
    return dataset.rename_dims({dimension: "elsewhere"}), f"renamed the dimension {dimension}"


def _other_dimension(dataset: xr.Dataset, rng: random.Random) -> tuple[xr.Dataset, str]:
    name = _name(dataset, rng)
    variable = dataset[name].variable
    dims = tuple(f"{d}_new" for d in variable.dims)
    return dataset.drop_vars(name).assign({name: (dims, variable.values, variable.attrs)}), f"{name} along {dims}"


def _attribute(dataset: xr.Dataset, rng: random.Random) -> tuple[dict[Any, Any], str, str]:
    """The attributes of the dataset or of a variable, and the name of one of them."""
    owner = rng.choice(["", _name(dataset, rng)])
    attributes = dataset[owner].attrs if owner else dataset.attrs
    return attributes, rng.choice(sorted(attributes)), owner or "dataset"


def _drop_attribute(dataset: xr.Dataset, rng: random.Random) -> tuple[xr.Dataset, str]:
    attributes, key, owner = _attribute(dataset, rng)
    del attributes[key]
    return dataset, f"dropped {owner}.{key}"


def _change_attribute(dataset: xr.Dataset, rng: random.Random) -> tuple[xr.Dataset, str]:
    attributes, key, owner = _attribute(dataset, rng)
    value = rng.choice(VALUES)
    attributes[key] = value
    return dataset, f"{owner}.{key} = {value!r:.40}"


def _encode(dataset: xr.Dataset, rng: random.Random) -> tuple[xr.Dataset, str]:
    name, key, value = _name(dataset, rng), rng.choice(ENCODED), rng.choice(VALUES)
    dataset[name].attrs[key] = value
    return dataset, f"{name}.{key} = {value!r:.40}"


def _change_names(dataset: xr.Dataset, rng: random.Random) -> tuple[xr.Dataset, str]:
    key = rng.choice([key for key in dataset.attrs if key.startswith("invgp_")])
    names = " ".join(_name(dataset, rng) for _ in range(rng.choice((1, 1, 2, 3))))
    dataset.attrs[key] = names
    return dataset, f"{key} = {names!r}"


Change = Callable[[xr.Dataset, random.Random], tuple[xr.Dataset, str]]
CHANGES: tuple[Change, ...] = (
    *(_drop_variable, _rename_variable, _retype_variable, _change_values, _change_values, _reorder),
    *(_cut_dimension, _rename_dimension, _other_dimension),
    *(_drop_attribute, _change_attribute, _change_attribute, _change_attribute, _encode, _change_names),
)
