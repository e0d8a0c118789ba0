"""Documentation that can be wrong is run."""

import contextlib
import json
import re
import runpy
import shutil
import subprocess
import sys
import tomllib

import numpy as np
import pytest

import invgp
from helpers.documentation import blocks, holds, run_page
from invgp import cli, errors, netcdf
from invgp.adapters import RunContext
from invgp.cli import calibrate
from invgp.config.build_problem import build_problem
from invgp.forward_models import two_way_times
from invgp.scaffolds import read_template, write_project
from invgp.settings.configuration import Config

# Where the commands and the Python of a page, or small versions of them, are run, if not in this file by `run_page`.
RUN_ELSEWHERE = {
    "recipes": "case_studies/test_recipes.py",
    "README": "here, in case_studies/test_otway.py and, with another survey, in cli/test_template_projects.py",
    "aquifer": "inference/field/test_cases.py",
    "basin": "inference/field/test_cases.py",
    "cox_process": "case_studies/test_cox_process.py",
    "em_survey": "case_studies/test_em_survey.py",
    "flights": "case_studies/test_flights.py",
    "gmt_valley": "case_studies/test_gmt_valley.py",
    "gprn": "case_studies/test_gprn_case.py",
    "moomba": "case_studies/test_moomba.py",
    "otway": "case_studies/test_otway.py",
    "paper_data": "case_studies/test_paper_data.py",
    "tomography": "inference/field/test_cases.py",
    "cluster": "execution/pools/ and, with Slurm, cluster/slurm.sh",
    "export": "maps/test_maps_page.py",
    "installation": "test_packaging.py",
    "joint": "docs/test_joint_page.py",
    "maps": "maps/test_maps_page.py",
    "models": "here",
    "next_borehole": "docs/test_next_borehole_page.py",
    "python": "here",
    "report": "here: its command is one of start.md",
    "simulators": "here and in adapters/persistent/test_guide.py",
    "umbridge": "here",
}

# Pages that a reader reads with the project of the first page at hand, and what takes too long there.
ON_THE_LINE = {
    "answers": {},
    "calibration": {
        "--surveys 200 --workers 4": "--surveys 2",
        "invgp.calibrate(problem, 200,": "invgp.calibrate(problem, 2,",
        "case_studies/otway/calibrate.sh --workers 2": "",  # K times over; tests of calibration run what it runs
    },
    "choosing": {},
    "compare": {
        "invgp compare posterior.nc": "invgp compare posterior.nc --chains 8 --effective 10",
        "effective=1000": "chains=8, effective=10",
    },
    "reading": {},
}
IN_AN_EMPTY_FOLDER = {
    "CONTRIBUTING": {},
    "cli": {'eval "$(_INVGP_COMPLETE=bash_source invgp)"': ""},  # cli/test_startup.py
    "coming_from": {},
    "from_pest": {},
    "forward_models": {},
}


def pages(root):
    """By name; of a case study it is that of its folder, and its page of the site only shows its README."""
    studies = {readme.parent.name: readme for readme in (root / "case_studies").glob("*/README.md")}
    docs = {page.stem: page for page in sorted((root / "docs").glob("*.md"))}
    return docs | {"README": root / "README.md", "CONTRIBUTING": root / "CONTRIBUTING.md"} | studies


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


@pytest.mark.slow
def test_that_the_quick_start_produces_what_it_describes(root, line):
    folder, printed = line
    for name in ("posterior.nc", "posterior.png", "posterior_fit.png", "posterior.map.nc", "posterior.html"):
        assert (folder / name).stat().st_size > 0
    excerpts = [text for _, text in blocks(root / "docs" / "start.md", "text")]
    assert len(excerpts) == 2
    assert all(holds(printed, excerpt) for excerpt in excerpts)
    assert "100 runs" in printed


def test_that_a_git_host_shows_every_page_or_a_link_to_its_text(root):
    for page in (root / "docs").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert "{literalinclude}" not in text, page
        for target in re.findall(r"^```\{include\} (\S+)$", text, re.MULTILINE):
            assert f'<a href="{target}">' in text, page
            assert (page.parent / target).exists(), page


def test_that_the_quick_start_shows_the_files_of_its_project(root):
    page, files = root / "docs" / "start.md", read_template("python")
    [function, _] = [text for _, text in blocks(page, "python")]
    assert files["simulator.py"].decode().endswith(f"\n\n\n{function}")
    [latents] = [text for _, text in blocks(page, "toml")]
    assert f"\n\n{latents}\n[forward]\n" in files["survey.toml"].decode()


@pytest.mark.slow
@pytest.mark.usefixtures("copy_of_line")
@pytest.mark.parametrize("name", ON_THE_LINE)
def test_that_a_page_about_the_line_runs(name, root):
    run_page(root / "docs" / f"{name}.md", ON_THE_LINE[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_AN_EMPTY_FOLDER)
def test_that_a_page_runs_in_an_empty_folder(name, root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(pages(root)[name], IN_AN_EMPTY_FOLDER[name])


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_that_the_page_about_umbridge_runs(root, tmp_path):
    (tmp_path / "simulator.py").write_text("def times(depth, velocity):\n    return 2.0 * depth / velocity[:, None]\n")
    (tmp_path / "sites.csv").write_text("x,t1,t2\n0,0.2,0.5\n")
    fields = {"depth": 'dimension = "layer"\nmean = [200, 500]\nunit = "m"', "velocity": 'mean = 2000\nunit = "m s-1"'}
    latents = [f'[latents.{k}]\n{v}\nstd = "10%"\nkernel = {{ length_scale = 100 }}' for k, v in fields.items()]
    survey = '[survey]\nfile = "sites.csv"\ncoordinates.x.unit = "m"\n[dimensions]\nlayer = [1, 2]'
    times = '[survey.observations.time]\ncolumns = ["t1", "t2"]\ndimension = "layer"\nunit = "s"'
    forward = '[forward]\nadapter = "callable"\nfunction = "simulator:times"\ninputs = ["depth", "velocity"]'
    rest = 'outputs = ["time"]\n[noise]\nstd.time = 0.01'
    (tmp_path / "survey.toml").write_text("\n".join([survey, times, *latents, forward, rest]))
    page = root / "docs" / "umbridge.md"
    [client] = [text for _, text in blocks(page, "python")]
    command = [sys.executable, "-m", "invgp", "serve", "survey.toml", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            reported = "".join(server.stdout.readline() for _ in range(3))
            port = re.search(r"http://127.0.0.1:(\d+)", reported)[1]
            assert reported.replace(port, "4242") in page.read_text(encoding="utf-8")
            outcome = subprocess.run(
                [sys.executable, "-c", client.replace("4242", port)], capture_output=True, text=True, check=False
            )
            assert outcome.stdout == "[[0.2, 0.5]]\n", outcome.stderr
        finally:
            server.terminate()


@pytest.mark.parametrize("name", ["choosing", "cluster", "ledger", "umbridge"])
def test_that_a_fragment_of_a_config_fits_into_one(name, root, tmp_path):
    write_project(read_template("python"), tmp_path)
    fragments = [text for _, text in blocks(root / "docs" / f"{name}.md", "toml")]
    assert fragments
    for _, text in blocks(root / "docs" / f"{name}.md", "text"):
        if text.startswith("position,top\n"):
            (tmp_path / "top.csv").write_text(text, encoding="utf-8")
    for fragment in fragments:
        whole, given = tomllib.loads((tmp_path / "survey.toml").read_text()), tomllib.loads(fragment)
        for latent in given.get("latents", {}):
            whole["latents"][latent].pop("kernel")  # keys of one kind of kernel do not fit another
        problem = build_problem(Config.model_validate(merge_tables(whole, given)), tmp_path, fragment, None)
        assert problem.survey.size == 16


def test_that_the_pest_case_and_the_dakota_driver_of_the_page_run(root, tmp_path):
    page = root / "docs" / "simulators.md"
    given = {kind: tomllib.loads(t) for _, t in blocks(page, "toml") for kind in ("pest", "dakota") if f'"{kind}"' in t}
    [driver] = [text for _, text in blocks(page, "python") if "sys.argv" in text]
    for kind, adapter in (("pest", "pest"), ("python", "dakota")):
        folder = tmp_path / kind
        write_project(read_template(kind), folder)
        (folder / "driver.py").write_text(driver.replace("/usr/bin/env python3", sys.executable))
        (folder / "driver.py").chmod(0o755)
        keys = merge_tables(tomllib.loads((folder / "survey.toml").read_text()), given[adapter])
        problem = build_problem(Config.model_validate(keys), folder, "", None)
        at_prior_mean = problem.to_simulator(
            problem.to_physical(problem.prior_moments()[0])[None, None], np.asarray([0])
        )
        outcome = problem.forward.evaluate(at_prior_mean, RunContext(["first"], folder))
        assert outcome.messages == ("",)
        assert (outcome.outputs > 0).all()


def merge_tables(base, over):
    """Tables key by key; that of another adapter is another simulator."""
    if "adapter" in over:
        return over
    return base | {k: merge_tables(base.get(k, {}), v) if isinstance(v, dict) else v for k, v in over.items()}


def test_that_every_page_with_code_is_run(root):
    with_code = {name for name, page in pages(root).items() if blocks(page, "sh", "bash", "python")}
    here = {"start", "plots", "ledger", *ON_THE_LINE, *IN_AN_EMPTY_FOLDER}
    assert with_code == here | {*RUN_ELSEWHERE}
    assert not here & {*RUN_ELSEWHERE}


def test_that_the_page_about_interpretation_quotes_the_messages(root):
    sources = "".join(path.read_text(encoding="utf-8") for path in (root / "invgp").rglob("*.py"))
    text = re.sub(r'"\s*\n\s*f?"', "", sources).lower()
    table = (root / "docs" / "reading.md").read_text(encoding="utf-8").partition("## The diagnostics")[2]
    quoted = re.findall(r"\*([^*|]+)\*", "".join(re.findall(r"^\| (\*.*?) \|", table, re.MULTILINE)))
    assert len(quoted) == 18
    for words in (part.strip().lower() for quote in quoted for part in quote.split("...")):
        assert words in text, words


@pytest.mark.parametrize("name", ["config", "command"])
def test_that_a_reference_is_made_from_the_code(name, root):
    page = runpy.run_path(str(root / "docs" / f"make_{name}_reference.py"))["page"]()
    written = {"config": "config.md", "command": "commands.md"}[name]
    assert (root / "docs" / written).read_text(encoding="utf-8") == page


def test_that_the_bibliography_and_the_list_of_references_agree(root):
    entries = (root / "docs" / "references.bib").read_text(encoding="utf-8")
    titles = [
        title.replace("{", "").replace("}", "")
        for title in re.findall(r"^  title +=? *\{(.*)\},$", entries, re.MULTILINE)
    ]
    listed = (root / "docs" / "theory.md").read_text(encoding="utf-8").partition("## References")[2]
    references = [" ".join(item.split()) for item in listed.split("\n- ")[1:]]
    assert len(titles) == len(references) == entries.count("\n@")
    for title in titles:
        assert sum(title in reference for reference in references) == 1, title


def test_that_the_theory_page_names_code_that_exists(root):
    page = (root / "docs" / "theory.md").read_text(encoding="utf-8")
    columns = re.findall(r"^\|[^|]*\|([^|]*`[^|]*)\|", page.partition("## Equations of the paper")[2], re.MULTILINE)
    names = {part for column in columns for code in re.findall(r"`([\w.]+)", column) for part in code.split(".")}
    sources = [path.read_text(encoding="utf-8") for path in (root / "invgp").rglob("*.py")]
    modules = {part for path in (root / "invgp").rglob("*.py") for part in path.relative_to(root).with_suffix("").parts}
    defined = re.compile(r"(?:class|def) (\w+)|^ *(\w+)(?:: | = )", re.MULTILINE)
    known = modules.union(*(found for source in sources for found in defined.findall(source)))
    assert len(names) > 20
    assert names <= known, names - known


def test_that_links_between_files_lead_somewhere(root):
    for page in pages(root).values():
        for target in re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.slow
def test_that_the_python_example_of_the_readme_runs(root, otway):
    [example] = [text for _, text in blocks(root / "README.md", "python")]
    outcome = subprocess.run(
        [sys.executable, "-c", example], cwd=otway.parent.parent, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    depth = float(outcome.stdout.split()[0])
    assert 1000 < depth < 2200


@pytest.mark.slow
def test_that_the_examples_of_the_models_page_run(root):
    examples = [text for _, text in blocks(root / "docs" / "models.md", "python")]
    assert len(examples) == 11
    examples = [text.replace("100", "40") if "GPRN" in text else text for text in examples]  # sites, which take long
    each = "import json, sys\nfor example in json.load(sys.stdin):\n    exec(example, {'__name__': '__main__'})"
    outcome = subprocess.run(
        [sys.executable, "-c", each], input=json.dumps(examples), capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.slow
def test_that_the_page_about_python_runs(root, tmp_path):
    examples = [text for _, text in blocks(root / "docs" / "python.md", "python")]
    outcome = subprocess.run(
        [sys.executable, "-c", "\n".join(examples)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "A reflection line: 5 sites, 9 observations, 4 latent processes, simulator 'two_way_times'" in outcome.stdout
    for key in ("noise.std.tim", "survey.observations.time.columns", "forward.inputs[1]"):
        assert f"\n{key}: must " in outcome.stdout
    assert "\nlatents: must be a latent of the posterior, was 'dept'" in outcome.stdout
    figures = {"posterior.png", "posterior_fit.png"}
    assert {path.name for path in tmp_path.iterdir()} == {"line.csv", "posterior.html", "posterior.nc"} | figures


def test_that_the_page_about_the_command_line_lists_every_exit_code(root):
    page = (root / "docs" / "cli.md").read_text(encoding="utf-8")
    reported = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    named = {kind.exit_code for kind in (errors.InvgpError, *errors.InvgpError.__subclasses__())}
    assert reported == {0, *named, calibrate.NOT_CALIBRATED, cli.INTERRUPTED}
