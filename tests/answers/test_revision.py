"""Revised posteriors against inversions of the revised problem."""

import json
from dataclasses import replace

import numpy as np
import pytest

import invgp
from helpers.command_line import CONFIG, run_in_process, write_files
from helpers.linear_evidence import exact_evidence, product_problem
from helpers.problems import linear_problem
from invgp.answers.emulated_problem import transfer_runs
from invgp.answers.revised_problem import fix_learnt
from invgp.answers.revision import APPROXIMATED, MOVED
from invgp.emulation import Runs
from invgp.errors import ConfigError


def worst_error(revised, exact):
    """Largest error of a mean, in standard deviations, and largest ratio of standard deviations, over the latents."""
    names = exact.attrs["invgp_latents"].split()
    shift = max(float((abs(revised[n] - exact[n]) / exact[f"{n}_std"]).max()) for n in names)
    ratio = max(float(abs(np.log(revised[f"{n}_std"] / exact[f"{n}_std"])).max()) for n in names)
    return shift, ratio


@pytest.mark.slow
def test_that_a_revised_linear_problem_has_its_exact_posterior():
    problem = linear_problem(posterior="sampled")
    posterior = invgp.invert(problem)
    latents = tuple(replace(latent, std=1.3 * latent.std, mean=latent.mean + 0.5) for latent in problem.latents)
    changed = replace(problem.with_scaled_noise(np.full((15, 2), 1.4)), latents=latents)
    revised = invgp.revise(posterior, problem=changed, config=problem)
    exact = invgp.invert(replace(changed, inference=linear_problem().inference))  # the Gaussian is exact
    shift, ratio = worst_error(revised, exact)
    assert revised.attrs["invgp_revision_method"] == MOVED
    assert revised.attrs["invgp_revision_k_hat"] < 0.3
    assert revised.attrs["invgp_diagnostics"] == ""  # no note that there are fewer draws than in an inversion
    assert shift < 0.15
    assert ratio < 0.12
    assert revised.attrs["invgp_log_evidence"] == pytest.approx(exact_evidence(changed), abs=0.1)
    assert invgp.has_converged(invgp.revise(posterior, problem=problem, config=problem))


@pytest.mark.slow
def test_that_a_revised_curved_posterior_is_that_of_an_inversion_with_the_simulator():
    problem = product_problem()
    posterior = invgp.invert(problem)
    changed = problem.with_scaled_noise(np.full((8, 1), 2.0))
    revised = invgp.revise(posterior, problem=changed, config=problem)
    shift, ratio = worst_error(revised, invgp.invert(changed))
    assert shift < 0.2
    assert ratio < 0.15
    far = replace(problem, latents=(replace(problem.latents[0], mean=np.asarray([9.0])), problem.latents[1]))
    beyond = invgp.revise(posterior, problem=far, config=problem)
    assert not invgp.has_converged(beyond)
    assert beyond.attrs["invgp_revision_doubtful_sites"] > 0
    assert beyond.attrs["invgp_revision_runs_needed"] > 0
    assert beyond.attrs["invgp_revision_method"] == APPROXIMATED  # where the emulator is not valid, it is not sampled
    assert 0.0 < float(beyond["a_std"].max()) < 1.0


@pytest.mark.slow
def test_that_the_command_revises_without_the_simulator(tmp_path):
    write_files(tmp_path, f"{CONFIG}\n[output]\nledger = true\n")
    assert run_in_process("run", "survey.toml", cwd=tmp_path).returncode == 0
    (tmp_path / "was_called").unlink()
    ledger = tmp_path / "posterior.ledger.sqlite"
    before = ledger.read_bytes()
    arguments = ["--set", "noise.std.time=0.018", "--set", "latents.depth.std=12%"]
    result = json.loads(run_in_process("revise", "posterior.nc", *arguments, "--json", cwd=tmp_path).stdout)
    assert result["runs"] == 0
    assert result["reliable"]
    assert not (tmp_path / "was_called").exists()
    assert ledger.read_bytes() == before
    (tmp_path / "changed.toml").write_text(
        (tmp_path / "survey.toml").read_text().replace("std.time = 0.02", "std.time = 0.018").replace("15%", "12%")
    )
    assert run_in_process("run", "changed.toml", "-o", "changed.nc", cwd=tmp_path).returncode == 0
    revised, exact = (invgp.open_posterior(tmp_path / name) for name in ("posterior.revised.nc", "changed.nc"))
    shift, ratio = worst_error(revised, exact)
    assert shift < 0.2
    assert ratio < 0.15
    short = [*arguments[:1], "noise.time=0.018", *arguments[2:], "-o", "short.nc", "--json"]
    assert json.loads(run_in_process("revise", "survey.toml", *short, cwd=tmp_path).stdout)["reliable"]
    other = invgp.open_posterior(tmp_path / "short.nc")
    np.testing.assert_array_equal(other["depth"].values, revised["depth"].values)
    opened = invgp.open_posterior(tmp_path / "posterior.nc")  # which states its file
    again = invgp.revise(opened, {"noise.time": 0.018, "latents.depth.std": "12%"})
    np.testing.assert_array_equal(again["depth"].values, revised["depth"].values)
    for arguments, words in (
        (["--set", "latents.dept.std=1"], "did you mean 'depth'?"),
        (["--set", "nonsense"], "--set: must be KEY=VALUE"),
        (["--set", 'latents.depth.link="log"'], "--set: must keep the unit, the labels and the link of latents.depth"),
        (["--set", "survey.file=other.csv"], "other.csv"),
        ([], "--set: must have at least one key"),
    ):
        failed = run_in_process("revise", "posterior.nc", *arguments, cwd=tmp_path)
        assert failed.returncode == 2
        assert words in failed.stderr
    again = run_in_process("revise", "posterior.revised.nc", "--set", "noise.std.time=0.1", cwd=tmp_path)
    assert "was a revision" in again.stderr


def test_that_a_gaussian_posterior_without_runs_is_refused():
    problem = linear_problem()
    posterior = invgp.invert(problem).drop_vars("emulator_run_site")
    with pytest.raises(ConfigError, match=r"^posterior: must hold the runs of its emulator"):
        invgp.revise(posterior, problem=problem.with_scaled_noise(np.ones((15, 2))), config=problem)


def bounded_problem(upper, std, correlation):
    kernel = {"length_scale": 1.0}
    return invgp.define(
        {"x": np.arange(3.0), "y": np.zeros(3)},
        coordinates={"x": "km"},
        observations={"y": {"unit": "1"}},
        latents={
            "a": {"unit": "1", "lower": 0.0, "upper": upper, "link": "uniform", "kernel": kernel},
            "b": {"unit": "1", "mean": 1.0, "std": 2.0, "kernel": kernel},
            "c": {"unit": "1", "mean": 3.0, "std": std, "kernel": kernel, "correlated_with": {"b": correlation}},
        },
        noise={"std": {"y": 1.0}},
        forward=lambda a, b, c: a + b + c,
    )


def test_that_a_problem_with_another_unit_is_refused():
    problem = linear_problem()
    posterior = invgp.invert(problem)
    other = replace(problem, latents=tuple(replace(latent, unit="km") for latent in problem.latents))
    with pytest.raises(invgp.InvgpError, match=r"^problem: must keep the unit, the labels and the link of latents\."):
        invgp.revise(posterior, problem=other, config=problem)


def test_that_runs_keep_their_physical_values_if_bounds_or_correlations_change():
    """The runs are stored as values of independent processes, whose meaning depends on both."""
    latents = np.random.default_rng(0).standard_normal((40, 3))
    runs = Runs(np.arange(40) % 3, latents, np.zeros((40, 1)), np.zeros(40, dtype=np.intp))
    old = bounded_problem(10.0, 1.0, 0.5)
    values = old.to_physical(latents)
    for upper, std, correlation in ((12.0, 1.0, 0.5), (10.0, 1.0, -0.7), (10.0, 3.0, 0.5), (6.0, 2.0, 0.2)):
        new = bounded_problem(upper, std, correlation)
        found = transfer_runs(runs, old, new)
        np.testing.assert_allclose(new.to_physical(found.latents), values[values[:, 0] < upper], rtol=1e-9)
    same = transfer_runs(runs, old, bounded_problem(10.0, 1.0, 0.5))
    np.testing.assert_array_equal(same.latents, latents)


def test_that_a_change_of_noise_concerns_only_the_observation_with_this_name():
    """The name of one observation may be a part of that of another one."""
    problem = linear_problem()
    name = next(iter(problem.noise.std))
    learnt = replace(problem, noise=replace(problem.noise, learn={name: 10.0}))
    base = problem.with_scaled_noise(np.full((15, 2), 2.0))
    for key, std in ((f"noise.std.{name}_of_others", base.noise.std), (f"noise.std.{name}", problem.noise.std)):
        found = fix_learnt(learnt, base, {key: 1.0}, other_data=False)
        np.testing.assert_array_equal(found.noise.std[name], std[name])
        assert not found.noise.learn
