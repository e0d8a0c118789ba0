"""Files that are replaced: the old one stays until the new one is complete, whatever happens meanwhile."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

import invgp
from helpers.problems import map_problem
from invgp import netcdf, reports
from invgp.cli import main
from invgp.errors import WriteError
from invgp.estimator import SAVIGP
from invgp.files import atomic_files
from invgp.files.atomic_files import _is_special, atomic_file, staging_directory
from invgp.likelihoods import Gaussian
from invgp.maps.predict import predict

SURVEY = "easting=500000:500100:20,northing=6000000:6000060:30"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    posterior = invgp.invert(map_problem(max_evaluations=2))
    netcdf.write(posterior, folder / "posterior.nc")
    netcdf.write(predict(posterior, grid=SURVEY, draws=4), folder / "map.nc")
    return folder


def command(*arguments: str) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        sys.argv = ["invgp", *(argument.replace("FOLDER", str(folder)) for argument in arguments)]
        with (folder.parent / "printed.txt").open("w") as printed, redirect_stderr(printed), redirect_stdout(printed):
            main()

    return run


def fitted_model(folder: Path) -> None:
    X = np.linspace(0.0, 6.0, 30)[:, None]
    SAVIGP(Gaussian(0.3), inducing=6).fit(X, np.sin(X[:, 0])).save(folder / "model.npz")


def report_without_figures(folder: Path) -> None:
    reports.write(netcdf.read("posterior.nc"), folder / "page.html", kinds=())


# What writes files, by the names of the files, of which the first is the first to be written.
WRITERS: dict[tuple[str, ...], Callable[[Path], None]] = {
    ("page.html",): report_without_figures,
    ("figure_correlation.png", "figure_convergence.png"): command(
        *("plot", "posterior.nc", "--kind", "correlation", "--kind", "convergence", "--dpi", "50"),
        *("-o", "FOLDER/figure.png"),
    ),
    ("new.map.nc",): command("predict", "posterior.nc", "--grid", SURVEY, "-o", "FOLDER/new.map.nc"),
    ("table.csv",): command("export", "map.nc", "--format", "csv", "-o", "FOLDER/table.csv"),
    ("map.tif",): command("export", "map.nc", "--format", "geotiff", "-o", "FOLDER/map.tif"),
    ("line.dfn", "line.dat"): command("export", "map.nc", "--format", "aseg-gdf2", "-o", "FOLDER/line.dfn"),
    ("grid.vtr",): command("export", "map.nc", "--format", "vtk", "-o", "FOLDER/grid.vtr"),
    ("points.vtu",): command("export", "posterior.nc", "--format", "vtk", "-o", "FOLDER/points.vtu"),
    ("draws.nc",): command("export", "posterior.nc", "--format", "arviz", "-o", "FOLDER/draws.nc"),
    ("ensemble.csv",): command("export", "posterior.nc", "--format", "pest", "-o", "FOLDER/ensemble.csv"),
    ("model.npz",): fitted_model,
}


def in_a_child(write: Callable[[Path], None], folder: Path, largest: int, *, dies: bool) -> int:
    """The exit code of a process that may write files of so many bytes; with more it is killed, or gets an error."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL if dies else signal.SIG_IGN)
            write(folder)
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        except WriteError as error:
            (folder.parent / "printed.txt").write_text(f"invgp: {error}\n")
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
@pytest.mark.parametrize("files", WRITERS, ids=lambda files: files[0])
def test_that_old_results_survive_a_kill_and_a_full_disk(
    files: tuple[str, ...], results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, write = tmp_path / "out", WRITERS[files]
    folder.mkdir()
    monkeypatch.chdir(results)
    assert in_a_child(write, folder, 2**40, dies=False) == 0
    assert sorted(path.name for path in folder.iterdir()) == sorted(files)
    size = max(path.stat().st_size for path in folder.iterdir())
    for path in folder.iterdir():
        path.write_text("an old result")

    assert in_a_child(write, folder, size // 2, dies=False) == 1
    assert {path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(files, "an old result")
    *_, sentence = (tmp_path / "printed.txt").read_text().splitlines()  # after warnings
    assert sentence.startswith("invgp: ")
    assert sentence.endswith(": File too large")
    assert "could not be written to " in sentence

    assert in_a_child(write, folder, size // 2, dies=True) == -signal.SIGXFSZ
    assert {path.name: path.read_text() for path in folder.iterdir() if path.is_file()} == dict.fromkeys(
        files, "an old result"
    )
    assert len([path for path in folder.iterdir() if path.is_dir()]) == 1

    assert in_a_child(write, folder, 2**40, dies=False) == 0
    assert sorted(path.name for path in folder.iterdir()) == sorted(files)
    assert "an old result" not in [path.read_bytes()[:13].decode("latin-1") for path in folder.iterdir()]


def test_that_a_staging_directory_of_a_live_process_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    code = (
        "import sys\nfrom invgp.files.atomic_files import atomic_file\n"
        f"with atomic_file('the page', {str(path)!r}) as part:\n"
        "    part.write_text('theirs'); print('ready', flush=True); sys.stdin.readline()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin
        assert other.stdout
        other.stdout.readline()
        with atomic_file("the page", path) as part:
            part.write_text("ours")
        assert path.read_text() == "ours"
        assert len(list(tmp_path.iterdir())) == 2
        other.stdin.write(b"\n")
        other.stdin.flush()
        assert other.wait() == 0
    assert path.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_that_only_staging_directories_of_the_same_file_are_removed(tmp_path: Path) -> None:
    kept = [
        tmp_path / name for name in (".page.html.backup.part", f".other.html.{'0' * 32}.part", f".page.html.{'g' * 32}")
    ]
    for directory in kept:
        directory.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (tmp_path / f".page.html.{'1' * 32}.part").symlink_to(elsewhere)
    (tmp_path / f".page.html.{'2' * 32}.part" / "files").mkdir(parents=True)
    with atomic_file("the page", tmp_path / "page.html") as part:
        part.write_text("new")
    assert all(directory.is_dir() for directory in kept)
    assert (elsewhere / "precious").exists()
    assert not (tmp_path / f".page.html.{'2' * 32}.part").exists()


def test_that_permissions_stay_and_a_write_protected_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    path.chmod(0o640)
    with atomic_file("the page", path) as part:
        part.write_text("new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o440)
    if os.geteuid() == 0:  # root may write whatever the permissions say
        return
    with pytest.raises(WriteError, match="Permission denied"), atomic_file("the page", path) as part:
        part.write_text("newer")
    assert path.read_text() == "new"


@pytest.mark.parametrize("there", [True, False])
def test_that_a_link_is_followed(there: bool, tmp_path: Path) -> None:
    target, link = tmp_path / "data" / "run7.html", tmp_path / "page.html"
    target.parent.mkdir()
    if there:
        target.write_text("old")
    link.symlink_to(Path("data") / "run7.html")
    with atomic_file("the page", link) as part:
        part.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


def test_that_a_pipe_gets_the_bytes(tmp_path: Path) -> None:
    pipe, found = tmp_path / "pipe.csv", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    with atomic_file("the table", pipe) as part:
        part.write_text("1,2\n")
    reader.join()
    assert found == ["1,2\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_that_a_pipe_without_a_reader_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    monkeypatch.setattr(atomic_files, "READER_SECONDS", 0.1)
    with (
        pytest.raises(WriteError, match=r"written to '.*pipe\.csv': it is a pipe, and no process reads from it"),
        atomic_file("the table", pipe) as part,
    ):
        part.write_text("1,2\n")


def test_that_more_than_a_pipe_holds_reaches_a_slow_reader(tmp_path: Path) -> None:
    pipe, text, found = tmp_path / "pipe.csv", "1,2\n" * 100_000, []
    os.mkfifo(pipe)

    def read() -> None:
        with pipe.open() as file:
            time.sleep(0.2)
            found.append(file.read())

    reader = threading.Thread(target=read)
    reader.start()
    with atomic_file("the table", pipe) as part:
        part.write_text(text)
    reader.join()
    assert found == [text]


def test_that_standard_output_and_a_full_device_are_written_to(tmp_path: Path) -> None:
    code = (
        "from invgp.files.atomic_files import atomic_file\n"
        "with atomic_file('the table', '{}') as p: p.write_text('1,2')"
    )
    for sink in ({"stdout": subprocess.PIPE}, {"stdout": (tmp_path / "out.csv").open("w+")}):
        ended = subprocess.run([sys.executable, "-c", code.format("/dev/stdout")], check=True, **sink)
        assert (ended.stdout or (tmp_path / "out.csv").read_bytes()) == b"1,2"
    full = [sys.executable, "-c", code.format("/dev/full")]
    ended = subprocess.run(full, check=False, stderr=subprocess.PIPE, text=True)
    assert ended.stderr.splitlines()[-1].endswith(
        "the table could not be written to '/dev/full': No space left on device"
    )


def test_that_a_name_as_long_as_the_file_system_allows_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 125 + ".html")
    with atomic_file("the page", path) as part:
        part.write_text("new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_that_an_error_in_the_block_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    with pytest.raises(ZeroDivisionError), atomic_file("the page", path) as part:
        part.write_text(str(1 / 0))
    assert list(path.parent.iterdir()) == []


def test_that_a_project_replaces_no_file_that_appears_meanwhile(tmp_path: Path) -> None:
    def write() -> None:
        with staging_directory("the project", tmp_path / "survey.toml", overwrite=False) as stage:
            (stage / "survey.toml").write_text("ours")
            (tmp_path / "survey.toml").write_text("theirs")

    with pytest.raises(WriteError, match="File exists"):
        write()
    assert (tmp_path / "survey.toml").read_text() == "theirs"


def test_that_an_open_descriptor_is_special_where_its_directory_is_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "realpath", str)  # as on macOS, where /dev/fd is a directory
    with (tmp_path / "file").open("wb") as file:
        assert _is_special(Path(f"/dev/fd/{file.fileno()}"))
    assert not _is_special(tmp_path / "file")


def test_that_a_failed_move_without_hard_links_leaves_no_empty_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int) -> Callable[..., None]:
        def call(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        return call

    monkeypatch.setattr(os, "link", fail(errno.EPERM))
    with staging_directory("the table", tmp_path / "table.csv", overwrite=False) as directory:
        (directory / "table.csv").write_text("1")
    assert (tmp_path / "table.csv").read_text() == "1"
    monkeypatch.setattr(os, "replace", fail(errno.EIO))
    with (
        pytest.raises(WriteError, match="Input/output error"),
        staging_directory("the table", tmp_path / "other.csv", overwrite=False) as directory,
    ):
        (directory / "other.csv").write_text("2")
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]
