"""Several field models with their own simulators and data, against the closed form."""

import numpy as np
import pytest

import invgp

NODES = np.linspace(0.0, 2000.0, 41)
STATIONS = {"gravity": np.linspace(0.0, 2000.0, 9), "sonic": np.linspace(150.0, 1750.0, 6)}
WIDTH = {"gravity": 250.0, "sonic": 80.0}
NOISE = {"gravity": 1.5, "sonic": 2.5}
PRIOR = {"depth": (100.0, 20.0, 350.0), "velocity": (50.0, 8.0, 500.0)}
WEIGHTS = {"gravity": {"depth": 1.0, "velocity": 0.5}, "sonic": {"velocity": 1.0}}
DATA = {
    "gravity": 125.0 + 12.0 * np.sin(STATIONS["gravity"] / 300.0),
    "sonic": 50.0 + 5.0 * np.cos(STATIONS["sonic"] / 400.0),
}
WELL = {
    "coordinates": {"x": [410.0, 1330.0]},
    "values": {"top": {"quantity": "depth", "value": [112.0, 90.0], "std": 3.0}},
}


def windows(name):
    found = np.exp(-0.5 * ((STATIONS[name][:, None] - NODES) / WIDTH[name]) ** 2)
    return found / found.sum(axis=1, keepdims=True)


def gravity(depth, velocity):
    return (depth + 0.5 * velocity) @ windows("gravity").T


def sonic(velocity):
    return velocity @ windows("sonic").T


def source(name, forward, direct=None, sites=slice(None), **inference):
    return invgp.define(
        {"s": STATIONS[name][sites], name: DATA[name][sites]},
        coordinates={"s": "m"},
        observations={name: "1"},
        latents={
            latent: {"unit": "1", "mean": mean, "std": std, "kernel": {"length_scale": scale}}
            for latent, (mean, std, scale) in PRIOR.items()
            if latent in WEIGHTS[name]
        },
        forward=forward,
        grid={"x": {"unit": "m", "start": 0.0, "stop": 2000.0, "step": 50.0}},
        noise={name: NOISE[name]},
        direct=direct,
        inference={"max_runs": 400, "kept_variance": 1.0 - 1e-12, "posterior": "coupled gaussian"} | inference,
    )


def closed_form(names=("gravity", "sonic"), well=False):
    """Mean and standard deviation of both latents at the nodes."""
    X = np.concatenate([NODES, WELL["coordinates"]["x"]])
    blocks = [std**2 * np.exp(-0.5 * ((X[:, None] - X) / scale) ** 2) for _, std, scale in PRIOR.values()]
    n = len(X)
    K, rows, y, noise = np.zeros((2 * n, 2 * n)), [], [], []
    K[:n, :n], K[n:, n:] = blocks
    mean = np.repeat([m for m, _, _ in PRIOR.values()], n)
    for name in names:
        row = np.zeros((len(DATA[name]), 2 * n))
        for j, latent in enumerate(PRIOR):
            row[:, j * n : j * n + 41] = WEIGHTS[name].get(latent, 0.0) * windows(name)
        rows.append(row)
        y.append(DATA[name])
        noise.append(np.full(len(DATA[name]), NOISE[name]))
    if well:
        row = np.zeros((2, 2 * n))
        row[[0, 1], [41, 42]] = 1.0
        rows.append(row)
        y.append([112.0, 90.0])
        noise.append([3.0, 3.0])
    H, y, R = np.concatenate(rows), np.concatenate(y), np.diag(np.concatenate(noise) ** 2)
    gain = np.linalg.solve(H @ K @ H.T + R, H @ K).T
    std = np.sqrt(np.diagonal(K - gain @ H @ K))
    found = mean + gain @ (y - H @ mean)
    return {name: (found[j * n :][:41], std[j * n :][:41]) for j, name in enumerate(PRIOR)}


def deviation(posterior, exact):
    """Largest deviation of means and standard deviations from the closed form, in standard deviations."""
    found = [
        max(np.abs(posterior[name] - mean).max() / std.min(), np.abs(posterior[f"{name}_std"] / std - 1.0).max())
        for name, (mean, std) in exact.items()
    ]
    return float(max(found))


@pytest.mark.parametrize("well", [False, True])
@pytest.mark.parametrize("posterior", ["coupled gaussian", "sampled"])
def test_that_two_field_models_have_the_closed_form(well, posterior):
    first = source("gravity", gravity, {"well": WELL} if well else None, posterior=posterior)
    found = invgp.invert(first.join({"sonic": source("sonic", sonic)}))
    assert deviation(found, closed_form(well=well)) < 1e-5
    assert found.attrs["invgp_sources"].split()[0] == "survey"
    runs = dict(zip(found.attrs["invgp_sources"].split(), found.attrs["invgp_source_runs"], strict=True))
    assert runs["survey"] == runs["sonic"] == found.attrs["invgp_runs"] / 2
    assert runs.get("well", 0) == 0


def test_that_a_source_of_a_field_model_can_be_left_out():
    joint = source("gravity", gravity).join({"sonic": source("sonic", sonic)})
    alone, left = invgp.invert(source("gravity", gravity)), invgp.invert(joint.without("sonic"))
    np.testing.assert_array_equal(alone["depth"], left["depth"])
    assert deviation(left, closed_form(["gravity"])) < 1e-5
    other = invgp.invert(joint.without("survey"))
    assert deviation(other, closed_form(["sonic"])) < 1e-5


def test_that_two_halves_of_a_field_survey_are_the_whole():
    def half(sites):
        return lambda depth, velocity: gravity(depth, velocity)[..., sites]

    west, east = slice(None, 4), slice(4, None)
    first = source("gravity", half(west), sites=west)
    found = invgp.invert(first.join({"east": source("gravity", half(east), sites=east)}))
    assert deviation(found, closed_form(["gravity"])) < 1e-5


def test_that_a_resumed_inversion_makes_no_new_runs(tmp_path):
    problem = source("gravity", gravity).join({"sonic": source("sonic", sonic)})
    first, again = (invgp.invert(problem, ledger=tmp_path / "runs.db") for _ in range(2))
    assert again.attrs["invgp_runs_from_ledger"] == again.attrs["invgp_runs"]
    np.testing.assert_array_equal(first["depth"], again["depth"])


def test_that_the_budget_is_for_all_simulators():
    problem = source("gravity", gravity, max_runs=61).join({"sonic": source("sonic", sonic)})
    found = invgp.invert(problem)
    assert found.attrs["invgp_runs"] <= 61


def test_that_a_field_source_can_be_switched_off_without_new_runs(tmp_path):
    first = source("gravity", gravity, {"well": WELL})
    problem, ledger = first.join({"sonic": source("sonic", sonic)}), tmp_path / "runs.db"
    assert invgp.invert(problem, ledger=ledger).attrs["invgp_runs"] > 0
    for without, names, well in (("sonic", ["gravity"], True), ("well", ["gravity", "sonic"], False)):
        found = invgp.invert(problem.without(without), ledger=ledger, new_runs=False)
        assert found.attrs["invgp_runs"] == 0
        assert found.attrs["invgp_converged"] == "yes"
        assert deviation(found, closed_form(names, well=well)) < 1e-5
