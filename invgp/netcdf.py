"""xarray <-> CF netCDF."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from invgp.errors import ConfigError, WriteError

if TYPE_CHECKING:
    import xarray as xr

LARGEST_CHUNK = 2**20  # numbers in a chunk: a map opens in pieces, a line is one piece


def write(posterior: xr.Dataset, path: str | Path) -> Path:
    """Write a posterior as compressed, chunked netCDF; the file is there whole, or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        posterior.to_netcdf(part, engine="netcdf4", format="NETCDF4", encoding=_encoding(posterior))
        os.replace(part, path)  # noqa: PTH105 - the atomic one, by name
    except (OSError, RuntimeError) as error:  # the netCDF library says RuntimeError for a full disk
        raise WriteError(f"the posterior could not be written to {str(path)!r}: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    return path


def read(path: str | Path) -> xr.Dataset:
    """Read a posterior written by `write` into memory."""
    import xarray as xr  # noqa: PLC0415 - help is given without waiting for it

    path = Path(path)
    try:
        with xr.open_dataset(path, engine="netcdf4") as dataset:
            loaded = dataset.load()
    except (OSError, ValueError) as error:
        reason = "no such file" if not path.exists() else "it is not a netCDF file"
        raise ConfigError(f"the posterior {str(path)!r} cannot be read: {reason}") from error
    if "invgp_latents" not in loaded.attrs:
        raise ConfigError(f"{str(path)!r} is a netCDF file, but not a posterior that invgp wrote")
    return loaded


def _encoding(posterior: xr.Dataset) -> dict[str, dict[str, Any]]:
    encoding: dict[str, dict[str, Any]] = {}
    for name, variable in posterior.variables.items():
        # CF allows no fill value on coordinates, and integers have none that means missing.
        floating = np.issubdtype(variable.dtype, np.floating)
        how: dict[str, Any] = {"_FillValue": np.nan if floating and name not in posterior.coords else None}
        if variable.ndim and np.issubdtype(variable.dtype, np.number) and variable.size:
            how |= {"zlib": True, "complevel": 1, "shuffle": True}
            how["chunksizes"] = _chunks(variable.shape)
        encoding[str(name)] = how
    return encoding


def _chunks(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Whole trailing axes as far as they fit, so that one realization or quantile is read without the others."""
    chunks, room = [], LARGEST_CHUNK
    for size in reversed(shape):
        chunks.append(max(1, min(size, room)))
        room //= chunks[-1]
    return tuple(reversed(chunks))
