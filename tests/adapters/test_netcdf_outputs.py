"""NetCDF files that runs leave: a damaged one must not stop an inversion, and none leads to another file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest

from helpers.netcdf_files import crash, loop_for_ever, print_and_add, refuse, write_endless_netcdf
from invgp.adapters import ExecutableModel, NetcdfFile, Quantity, RunContext, Status
from invgp.adapters.readers import isolation
from invgp.adapters.readers.isolation import read_isolated

Y = (Quantity("y", "s", (1, 2, 3, 4)),)


def test_that_numbers_come_back_exactly_and_that_a_helper_serves_again() -> None:
    numbers = np.asarray([0.1, -1e308, np.nan, np.inf])
    for _ in range(2):
        np.testing.assert_array_equal(read_isolated(print_and_add, numbers, 0.0, seconds=60.0), numbers)
    assert len(isolation._helpers.idle) == 1


@pytest.mark.parametrize(
    ("function", "seconds", "sentence"),
    [(loop_for_ever, 0.2, "reading takes longer than 0.2 s"), (crash, 60.0, "the library that reads it crashes")],
)
def test_that_a_library_that_loops_or_crashes_is_an_error(
    function: Callable[[], np.ndarray], seconds: float, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_isolated(function, seconds=seconds)
    np.testing.assert_array_equal(read_isolated(print_and_add, np.ones(2), 1.0, seconds=60.0), [2.0, 2.0])


def test_that_errors_come_back() -> None:
    with pytest.raises(OSError, match="No such file"):
        read_isolated(refuse, seconds=60.0)
    with pytest.raises(ValueError, match="TypeError: "):
        read_isolated(print_and_add, seconds=60.0)


def test_that_a_helper_that_was_killed_is_replaced() -> None:
    read_isolated(print_and_add, np.ones(1), 1.0, seconds=60.0)
    isolation._helpers.idle[-1]._process.kill()
    isolation._helpers.idle[-1]._process.wait()
    assert read_isolated(print_and_add, np.ones(1), 1.0, seconds=60.0).tolist() == [2.0]


def link(path: Path, elsewhere: Path) -> None:
    with h5py.File(path, "w") as file:
        file["y"] = h5py.ExternalLink(str(elsewhere), "/y")


def link_in_group(path: Path, elsewhere: Path) -> None:
    with h5py.File(path, "w") as file:
        file["y"] = np.ones(4)
        file.create_group("below")["y"] = h5py.ExternalLink(str(elsewhere), "/y")


def external_storage(path: Path, elsewhere: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("y", shape=(4,), dtype="f8", external=[(str(elsewhere), 0, 32)])


def virtual_dataset(path: Path, elsewhere: Path) -> None:
    layout = h5py.VirtualLayout(shape=(4,), dtype="f8")
    layout[:] = h5py.VirtualSource(str(elsewhere), "y", shape=(4,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("y", layout)


@pytest.mark.parametrize("make", [link, link_in_group, external_storage, virtual_dataset])
def test_that_no_netcdf_output_leads_to_another_file(make: Callable[[Path, Path], None], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.nc"
    with h5py.File(elsewhere, "w") as file:
        file["y"] = np.arange(4.0)
    run = tmp_path / "run"
    run.mkdir()
    make(run / "out.nc", elsewhere)
    with pytest.raises(ValueError, match=r"is a link to data elsewhere|is kept in another file"):
        NetcdfFile("out.nc", variable="y").read(run, Y)


def test_that_groups_that_contain_each_other_are_refused(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "out.nc", "w") as file:
        file.createDimension("n", 4)
        file.createVariable("y", "f8", ("n",))[:] = np.arange(4.0)
        file.createGroup("below")
    with h5py.File(tmp_path / "out.nc", "a") as file:
        file["below/above"] = file["/"]
    with pytest.raises(ValueError, match="the group '/below/above' is a link to another group"):
        NetcdfFile("out.nc", variable="y").read(tmp_path, Y)


def test_that_a_chunk_that_is_too_large_for_its_file_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "out.nc", "w") as file:
        file.create_dataset("y", shape=(4,), maxshape=(None,), chunks=(2**26,), dtype="f8")
    with pytest.raises(ValueError, match="has chunks that are larger than a file of its size can hold"):
        NetcdfFile("out.nc", variable="y").read(tmp_path, Y)


@pytest.mark.slow
def test_that_a_damaged_output_on_which_the_library_never_returns_fails_its_run_in_time(tmp_path: Path) -> None:
    write_endless_netcdf(tmp_path / "damaged.nc")
    model = ExecutableModel(
        ("cp", str(tmp_path / "damaged.nc"), "out.nc", "--suffix={x}"),
        (Quantity("x", "m"),),
        Y,
        output_files=(NetcdfFile("out.nc", variable="y"),),
        timeout=3.0,
    )
    outcome = model.evaluate(np.ones((1, 1)), RunContext(["run"], tmp_path / "runs"))
    assert outcome.status == (Status.UNREADABLE,)
    assert "file 'out.nc': reading takes longer than 3 s; the file may be damaged" in outcome.messages[0]
