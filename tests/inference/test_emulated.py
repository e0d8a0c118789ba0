"""Posteriors from a handful of runs a site: emulator, fallback, budget, diagnostics."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import invgp
from helpers.line_problems import NOISE, Counted, line_problem, one_site, smooth_outputs, with_jump
from helpers.problems import map_problem
from invgp.adapters import CallableModel, Quantity
from invgp.core.kernels import SquaredExponential
from invgp.errors import ConfigError
from invgp.inference.search_options import SearchOptions
from invgp.links import LINKS
from invgp.problem import (
    Column,
    InferenceSettings,
    Latent,
    Noise,
    Observation,
    OutputSettings,
    Problem,
    SimulatorVariable,
    Survey,
)


def off(one, other):
    """Largest root mean square difference of the means of a and b, in standard deviations, and ratio of spreads."""
    distance = [float(np.sqrt((((one[n] - other[n]) / other[f"{n}_std"]) ** 2).mean())) for n in "ab"]
    ratio = [float((one[f"{n}_std"] / other[f"{n}_std"]).median()) for n in "ab"]
    return max(distance), ratio


def test_that_a_few_runs_per_site_give_the_posterior_of_many_runs():
    counted = Counted(smooth_outputs)
    few = invgp.invert(line_problem(counted)[0])
    many = invgp.invert(line_problem(smooth_outputs, emulator=False, samples=500)[0])
    assert counted.rows - 40 == few.attrs["invgp_runs"] <= 4 * 40  # the data took 40 runs
    assert few.attrs["invgp_converged"] == many.attrs["invgp_converged"] == "yes"
    assert many.attrs["invgp_runs"] > 50 * few.attrs["invgp_runs"]
    distance, ratio = off(few, many)
    assert distance < 0.03
    np.testing.assert_allclose(ratio, 1.0, atol=0.01)


def test_that_the_file_contains_the_errors_of_the_emulator():
    posterior = invgp.invert(line_problem(smooth_outputs)[0])
    assert "polynomial" in posterior.attrs["invgp_emulator"]
    assert posterior.attrs["invgp_emulator_held_out_error"] < 0.1
    assert posterior.attrs["invgp_emulator_verification_error"] < 0.1
    assert np.isfinite(posterior["emulator_error"]).all()
    assert not posterior["direct_evaluation"].any()


@pytest.mark.slow
@pytest.mark.parametrize("links", [("identity", "identity"), ("log", "increasing")])
def test_that_runs_of_earlier_inversions_are_used_from_the_start(tmp_path, links):
    problem, truth = line_problem(smooth_outputs, links=links)
    problem = replace(
        problem,
        latents=tuple(replace(v, mean=np.ones(1), std=np.full(1, 0.4)) for v in problem.latents),
        survey=replace(
            problem.survey,
            observations=(replace(problem.survey.observations[0], values=smooth_outputs(*np.exp(0.3 * truth.T))["t"]),),
        ),
    )
    ledger = tmp_path / "runs.sqlite"
    first = invgp.invert(problem, ledger=ledger)
    noisier = replace(problem, noise=replace(problem.noise, std={"t": 2.0 * problem.noise.std["t"]}))
    alone = invgp.invert(noisier)
    after = invgp.invert(noisier, ledger=ledger)
    again = invgp.invert(noisier, ledger=ledger)
    assert after.attrs["invgp_runs"] < alone.attrs["invgp_runs"]
    assert off(after, alone)[0] < 0.05
    # The same inversion made again finds what it found the first time, and not its own runs.
    assert again.attrs["invgp_runs_from_ledger"] == again.attrs["invgp_runs"] == after.attrs["invgp_runs"]
    for one, other in ((first, invgp.invert(problem, ledger=ledger)), (after, again)):
        np.testing.assert_array_equal(one["a"], other["a"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("size", [3.0, 6.0, 10.0, 30.0])
def test_that_sites_at_a_jump_are_detected_and_evaluated_directly(size, seed):
    problem, truth = line_problem(partial(with_jump, size=size), max_runs=10**6)
    posterior = invgp.invert(problem, seed=seed)
    direct = posterior["direct_evaluation"].values.astype(bool)
    near = np.abs(truth[:, 0] - 0.8) < 0.1
    assert near.any()
    assert direct.any()
    assert not direct.all()
    # Beside the jump the simulator answers; or fresh runs show that the posterior lies where the emulator is right.
    assert (direct | (posterior["emulator_error"].values < problem.inference.emulator_error))[near].all()
    exact = invgp.invert(problem.with_inference(emulator=False, samples=400))
    plain = (posterior["shape_error"] < 0.2).values  # elsewhere the diagnostics say that it is not Gaussian
    assert plain.mean() > 0.8
    for i, name in enumerate("ab"):
        # A Gaussian that leans on the jump leans on the samples it has, hence medians. A search that went to the wrong
        # side of the jump would be ten standard deviations off there.
        assert float(np.abs((posterior[name] - exact[name]) / exact[f"{name}_std"]).median()) < 0.25
        assert float((posterior[f"{name}_std"] / exact[f"{name}_std"]).median()) == pytest.approx(1.0, abs=0.05)
        score = (posterior[name] - truth[:, i]) / posterior[f"{name}_std"]
        assert float(np.sqrt((score[plain] ** 2).mean())) < 1.6


@pytest.mark.slow
@pytest.mark.parametrize("budget", [30, 79, 80, 100, 130, 2000])
@pytest.mark.parametrize("function", [smooth_outputs, with_jump])
def test_that_the_budget_is_never_exceeded(budget, function):
    counted = Counted(function)
    problem, _ = line_problem(function, max_runs=budget)
    model = CallableModel(function=counted, inputs=problem.forward.inputs, outputs=problem.forward.outputs)
    problem = replace(problem, forward=model)
    if budget < 80:
        with pytest.raises(ConfigError, match=rf"max_runs: must be at least 80 for a first posterior, was {budget}"):
            invgp.invert(problem)
    else:
        posterior = invgp.invert(problem)
        assert posterior.attrs["invgp_runs"] == counted.rows <= budget
        spent = "inference.max_runs" in posterior.attrs["invgp_status"]
        assert spent == (posterior.attrs["invgp_converged"] == "no")
    assert counted.rows <= budget


def test_that_too_few_runs_for_an_emulator_mean_the_simulator_itself():
    posterior = invgp.invert(line_problem(smooth_outputs, sites=3, runs_per_site=3)[0])
    assert posterior.attrs["invgp_emulator"] == "none"
    assert posterior.attrs["invgp_converged"] == "yes"


@pytest.mark.slow
def test_that_a_simulator_that_fails_far_from_the_prior_mean_starts_narrower():
    def fragile(a, b):
        answer = smooth_outputs(a, b)
        answer["t"][np.abs(b) > 1.2] = np.nan
        return answer

    problem, truth = line_problem(smooth_outputs)
    kept = np.flatnonzero(np.abs(truth).max(axis=1) < 0.9)
    survey = problem.survey
    some = replace(
        problem,
        survey=replace(
            survey,
            coordinates=tuple(replace(c, values=c.values[kept]) for c in survey.coordinates),
            observations=tuple(replace(o, values=o.values[kept]) for o in survey.observations),
        ),
        noise=Noise("gaussian", {"t": np.full((len(kept), 2), NOISE)}),
    )
    whole = invgp.invert(some)
    model = CallableModel(function=fragile, inputs=problem.forward.inputs, outputs=problem.forward.outputs)
    posterior = invgp.invert(replace(some, forward=model))
    assert posterior.attrs["invgp_runs_failed"] > 0
    assert off(posterior, whole)[0] < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["student-t", "laplace"])
def test_that_heavy_tails_are_not_pulled_by_an_outlier(kind):
    problem, _ = line_problem(smooth_outputs)
    spoilt = problem.survey.observations[0].values.copy()
    spoilt[20] += 3.0
    observations = (replace(problem.survey.observations[0], values=spoilt),)
    survey = replace(problem.survey, observations=observations)
    whole = invgp.invert(replace(problem, noise=replace(problem.noise, kind=kind)))
    robust = invgp.invert(replace(problem, survey=survey, noise=replace(problem.noise, kind=kind)))
    gaussian = invgp.invert(replace(problem, survey=survey))
    assert off(robust, whole)[0] < 0.5 * off(gaussian, whole)[0]


@pytest.mark.slow
def test_that_missing_observations_and_covariates_pass_through_the_emulator():
    problem = map_problem()
    few, many = invgp.invert(problem), invgp.invert(map_problem(emulator=False))
    assert few.attrs["invgp_emulator"] != "none"
    for name in ("resistivity", "thickness"):
        assert float(np.abs((few[name] - many[name]) / many[f"{name}_std"]).max()) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("emulator", [True, False])
@pytest.mark.parametrize(
    ("function", "noise"),
    [
        (lambda a: {"t": a**2}, 0.2),  # two solutions, at -1 and 1
        (lambda a: {"t": a**2 / 4.0}, 0.05),  # two solutions, far apart
        (lambda a: {"t": np.sin(3.0 * a)}, 0.1),  # many solutions
        (lambda a: {"t": np.exp(3.0 * a)}, 1.0),  # anything below, nothing above
        (lambda a: {"t": np.where(a < 0.0, 1.0, 1.0 + 3.0 * a)}, 0.2),  # anything below, little above
    ],
    ids=["bimodal", "bimodal, far apart", "multimodal", "strongly nonlinear", "half a line"],
)
def test_that_a_posterior_that_is_not_gaussian_is_reported(function, noise, emulator, seed):
    posterior = invgp.invert(one_site(function, noise, emulator=emulator), seed=seed)
    printed = posterior.attrs["invgp_diagnostics"]
    assert any(
        words in printed for words in ("not Gaussian in shape", "does not explain the data", "could not be determined")
    )


@pytest.mark.slow
def test_that_a_gaussian_posterior_raises_no_doubt():
    posterior = invgp.invert(one_site(lambda a: {"t": 2.0 * a}, 0.2))
    assert posterior.attrs["invgp_diagnostics"] == ""
    assert float(posterior["shape_error"][0]) < 0.2


@pytest.mark.slow
def test_that_a_misfit_is_reported():
    problem, _ = line_problem(smooth_outputs)
    tight = replace(problem, noise=Noise("gaussian", {"t": np.full((40, 2), 0.3 * NOISE)}))
    loose = replace(problem, noise=Noise("gaussian", {"t": np.full((40, 2), 5 * NOISE)}))
    assert "fitted worse than its noise allows" in invgp.invert(tight).attrs["invgp_diagnostics"]
    assert "far more closely than its noise level implies" in invgp.invert(loose).attrs["invgp_diagnostics"]
    assert invgp.invert(problem).attrs["invgp_diagnostics"] == ""


@pytest.mark.slow
def test_that_diverging_noise_is_reported():
    problem, truth = line_problem(smooth_outputs, sites=12)
    exact = replace(problem.survey.observations[0], values=smooth_outputs(*truth.T)["t"])
    noise = replace(problem.noise, learn={"t": np.inf})
    posterior = invgp.invert(replace(problem, survey=replace(problem.survey, observations=(exact,)), noise=noise))
    assert "The learnt noise of t is" in posterior.attrs["invgp_diagnostics"]


@pytest.mark.slow
def test_that_ordered_depths_stay_ordered_and_fit():
    """Depths of three layers from their cumulated times: the increasing link, with and without the emulator."""

    def times(depth):
        return {"t": np.cumsum(np.diff(depth, axis=-1, prepend=0.0) / np.asarray([1.0, 2.0, 3.0]), axis=-1)}

    rng, x = np.random.default_rng(3), np.linspace(0.0, 100.0, 25)
    truth = np.cumsum([1.0, 1.5, 0.4] * np.exp(0.2 * np.sin(x[:, None] / 15.0 + np.arange(3))), axis=-1)
    y = times(truth)["t"] + 0.05 * rng.standard_normal((25, 3))
    depth = Latent(
        "depth", "m", np.asarray([1.0, 2.5, 2.9]), np.asarray([0.3, 0.4, 0.2]),
        SquaredExponential(1.0, np.asarray([20.0])), LINKS["increasing"], "layer", (1, 2, 3),
    )  # fmt: skip
    problem = Problem(
        title="",
        survey=Survey((Column("x", "m", x),), (Observation("t", "s", y, "layer", (1, 2, 3)),)),
        latents=(depth,),
        noise=Noise("gaussian", {"t": np.full((25, 3), 0.05)}),
        forward=CallableModel(
            function=times, inputs=(Quantity("depth", "m", (1, 2, 3)),), outputs=(Quantity("t", "s", (1, 2, 3)),)
        ),
        inputs=(SimulatorVariable("depth"),),
        outputs=(SimulatorVariable("t"),),
    )
    few = invgp.invert(problem)
    many = invgp.invert(replace(problem, inference=InferenceSettings(posterior="coupled gaussian", emulator=False)))
    assert (few["depth_sample"].diff("layer") > 0).all()
    assert float(np.abs((few["depth"] - many["depth"]) / many["depth_std"]).max()) < 0.2
    inside = (few["depth_quantile"].isel(quantile=0) < truth) & (truth < few["depth_quantile"].isel(quantile=-1))
    assert float(inside.mean()) > 0.85


@pytest.mark.slow
def test_that_realizations_with_inducing_points_are_as_smooth_as_the_field():
    """What the inducing variables leave open is drawn jointly: no speckle from site to site."""
    problem, _ = line_problem(smooth_outputs, sites=60)
    problem = replace(problem, output=OutputSettings(file=Path("unused.nc"), quantiles=(0.5,), realizations=2000))
    dense, sparse = (
        invgp.invert(replace(problem, inference=InferenceSettings(posterior="coupled gaussian", inducing=inducing)))
        for inducing in (None, 12)
    )

    def roughness(posterior):
        deviation = posterior["a_sample"] - posterior["a_sample"].mean("realization")
        return float((deviation.diff("site") ** 2).mean() / (deviation**2).mean())

    np.testing.assert_allclose(roughness(sparse), roughness(dense), rtol=0.2)
    np.testing.assert_allclose(sparse["a_sample"].std("realization"), sparse["a_std"], rtol=0.1)


@pytest.mark.parametrize(("emulator", "numbers"), [(False, 1_000), (True, 10_000)])  # half of all sites' samples
def test_that_noise_that_mini_batches_cannot_learn_is_refused_before_any_run(emulator, numbers, monkeypatch):
    monkeypatch.setattr("invgp.inference.sample_sizes.DEFAULTS", SearchOptions(numbers_at_once=numbers))
    counted = Counted(smooth_outputs)
    problem, _ = line_problem(counted, emulator=emulator)
    assert invgp.invert(problem).attrs["invgp_converged"] == "yes"
    counted.rows = 0
    sentence = r"noise\.learn: must be left out for 40 sites, which are processed in mini-batches of \d+, as many as"
    with pytest.raises(ConfigError, match=sentence):
        invgp.invert(replace(problem, noise=replace(problem.noise, learn={"t": np.inf})))
    assert counted.rows == 0
