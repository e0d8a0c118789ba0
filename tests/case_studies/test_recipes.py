"""The recipes: each with its own package, which is installed only where somebody wants to run it."""

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tomllib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import invgp

RECIPES = ("disba", "empymod", "harmonica", "jax", "simpeg", "tesseract")
pytestmark = pytest.mark.study


def test_that_a_wrong_name_lists_the_recipes(root):
    done = subprocess.run(
        ["bash", root / "case_studies/recipes/run.sh", "empymood"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert (
        done.stderr.strip()
        == "usage: run.sh NAME, where NAME is one of: container disba empymod harmonica jax simpeg tesseract"
    )


@pytest.mark.parametrize("name", RECIPES)
def test_that_a_recipe_is_short_and_its_configuration_is_valid_without_the_package(name, root, tmp_path):
    """A function with the same arguments replaces the simulator."""
    folder = root / "case_studies" / "recipes" / name
    text = (folder / "survey.toml").read_text(encoding="utf-8")
    assert len([line for line in text.splitlines() if line.strip()]) <= 35
    keys = tomllib.loads(text)
    inputs, (observation, about) = keys["forward"]["inputs"], next(iter(keys["survey"]["observations"].items()))
    function = keys["forward"]["function"].partition(":")[2]
    (tmp_path / "simulator.py").write_text(
        f"def {function}({', '.join(inputs)}): return {inputs[0]}\n", encoding="utf-8"
    )
    (tmp_path / "survey.toml").write_text(text, encoding="utf-8")
    table = np.column_stack([np.arange(6) * 100.0, np.ones((6, len(about["columns"])))])
    header = ",".join(["x", *about["columns"]])
    np.savetxt(tmp_path / "sites.csv", table, delimiter=",", header=header, comments="")
    problem = invgp.load(tmp_path / "survey.toml")
    assert problem.survey.Y.shape == (6, len(about["columns"]))
    assert observation in repr(problem)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RECIPES if name != "tesseract"])
def test_that_a_recipe_reaches_a_posterior_with_its_package(name, root, tmp_path):
    pytest.importorskip(name, reason=f"{name} is not installed; case_studies/recipes/run.sh {name} runs the recipe")
    for file in ("simulator.py", "survey.toml"):
        (tmp_path / file).write_bytes((root / "case_studies" / "recipes" / name / file).read_bytes())
    subprocess.run([sys.executable, "simulator.py"], cwd=tmp_path, check=True)
    subprocess.run([sys.executable, "-m", "invgp", "run", "survey.toml"], cwd=tmp_path, check=True)
    assert invgp.has_converged(invgp.open_posterior(tmp_path / "posterior.nc"))


@pytest.mark.slow
def test_that_the_recipe_of_a_server_reaches_a_posterior_and_fails_runs_that_the_server_fails(root, tmp_path):
    pytest.importorskip("tesseract_core.runtime", reason="case_studies/recipes/run.sh tesseract runs the recipe")
    for file in ("serve.sh", "simulator.py", "survey.toml", "tesseract_api.py"):
        (tmp_path / file).write_bytes((root / "case_studies" / "recipes" / "tesseract" / file).read_bytes())
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    runtime = Path(sysconfig.get_path("scripts")) / "tesseract-runtime"
    variables = os.environ | {"TESSERACT_SERVERS": f"http://127.0.0.1:{port}", "TESSERACT_RUNTIME": str(runtime)}
    with subprocess.Popen(["bash", "serve.sh", str(port)], cwd=tmp_path, env=variables) as server:
        try:
            subprocess.run([sys.executable, "simulator.py"], cwd=tmp_path, env=variables, check=True)
            subprocess.run(
                [sys.executable, "-m", "invgp", "run", "survey.toml"], cwd=tmp_path, env=variables, check=True
            )
            crossing = "from simulator import two_way_time; two_way_time([500.0, 200.0], [2000.0, 2500.0])"
            failed = subprocess.run(
                [sys.executable, "-c", crossing],
                cwd=tmp_path,
                env=variables,
                capture_output=True,
                text=True,
                check=False,
            )
            assert "Error 500 from Tesseract" in failed.stderr
        finally:
            server.terminate()
    assert invgp.has_converged(invgp.open_posterior(tmp_path / "posterior.nc"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_that_the_recipe_of_a_container_runs_its_program_through_the_wrapper(root, tmp_path):
    """The wrapper starts an engine that records its arguments and runs the command in the directory of the run."""
    folder = tmp_path / "recipe"
    shutil.copytree(root / "case_studies/recipes/container", folder, ignore=shutil.ignore_patterns(".venv"))
    engine = tmp_path / "bin" / "podman"
    engine.parent.mkdir()
    engine.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nwhile [ "$1" != an-image ]; do shift; done\nshift\nexec "$@"\n'
    )
    engine.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{engine.parent}:{os.environ['PATH']}",
        "ENGINE": "podman",
        "IMAGE": "an-image",
    }
    subprocess.run([sys.executable, "simulator.py"], cwd=folder, check=True)
    subprocess.run(
        [sys.executable, "-m", "invgp", "run", "survey.toml"],
        cwd=folder,
        env=environment,
        check=True,
    )
    posterior = invgp.open_posterior(folder / "posterior.nc")
    assert invgp.has_converged(posterior)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) >= int(posterior.attrs["invgp_runs"])
    assert all("--network none" in call and call.endswith("./refraction model.txt times.txt") for call in calls)
