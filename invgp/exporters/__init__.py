"""A posterior or a map in the formats of other programs: one module a format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from invgp.atomic_files import staging_directory

if TYPE_CHECKING:
    import xarray as xr


class Format(NamedTuple):
    """Where a format is written, and how its files end."""

    module: str
    suffix: str


FORMATS = {
    "csv": Format("csv", ".csv"),
    "geotiff": Format("geotiff", ".tif"),
    "aseg-gdf2": Format("aseg_gdf2", ".dfn"),
    "vtk": Format("vtk", ".vtr"),
    "arviz": Format("arviz", ".arviz.nc"),
    "pest": Format("pest", ".ensemble.csv"),
}


def export(dataset: xr.Dataset, kind: str, path: str | Path, variables: Sequence[str] = ()) -> list[Path]:
    """Write a posterior or a map as one of `FORMATS`.

    Parameters
    ----------
    variables : that are written; by default those that the format is for.

    Returns
    -------
    list of Path
        The files that were written.
    """
    from invgp.maps.nodes import as_map  # noqa: PLC0415 - help is given without waiting for xarray

    path = Path(path)
    write: Callable[[xr.Dataset, Path, Sequence[str]], list[Path]] = import_module(
        f"invgp.exporters.{FORMATS[kind].module}"
    ).write
    with staging_directory("the export", path) as directory:
        written = write(as_map(dataset), directory / path.name, variables)
    return [path.with_name(file.name) for file in written]
