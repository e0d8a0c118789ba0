"""Sections of a report with the results of commands that answer questions."""

import re

import numpy as np
import pytest

import invgp
from helpers.problems import linear_problem
from invgp import netcdf, reports
from invgp.answers.summaries import ANSWERS
from invgp.errors import ConfigError
from invgp.reports.answers import STYLES


@pytest.fixture(scope="module")
def posterior():
    return invgp.invert(linear_problem())


def quieter():
    return linear_problem().with_scaled_noise(np.full((15, 2), 0.5))


@pytest.mark.slow
def test_that_each_answer_has_a_section_with_a_table_and_a_figure(posterior, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problem = linear_problem()
    (tmp_path / "places.csv").write_text("name,easting,northing\n<b>new</b>,50,50\nother,10,90\n")
    revised = invgp.revise(posterior, problem=quieter(), config=problem)
    found = {
        "prior": invgp.prior(problem, runs=60),
        "influence": invgp.influence(posterior, config=problem),
        "crossvalidate": invgp.crossvalidate(posterior, by="block", blocks=3, config=problem),
        "design": invgp.design(posterior, "places.csv", best=2, config=problem),
        "difference": invgp.difference(posterior, revised),
        "weigh": invgp.weigh(posterior, revised, config=[problem, quieter()], names=["noisy", "quiet"]),
    }
    assert set(found) == set(ANSWERS)
    assert {*found, "revise"} == set(STYLES)
    files = []
    for name, answer in {**found, "revise": revised}.items():
        files.append(netcdf.write(answer, tmp_path / f"{name}.nc"))
    page = invgp.report(posterior, "with.html", answers=files).read_text()
    section = page[page.index('<section id="answers"') :]
    section = section[: section.index("</section>")]
    titles = re.findall(r'<h3 id="answer-\d+">(.*)</h3>', section)
    assert titles == [STYLES[name].title for name in (*found, "revise")]
    assert section.count("<img src=") == len(files)
    assert section.count("<table>") == len(files) + 1  # influence has two
    for text in ("&lt;b&gt;new&lt;/b&gt;", "pull hardest", "mean CRPS", "hard to produce", "in words", "no runs."):
        assert text in section
    assert "<b>new</b>" not in page
    assert 'id="answers"' not in invgp.report(posterior, "without.html").read_text()
    for name, answer in found.items():  # a file gives the same section as the dataset
        own, read = (
            reports.answer_section(posterior, one, "x")._replace(figure=None)
            for one in (answer, netcdf.read(f"{name}.nc"))
        )
        assert own == read


def test_that_other_and_incomplete_results_are_refused(posterior, tmp_path):
    change = invgp.difference(posterior, posterior)
    wrong = {
        "must be results of `invgp prior`, `invgp influence`, .*, or a revised posterior, was a dataset$": posterior,
        "must be complete results, a dataset lacks 'depth_change'$": change.drop_vars("depth_change"),
        "must have the latents of the posterior, a dataset has 'porosity'$": change.assign_attrs(
            invgp_latents="porosity"
        ).rename({n: n.replace("depth", "porosity") for n in change.data_vars if n.startswith("depth_")}),
    }
    for words, answer in wrong.items():
        with pytest.raises(ConfigError, match=f"^answers: {words}"):
            invgp.report(posterior, tmp_path / "page.html", answers=[answer])
    assert not (tmp_path / "page.html").exists()
