"""Read the survey of Moomba (Cooper Basin) from a folder, and compare the prior mean with it.

    python case_studies/moomba/real_data.py FOLDER --extent EAST NORTH DOWN --field EAST NORTH UP --heat KELVIN FLOW

The data are those of `examples/moomba` in github.com/rscalzo/obsidian, as CSV files. They are not part of invgp, and
neither are the numbers of the options: the extent of the area in m, the ambient magnetic field in nT, and the surface
temperature in K with the basal heat flow in W m-2. `--without-station N` leaves out a magnetotelluric station.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from model import Basin, Floats, Rocks, gravity_anomaly, interpolation, magnetic_anomaly, soundings, temperature
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from command_line import run

from invgp.errors import ConfigError
from invgp.forward_models.magnetotelluric import MU_0

PROPERTIES = {  # name in rock_properties.csv -> factor to SI units, and whether it is the log10 of the property
    "density": ("density_g_cm3", 1000.0, False),
    "susceptibility": ("log10_susceptibility", 1.0, True),
    "conductivity": ("thermal_conductivity_W_m_K", 1.0, False),
    "heat_production": ("heat_production_W_m3", 1.0, False),
    "resistivity": ("log10_resistivity_ohm_m", 1.0, True),
}


@dataclass(frozen=True)
class Area:
    """What the files do not contain: extent east, north and down (m), field (nT), temperature (K), flow (W m-2)."""

    extent: tuple[float, float, float]
    field: tuple[float, float, float]
    surface_temperature: float
    basal_heat_flow: float
    without_station: int | None = None


@dataclass(frozen=True, eq=False)
class Moomba:
    """The survey and the prior means.

    Parameters
    ----------
    basin : Basin
        Columns, boundary conditions, and prior means of the tops of all layers but the lowest.
    lowest_top : array, shape (C,), in m
        Prior mean of the top of the lowest layer.
    rocks : Rocks
        Prior means of the rock properties.
    places : dict of array, shapes (M, 3), in m
        Easting, northing and depth of the readings of each kind.
    gravity, magnetics, temperature : array, shapes (M,), in m s-2, nT and K
        Readings; gravity and magnetics without their means.
    impedance : array, shape (M, F), in ohm
        Half the difference of the off-diagonal impedances at the frequencies of the basin; NaN where there is none.
    """

    basin: Basin
    lowest_top: Floats
    rocks: Rocks
    places: dict[str, Floats]
    gravity: Floats
    magnetics: Floats
    temperature: Floats
    impedance: Floats


def read_table(folder: Path, name: str, columns: list[str]) -> pd.DataFrame:
    """Columns of a CSV file."""
    path = folder / name
    if not path.is_file():
        raise ConfigError(f"the folder {str(folder)!r} must contain the file {name!r}, but does not")
    table = pd.read_csv(path)
    missing = [column for column in columns if column not in table]
    if missing:
        raise ConfigError(f"{str(path)!r} must have a column {missing[0]!r}, but has {', '.join(map(repr, table))}")
    return table


def read_moomba(folder: Path, area: Area, north_first: bool = True) -> Moomba:
    """Read the survey.

    Parameters
    ----------
    folder : Path
        Folder with the CSV files.
    area : Area
        What the files do not contain.
    north_first : bool
        Whether the first row of the prior means of the tops is the northernmost. This is the order of obsidian, but the
        other one fits the data better.

    Raises
    ------
    ConfigError
        A file or a column is missing, or a layer has no value of a property.
    """
    rock_table = read_table(folder, "rock_properties.csv", ["layer", "property", "prior_mean"])
    layers = list(dict.fromkeys(rock_table["layer"]))  # from the uppermost down
    tops = np.stack([_read_top(folder, layer, north_first) for layer in layers])
    rows = round(np.sqrt(tops.shape[1]))
    place = ["east_m", "north_m", "depth_m"]
    readings = {
        name: read_table(folder, f"{name}.csv", [*place, column])
        for name, column in (
            ("gravity", "anomaly_mGal"),
            ("magnetics", "total_field_anomaly_nT"),
            ("temperature", "temperature_K"),
            ("magnetotellurics", "frequency_Hz"),
        )
    }
    places = {name: table[place].to_numpy(dtype=float) for name, table in readings.items()}
    frequency, stations, impedance = _read_impedances(readings["magnetotellurics"], area.without_station)
    gravity = 1e-5 * readings["gravity"]["anomaly_mGal"].to_numpy()
    magnetics = readings["magnetics"]["total_field_anomaly_nT"].to_numpy()
    edges = [np.linspace(0.0, side, rows + 1) for side in area.extent[:2]]
    return Moomba(
        basin=Basin(
            *edges,
            area.extent[2],
            tops[:-1],
            np.array(area.field),
            frequency,
            area.surface_temperature,
            area.basal_heat_flow,
        ),
        lowest_top=tops[-1],
        rocks=_read_rocks(rock_table, layers),
        places=places | {"magnetotellurics": stations},
        gravity=gravity - gravity.mean(),
        magnetics=magnetics - magnetics.mean(),
        temperature=readings["temperature"]["temperature_K"].to_numpy(),
        impedance=impedance,
    )


def _read_top(folder: Path, layer: str, north_first: bool) -> Floats:
    """Prior mean of a top, (C,) in m: easting by easting, from south to north."""
    rows = read_table(folder, f"top_of_{layer}.csv", ["column_1"]).to_numpy(dtype=float)
    if rows.shape[0] != rows.shape[1]:
        raise ConfigError(f"'top_of_{layer}.csv' must have as many rows as columns, but has {rows.shape}")
    return np.asarray((rows[::-1] if north_first else rows).T.ravel())


def _read_rocks(table: pd.DataFrame, layers: list[str]) -> Rocks:
    """Prior means of the properties."""
    means = table.set_index(["property", "layer"])["prior_mean"]
    found = {}
    for name, (column, factor, logarithm) in PROPERTIES.items():
        missing = [layer for layer in layers if (column, layer) not in means.index]
        if missing:
            raise ConfigError(f"'rock_properties.csv' must have {column!r} of the layer {missing[0]!r}, but has not")
        values = np.array([float(means[column, layer]) for layer in layers])
        found[name] = 10.0**values if logarithm else factor * values
    return Rocks(**found)


def _read_impedances(table: pd.DataFrame, without: int | None) -> tuple[Floats, Floats, NDArray[np.complex128]]:
    """Frequencies (F,) in Hz, stations (M, 3) in m, and impedances (M, F) in ohm."""
    table = table[table["station"] != without]
    stations, first, row = np.unique(table["station"], return_index=True, return_inverse=True)
    frequency, column = np.unique(table["frequency_Hz"], return_inverse=True)
    found = np.full((stations.size, frequency.size), complex(np.nan, np.nan))
    # Field units are mV/km per nT: 1e3 m/s, and mu0 makes E / H of E / B.
    xy, yx = (table[f"Z{pair}_re"].to_numpy() + 1j * table[f"Z{pair}_im"].to_numpy() for pair in ("xy", "yx"))
    found[row, column] = 1e3 * MU_0 * 0.5 * (xy - yx)
    return frequency, table[["east_m", "north_m", "depth_m"]].to_numpy(dtype=float)[first], found


def arguments() -> tuple[Path, Area]:
    """Folder and area of the command line."""
    parser = ArgumentParser(
        description="Compare the prior mean with the survey of Moomba, for both orders of the rows."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--extent", type=float, nargs=3, required=True, metavar=("EAST", "NORTH", "DOWN"), help="m")
    parser.add_argument("--field", type=float, nargs=3, required=True, metavar=("EAST", "NORTH", "UP"), help="nT")
    parser.add_argument("--heat", type=float, nargs=2, required=True, metavar=("KELVIN", "FLOW"), help="K and W m-2")
    parser.add_argument("--without-station", type=int, metavar="N", help="magnetotelluric station to leave out")
    given = parser.parse_args()
    return given.folder, Area(tuple(given.extent), tuple(given.field), *given.heat, given.without_station)


def main() -> None:
    """Print how the prior mean fits, for both orders of the rows."""
    folder, area = arguments()
    for order in (True, False):
        survey = read_moomba(folder, area, north_first=order)
        basin, rocks, places = survey.basin, survey.rocks, survey.places
        layers = basin.layers(survey.lowest_top[None])
        gravity = gravity_anomaly(basin, rocks.density, layers, places["gravity"])
        magnetics = magnetic_anomaly(basin, rocks.susceptibility, layers, places["magnetics"])
        print(f"rows from {'north to south' if order else 'south to north'}, prior mean:")
        for name, found, data, unit in (
            ("gravity", 1e5 * gravity, 1e5 * survey.gravity, "mGal"),
            ("magnetics", magnetics, survey.magnetics, "nT"),
            ("temperature", temperature(basin, rocks, layers, places["temperature"]), survey.temperature, "K"),
        ):
            depth = interpolation(basin, places[name]) @ survey.lowest_top
            misfit = np.sqrt(np.mean((found[0] - data) ** 2))
            spread, agreement = np.std(data), np.corrcoef(depth, data)[0, 1]
            print(
                f"  {name}: misfit {misfit:.3g} {unit}, spread of the data {spread:.3g} {unit}, "
                f"correlation of the data with the depth of the lowest layer {agreement:+.2f}"
            )
        apparent, _ = soundings(basin, rocks.resistivity, layers, places["magnetotellurics"])
        measured = np.log10(np.abs(survey.impedance) ** 2 / (2.0 * np.pi * basin.frequency * MU_0))
        misfit = np.sqrt(np.nanmean((apparent[0] - measured) ** 2))
        print(f"  magnetotellurics: misfit {misfit:.2g} in log10 of the apparent resistivity, {len(measured)} stations")


if __name__ == "__main__":
    run(main)
