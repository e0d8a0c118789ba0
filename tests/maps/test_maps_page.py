"""Every command and example of the pages on maps and exports is run."""

import subprocess
import sys

import pytest

import invgp
from helpers.documentation import blocks, commands
from helpers.problems import map_problem
from invgp import netcdf


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("electrical")
    netcdf.write(invgp.invert(map_problem()), folder / "posterior.nc")
    netcdf.write(invgp.invert(map_problem(posterior="sampled")), folder / "sampled.nc")
    (folder / "wells.csv").write_text("well,easting,northing\nA,500010,6000020\nB,500030,6000050\n")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", ["maps", "export"])
def test_that_the_commands_of_the_page_run(page, root, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    given = [words for block in blocks(root / "docs" / f"{page}.md", "bash") for words in commands(block)]
    assert len(given) >= 8
    for program, *arguments in given:
        assert program == "invgp"
        invgp.cli.app.main(arguments, prog_name="invgp", standalone_mode=False)
        for line in capsys.readouterr().out.splitlines():
            assert (folder / line.split()[0].rstrip(":")).exists(), arguments


@pytest.mark.slow
def test_that_the_python_example_runs(root, folder):
    [(_, example)] = blocks(root / "docs" / "maps.md", "python")
    outcome = subprocess.run([sys.executable, "-c", example], cwd=folder, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert 0 < float(outcome.stdout) < 1
