"""Read and write posteriors and maps as CF netCDF."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from invgp.errors import ConfigError
from invgp.files.atomic_files import atomic_file, library_errors
from invgp.files.netcdf_container import UNREADABLE, as_text, check_container, unreadable_error, utf8_path
from invgp.operating_system import delay_interrupts

if TYPE_CHECKING:
    import netCDF4
    import xarray as xr

GIBIBYTE = 2**30
LARGEST_CHUNK = 2**20  # numbers


Slices = tuple[slice, ...]


@dataclass(frozen=True)
class BlockVariable:
    """A variable of a map that is written block by block.

    Attributes
    ----------
    dims : tuple of str
    attributes : dict
    spatial : tuple of int
        Position of the first dimension of the grid in `dims`, and number of dimensions of the grid.
    """

    dims: tuple[str, ...]
    attributes: dict[str, Any]
    spatial: tuple[int, int]

    def index(self, block: Slices) -> Slices:
        """Return the index of a block of the grid in the values of the variable."""
        first, count = self.spatial
        everything = slice(None)
        return (everything,) * first + block + (everything,) * (len(self.dims) - first - count)


def write(posterior: xr.Dataset, path: str | Path) -> Path:
    """Write a posterior as compressed, chunked netCDF.

    Parameters
    ----------
    posterior : Dataset
    path : str or Path
        File to write. An existing file is replaced by a complete new one, or stays unchanged.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    WriteError
        The file could not be written.

    Examples
    --------
    >>> invgp.netcdf.write(posterior, "posterior.nc")
    PosixPath('posterior.nc')
    """
    posterior = _with_text_attributes(posterior)
    with atomic_file("the posterior", path) as part, utf8_path(part) as name, library_errors(), delay_interrupts():
        posterior.to_netcdf(name, engine="netcdf4", format="NETCDF4", encoding=_encoding(posterior))
    return Path(path)


def write_blocks(
    skeleton: xr.Dataset,
    variables: Mapping[str, BlockVariable],
    block_shape: tuple[int, ...],
    blocks: Iterable[tuple[Slices, Mapping[str, Any]]],
    path: str | Path,
) -> Path:
    """Write a map block by block. The chunks of the file are the blocks, so that no chunk is compressed twice.

    Parameters
    ----------
    skeleton : Dataset
        Coordinates and attributes of the map, without its variables.
    variables : mapping of str to BlockVariable
    block_shape : tuple of int
        Shape of the blocks along the dimensions of the grid.
    blocks : iterable of tuple
        Position of each block, and its values by variable.
    path : str or Path
        File to write.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    WriteError
        The file could not be written.
    """
    import netCDF4  # noqa: PLC0415 - help is given without waiting for it

    with atomic_file("the map", path) as part, utf8_path(part) as name, library_errors():
        with delay_interrupts():
            skeleton.to_netcdf(name, engine="netcdf4", format="NETCDF4", encoding=_encoding(skeleton))
        with netCDF4.Dataset(name, "a") as file:
            if "coordinates" in file.ncattrs():  # xarray lists coordinates that no variable has; they have one now
                file.delncattr("coordinates")
            for variable, about in variables.items():
                _create_variable(file, skeleton, variable, about, block_shape)
            for where, values in blocks:
                for variable, block in values.items():
                    file[variable][variables[variable].index(where)] = block
    return Path(path)


def _create_variable(
    file: netCDF4.Dataset, skeleton: xr.Dataset, name: str, variable: BlockVariable, block_shape: tuple[int, ...]
) -> None:
    first, count = variable.spatial
    sizes = [skeleton.sizes[d] for d in variable.dims]
    # One draw, quantile or layer can be read without the others; the labels of a point stay together.
    chunks = [1] * first + [*block_shape] + sizes[first + count :]
    created = file.createVariable(
        name, "f8", variable.dims, compression="zlib", complevel=1, shuffle=True, chunksizes=chunks, fill_value=np.nan
    )
    created.set_var_chunk_cache(size=8 * math.prod(chunks), nelems=1)
    auxiliary = [
        str(other)
        for other, array in skeleton.coords.items()
        if other not in skeleton.dims and set(array.dims) <= set(variable.dims)
    ]
    created.setncatts({**variable.attributes, **({"coordinates": " ".join(auxiliary)} if auxiliary else {})})


def read(path: str | Path) -> xr.Dataset:
    """Read a posterior or a map into memory.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Dataset

    Raises
    ------
    ConfigError
        As for `open_dataset`.

    Examples
    --------
    >>> path = invgp.netcdf.write(posterior, "posterior.nc")
    >>> invgp.netcdf.read(path)["depth"].sizes
    Frozen({'site': 3})
    """
    with open_dataset(path) as dataset:
        return _load(path, dataset)


@contextmanager
def open_dataset(path: str | Path) -> Iterator[xr.Dataset]:
    """Open a posterior, or a map, whose values are read when they are needed.

    Parameters
    ----------
    path : str or Path

    Yields
    ------
    Dataset

    Raises
    ------
    ConfigError
        The file cannot be read, declares more data than it contains, links to other files, or does not have the
        contents that `invgp.posterior.dataset_schema` requires.
    """
    import xarray as xr  # noqa: PLC0415 - help is given without waiting for it

    from invgp.posterior.dataset_schema import SchemaError, check_schema  # noqa: PLC0415

    check_container(Path(path))
    with ExitStack() as stack:
        try:
            name = stack.enter_context(utf8_path(Path(path)))
            # Times stay numbers, because a latent can be a time.
            with delay_interrupts():
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
        with delay_interrupts():
            return dataset.load()
    except UNREADABLE as error:
        raise unreadable_error(path, "it is damaged") from error


def _with_text_attributes(posterior: xr.Dataset) -> xr.Dataset:
    """Return the dataset with file names in its attributes as valid text."""
    texts = {key: as_text(value) for key, value in posterior.attrs.items() if isinstance(value, str)}
    return posterior.assign_attrs(texts)


def _encoding(posterior: xr.Dataset) -> dict[str, dict[str, Any]]:
    encoding: dict[str, dict[str, Any]] = {}
    for name, variable in posterior.variables.items():
        # CF allows no fill value on coordinates. Of integers, only the corners of a mesh have one.
        floating = np.issubdtype(variable.dtype, np.floating)
        fill = (np.nan if name not in posterior.coords else None) if floating else variable.encoding.get("_FillValue")
        how: dict[str, Any] = {"_FillValue": fill}
        if variable.ndim and np.issubdtype(variable.dtype, np.number) and variable.size:
            how |= {"zlib": True, "complevel": 1, "shuffle": True}
            how["chunksizes"] = _chunks(variable.shape)
        encoding[str(name)] = how
    return encoding


def _chunks(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return chunks of complete trailing axes, so that one draw or quantile can be read without the others."""
    chunks, room = [], LARGEST_CHUNK
    for size in reversed(shape):
        chunks.append(max(1, min(size, room)))
        room //= chunks[-1]
    return tuple(reversed(chunks))
