"""Length-scales, spreads and noise of field models, learnt."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize

import invgp
from helpers.local_averages import windows

PRIOR_FACTOR = 2.0  # one standard deviation of the log-normal priors of the hyperparameters


def learnt_exactly(problem: invgp.Problem, names: str) -> dict[str, float]:
    """Factors on length-scale, spread and noise with most evidence, in closed form, of those in names."""
    nodes, seen = problem.grid.X[:, 0], ~np.isnan(problem.survey.Y[:, 0])
    A, r = windows(nodes)[seen], problem.survey.Y[seen, 0] - 20.0

    def cost(logs: np.ndarray) -> float:
        scale, std, noise = (np.exp(logs[names.index(name)]) if name in names else 1.0 for name in "lsn")
        K = 16.0 * std**2 * np.exp(-0.5 * ((nodes[:, None] - nodes) / (12.0 * scale)) ** 2)
        whole = A @ K @ A.T + 0.25 * noise**2 * np.eye(len(r))
        return float(0.5 * (r @ np.linalg.solve(whole, r) + np.linalg.slogdet(whole)[1]))

    found = minimize(cost, np.zeros(len(names)), method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-8})
    return dict(zip(names, np.exp(found.x), strict=True))


def test_that_a_prior_holds_a_hyperparameter_back(load_problem: Callable[..., invgp.Problem]) -> None:
    scales = []
    for factor in ("true", "1.1"):
        problem = load_problem({'positive = "down"\n': f'positive = "down"\nlearn.length_scale = {factor}\n'})
        scales.append(float(invgp.invert(problem)["depth"].attrs["length_scale"]))
    assert scales[0] < 10.5
    assert 11.0 < scales[1] < 12.0


@pytest.mark.parametrize("names", ["l", "s", "n", "ls"])
def test_that_hyperparameters_are_those_of_most_evidence(
    load_problem: Callable[..., invgp.Problem], names: str
) -> None:
    lines = {"l": "learn.length_scale = true\n", "s": "learn.std = true\n"}
    latent = "".join(lines[name] for name in names if name in lines)
    problem = load_problem(
        {
            'positive = "down"\n': f'positive = "down"\n{latent}',
            "std.average = 0.5": "std.average = 0.25\nlearn.average = true" if "n" in names else "std.average = 0.5",
            "kept_variance = 0.999": "kept_variance = 0.99999",
            "seed = 3": "seed = 3\nmax_runs = 120",
        }
    )
    posterior = invgp.invert(problem)
    wanted = learnt_exactly(problem, names)
    found = {
        "l": float(posterior["depth"].attrs["length_scale"]) / 12.0,
        "s": float(posterior["depth_prior_std"][0]) / 4.0,
        "n": float(posterior["average_noise_std"][0]) / 0.5,
    }
    for name, value in wanted.items():
        assert abs(np.log(found[name] / value)) < 0.02, (name, found[name], value)
    assert posterior.attrs["invgp_converged"] == "yes"


def averaged_exactly(problem: invgp.Problem) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the field, averaged over length-scale and spread on a fine grid."""
    nodes, seen = problem.grid.X[:, 0], ~np.isnan(problem.survey.Y[:, 0])
    A, r = windows(nodes)[seen], problem.survey.Y[seen, 0] - 20.0
    logs = np.linspace(-3.0, 2.0, 61)
    weights, means, squares = [], [], []
    for scale in np.exp(logs):
        for std in np.exp(logs):
            K = 16.0 * std**2 * np.exp(-0.5 * ((nodes[:, None] - nodes) / (12.0 * scale)) ** 2)
            whole = A @ K @ A.T + 0.25 * np.eye(len(r))
            gain = np.linalg.solve(whole, A @ K).T
            evidence = -0.5 * (r @ np.linalg.solve(whole, r) + np.linalg.slogdet(whole)[1])
            prior = -0.5 * (np.log(scale) ** 2 + np.log(std) ** 2) / np.log(PRIOR_FACTOR) ** 2
            weights.append(evidence + prior)
            means.append(gain @ r)
            squares.append(means[-1] ** 2 + np.diagonal(K - gain @ A @ K))
    shares = np.exp(np.asarray(weights) - np.max(weights))
    shares /= shares.sum()
    mean = shares @ np.asarray(means)
    return 20.0 + mean, np.sqrt(shares @ np.asarray(squares) - mean**2)


def test_that_the_posterior_is_averaged_over_hyperparameters(load_problem: Callable[..., invgp.Problem]) -> None:
    learnt = "".join(f"learn.{name} = {PRIOR_FACTOR}\n" for name in ("length_scale", "std"))
    problem = load_problem(
        {
            'positive = "down"\n': f'positive = "down"\n{learnt}',
            "kept_variance = 0.999": "kept_variance = 0.99999",
            "seed = 3": 'seed = 3\nmax_runs = 120\nposterior = "sampled"',
        }
    )
    posterior = invgp.invert(problem)
    mean, std = averaged_exactly(problem)
    ratio = posterior["depth_std"].values / std
    assert np.sqrt(np.mean(((posterior["depth"].values - mean) / std) ** 2)) < 0.07
    assert 0.96 < np.median(ratio) < 1.04
    assert ratio.min() > 0.85
    assert ratio.max() < 1.15
    # On a map, each draw is interpolated with its own hyperparameters.
    nodes = problem.grid.X[:, 0]
    found = invgp.predict(posterior, f"position={nodes[0]}:{nodes[-1]}:{nodes[1] - nodes[0]}", draws=50)
    assert np.abs((found["depth"].values - posterior["depth"].values) / std).max() < 0.1
    np.testing.assert_allclose(found["depth_std"].values / posterior["depth_std"].values, 1.0, atol=0.06)
    assert np.abs((found["depth_sample"].mean("realization").values - mean) / std).max() < 0.7
