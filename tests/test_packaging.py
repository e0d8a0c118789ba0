"""What users install."""

import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version

import pytest

import invgp


@pytest.fixture(scope="session")
def wheel(root, tmp_path_factory):
    """A wheel built from the files of the repository, away from any build left in it."""
    source = tmp_path_factory.mktemp("source")
    for name in ("invgp", "adapters", "forward_models"):
        shutil.copytree(root / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, source)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", source / "dist", source], check=True, capture_output=True
    )
    [path] = (source / "dist").glob("*.whl")
    return zipfile.ZipFile(path)


def test_that_the_wheel_claims_one_global_name(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"invgp", f"invgp-{invgp.__version__}.dist-info"}


def test_that_the_wheel_holds_every_module_and_the_simulator_sources(wheel, root):
    held = set(wheel.namelist())
    for folder, inside in (
        ("invgp", "invgp"),
        ("adapters", "invgp/adapters"),
        ("forward_models", "invgp/forward_models"),
    ):
        for path in (root / folder).rglob("*.py"):
            assert f"{inside}/{path.relative_to(root / folder).as_posix()}" in held
    assert {"invgp/py.typed", "invgp/forward_models/two_way_times.c"} <= held
    page = {f"invgp/report/{path.name}" for path in (root / "invgp" / "report").iterdir() if path.suffix != ".py"}
    assert {name for name in page if not name.endswith("__pycache__")} <= held


def test_that_there_is_one_version():
    assert invgp.__version__ == version("invgp")
