"""The documentation as a site."""

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


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
    assert not any("<!-- site" in text for text in built.values())
    assert "How-to guides" in built["start"]
    assert built.keys() >= {page.stem for page in (root / "docs").glob("*.md")}
    for name, text in built.items():
        assert not re.search(r"<(script|img|iframe)[^>]*src=\"(https?:)?//|<link[^>]*href=\"(https?:)?//", text), name
    for page, documented in {
        "api_inversion": "invgp.invert",
        "api_models": "invgp.SAVIGP",
        "api_simulators": "invgp.adapters.ForwardModel",
        "api_problem": "invgp.Problem",
        "api_figures": "invgp.plots.plot_section",
    }.items():
        assert f'id="{documented}"' in built[page]
    assert "<math" in built["theory"]


def test_that_the_first_page_links_to_every_page_of_the_sidebar(root):
    text, _, sidebar = (root / "docs" / "index.md").read_text(encoding="utf-8").partition("<!-- site\n")
    pages = {line for line in sidebar.splitlines() if re.fullmatch(r"[\w/]+", line)}
    assert len(pages) > 40
    assert pages <= set(re.findall(r"\]\(([\w/]+)\.(?:md|ipynb)\)", text))


def test_that_every_case_study_is_in_the_gallery(root):
    gallery = (root / "docs" / "gallery.md").read_text(encoding="utf-8")
    _, toctree, text = gallery.split("```", 2)
    studies = {readme.parent.name for readme in (root / "case_studies").glob("*/README.md")}
    assert studies == {line for line in toctree.splitlines()[1:] if line and not line.startswith(":")}
    for study in studies:
        assert f"]({study}.md)" in text, study
