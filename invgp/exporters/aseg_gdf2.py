"""ASEG-GDF2: columns of fixed width in a .dat file, and their definitions in the .dfn file beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unicodedata import normalize

import numpy as np
import xarray as xr
from pyproj import CRS

from invgp.errors import ArgumentError
from invgp.exporters.layers import chosen, coordinates, layers, positions
from invgp.problem import Floats

NULL = -999999999.0  # no exponent: not every reader knows one in a definition
WIDTH = 18
IN_LETTERS = str.maketrans({"Ω": "ohm", "\N{GREEK SMALL LETTER MU}": "u", "°": "deg", "\N{MINUS SIGN}": "-", "·": "."})
DIVIDERS = str.maketrans(dict.fromkeys(":;,=", " "))


def write(dataset: xr.Dataset, path: Path, variables: Sequence[str]) -> list[Path]:
    """Write both files: a record a point; a field with labels has several columns."""
    if path.suffix.lower() not in (".dfn", ".dat"):
        raise ArgumentError(f"output: must end in .dfn or .dat, was {path.name!r}")
    system = f" in {CRS.from_cf(dataset['crs'].attrs).name}" if "crs" in dataset else ""
    at = positions(dataset)
    size = len(next(iter(at.values())))
    fields = ["site:I10:number of the point"]
    columns: list[tuple[str, Floats]] = [("{:10.0f}", np.arange(1.0, size + 1.0))]
    for name in coordinates(dataset):
        about = dataset[name].attrs
        fields.append(
            f"{name}:F{WIDTH}.6:UNIT={_plain(about['units'])},{_plain(about.get('long_name', name))}{_plain(system)}"
        )
        columns.append((f"{{:{WIDTH}.6f}}", at[name]))
    for name in chosen(dataset, variables):
        found = list(layers(dataset, [name]))
        about = dataset[name].attrs
        repeated = str(len(found)) if len(found) > 1 else ""
        labels = f" ({' / '.join(layer.text.partition(', ')[2] for layer in found)})" if repeated else ""
        fields.append(
            f"{name}:{repeated}E{WIDTH}.9:UNIT={_plain(about.get('units', '1'))},NULL={NULL:.0f},"
            f"{_plain(about.get('long_name', name))}{_plain(labels)}"
        )
        columns += [(f"{{:{WIDTH}.9E}}", np.nan_to_num(layer.values.values.ravel(), nan=NULL)) for layer in found]
    definitions = [f"DEFN {n} ST=RECD,RT=;{field}" for n, field in enumerate([*fields, "END DEFN"], start=1)]
    dfn, dat = path.with_suffix(".dfn"), path.with_suffix(".dat")
    dfn.write_text("\n".join(["DEFN   ST=RECD,RT=COMM;RT:A4;COMMENTS:A76", *definitions, ""]), encoding="ascii")
    form = "".join(text for text, _ in columns) + "\n"
    with dat.open("w", encoding="ascii") as file:
        file.writelines(form.format(*row) for row in zip(*(values for _, values in columns), strict=True))
    return [dfn, dat]


def _plain(text: str) -> str:
    """Without the characters that divide a definition, in ASCII."""
    cleaned = normalize("NFKC", text).translate(IN_LETTERS).translate(DIVIDERS)
    return " " * text.startswith(" ") + " ".join(cleaned.encode("ascii", "replace").decode().split())
