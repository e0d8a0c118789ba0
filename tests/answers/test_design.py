"""Expected reductions of uncertainty against closed forms, nested Monte Carlo and inversions with the simulator."""

import json

import numpy as np
import pytest
import xarray as xr
from scipy.special import logsumexp

import invgp
from helpers.command_line import run_in_process, write_files
from helpers.linear_evidence import product_problem
from helpers.problems import WEIGHTS, linear_problem
from invgp.answers.candidates import read_candidates
from invgp.answers.expected_variance import (
    condition,
    expected_variance,
    squared_errors,
    target_draws,
    update_targets,
)
from invgp.answers.joint_values import draw_jointly
from invgp.errors import ConfigError
from invgp.maps.read_posterior_field import read_posterior_field


def expected_of(targets, y, threshold=None):
    draws = target_draws([targets], [threshold])
    before = squared_errors(draws)
    return expected_variance(draws, y, before).variance[0], before.mean()


def exact_variance(problem, x, weights, noise, target):
    """Posterior variances of the first latent at `target` with the data, and with those at x, too."""
    X, N = problem.survey.X, problem.survey.size
    places = np.concatenate([X, [x], [target]])
    A = np.zeros((2 * N + len(weights), 2, N + 2))  # data, latents, places
    for n in range(N):
        A[2 * n : 2 * n + 2, :, n] = WEIGHTS
    A[2 * N :, :, N] = weights
    K = np.zeros((2, N + 2, 2, N + 2))
    for q, latent in enumerate(problem.latents):
        K[q, :, q] = latent.kernel(places, places) * latent.std[0] ** 2
    size = 2 * (N + 2)
    A, K = A.reshape(-1, size), K.reshape(size, size)
    R = np.concatenate([problem.noise_std.ravel() ** 2, noise])
    t = N + 1  # the first latent at the target

    def variance(rows):
        G = A[rows]
        gain = np.linalg.solve(G @ K @ G.T + np.diag(R[rows]), G @ K[:, t])
        return float(K[t, t] - K[t] @ G.T @ gain)

    return variance(slice(0, 2 * N)), variance(slice(0, None))


@pytest.mark.slow
def test_that_reductions_of_a_linear_problem_are_those_of_the_closed_form(tmp_path):
    problem = linear_problem()
    posterior = invgp.invert(problem)
    first = problem.latents[0].name
    X = problem.survey.X
    places = [X[4] + 0.1 * (X[5] - X[4]), np.asarray([90.0, 130.0])]
    noise, std = problem.noise_std[4], 0.3 * problem.latents[0].std[0]
    rows = [f"{x[0]},{x[1]},," for x in places] + [f"{x[0]},{x[1]},{first},{std}" for x in places]
    (tmp_path / "places.csv").write_text("easting,northing,quantity,std\n" + "\n".join(rows) + "\n")
    region = f"easting={places[0][0]},northing={places[0][1]}"
    found = invgp.design(posterior, tmp_path / "places.csv", target=[first], region=region, config=problem, best=1)
    direct = np.asarray([[1.0, 0.0]]), np.asarray([std**2])
    for k, (x, (weights, variances)) in enumerate(
        [(x, (WEIGHTS, noise**2)) for x in places] + [(x, direct) for x in places]
    ):
        before, after = exact_variance(problem, x, weights, variances, places[0])
        assert found["std"].values[0] == pytest.approx(np.sqrt(before), rel=0.04)
        promised = float(found["reduction"].values[k, 0])
        exact = 1.0 - np.sqrt(after / before)
        assert promised == pytest.approx(exact, abs=max(0.1 * exact, 3.0 * float(found["reduction_error"][k, 0])))
    assert found["rank"].values.tolist() == [0, 0, 1, 0]


def test_that_two_measurements_together_reduce_as_in_the_closed_form():
    """The greedy choice conditions the draws on the first choice; in the linear case this is exact."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20_000, 3)) @ np.asarray([[1.0, 0.4, 0.2], [0.0, 1.0, 0.5], [0.0, 0.0, 0.7]])
    noise = (0.5, 0.8)
    data = [x[:, [k]] + noise[k] * rng.standard_normal((len(x), 1)) for k in (0, 1)]
    draws = target_draws([x[:, [2]]], [None])
    before = squared_errors(draws)
    first = update_targets(draws, data[0], before)
    found = expected_variance(first, condition(data[1], data[0]), squared_errors(first)).variance[0]
    covariance = np.cov(x.T)
    S = covariance[:2, :2] + np.diag(np.square(noise))
    exact = covariance[2, 2] - covariance[2, :2] @ np.linalg.solve(S, covariance[:2, 2])
    assert found == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("noise", [0.05, 0.3, 1.0])
def test_that_expected_variances_of_two_modes_and_exceedances_are_those_of_quadrature(noise):
    """A value is measured that is the square of the target, or the target of two modes itself."""
    rng = np.random.default_rng(1)
    modes = np.where(rng.random(4000) < 0.3, -1.0, 1.0)
    x = modes + 0.4 * rng.standard_normal(4000)
    grid = np.linspace(-3.0, 3.0, 1201)
    density = 0.3 * np.exp(-0.5 * ((grid + 1) / 0.4) ** 2) + 0.7 * np.exp(-0.5 * ((grid - 1) / 0.4) ** 2)
    density /= density.sum()
    for g in (lambda v: v, lambda v: v**2):
        y = g(x) + noise * rng.standard_normal(4000)
        data = np.linspace(g(grid).min() - 4 * noise, g(grid).max() + 4 * noise, 1501)
        likelihood = np.exp(-0.5 * ((data[:, None] - g(grid)) / noise) ** 2)
        for threshold, T in ((None, grid), (0.4, (grid > 0.4).astype(float))):
            joint = likelihood * density
            total = joint.sum(axis=1)
            mean = joint @ T / np.maximum(total, 1e-300)
            exact = float(np.sum(total * (joint @ T**2 / np.maximum(total, 1e-300) - mean**2)) / total.sum())
            found, before = expected_of(x[:, None], y[:, None], threshold)
            present = float(density @ T**2 - (density @ T) ** 2)
            assert before == pytest.approx(present, rel=0.06)
            promised, realised = 1.0 - np.sqrt(found / before), 1.0 - np.sqrt(exact / present)
            assert promised == pytest.approx(realised, abs=max(0.1 * realised, 0.03))


@pytest.mark.slow
def test_that_reductions_of_a_curved_posterior_are_those_of_nested_monte_carlo(tmp_path):
    problem = product_problem()
    posterior = invgp.invert(problem)
    (tmp_path / "places.csv").write_text("x,quantity,std\n3,a,0.3\n3,a + b,0.3\n9,a,0.3\n2.5,,\n")
    found = invgp.design(posterior, tmp_path / "places.csv", target=["a", "b"], region="x=3", config=problem, best=1)
    f = draw_jointly(read_posterior_field(posterior), np.asarray([[3.0], [9.0], [2.5]]), 1)
    a, b = f[..., 0], f[..., 1]
    signals = {0: (a[:, 0], 0.3), 1: (a[:, 0] + b[:, 0], 0.3), 2: (a[:, 1], 0.3), 3: (a[:, 2] * b[:, 2], 0.3)}
    rng = np.random.default_rng(3)
    for k, (signal, noise) in signals.items():
        y = signal + noise * rng.standard_normal(len(signal))
        log = -0.5 * ((y[:, None] - signal) / noise) ** 2
        weights = np.exp(log - logsumexp(log, axis=1, keepdims=True))
        for t, values in enumerate((a[:, 0], b[:, 0])):
            variance = (weights @ values**2 - (weights @ values) ** 2).mean()
            nested = 1.0 - np.sqrt(variance / values.var())
            assert float(found["reduction"].values[k, t]) == pytest.approx(nested, abs=max(0.1 * nested, 0.02))
    assert found["covered"].values.tolist() == [1, 1, 1, 1]


@pytest.mark.slow
def test_that_the_command_chooses_candidates_without_the_simulator(tmp_path):
    write_files(tmp_path)
    assert run_in_process("run", "survey.toml", cwd=tmp_path).returncode == 0
    (tmp_path / "was_called").unlink()
    (tmp_path / "places.csv").write_text(
        "name,position,quantity,std,site,noise_factor\nnew,1000,,,,\nwell,1000,depth,5,,\nbetter,,,,2,0.5\n"
    )
    arguments = ("design", "posterior.nc", "--candidates", "places.csv")
    result = json.loads(
        run_in_process(
            *arguments, "--best", "2", "--target", "depth", "--target", "depth > 480 m", "--json", cwd=tmp_path
        ).stdout
    )
    assert result["choices"][0]["candidate"] == "well"
    assert result["choices"][1]["reduction_together"] > result["choices"][0]["reduction_together"] > 0.05
    assert result["runs"] == 0
    assert not (tmp_path / "was_called").exists()
    assert (tmp_path / "posterior_design.png").stat().st_size > 5000
    for text, words in (
        ("position,quantity\n1000,depth\n", "--candidates: std must be given for the quantity 'depth'"),
        ("position,source\n1000,gravity\n", "--candidates: source must be 'survey', was 'gravity' in row 1"),
        ("position\n\n", "--candidates"),
        ("site,noise_factor\n2,2\n", "noise_factor must be below 1"),
        ("site,noise_factor\n99,0.5\n", "--candidates: site must be a number from 1 to 6, was 99"),
        ("position,quantity,std\n1000,depth,-5\n", "must be given for the quantity 'depth', greater than 0, was -5"),
        ("place\n1\n", "'position'"),
        ("position,quantity,std\n1000,deth,1\n", "there is no latent 'deth'"),
    ):
        (tmp_path / "wrong.csv").write_text(text)
        failed = run_in_process("design", "posterior.nc", "--candidates", "wrong.csv", "--best", "1", cwd=tmp_path)
        assert failed.returncode == 2
        assert words in failed.stderr
    (tmp_path / "odd.csv").write_text("position,quantiy,std\n1000,depth,5\n9000000,depth,5\n")
    odd = run_in_process("design", "posterior.nc", "--candidates", "odd.csv", "--best", "1", cwd=tmp_path)
    assert odd.returncode == 0
    assert "the columns 'quantiy' of odd.csv are not used; valid: 'position', 'name'" in odd.stderr
    assert "1 of 2 candidates are far outside of the survey" in odd.stderr
    for options, words in (
        (("--best", "9"), "--best: must be between 1 and 3"),
        (("--target", "dept"), "there is no latent 'dept'"),
        (("--target", "depth > 5 s"), "--target: must be in a unit that converts to 'm'"),
        (("--target", "depth > 50000 m"), "--target: must be uncertain"),
        (("--region", "x=1"), "--region: must be a file"),
    ):
        failed = run_in_process(*arguments, *options, cwd=tmp_path)
        assert failed.returncode == 2
        assert words in failed.stderr


def test_that_rows_without_a_quantity_are_refused_for_a_field_model_on_a_grid(tmp_path):
    points = xr.Dataset(
        {"a": ("site", [0.0])}, {"x": ("site", [0.0], {"units": "m"})}, {"invgp_coordinates": "x", "invgp_latents": "a"}
    )
    file = tmp_path / "places.csv"
    for text, row in (("x,quantity,std,site\n0,a,1,\n,,,3\n", 2), ("site,noise_factor\n3,0.5\n", 1)):
        file.write_text(text)
        with pytest.raises(
            ConfigError, match=f"must have a quantity in every row, row {row} had none; data of a field"
        ):
            read_candidates(file, points, None)
