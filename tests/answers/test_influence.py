"""Influence of data against inversions without them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import block_diag

import invgp
from helpers.command_line import run_in_process, write_files
from helpers.markov_chain import NOISE, chain_problem, exact_chain
from helpers.problems import linear_problem
from invgp.answers.cross_validation import draws_of
from invgp.answers.emulated_problem import emulate, hide_data, runs_of, stored_factors
from invgp.answers.influence import (
    DataGroup,
    DataMoments,
    data_groups,
    datum_influence,
    largest_leverage,
    moments_of_draws,
)
from invgp.answers.known_field import balanced_normals
from invgp.answers.left_out_data import LeaveOut
from invgp.emulation.success_model import SuccessModel


def without(problem, n, p):
    mask = np.zeros(problem.survey.Y.shape, dtype=bool)
    mask[n, p] = True
    return hide_data(problem, mask)


@pytest.mark.slow
def test_that_the_influence_in_a_linear_problem_is_that_of_inversions_without_the_data():
    problem = linear_problem()
    posterior = invgp.invert(problem)
    found = invgp.influence(posterior, config=problem, hardest=3)
    names = [latent.name for latent in problem.latents]
    for n, p, name in ((4, 0, "first"), (9, 1, "second"), (14, 0, "first")):
        other = invgp.invert(without(problem, n, p))
        # Leverage from the predictions: of the outputs with and without the datum.
        with_datum = float(posterior[f"{name}_predicted"][n])
        alone = float(other[f"{name}_predicted"][n])
        y = float(posterior[f"{name}_observed"][n])
        assert float(found[f"{name}_leverage"][n]) == pytest.approx((with_datum - alone) / (y - alone), abs=1e-3)
    for k, group in enumerate(data_groups(problem)):
        assert group.name == ("first", "second")[k]
        other = invgp.invert(hide_data(problem, group.mask))
        for name in names:
            exact = 1.0 - posterior[f"{name}_std"] / other[f"{name}_std"]
            np.testing.assert_allclose(found[f"{name}_reduction"].values[k], exact.values, atol=0.01)
    hardest = json.loads(found.attrs["invgp_hardest"])
    assert len(hardest) == 3
    assert abs(hardest[0]["pull"]) == pytest.approx(max(float(found[f"{n}_pull"].max()) for n in ("first", "second")))


@pytest.mark.slow
def test_that_pulls_in_a_linear_problem_are_those_of_inversions_without_the_data():
    problem = linear_problem()
    posterior = invgp.invert(problem)
    found = invgp.influence(posterior, config=problem, hardest=3)
    for n, p, name in ((4, 0, "first"), (9, 1, "second"), (14, 0, "first")):
        other = invgp.invert(without(problem, n, p))
        names = [latent.name for latent in problem.latents]
        shift = [float((abs(posterior[k] - other[k]) / posterior[f"{k}_std"]).max()) for k in names]
        assert float(found[f"{name}_pull"][n]) == pytest.approx(max(shift), rel=1e-4)


def linear_gaussian(rng):
    """Four sites with two data each, whose noise is correlated: prior covariance, sensitivities, noise and data."""
    root = rng.standard_normal((8, 8))
    noise = np.stack([[[0.5, c], [c, 0.8]] for c in (0.0, 0.3, -0.4, 0.5)])
    return root @ root.T, rng.standard_normal((4, 2, 8)), noise, rng.standard_normal((4, 2))


def exact_posterior(K, G, S, y):
    gain = np.linalg.solve(G @ K @ G.T + S, G @ K).T
    return gain @ y, K - gain @ G @ K


def test_that_leverage_and_pull_are_exact_with_correlated_noise():
    K, G, noise, y = linear_gaussian(np.random.default_rng(2))
    rows, S = G.reshape(8, 8), block_diag(*noise)
    mean, C = exact_posterior(K, rows, S, y.ravel())
    moments = DataMoments(
        (rows @ mean).reshape(4, 2), G @ C @ G.swapaxes(1, 2), np.arange(8), np.sqrt(np.diagonal(C))[:, None],
        lambda n: (C @ G[n].T)[:, None, :], largest_leverage(np.zeros((4, 2))),
    )  # fmt: skip
    found = datum_influence(moments, y, noise)
    for i in range(8):
        kept = np.arange(8) != i
        other, _ = exact_posterior(K, rows[kept], S[np.ix_(kept, kept)], y.ravel()[kept])
        shift = (mean - other) / np.sqrt(np.diagonal(C))
        place = np.argmax(np.abs(shift))
        assert found.pull.ravel()[i] == pytest.approx(shift[place], rel=1e-8)
        assert found.place.ravel()[i] == place


def test_that_moments_of_balanced_draws_are_exact():
    """Those of a Gaussian field model with a linear regression, from at least as many draws as variables."""
    rng = np.random.default_rng(0)
    normals = balanced_normals(rng, 200, 12)
    np.testing.assert_allclose(normals.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(normals.T @ normals / 200, np.eye(12), atol=1e-12)
    F, G = rng.standard_normal((12, 5, 2)), rng.standard_normal((12, 3, 1))
    moments = moments_of_draws(np.tensordot(normals, F, 1), np.tensordot(normals, G, 1))
    np.testing.assert_allclose(moments.cross(1), np.einsum("kbq,kp->bqp", F, G[:, 1]), atol=1e-12)
    np.testing.assert_allclose(moments.covariance, np.einsum("knp,knq->npq", G, G), atol=1e-12)


def test_that_the_influence_of_precise_data_is_exact():
    """Of isolated data whose noise is small compared with the prior: 1 - leverage is small, and the pull large."""
    x, y = np.asarray([0.0, 50.0, 100.0]), np.asarray([3.5, 1.0, 2.0])
    problem = invgp.define(
        {"x": x, "y": y},
        coordinates={"x": "km"},
        observations={"y": "1"},
        latents={"a": {"unit": "1", "mean": 2.0, "std": 1.0, "kernel": {"length_scale": 2.0}}},
        forward=lambda a: {"y": a},
        noise={"y": 0.02},
    )
    found = invgp.influence(invgp.invert(problem), config=problem)
    prior, noise = 1.0, 0.02**2
    variance = prior * noise / (prior + noise)
    np.testing.assert_allclose(found["y_leverage"], variance / noise, rtol=1e-6)
    pull = abs(y - 2.0) * prior / (prior + noise) / np.sqrt(variance)
    np.testing.assert_allclose(found["y_pull"], pull, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found["site_information"], 0.5 * np.log(1.0 + prior / noise), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bent", "two modes"])
def test_that_influence_and_scores_in_a_nonlinear_problem_are_exact(model):
    """Against sums over a grid without each datum; one datum is off by four standard deviations."""
    problem = chain_problem(model)
    y = problem.survey.Y[:, 0]
    posterior = invgp.invert(problem)
    found = invgp.influence(posterior, config=problem, hardest=8)
    scores = invgp.crossvalidate(posterior, config=problem)["held_out_log_score"].values
    exact = exact_chain(model, y)
    for n in range(len(y)):
        other = exact_chain(model, y, (n,))
        pull = np.abs((exact.mean - other.mean) / exact.std).max()
        assert float(found["y_pull"][n]) == pytest.approx(pull, abs=0.15, rel=0.15)
        ratio = (other.prediction_std[n] / NOISE) ** 2
        assert float(found["y_leverage"][n]) == pytest.approx(ratio / (1.0 + ratio), abs=0.06)
        assert float(found["site_information"][n]) == pytest.approx(0.5 * np.log1p(ratio), abs=0.2)
        # The score of a datum far outside its prediction depends on few draws.
        assert scores[n] == pytest.approx(other.log_density[n], abs=0.3 if other.log_density[n] > -3.0 else 0.7)
    assert found.attrs["invgp_unknown_pulls"] == 0
    assert data_groups(problem) == []


@pytest.mark.slow
def test_that_draws_give_the_exact_influence_in_a_linear_problem():
    """The same numbers by weights of draws, and by draws without the datum, as by the closed form."""
    problem = linear_problem()
    posterior = invgp.invert(problem)
    exact = invgp.influence(posterior, config=problem)
    sampled = invgp.influence(posterior.assign_attrs(invgp_gaussian_k_hat=1.0), config=problem)
    assert sampled.attrs["invgp_unknown_pulls"] <= 3  # without reliable weights
    for name in ("first", "second"):
        known = np.isfinite(sampled[f"{name}_pull"].values)
        for what, limit in (("leverage", 0.0), ("pull", 0.06)):
            one, other = (part[f"{name}_{what}"].values[known] for part in (sampled, exact))
            np.testing.assert_allclose(one, other, atol=0.3 if limit else 0.03, rtol=limit)
    known = np.isfinite(sampled["site_information"].values)
    np.testing.assert_allclose(sampled["site_information"][known], exact["site_information"][known], atol=0.25)
    emulated = emulate(problem, runs_of(posterior, problem, None), 0, stored_factors(posterior))
    again = LeaveOut(emulated, draws_of(posterior, emulated))
    mask = np.zeros(problem.survey.Y.shape, dtype=bool)
    mask[4, 0] = True
    after = again.sample_without(mask, again.without(mask)).latents
    shift = (again.sampled_mean - after.mean(axis=0)) / again.latents.std(axis=0)
    assert np.abs(shift).max() == pytest.approx(float(exact["first_pull"][4]), abs=0.2)


@pytest.mark.slow
def test_that_a_posterior_without_a_datum_is_zero_where_the_simulator_fails():
    """The simulator fails above the median of the first latent: without the datum, draws must not go there."""
    problem = linear_problem()
    posterior = invgp.invert(problem)
    emulated = emulate(problem, runs_of(posterior, problem, None), 0, stored_factors(posterior))
    latents = draws_of(posterior, emulated)
    limit = np.median(latents[:, 4, 0])
    at_limit = np.append(limit, latents[0, 4, 1:])[None]
    row = emulated.emulator.inputs.rows_of(at_limit, np.asarray([4]))[0]
    slopes = np.append(-1000.0, np.zeros(len(row) - 1))
    success = SuccessModel(1000.0 * row[0], slopes, np.zeros((len(row), len(row))))
    emulator = replace(emulated.emulator, success=success)
    failing = replace(emulated, state=replace(emulated.state, emulator=emulator))
    mask = np.zeros(problem.survey.Y.shape, dtype=bool)
    mask[4, 0] = True
    shares = []
    for each in (emulated, failing):
        found = LeaveOut(each, latents).without(mask)
        shares.append(float(found.point_weights[found.own[:, 0, :, 0] > limit].sum()))
    assert shares[0] > 0.2
    assert shares[1] < 0.01


@pytest.mark.slow
def test_that_the_command_lists_data_without_the_simulator(tmp_path):
    write_files(tmp_path)
    assert run_in_process("run", "survey.toml", cwd=tmp_path).returncode == 0
    (tmp_path / "was_called").unlink()
    result = json.loads(run_in_process("influence", "posterior.nc", "--hardest", "2", "--json", cwd=tmp_path).stdout)
    assert [row["observation"] for row in result["hardest"]] == ["time", "time"]
    assert not (tmp_path / "was_called").exists()
    assert (tmp_path / "posterior_influence.png").stat().st_size > 5000


def test_that_hidden_data_are_missing():
    problem = linear_problem()
    group = DataGroup("first", np.asarray([[True, False]] * 15))
    hidden = hide_data(problem, group.mask)
    assert np.isnan(hidden.survey.Y[:, 0]).all()
    np.testing.assert_array_equal(hidden.survey.Y[:, 1], problem.survey.Y[:, 1])
