"""What users install."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


@pytest.mark.slow
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
    page = {f"invgp/reports/{path.name}" for path in (root / "invgp" / "reports").iterdir() if path.suffix != ".py"}
    assert {name for name in page if not name.endswith("__pycache__")} <= held


def test_that_there_is_one_version():
    assert invgp.__version__ == version("invgp")


def required_packages(project):
    """The requirements of the package, of its extras for any computer, and of the tests and case studies."""
    extras = project["project"]["optional-dependencies"]
    groups = project["dependency-groups"]
    lines = [
        *project["project"]["dependencies"],
        *(line for name in ("dask", "docs", "eclipse", "geotiff", "vtk") for line in extras[name]),
        *(line for group in groups.values() for line in group if isinstance(line, str)),
    ]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_that_a_tested_version_of_every_dependency_is_known_for_each_python(python, root):
    held = {}
    for line in (root / ".ci" / "constraints.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        constraint = Requirement(line)  # a name and a version: neither an option nor an address
        [pin] = constraint.specifier
        assert (pin.operator, constraint.url) == ("==", None)
        if constraint.marker is None or constraint.marker.evaluate(
            {"python_version": python, "python_full_version": f"{python}.0"}
        ):
            assert held.setdefault(canonicalize_name(constraint.name), pin.version) == pin.version
    project = tomllib.loads((root / "pyproject.toml").read_text())
    for requirement in required_packages(project):
        name = canonicalize_name(requirement.name)
        assert name in held, f"{name}: bash .ci/lock adds it"
        assert requirement.specifier.contains(held[name]), (
            f"{name}: bash .ci/lock changes it to {requirement.specifier}"
        )


def test_that_versions_of_another_name_are_refused_before_anything_is_installed(root, tmp_path):
    script = tmp_path / ".ci" / "venv"
    script.parent.mkdir()
    shutil.copy(root / ".ci" / "venv", script)
    environment = {**os.environ, "INVGP_VERSIONS": "latest", "PYTHON": sys.executable}
    outcome = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    assert outcome.stderr == "INVGP_VERSIONS must be 'tested' or 'newest', but it is 'latest'.\n"
    assert not (tmp_path / ".venv").exists()


def test_that_an_environment_of_another_python_is_refused(root, tmp_path):
    script, python = tmp_path / ".ci" / "venv", tmp_path / ".venv" / "bin" / "python"
    for path in (script, python):
        path.parent.mkdir(parents=True)
    shutil.copy(root / ".ci" / "venv", script)
    python.write_text("#!/bin/sh\necho Python 3.8\n")
    python.chmod(0o755)
    environment = {**os.environ, "INVGP_VERSIONS": "tested", "PYTHON": sys.executable}
    outcome = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    wanted = "Python {}.{}".format(*sys.version_info[:2])
    sentence = f".venv has Python 3.8, but PYTHON names {wanted}: remove .venv, or unset PYTHON to keep it.\n"
    assert outcome.stderr == sentence


def test_that_case_studies_install_tested_versions_only(root):
    """Only recipes have environments of their own, because their packages can exclude each other."""
    for script in set((root / "case_studies").glob("*/run.sh")) - {root / "case_studies" / "recipes" / "run.sh"}:
        assert "pip install" not in script.read_text(), f"{script}: enter_case_study installs modules"
