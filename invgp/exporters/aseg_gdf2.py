"""ASEG-GDF2: columns of fixed width in a .dat file, and their definitions in a .dfn file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unicodedata import normalize

import numpy as np
import xarray as xr
from pyproj import CRS

from invgp.errors import ArgumentError
from invgp.exporters.exported_fields import point_positions, read_coordinates, select_variables, split_fields
from invgp.problem import Floats

NULL = -999999999.0  # without an exponent, which some readers do not accept in a definition
WIDTH = 18
ASCII_UNITS = str.maketrans({"Ω": "ohm", "\N{GREEK SMALL LETTER MU}": "u", "°": "deg", "\N{MINUS SIGN}": "-", "·": "."})
SEPARATORS = str.maketrans(dict.fromkeys(":;,=", " "))


def write(dataset: xr.Dataset, path: Path, variables: Sequence[str]) -> list[Path]:
    """Write both files, with one record per point; a field with labels has several columns.

    Parameters
    ----------
    dataset : Dataset
        A posterior or a map.
    path : Path
        File to write.
    variables : sequence of str
        Variables to write; by default all fields except draws.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ArgumentError
        The path does not end in .dfn or .dat.
    """
    if path.suffix.lower() not in (".dfn", ".dat"):
        raise ArgumentError(f"output: must end in .dfn or .dat, was {path.name!r}")
    system = f" in {CRS.from_cf(dataset['crs'].attrs).name}" if "crs" in dataset else ""
    at = point_positions(dataset)
    size = len(next(iter(at.values())))
    fields = ["site:I10:number of the point"]
    columns: list[tuple[str, Floats]] = [("{:10.0f}", np.arange(1.0, size + 1.0))]
    for name in read_coordinates(dataset):
        about = dataset[name].attrs
        unit, description = _to_ascii(about["units"]), _to_ascii(about.get("long_name", name)) + _to_ascii(system)
        fields.append(f"{name}:F{WIDTH}.6:UNIT={unit},{description}")
        columns.append((f"{{:{WIDTH}.6f}}", at[name]))
    for name in select_variables(dataset, variables):
        found = list(split_fields(dataset, [name]))
        about = dataset[name].attrs
        repeated = str(len(found)) if len(found) > 1 else ""
        labels = f" ({' / '.join(field.text.partition(', ')[2] for field in found)})" if repeated else ""
        fields.append(
            f"{name}:{repeated}E{WIDTH}.9:UNIT={_to_ascii(about.get('units', '1'))},NULL={NULL:.0f},"
            f"{_to_ascii(about.get('long_name', name))}{_to_ascii(labels)}"
        )
        columns += [(f"{{:{WIDTH}.9E}}", np.nan_to_num(field.values.values.ravel(), nan=NULL)) for field in found]
    definitions = [f"DEFN {n} ST=RECD,RT=;{field}" for n, field in enumerate([*fields, "END DEFN"], start=1)]
    dfn, dat = path.with_suffix(".dfn"), path.with_suffix(".dat")
    dfn.write_text("\n".join(["DEFN   ST=RECD,RT=COMM;RT:A4;COMMENTS:A76", *definitions, ""]), encoding="ascii")
    form = "".join(text for text, _ in columns) + "\n"
    with dat.open("w", encoding="ascii") as file:
        file.writelines(form.format(*row) for row in zip(*(values for _, values in columns), strict=True))
    return [dfn, dat]


def _to_ascii(text: str) -> str:
    """Return a text in ASCII, without the separators of a definition."""
    cleaned = normalize("NFKC", text).translate(ASCII_UNITS).translate(SEPARATORS)
    return " " * text.startswith(" ") + " ".join(cleaned.encode("ascii", "replace").decode().split())
