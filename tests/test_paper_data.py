"""The paper's small experiments, smaller: data, fits, tables and figures hang together."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest


@pytest.fixture(scope="module")
def study(root):
    """The modules of the case study."""
    folder = str(root / "case_studies" / "paper_data")
    sys.path.insert(0, folder)
    try:
        import datasets  # noqa: PLC0415
        import experiments  # noqa: PLC0415
        import figures  # noqa: PLC0415

        yield datasets, experiments, figures
    finally:
        sys.path.remove(folder)


@pytest.mark.parametrize(
    ("name", "learnt", "predicted", "inputs"),
    [("boston", 300, 206, 13), ("abalone", 1000, 3177, 8), ("cancer", 300, 383, 9), ("digits", 750, 750, 784)],
)
def test_that_the_data_have_the_sizes_of_the_paper(name, learnt, predicted, inputs, study):
    split = study[0].DATASETS[name].split(0)
    assert split.X.shape == (learnt, inputs)
    assert split.X_new.shape == (predicted, inputs)
    assert len(split.y) == learnt
    assert len(split.y_new) == predicted


def test_that_a_small_run_fits_all_families_goes_on_where_it_was_and_is_drawn(study, tmp_path, capsys):
    datasets, experiments, figures = study
    small = replace(datasets.DATASETS["boston"], train=60)
    experiments.run(small, 1, (0.2, 1.0), tmp_path)
    files = sorted(tmp_path.glob("boston_0_*.json"))
    assert len(files) == 7
    assert len(capsys.readouterr().out.splitlines()) == 7
    files[0].unlink()
    experiments.run(small, 1, (0.2, 1.0), tmp_path)
    assert len(capsys.readouterr().out.splitlines()) == 1
    by_key = figures.found("boston", tmp_path)
    dense, [exact] = by_key["full Gaussian", 1.0][0], by_key[experiments.EXACT, 1.0]
    # The dense model with Gaussian noise is the exact Gaussian process: as good a maximum, or a better one.
    assert dense.elbo > exact.elbo - 0.5
    assert all(one.error < 0.6 for all_splits in by_key.values() for one in all_splits)
    figures.boxplots("boston", by_key, tmp_path / "boston.png")
    assert (tmp_path / "boston.png").stat().st_size > 10_000
    rows = list(figures.rows("boston", by_key))
    assert len(rows) == 14
    assert [row["reference"] for row in rows if "reference" in row] == [0.104, 2.484]
    assert [row["source"] for row in rows if "reference" in row] == 2 * ["paper"]


def test_that_densities_are_told_on_the_scale_of_the_data(study):
    datasets, experiments, _ = study
    small = replace(datasets.DATASETS["boston"], train=60)
    split = small.split(0)
    model = experiments.fitted(small, split, "full Gaussian", 0.2, None)
    _, nlpd = experiments.measured(small, split, model)
    mean, std = model.predict(split.X_new, return_std=True)
    dollars = split.unit * (split.y_new - mean) / (split.unit * std)
    assert nlpd == pytest.approx(
        np.mean(0.5 * dollars**2 + np.log(split.unit * std) + 0.5 * np.log(2 * np.pi)), rel=1e-6
    )


def test_that_warped_densities_are_those_of_rings_and_integrate_to_one(study):
    datasets, experiments, _ = study
    # So few sites could be told by a warp that is all but vertical at one number of rings: this one is not learnt.
    small = replace(datasets.DATASETS["abalone"], train=40, likelihood=datasets.Warped(0.2, [1.2], [4.4], [0.42]))
    split = small.split(0)
    model = experiments.fitted(small, split, "full Gaussian", 0.2, None)
    sites = split.X_new[:3]
    rings = np.linspace(-120.0, 150.0, 5401)
    y = (rings - 15.0) / split.unit  # the middle of 1 to 29 rings
    densities = [model.log_predictive_density(np.tile(site, (len(y), 1)), y) for site in sites]
    shares = np.trapezoid(np.exp(np.array(densities) - np.log(split.unit)), rings, axis=1)
    np.testing.assert_allclose(shares, 1.0, atol=1e-3)
    # What is told of the outputs left out is that density, at their rings.
    some = split._replace(X_new=sites, y_new=split.y_new[:3])
    _, nlpd = experiments.measured(small, some, model)
    at = [np.interp(value, y, density) for value, density in zip(some.y_new, densities, strict=True)]
    assert nlpd == pytest.approx(np.log(split.unit) - np.mean(at), abs=1e-3)


def test_that_what_is_recorded_is_of_several_splits(root):
    entries = json.loads((root / "case_studies" / "paper_data" / "results.json").read_text(encoding="utf-8"))
    assert entries
    assert all("random splits" in entry["remark"] for entry in entries)
    assert all(row["spread"] > 0 for entry in entries for row in entry["rows"])


def test_that_digits_are_told_better_with_inducing_inputs_that_are_learnt(study, monkeypatch, tmp_path):
    import mnist  # noqa: PLC0415
    import mnist_figures  # noqa: PLC0415

    monkeypatch.setattr(mnist, "TRAIN", 400)
    monkeypatch.setattr(mnist, "EPOCHS", 10)
    monkeypatch.setattr(mnist, "EPOCHS_LEARNT", 10)
    mnist.digits.cache_clear()
    mnist.centres.cache_clear()
    fixed, learnt = (mnist.Setting(mnist.PARITY, 10, learnt=learnt) for learnt in (False, True))
    by_name = {setting.name: [mnist.measured(setting, 0)] for setting in (fixed, learnt)}
    by_name[f"{mnist.PARITY}, {mnist.LINE}"] = [mnist.straight(mnist.PARITY, 0)]
    assert by_name[learnt.name][0].nlp < by_name[fixed.name][0].nlp < np.log(2)
    told = mnist_figures.rows(by_name, mnist_figures.pairs()["inducing_inputs"])
    beside = by_name[fixed.name][0]
    assert [row["reference"] for row in told] == [beside.error, beside.nlp, beside.loss]
    lines = mnist_figures.rows(by_name, [(fixed.name, f"{mnist.PARITY}, {mnist.LINE}")])
    assert [row["measure"] for row in lines] == ["error rate", "NLP"]  # a line has no bound
    mnist_figures.draw(by_name, tmp_path / "mnist.png")
    assert (tmp_path / "mnist.png").stat().st_size > 10_000
    mnist.digits.cache_clear()
    mnist.centres.cache_clear()
