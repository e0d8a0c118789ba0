"""Posteriors and maps that are damaged, or prepared to do harm: one sentence, whatever was done to them."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import click
import netCDF4
import numpy as np
import pytest
import xarray as xr

import invgp
from campaign.mutate_posterior import damage
from helpers.problems import map_problem
from helpers.two_modes import add_modes
from invgp import netcdf, reports
from invgp.cli import app
from invgp.cli.console import Console
from invgp.errors import ConfigError, InvgpError
from invgp.files import netcdf_container
from invgp.maps.predict import plan_map, predict
from invgp.posterior.dataset_schema import SchemaError, check_schema
from invgp.reports.findings import mode_tables

GRID = "easting=500000:500100:50,northing=6000000:6000060:30"


@pytest.fixture(scope="module")
def posterior() -> xr.Dataset:
    return invgp.invert(map_problem(max_evaluations=2))


@pytest.fixture(scope="module")
def whole(posterior: xr.Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    netcdf.write(posterior, folder / "posterior.nc")
    netcdf.write(predict(posterior, grid=GRID, draws=2, exceed=["resistivity > 50"]), folder / "map.nc")
    return folder


def attribute(variable: str, key: str, value: object) -> Callable[[xr.Dataset], object]:
    return lambda ds: (ds[variable].attrs if variable else ds.attrs).__setitem__(key, value)


def values(variable: str, change: Callable[[np.ndarray], object]) -> Callable[[xr.Dataset], object]:
    return lambda ds: change(ds[variable].values)


DAMAGES: dict[str, Callable[[xr.Dataset], object]] = {
    "it lacks the variable 'resistivity_std'": lambda ds: ds.drop_vars("resistivity_std"),
    "it lacks the variable 'site_precision'": lambda ds: ds.drop_vars("site_precision"),
    "it lacks the variable 'near_residual'": lambda ds: ds.drop_vars("near_residual"),
    "it lacks the attribute 'invgp_coordinates'": lambda ds: ds.attrs.pop("invgp_coordinates"),
    "it lacks the attribute 'invgp_survey_digest'": lambda ds: ds.attrs.pop("invgp_survey_digest"),
    "its attribute 'invgp_runs' must be a whole number from 0, was 'many'": attribute("", "invgp_runs", "many"),
    "its attribute 'invgp_draws_total' must be a whole number from 0, was 'many'": (
        attribute("", "invgp_draws_total", "many")
    ),
    "its attribute 'invgp_log_evidence' must be a number, was [1.0, 2.0]": (
        attribute("", "invgp_log_evidence", [1.0, 2.0])
    ),
    "its attribute 'history' must be text, was 3": attribute("", "history", 3),
    "its attribute 'invgp_latents' must name variables, each once, was": attribute("", "invgp_latents", "near near"),
    "the attribute 'length_scale' of its variable 'resistivity' must be 2 positive, was [nan, 30.0]": (
        attribute("resistivity", "length_scale", [np.nan, 30.0])
    ),
    "the attribute 'process_std' of its variable 'thickness' must be 1 positive, was -3.0": (
        attribute("thickness", "process_std", -3.0)
    ),
    "the attribute 'kernel' of its variable 'thickness' must be ": attribute("thickness", "kernel", "matern 7/2"),
    "the attribute 'units' of its variable 'easting' must be a unit, was 'furlongs since'": (
        attribute("easting", "units", "furlongs since")
    ),
    "its variable 'crs' describes no coordinate reference system": lambda ds: ds["crs"].attrs.clear(),
    "its variable 'easting' must hold finite numbers, had nan": values("easting", lambda v: v.__setitem__(3, np.nan)),
    "its variable 'resistivity_std' must not be negative, was -5": (
        values("resistivity_std", lambda v: v.__setitem__((0, 0), -5.0))
    ),
    "its variable 'near_noise_std' must be positive wherever there are observations": (
        values("near_noise_std", lambda v: v.__setitem__(0, 0.0))
    ),
    "its variable 'resistivity_quantile' must not fall from one quantile to the next": (
        values("resistivity_quantile", lambda v: v.__setitem__(slice(None), v[::-1].copy()))
    ),
    "its variable 'site_precision' must be symmetric, was not": (
        values("site_precision", lambda v: v.__setitem__((0, 0, 1), 1e6))
    ),
    "its coordinate 'layer' must not hold a value twice": lambda ds: ds.assign_coords(layer=[1, 1]),
    "its coordinate 'quantile' must rise between 0 and 1": lambda ds: ds.assign_coords(quantile=[0.5, 0.05, 0.95]),
    "its dimension 'site' must not be empty": lambda ds: ds.isel(site=slice(0)),
    "its variable 'thickness' must hold numbers, was of the type": lambda ds: ds.assign(
        thickness=("site", np.asarray(["thick"] * 12), ds["thickness"].attrs)
    ),
    "its variable 'resistivity_prior' must lie along 'site', 'layer', was along 'layer', 'site'": (
        lambda ds: ds.assign(resistivity_prior=ds["resistivity_prior"].transpose())
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("sentence", DAMAGES)
def test_that_a_posterior_that_is_not_as_it_must_be_is_refused_by_what_is_wrong(
    sentence: str, posterior: xr.Dataset, tmp_path: Path
) -> None:
    path, dataset = tmp_path / "posterior.nc", posterior.copy(deep=True)
    changed = DAMAGES[sentence](dataset)
    (changed if isinstance(changed, xr.Dataset) else dataset).to_netcdf(path, engine="netcdf4")
    with pytest.raises(ConfigError) as caught:
        netcdf.read(path)
    assert str(caught.value).startswith(f"{str(path)!r} is not a complete posterior or map: {sentence}")


def test_that_a_posterior_that_makes_no_covariance_is_refused(posterior: xr.Dataset) -> None:
    broken = posterior.copy(deep=True)
    broken["site_precision"].values[...] = -1e6 * np.eye(3)
    with pytest.raises(ConfigError, match="gives a covariance that is not positive definite"):
        plan_map(broken)


def huge(file: netCDF4.Dataset) -> None:
    file.createDimension("huge", 10**10)
    file.createVariable("huge", "f8", ("huge",), zlib=True, chunksizes=(1000,))


def group(file: netCDF4.Dataset) -> None:
    file.createGroup("more").createVariable("inside", "f8", ())


DECLARATIONS = {
    "declares more numbers, in 'huge', than a file of its size can hold": huge,
    "'more' is a group, and a posterior has none": group,
    "it has types of its own": lambda file: file.createVLType(np.int32, "lists"),
}


@pytest.mark.slow
@pytest.mark.parametrize("reason", DECLARATIONS)
def test_that_what_a_posterior_cannot_declare_is_refused(reason: str, whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "posterior.nc"
    shutil.copy(whole / "posterior.nc", path)
    with netCDF4.Dataset(path, "a") as file:
        DECLARATIONS[reason](file)
    with pytest.raises(ConfigError, match=reason):
        netcdf.read(path)


@pytest.mark.slow
def test_that_no_other_file_is_read(whole: Path, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    (tmp_path / "secret").write_bytes(b"password" * 12)
    source = h5py.VirtualLayout(shape=(12,), dtype="f8")
    source[:] = h5py.VirtualSource(str(whole / "posterior.nc"), "easting", shape=(12,))
    made: dict[str, Callable[[Any], object]] = {
        "'x' is a link to data elsewhere": lambda file: file.__setitem__(
            "x", h5py.ExternalLink(str(whole / "map.nc"), "/easting")
        ),
        "'y' is a link to data elsewhere": lambda file: file.__setitem__("y", h5py.SoftLink("/easting")),
        "the variable 'z' is kept in another file": lambda file: file.create_dataset(
            "z", shape=(12,), dtype="f8", external=[(str(tmp_path / "secret"), 0, 96)]
        ),
        "the variable 'v' is kept in another file": lambda file: file.create_virtual_dataset("v", source),
    }
    for reason, make in made.items():
        path = tmp_path / "posterior.nc"
        shutil.copy(whole / "posterior.nc", path)
        with h5py.File(path, "a") as file:
            make(file)
        with pytest.raises(ConfigError, match=reason):
            netcdf.read(path)


def test_that_a_crash_or_hang_of_the_library_on_a_file_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "crashes on it" in netcdf_container._inspect_in_child(lambda: os.kill(os.getpid(), signal.SIGSEGV))
    monkeypatch.setattr(netcdf_container, "PATIENCE", 0.2)
    reason = netcdf_container._inspect_in_child(lambda: str(os.read(os.pipe()[0], 1)))
    assert reason == "reading it takes too long, more than 0.2 s"


@pytest.fixture
def second_thread() -> Iterator[None]:
    ending = threading.Event()
    thread = threading.Thread(target=ending.wait)
    thread.start()
    yield
    ending.set()
    thread.join()


@pytest.mark.usefixtures("second_thread")
def test_that_a_process_with_threads_is_not_forked_to_read_a_file(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a lock of another thread may be held"))
    netcdf_container.check_container(whole / "posterior.nc")
    cut = tmp_path / "cut.nc"
    cut.write_bytes((whole / "posterior.nc").read_bytes()[:5000])
    with pytest.raises(ConfigError, match="it is damaged"):
        netcdf_container.check_container(cut)


@pytest.mark.usefixtures("second_thread")
def test_that_a_crash_or_hang_of_a_new_interpreter_on_a_file_is_reported(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netcdf_container, "NEW_INTERPRETER", "import os; os.kill(os.getpid(), 11)")
    with pytest.raises(ConfigError, match="the netCDF library crashes on it"):
        netcdf_container.check_container(whole / "posterior.nc")
    monkeypatch.setattr(netcdf_container, "NEW_INTERPRETER", "import os; os.read(os.pipe()[0], 1)")
    monkeypatch.setattr(netcdf_container, "PATIENCE", 0.2)
    with pytest.raises(ConfigError, match=r"reading it takes too long, more than 0\.2 s"):
        netcdf_container.check_container(whole / "posterior.nc")


def test_that_a_file_is_read_in_a_process_with_many_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = 1100
    if hard != resource.RLIM_INFINITY and hard < many:
        pytest.skip("so many files cannot be open here")
    make_pipe = os.pipe

    def high_pipe() -> tuple[int, ...]:
        low = make_pipe()
        high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 1024) for end in low)
        for end in low:
            os.close(end)
        return high

    if soft != resource.RLIM_INFINITY and soft < many:
        resource.setrlimit(resource.RLIMIT_NOFILE, (many, hard))
    try:
        monkeypatch.setattr(os, "pipe", high_pipe)
        assert netcdf_container._inspect_in_child(lambda: "read") == "read"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_that_a_failed_fork_leaves_no_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    pipes: list[tuple[int, int]] = []
    make_pipe = os.pipe
    monkeypatch.setattr(os, "pipe", lambda: pipes.append(make_pipe()) or pipes[-1])
    monkeypatch.setattr(os, "fork", fail)
    with pytest.raises(BlockingIOError):
        netcdf_container._inspect_in_child(lambda: "")
    for end in pipes[0]:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end)


COMMANDS = (
    ("plot", "x.nc", "--kind", "convergence", "--dpi", "30", "-o", "figure.png"),
    ("plot", "x.nc", "--dpi", "30", "--latent", "thickness", "-o", "figure.png"),
    ("predict", "x.nc", "--grid", GRID, "--draws", "1", "-o", "new.nc"),
    ("export", "x.nc", "--format", "csv", "-o", "table.csv"),
    ("export", "x.nc", "--format", "pest", "-o", "ensemble.csv"),
    ("compare", "x.nc", "--config", "none.toml"),
)


OF_DRAWS = ("invgp_draws", "invgp_modes", "invgp_gaussian_k_hat", "invgp_log_evidence", "invgp_log_evidence_error")


@pytest.mark.slow
@pytest.mark.parametrize("missing", [OF_DRAWS, ("invgp_draws_total",), ("invgp_mode_probabilities",)])
def test_that_a_sampled_posterior_without_some_attributes_of_its_draws_serves_or_is_refused(
    missing: tuple[str, ...], posterior: xr.Dataset, tmp_path: Path
) -> None:
    sampled = add_modes(posterior)
    for name in missing:
        del sampled.attrs[name]
    if "invgp_mode_probabilities" in missing:
        with pytest.raises(SchemaError, match="its variable 'mode' must hold numbers of modes, from 1 to 1"):
            check_schema(sampled)
        return
    check_schema(sampled)
    reports.write(sampled, tmp_path / "page.html", kinds=())
    predict(sampled, grid=GRID, draws=1)
    for form in ("csv", "pest", "arviz"):
        invgp.export(sampled, form, tmp_path / form)


def test_that_modes_without_their_draws_are_not_reported_and_other_numbers_of_modes_are_refused(
    posterior: xr.Dataset,
) -> None:
    sampled = add_modes(posterior)
    assert mode_tables(sampled.drop_vars("mode")) == []
    with pytest.raises(SchemaError, match="its dimension 'posterior_mode' must have the size 2, was 1"):
        check_schema(sampled.isel(posterior_mode=slice(1)))
    along = sampled["near_predicted_by_mode"].transpose()
    with pytest.raises(SchemaError, match="its variable 'near_predicted_by_mode' must lie along 'posterior_mode'"):
        check_schema(sampled.assign(near_predicted_by_mode=along))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["posterior.nc", "map.nc"])
def test_that_damaged_files_give_error_messages_in_every_command(
    name: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = 0
    for seed in range(12):
        damage(whole / name, Path("x.nc"), seed)
        try:
            reports.write(netcdf.read("x.nc"), "page.html", kinds=())
        except InvgpError:
            refused += 1
            continue  # every command opens it in the same way
        for command in COMMANDS if seed % 8 == 0 else COMMANDS[2:4]:
            try:
                with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
                    app.main(command, standalone_mode=False, obj=Console())
            except (InvgpError, click.ClickException):
                pass
    assert refused >= 5
