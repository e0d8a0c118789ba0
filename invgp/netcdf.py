"""xarray <-> CF netCDF."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from invgp.atomic_files import atomic_file, library_errors
from invgp.errors import ConfigError
from invgp.library_paths import as_text, utf8_path
from invgp.netcdf_container import UNREADABLE, check_container, unreadable_error

if TYPE_CHECKING:
    import netCDF4
    import xarray as xr

    from invgp.maps.describe import MapVariable

GIBIBYTE = 2**30
LARGEST_CHUNK = 2**20  # numbers in a chunk: a map opens in pieces, a line is one piece


def write(posterior: xr.Dataset, path: str | Path) -> Path:
    """Write a posterior as compressed, chunked netCDF; the file is there whole, or not at all."""
    posterior = _with_text_attributes(posterior)
    with atomic_file("the posterior", path) as part, utf8_path(part) as name, library_errors():
        posterior.to_netcdf(name, engine="netcdf4", format="NETCDF4", encoding=_encoding(posterior))
    return Path(path)


def write_blocks(
    skeleton: xr.Dataset,
    variables: Mapping[str, MapVariable],
    block_shape: tuple[int, ...],
    blocks: Iterable[tuple[tuple[slice, ...], Mapping[str, Any]]],
    path: str | Path,
) -> Path:
    """Write a map block by block, in chunks that are the blocks, so that no chunk is compressed twice."""
    import netCDF4  # noqa: PLC0415 - help is given without waiting for it

    with atomic_file("the map", path) as part, utf8_path(part) as name, library_errors():
        skeleton.to_netcdf(name, engine="netcdf4", format="NETCDF4", encoding=_encoding(skeleton))
        with netCDF4.Dataset(name, "a") as file:
            if "coordinates" in file.ncattrs():  # xarray's word for coordinates of no variable: they have one now
                file.delncattr("coordinates")
            for variable, about in variables.items():
                _declare(file, skeleton, variable, about, block_shape)
            for where, values in blocks:
                for variable, block in values.items():
                    file[variable][variables[variable].place(where)] = block
    return Path(path)


def _declare(
    file: netCDF4.Dataset, skeleton: xr.Dataset, name: str, variable: MapVariable, block_shape: tuple[int, ...]
) -> None:
    first, count = variable.spatial
    sizes = [skeleton.sizes[d] for d in variable.dims]
    # One draw, quantile or layer is read without the others; the labels of a point stay together.
    chunks = [1] * first + [*block_shape] + sizes[first + count :]
    made = file.createVariable(
        name, "f8", variable.dims, compression="zlib", complevel=1, shuffle=True, chunksizes=chunks, fill_value=np.nan
    )
    made.set_var_chunk_cache(size=8 * math.prod(chunks), nelems=1)
    auxiliary = [
        str(other)
        for other, array in skeleton.coords.items()
        if other not in skeleton.dims and set(array.dims) <= set(variable.dims)
    ]
    made.setncatts({**variable.attributes, **({"coordinates": " ".join(auxiliary)} if auxiliary else {})})


def read(path: str | Path) -> xr.Dataset:
    """Read a posterior or a map into memory; raises as `open_posterior` does."""
    with open_posterior(path) as dataset:
        return _load(path, dataset)


@contextmanager
def open_posterior(path: str | Path) -> Iterator[xr.Dataset]:
    """Open a posterior, or a map whose values are read when they are needed.

    Raises
    ------
    ConfigError
        The file cannot be read, declares more than it can hold, leads to other files, or is not a posterior or a map as
        `invgp.posterior.dataset_schema` has it.
    """
    import xarray as xr  # noqa: PLC0415 - help is given without waiting for it

    from invgp.posterior.dataset_schema import SchemaError, check_schema  # noqa: PLC0415

    check_container(Path(path))
    with ExitStack() as stack:
        try:
            name = stack.enter_context(utf8_path(Path(path)))
            # Times stay numbers: a latent may be one.
            dataset = stack.enter_context(
                xr.open_dataset(name, engine="netcdf4", decode_times=False, decode_timedelta=False)
            )
        except UNREADABLE as error:
            raise unreadable_error(path, "it is damaged") from error
        try:
            if "invgp_latents" not in dataset.attrs:
                raise ConfigError(f"{str(path)!r} is a netCDF file, but not a posterior that invgp wrote")
            if "invgp_map" not in dataset.attrs:
                _load(path, dataset)
            check_schema(dataset)
            yield dataset
        except SchemaError as error:
            raise ConfigError(f"{str(path)!r} is not a complete posterior or map: {error}") from error
        except RuntimeError as error:
            if not str(error).startswith("NetCDF: "):
                raise
            raise unreadable_error(path, "it is damaged") from error


def _load(path: str | Path, dataset: xr.Dataset) -> xr.Dataset:
    """Read all values, if they fit in memory."""
    import psutil  # noqa: PLC0415 - help does not need it

    free = psutil.virtual_memory().available
    if dataset.nbytes > free:
        needed = f"{dataset.nbytes / GIBIBYTE:,.1f} GiB of memory, and {free / GIBIBYTE:,.1f} GiB are free"
        raise unreadable_error(path, f"it takes {needed}")
    try:
        return dataset.load()
    except UNREADABLE as error:
        raise unreadable_error(path, "it is damaged") from error


def _with_text_attributes(posterior: xr.Dataset) -> xr.Dataset:
    """The dataset with the names of files in its attributes as text."""
    texts = {key: as_text(value) for key, value in posterior.attrs.items() if isinstance(value, str)}
    return posterior.assign_attrs(texts)


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
