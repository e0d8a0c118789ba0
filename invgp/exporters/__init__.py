"""Export of posteriors and maps to the formats of other programs, one module per format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from invgp.files.atomic_files import staging_directory

if TYPE_CHECKING:
    import xarray as xr


class ExportFormat(NamedTuple):
    """The module that writes a format, and the suffix of its files."""

    module: str
    suffix: str


FORMATS = {
    "csv": ExportFormat("csv", ".csv"),
    "geotiff": ExportFormat("geotiff", ".tif"),
    "geopackage": ExportFormat("geopackage", ".gpkg"),
    "aseg-gdf2": ExportFormat("aseg_gdf2", ".dfn"),
    "vtk": ExportFormat("vtk", ".vtr"),
    "arviz": ExportFormat("arviz", ".arviz.nc"),
    "pest": ExportFormat("pest", ".ensemble.csv"),
}


def export(dataset: xr.Dataset, kind: str, path: str | Path, variables: Sequence[str] = ()) -> list[Path]:
    """Write a posterior or a map in the format of another program.

    Parameters
    ----------
    dataset : Dataset
        A posterior or a map.
    kind : str
        Key of `FORMATS`.
    path : str or Path
        File to write.
    variables : sequence of str
        Variables to write (for ``"arviz"`` and ``"pest"``, latents); by default those that suit the format.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ArgumentError
        A variable does not exist, a library is missing, or the format does not suit the dataset.
    ConfigError
        The dataset has no draws, which the format needs.
    WriteError
        A file could not be written.
    """
    from invgp.maps.nodes import as_map  # noqa: PLC0415 - help is given without waiting for xarray

    path = Path(path)
    write: Callable[[xr.Dataset, Path, Sequence[str]], list[Path]] = import_module(
        f"invgp.exporters.{FORMATS[kind].module}"
    ).write
    with staging_directory("the export", path) as directory:
        written = write(as_map(dataset), directory / path.name, variables)
    return [path.with_name(file.name) for file in written]
