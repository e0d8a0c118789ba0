"""An earlier posterior as the prior of a field model, against the closed form of all data."""

import numpy as np
import pytest

import invgp
from invgp.errors import ConfigError

NODES = np.linspace(0.0, 2000.0, 41)
STATIONS = {"gravity": np.linspace(0.0, 2000.0, 9), "sonic": np.linspace(150.0, 1750.0, 6)}
WIDTH = {"gravity": 250.0, "sonic": 80.0}
NOISE = {"gravity": 1.5, "sonic": 2.5}
PRIOR = {"depth": (100.0, 20.0, 350.0), "velocity": (50.0, 8.0, 500.0)}
WEIGHTS = {"gravity": (1.0, 0.5), "sonic": (0.0, 1.0)}
DATA = {
    "gravity": 125.0 + 12.0 * np.sin(STATIONS["gravity"] / 300.0),
    "sonic": 50.0 + 5.0 * np.cos(STATIONS["sonic"] / 400.0),
}
PLACES = np.asarray([410.0, 1330.0])
WELL = {
    "coordinates": {"x": PLACES},
    "values": {"top": {"quantity": "depth", "value": [112.0, 90.0], "std": 3.0}},
}


def windows(name, nodes=NODES):
    """Averages of a smooth field around the stations: quadrature weights that hardly depend on the grid."""
    found = np.exp(-0.5 * ((STATIONS[name][:, None] - nodes) / WIDTH[name]) ** 2)
    return found / found.sum(axis=1, keepdims=True)


def survey(name, *, prior=None, direct=None, step=50.0, nodes=NODES, latent=None, **inference):
    a, b = WEIGHTS[name]
    return invgp.define(
        {"s": STATIONS[name], name: DATA[name]},
        coordinates={"s": "m"},
        observations={name: "1"},
        latents={
            key: {"unit": "1", "mean": mean, "std": std, "kernel": {"length_scale": scale}} | (latent or {})
            for key, (mean, std, scale) in PRIOR.items()
        },
        forward=lambda depth, velocity: (a * depth + b * velocity) @ windows(name, nodes).T,
        grid={"x": {"unit": "m", "start": 0.0, "stop": 2000.0, "step": step}},
        noise={name: NOISE[name]},
        direct=direct,
        prior=prior,
        inference={"max_runs": 400, "kept_variance": 1.0 - 1e-12, "posterior": "coupled gaussian"} | inference,
    )


def closed_form(rows, nodes=NODES):
    """Mean and standard deviation of both latents at the nodes, given rows (points, weights (2,), data, noise)."""
    X = np.concatenate([nodes, *(points.ravel() for points, *_ in rows)])
    n = len(X)
    K = np.zeros((2 * n, 2 * n))
    for j, (_, std, scale) in enumerate(PRIOR.values()):
        K[j * n :, j * n :][:n, :n] = std**2 * np.exp(-0.5 * ((X[:, None] - X) / scale) ** 2)
    mean = np.repeat([m for m, _, _ in PRIOR.values()], n)
    H, y, noise, start = [], [], [], len(nodes)
    for points, weights, data, std, shares in rows:
        row = np.zeros((len(data), 2 * n))
        for j in range(2):
            if shares is None:
                row[np.arange(len(data)), j * n + start + np.arange(len(data))] = weights[j]
            else:
                row[:, j * n + start : j * n + start + points.size] = weights[j] * shares
        H.append(row)
        y.append(data)
        noise.append(np.full(len(data), std))
        start += points.size
    H, y, R = np.concatenate(H), np.concatenate(y), np.diag(np.concatenate(noise) ** 2)
    gain = np.linalg.solve(H @ K @ H.T + R, H @ K).T
    std = np.sqrt(np.diagonal(K - gain @ H @ K))
    found = mean + gain @ (y - H @ mean)
    G = len(nodes)
    return {name: (found[j * n :][:G], std[j * n :][:G]) for j, name in enumerate(PRIOR)}


def field_rows(name, nodes=NODES):
    return nodes, WEIGHTS[name], DATA[name], NOISE[name], windows(name, nodes)


WELL_ROWS = (PLACES, (1.0, 0.0), np.asarray([112.0, 90.0]), 3.0, None)


def deviation(posterior, exact):
    found = [
        max(np.abs(posterior[name] - mean).max() / std.min(), np.abs(posterior[f"{name}_std"] / std - 1.0).max())
        for name, (mean, std) in exact.items()
    ]
    return float(max(found))


@pytest.mark.parametrize("wells", ["", "earlier", "new"])
def test_that_two_field_surveys_in_sequence_have_the_closed_form(wells, tmp_path):
    first = invgp.invert(survey("gravity", direct={"well": WELL} if wells == "earlier" else None))
    invgp.write(first, tmp_path / "2024.nc")
    second = invgp.invert(
        survey("sonic", prior=tmp_path / "2024.nc", direct={"well": WELL} if wells == "new" else None)
    )
    rows = [field_rows("gravity"), field_rows("sonic"), *([WELL_ROWS] if wells else [])]
    assert deviation(second, closed_form(rows)) < 1e-5
    assert second.attrs["invgp_sources"].split()[-1] == "prior"


def test_that_the_grids_of_two_surveys_can_differ():
    nodes = np.linspace(0.0, 2000.0, 51)
    first = invgp.invert(survey("gravity", step=40.0, nodes=nodes))
    second = invgp.invert(survey("sonic", prior=first))
    exact = closed_form([field_rows("gravity", nodes), field_rows("sonic")])
    assert deviation(second, exact) < 1e-4


def test_that_a_survey_of_sites_can_be_the_prior_of_a_field_model():
    x, y = np.linspace(90.0, 1900.0, 7), np.asarray([101.0, 95.0, 110.0, 120.0, 104.0, 99.0, 91.0])
    sites = invgp.define(
        {"x": x, "y": y},
        coordinates={"x": "m"},
        observations={"y": "1"},
        latents={
            key: {"unit": "1", "mean": mean, "std": std, "kernel": {"length_scale": scale}}
            for key, (mean, std, scale) in PRIOR.items()
        },
        forward=lambda depth, velocity: 0.5 * depth + velocity,
        noise={"y": 2.0},
        inference={"posterior": "coupled gaussian"},
    )
    found = invgp.invert(survey("sonic", prior=invgp.invert(sites)))
    assert deviation(found, closed_form([field_rows("sonic"), (x, (0.5, 1.0), y, 2.0, None)])) < 1e-5


def test_that_the_prior_of_a_field_model_can_be_left_out():
    first = invgp.invert(survey("gravity"))
    left, alone = invgp.invert(survey("sonic", prior=first).without("prior")), invgp.invert(survey("sonic"))
    np.testing.assert_array_equal(left["velocity"], alone["velocity"])


def test_that_a_prior_that_cannot_be_used_is_refused():
    first = invgp.invert(survey("gravity"))
    with pytest.raises(ConfigError, match="prior: must have the mean, standard deviation and kernel of each latent"):
        survey("sonic", prior=first, latent={"kernel": {"length_scale": 300.0}})
    with pytest.raises(ConfigError, match=r"latents.depth.learn: must be left out in a field model with \[direct\] or"):
        survey("sonic", prior=first, latent={"learn": {"std": 2.0}})
    with pytest.raises(ConfigError, match="prior: must be a posterior of a site model for a site model"):
        invgp.define(
            {"x": [1.0, 2.0], "y": [1.0, 2.0]},
            coordinates={"x": "m"},
            observations={"y": "1"},
            latents={key: {"unit": "1", "mean": 1, "std": 1, "kernel": {"length_scale": 3}} for key in PRIOR},
            forward=lambda depth, velocity: depth + velocity,
            noise={"y": 1.0},
            prior=first,
        )
