"""Documentation that can be wrong is run."""

import contextlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from documented import blocks, holds, run_page

import invgp
from invgp import cli, errors, netcdf
from invgp.cli import calibrate
from invgp.config.build import build
from invgp.config.schema import Config
from invgp.forward_models import two_way_times
from invgp.scaffolds import files_of, write

# Where the commands and the Python of a page are run, if not in this file by `run_page`.
RUN_ELSEWHERE = {
    "README": "here, in test_otway.py and, on a survey of its own, in cli/test_newcomer.py",
    "otway": "test_otway.py",
    "cluster": "pools/ and, with Slurm, cluster/slurm.sh",
    "export": "maps/test_documented.py",
    "maps": "maps/test_documented.py",
    "models": "here",
    "python": "here",
    "report": "here: its command is one of start.md",
    "simulators": "adapters/test_persistent.py",
    "umbridge": "cli/test_serve.py",
}

# Pages that a reader reads with the project of the first page at hand, and what takes too long there.
ON_THE_LINE = {
    "calibration": {
        "--surveys 200 --workers 4": "--surveys 2",
        "calibrate(problem, 200,": "calibrate(problem, 2,",
        "case_studies/otway/calibrate.sh --workers 2": "",  # K times over; tests of calibration run what it runs
    },
    "choosing": {},
    "compare": {
        "invgp compare posterior.nc": "invgp compare posterior.nc --draws 10 --burn-in 10",
        "draws=2000": "draws=10, burn_in=10",
    },
    "reading": {},
}
IN_AN_EMPTY_FOLDER = {
    "CONTRIBUTING": {},
    "cli": {'eval "$(_INVGP_COMPLETE=bash_source invgp)"': ""},  # cli/test_startup.py
    "coming_from": {},
}


def pages(root):
    readmes = [root / "README.md", root / "CONTRIBUTING.md", *(root / "case_studies").glob("*/README.md")]
    return {"otway" if page.parent.name == "otway" else page.stem: page for page in readmes} | {
        page.stem: page for page in sorted((root / "docs").glob("*.md")) if page.stem != "otway"
    }


@pytest.fixture(scope="module")
def line(root, tmp_path_factory):
    """The project of the page for beginners after all its commands, and what they printed."""
    folder = tmp_path_factory.mktemp("beginner")
    with contextlib.chdir(folder):
        printed = run_page(root / "docs" / "start.md", {"pip install .": ""})
    return folder / "line", printed


@pytest.fixture
def copy_of_line(line, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(line[0], tmp_path / "line"))


def test_that_the_first_page_leads_to_all_that_it_says(root, line):
    folder, printed = line
    for name in ("posterior.nc", "posterior.png", "posterior_fit.png", "posterior.map.nc", "posterior.html"):
        assert (folder / name).stat().st_size > 0
    excerpts = [text for _, text in blocks(root / "docs" / "start.md", "text")]
    assert len(excerpts) == 2
    assert all(holds(printed, excerpt) for excerpt in excerpts)
    assert "64 runs" in printed


@pytest.mark.usefixtures("copy_of_line")
@pytest.mark.parametrize("name", ON_THE_LINE)
def test_that_a_page_about_the_line_runs(name, root):
    run_page(root / "docs" / f"{name}.md", ON_THE_LINE[name])


@pytest.mark.parametrize("name", IN_AN_EMPTY_FOLDER)
def test_that_a_page_runs_in_an_empty_folder(name, root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(pages(root)[name], IN_AN_EMPTY_FOLDER[name])


def test_that_the_page_about_figures_runs(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = (part.ravel() for part in np.meshgrid(np.arange(4) * 500.0, np.arange(4) * 500.0))
    depth = np.stack([300 + 0.02 * x, 800 + 0.05 * y], axis=-1)
    times = two_way_times(depth, np.tile([1800.0, 2600.0], (16, 1)))
    fields = {"dimension": "layer", "std": "10%", "kernel": {"length_scale": 1000}}
    problem = invgp.define(
        {"x": x, "y": y, "t1": times[:, 0], "t2": times[:, 1]},
        coordinates={"x": "m", "y": "m"},
        observations={"time": {"columns": ["t1", "t2"], "dimension": "layer", "unit": "s"}},
        dimensions={"layer": [1, 2]},
        latents={
            "depth": {"unit": "m", "mean": [300, 800], **fields},
            "velocity": {"unit": "m s-1", "mean": [1800, 2600], **fields},
        },
        forward=two_way_times,
        noise={"time": 0.01},
    )
    netcdf.write(invgp.invert(problem), "posterior.nc")
    run_page(root / "docs" / "plots.md", {"invgp plot": "invgp plot --dpi 40", "--dpi 600": ""})
    assert (tmp_path / "layer2.pdf").exists()


def test_that_the_page_about_the_ledger_runs(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "simulator.py").write_text("def time(depth):\n    return depth / 1000.0\n")
    (tmp_path / "sites.csv").write_text("x,t\n0,0.50\n400,0.52\n800,0.49\n1200,0.47\n1600,0.50\n2000,0.51\n")
    config = {
        "survey": 'file = "sites.csv"\ncoordinates.x.unit = "m"\nobservations.time = { columns = ["t"], unit = "s" }',
        "latents.depth": 'unit = "m"\nmean = 500\nstd = 75\nkernel = { length_scale = 1000 }',
        "forward": 'adapter = "callable"\nfunction = "simulator:time"\ninputs = ["depth"]\noutputs = ["time"]',
        "noise": "std.time = 0.02",
        "output": "ledger = true",
    }
    text = "\n".join(f"[{section}]\n{keys}" for section, keys in config.items())
    (tmp_path / "survey.toml").write_text(text)
    printed = run_page(root / "docs" / "ledger.md")
    assert "from the ledger" in printed


@pytest.mark.parametrize("name", ["choosing", "cluster", "ledger", "umbridge"])
def test_that_a_fragment_of_a_config_fits_into_one(name, root, tmp_path):
    write(files_of("python"), tmp_path)
    fragments = [text for _, text in blocks(root / "docs" / f"{name}.md", "toml")]
    assert fragments
    for fragment in fragments:
        keys = merged(tomllib.loads((tmp_path / "survey.toml").read_text()), tomllib.loads(fragment))
        problem = build(Config.model_validate(keys), tmp_path, fragment, None)
        assert problem.survey.size == 16


def merged(base, over):
    """Tables key by key; that of another adapter is another simulator."""
    if "adapter" in over:
        return over
    return base | {k: merged(base.get(k, {}), v) if isinstance(v, dict) else v for k, v in over.items()}


def test_that_every_page_with_code_is_run(root):
    with_code = {name for name, page in pages(root).items() if blocks(page, "sh", "bash", "python")}
    here = {"start", "plots", "ledger", *ON_THE_LINE, *IN_AN_EMPTY_FOLDER}
    assert with_code == here | {*RUN_ELSEWHERE}
    assert not here & {*RUN_ELSEWHERE}


def test_that_the_page_about_reading_quotes_what_is_said(root):
    sources = "".join(path.read_text(encoding="utf-8") for path in (root / "invgp" / "inference").rglob("*.py"))
    said = re.sub(r'"\s*\n\s*f?"', "", sources).lower()
    table = (root / "docs" / "reading.md").read_text(encoding="utf-8").partition("## The diagnostics")[2]
    quoted = re.findall(r"\*([^*|]+)\*", "".join(re.findall(r"^\| (\*.*?) \|", table, re.MULTILINE)))
    assert len(quoted) == 11
    for words in (part.strip().lower() for quote in quoted for part in quote.split("...")):
        assert words in said, words


@pytest.mark.parametrize("name", ["config", "command"])
def test_that_a_reference_is_made_from_the_code(name, root):
    page = runpy.run_path(str(root / "docs" / f"make_{name}_reference.py"))["page"]()
    written = {"config": "config.md", "command": "commands.md"}[name]
    assert (root / "docs" / written).read_text(encoding="utf-8") == page


def test_that_the_site_is_built_without_a_warning_and_needs_no_network(root, tmp_path):
    options = ["-q", "-W", "--keep-going", "-b", "html", "-d", str(tmp_path / "doctrees")]
    outcome = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(root / "docs"), str(tmp_path / "site")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    built = {page.stem: page.read_text(encoding="utf-8") for page in (tmp_path / "site").glob("*.html")}
    assert built.keys() >= {page.stem for page in (root / "docs").glob("*.md")}
    for name, text in built.items():
        assert not re.search(r"<(script|img|iframe)[^>]*src=\"(https?:)?//|<link[^>]*href=\"(https?:)?//", text), name
    for documented in ("invgp.invert", "invgp.SAVIGP", "invgp.adapters.ForwardModel"):
        assert f'id="{documented}"' in built["api"]
    assert "<math" in built["theory"]


def test_that_links_between_files_lead_somewhere(root):
    for page in pages(root).values():
        for target in re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_that_the_python_example_of_the_readme_runs(root, otway):
    [example] = [text for _, text in blocks(root / "README.md", "python")]
    outcome = subprocess.run(
        [sys.executable, "-c", example], cwd=otway.parent.parent, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    depth = float(outcome.stdout.split()[0])
    assert 1000 < depth < 2200


def test_that_the_examples_of_the_models_page_run(root):
    examples = [text for _, text in blocks(root / "docs" / "models.md", "python")]
    assert len(examples) == 5
    for example in examples:
        outcome = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False)
        assert outcome.returncode == 0, outcome.stderr


def test_that_the_page_about_python_runs(root, tmp_path):
    examples = [text for _, text in blocks(root / "docs" / "python.md", "python")]
    outcome = subprocess.run(
        [sys.executable, "-c", "\n".join(examples)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "A reflection line: 5 sites, 9 observations, 4 latent processes, simulator 'two_way_times'" in outcome.stdout
    for key in ("noise.std.tim", "survey.observations.time.columns", "forward.inputs[1]"):
        assert f"\n{key}: must " in outcome.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"posterior.nc", "posterior.png", "posterior_fit.png"}


def test_that_the_page_about_the_command_line_tells_every_exit_code(root):
    page = (root / "docs" / "cli.md").read_text(encoding="utf-8")
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    named = {kind.exit_code for kind in (errors.InvgpError, *errors.InvgpError.__subclasses__())}
    assert told == {0, *named, calibrate.NOT_CALIBRATED, cli.INTERRUPTED}
