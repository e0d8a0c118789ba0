"""Site models, field models and direct data in one inversion, against the closed form and against chains."""

import numpy as np
import pytest

import invgp
from invgp.errors import ConfigError

NODES = np.linspace(0.0, 2000.0, 41)
STATIONS = np.linspace(0.0, 2000.0, 9)
SITES = np.asarray([90.0, 433.0, 800.0, 1240.0, 1610.0, 1985.0])  # one of them is a node
PLACES = np.asarray([410.0, 1330.0])
PRIOR = {"depth": (100.0, 20.0, 350.0), "velocity": (50.0, 8.0, 500.0)}
GRAVITY = 125.0 + 12.0 * np.sin(STATIONS / 300.0)
SOUNDINGS = np.asarray([101.0, 95.0, 110.0, 120.0, 104.0, 99.0])
WELL = {
    "coordinates": {"x": PLACES},
    "values": {"top": {"quantity": "depth", "value": [112.0, 90.0], "std": 3.0}},
}
WINDOWS = np.exp(-0.5 * ((STATIONS[:, None] - NODES) / 250.0) ** 2)
WINDOWS /= WINDOWS.sum(axis=1, keepdims=True)


def latents(**changes):
    return {
        name: {"unit": "1", "mean": mean, "std": std, "kernel": {"length_scale": scale}} | changes
        for name, (mean, std, scale) in PRIOR.items()
    }


def linear_gravity(depth, velocity):
    return (depth + 0.5 * velocity) @ WINDOWS.T


def gravity(direct=None, forward=linear_gravity, values=GRAVITY, **inference):
    return invgp.define(
        {"x": STATIONS, "g": values},
        coordinates={"x": "m"},
        observations={"g": "1"},
        latents=latents(),
        forward=forward,
        grid={"x": {"unit": "m", "start": 0.0, "stop": 2000.0, "step": 50.0}},
        noise={"g": 1.5},
        direct=direct,
        inference={"kept_variance": 1.0 - 1e-12, "posterior": "coupled gaussian"} | inference,
    )


def soundings(forward=lambda depth, velocity: 0.5 * depth + velocity, coordinate="x", values=SOUNDINGS, **keys):
    return invgp.define(
        {coordinate: SITES, "s": values},
        coordinates={coordinate: "m"},
        observations={"s": "1"},
        latents=latents(),
        forward=forward,
        noise={"s": 2.0},
        inference={"posterior": "coupled gaussian"},
        **keys,
    )


def closed_form(names=("gravity", "soundings"), points=NODES):
    """Mean and standard deviation of both latents at points, given some of the data."""
    X = np.concatenate([points, NODES, SITES, PLACES])
    n, P = len(X), len(points)
    K = np.zeros((2 * n, 2 * n))
    for j, (_, std, scale) in enumerate(PRIOR.values()):
        K[j * n : (j + 1) * n, j * n : (j + 1) * n] = std**2 * np.exp(-0.5 * ((X[:, None] - X) / scale) ** 2)
    mean = np.repeat([m for m, _, _ in PRIOR.values()], n)
    blocks = {
        "gravity": (P, WINDOWS, (1.0, 0.5), GRAVITY, 1.5),
        "soundings": (P + 41, np.eye(6), (0.5, 1.0), SOUNDINGS, 2.0),
        "well": (P + 47, np.eye(2), (1.0, 0.0), np.asarray([112.0, 90.0]), 3.0),
    }
    rows, y, noise = [], [], []
    for start, shares, weights, data, std in (blocks[name] for name in names):
        row = np.zeros((len(data), 2 * n))
        for j in range(2):
            row[:, j * n + start : j * n + start + shares.shape[1]] = weights[j] * shares
        rows.append(row)
        y.append(data)
        noise.append(np.full(len(data), std))
    H, y, R = np.concatenate(rows), np.concatenate(y), np.diag(np.concatenate(noise) ** 2)
    gain = np.linalg.solve(H @ K @ H.T + R, H @ K).T
    std = np.sqrt(np.diagonal(K - gain @ H @ K))
    found = mean + gain @ (y - H @ mean)
    return {name: (found[j * n :][:P], std[j * n :][:P]) for j, name in enumerate(PRIOR)}


def deviation(posterior, exact, points=slice(None)):
    found = [
        max(
            np.abs(posterior[name].values[points] - mean).max() / std.min(),
            np.abs(posterior[f"{name}_std"].values[points] / std - 1.0).max(),
        )
        for name, (mean, std) in exact.items()
    ]
    return float(max(found))


@pytest.mark.parametrize("posterior", ["coupled gaussian", "sampled"])
@pytest.mark.parametrize("well", [False, True])
def test_that_a_mix_of_site_field_and_direct_data_has_the_closed_form(well, posterior):
    problem = gravity({"well": WELL} if well else None, posterior=posterior).join({"soundings": soundings()})
    found = invgp.invert(problem)
    names = ["gravity", "soundings", *(["well"] if well else [])]
    assert deviation(found, closed_form(names)) < 1e-5
    assert found.sizes["node"] == 41
    runs = dict(zip(found.attrs["invgp_sources"].split(), found.attrs["invgp_source_runs"], strict=True))
    assert runs["soundings"] == 6 * runs["survey"]
    assert np.isfinite(found["s_residual"].values[9:]).all()


def test_that_maps_and_draws_of_a_mix_have_the_closed_form():
    found = invgp.invert(gravity().join({"soundings": soundings()}))
    predicted = invgp.predict(found, "x=25:1975:50")
    assert deviation(predicted, closed_form(points=np.arange(25.0, 1976.0, 50.0))) < 1e-4
    assert found["depth_sample"].shape[1:] == (41,)


def test_that_a_source_of_a_mix_can_be_left_out_without_new_runs(tmp_path):
    problem, ledger = gravity({"well": WELL}).join({"soundings": soundings()}), tmp_path / "runs.db"
    first, again = (invgp.invert(problem, ledger=ledger) for _ in range(2))
    assert again.attrs["invgp_runs_from_ledger"] == again.attrs["invgp_runs"]
    np.testing.assert_array_equal(first["depth"], again["depth"])
    for name, left in (("soundings", ["gravity", "well"]), ("well", ["gravity", "soundings"])):
        found = invgp.invert(problem.without(name), ledger=ledger, new_runs=False)
        assert found.attrs["invgp_runs"] == 0
        assert found.attrs["invgp_converged"] == "yes"
        assert deviation(found, closed_form(left)) < 1e-4
    sites = invgp.invert(problem.without("survey"), ledger=ledger, new_runs=False)  # a site model
    assert sites.attrs["invgp_runs"] == 0
    assert deviation(sites, closed_form(["soundings", "well"], SITES), slice(0, 6)) < 1e-6


def test_that_a_source_of_a_mix_that_is_left_out_equals_the_problem_without_it():
    problem = gravity().join({"soundings": soundings()})
    left, alone = invgp.invert(problem.without("soundings")), invgp.invert(gravity())
    np.testing.assert_array_equal(left["depth"], alone["depth"])


def test_that_the_posterior_of_a_field_model_is_the_prior_of_field_models_only():
    first = invgp.invert(gravity())
    again = invgp.define(
        {"x": STATIONS, "g": GRAVITY},
        coordinates={"x": "m"},
        observations={"g": "1"},
        latents=latents(),
        forward=linear_gravity,
        grid={"x": {"unit": "m", "start": 0.0, "stop": 2000.0, "step": 50.0}},
        noise={"g": 1.5},
        prior=first,
    )
    with pytest.raises(ConfigError, match="without: must leave a field model, because the prior is the posterior"):
        again.join({"soundings": soundings()}).without("survey")


def test_that_failed_runs_of_a_site_model_are_missing_data():
    def fails_at_times(depth, velocity):
        return np.where(depth > 118.0, np.nan, 0.5 * depth + velocity)

    found = invgp.invert(gravity(max_runs=700).join({"soundings": soundings(fails_at_times)}))
    assert found.attrs["invgp_runs_failed"] > 0
    assert deviation(found, closed_form()) < 0.1


def test_that_the_budget_of_a_mix_counts_the_runs_of_all_sites():
    found = invgp.invert(gravity(max_runs=150).join({"soundings": soundings()}))
    assert found.attrs["invgp_runs"] <= 150


def slice_chain(log_ratio, size, steps, rng):
    """Elliptical slice sampling (Murray and others, 2010) of standard normal variables times exp(log_ratio)."""
    x, value, kept = np.zeros(size), log_ratio(np.zeros(size)), []
    for _ in range(steps):
        direction, height = rng.standard_normal(size), value + np.log(rng.uniform())
        angle = rng.uniform(0.0, 2.0 * np.pi)
        low, high = angle - 2.0 * np.pi, angle
        while True:
            new = x * np.cos(angle) + direction * np.sin(angle)
            value = log_ratio(new)
            if value > height:
                break
            low, high = (angle, high) if angle < 0.0 else (low, angle)
            angle = rng.uniform(low, high)
        x = new
        kept.append(x)
    return np.asarray(kept)


def bent_gravity(depth, velocity):
    return (0.1 * np.abs(depth) ** 1.5 + 0.5 * velocity) @ WINDOWS.T


def bent_sounding(depth, velocity):
    return 6.0 * np.sqrt(np.abs(velocity)) * (np.abs(depth) / 100.0) ** 1.5


def chains_of(gravities, values, steps):
    """Chains (2, steps, 94) of depth and velocity at all nodes and sites, in plain NumPy: no code of invgp is used."""
    X = np.concatenate([NODES, SITES])
    factors, n = [], len(X)
    for _, std, scale in PRIOR.values():
        variances, vectors = np.linalg.eigh(std**2 * np.exp(-0.5 * ((X[:, None] - X) / scale) ** 2))
        kept = variances > 1e-9 * variances[-1]
        factors.append(vectors[:, kept] * np.sqrt(variances[kept]))
    split = factors[0].shape[1]
    F = np.zeros((2 * n, split + factors[1].shape[1]))
    F[:n, :split], F[n:, split:] = factors
    centre = np.repeat([100.0, 50.0], n)

    def residuals(w):
        depth, velocity = np.split(centre + F @ w, 2)
        of_field = (bent_gravity(depth[:41], velocity[:41]) - gravities) / 1.5
        return np.concatenate([of_field, (bent_sounding(depth[41:], velocity[41:]) - values) / 2.0])

    # The chains move in the coordinates of a Gaussian at the mode, and stay exact because of the ratio of densities.
    size = F.shape[1]
    mode = np.zeros(size)
    for _ in range(15):
        J = np.stack([(residuals(mode + e) - residuals(mode - e)) / 2e-4 for e in 1e-4 * np.eye(size)], axis=1)
        mode = np.linalg.solve(np.eye(size) + J.T @ J, J.T @ (J @ mode - residuals(mode)))
    L = np.linalg.cholesky(np.linalg.inv(np.eye(size) + J.T @ J))

    def log_ratio(u):
        w = mode + L @ u
        return -0.5 * np.sum(residuals(w) ** 2) - 0.5 * w @ w + 0.5 * u @ u

    chains = [slice_chain(log_ratio, size, steps, np.random.default_rng(k))[500:] for k in range(2)]
    return np.stack([centre + (mode + u @ L.T) @ F.T for u in chains])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 8])
def test_that_a_nonlinear_mix_agrees_with_chains(seed):
    rng = np.random.default_rng(seed)
    depth, velocity = (lambda x: 100.0 + 15.0 * np.sin(x / 300.0)), (lambda x: 50.0 + 5.0 * np.cos(x / 400.0))
    gravities = bent_gravity(depth(NODES), velocity(NODES)) + 1.5 * rng.standard_normal(9)
    values = bent_sounding(depth(SITES), velocity(SITES)) + 2.0 * rng.standard_normal(6)
    problem = gravity(forward=bent_gravity, values=gravities, posterior="sampled", kept_variance=1.0 - 1e-6)
    found = invgp.invert(problem.join({"soundings": soundings(bent_sounding, values=values)}))
    assert found.attrs["invgp_converged"] == "yes"
    chains = chains_of(gravities, values, 8_000)
    draws = np.concatenate(chains)
    for name, own in (("depth", slice(0, 41)), ("velocity", slice(47, 88))):
        mean, std = draws[:, own].mean(axis=0), draws[:, own].std(axis=0)
        between = np.abs(np.diff(chains[..., own].mean(axis=1), axis=0)) / std
        error = np.sqrt(np.mean(((found[name].values - mean) / std) ** 2))
        ratio = np.median(found[f"{name}_std"].values / std)
        print(f"{name}: error {error:.3f}, ratio {ratio:.3f}, chains differ by {np.sqrt(np.mean(between**2)):.3f}")
        assert np.sqrt(np.mean(between**2)) < 0.05
        assert error < 0.1
        assert 0.95 < ratio < 1.05


@pytest.mark.parametrize(
    ("join", "sentence"),
    [
        (lambda: soundings().join({"g": gravity()}), "others: must be site models like this problem, 'g' was a field"),
        (lambda: gravity().join({"s": soundings(coordinate="y")}), "others: must have the coordinates of the grid"),
        (lambda: gravity(localisation=400.0).join({"s": soundings()}), "inference.localisation: must be left out in a"),
    ],
)
def test_that_models_that_cannot_be_joined_are_refused(join, sentence):
    with pytest.raises(ConfigError, match=sentence):
        join()


CONFIG = """
[survey]
file = "gravity.csv"
coordinates.x.unit = "m"
observations.g = { columns = ["g"], unit = "1" }
[grid.coordinates]
x = { unit = "m", start = 0, stop = 2000, step = 50 }
[latents]
depth = { unit = "1", mean = 100, std = 20, kernel.length_scale = 350 }
velocity = { unit = "1", mean = 50, std = 8, kernel.length_scale = 500 }
[forward]
kind = "field"
adapter = "callable"
function = "models:gravity"
inputs = ["depth", "velocity"]
outputs = ["g"]
[noise]
std.g = 1.5
[sources.soundings.survey]
file = "soundings.csv"
coordinates.x = { column = "x_m", unit = "m" }
observations.s = { columns = ["s"], unit = "1" }
[sources.soundings.forward]
adapter = "callable"
function = "models:sounding"
inputs = ["depth", "velocity"]
outputs = ["s"]
[sources.soundings.noise]
std.s = 2
[inference]
kept_variance = 0.999999999999
"""
MODELS = """
import numpy as np

WINDOWS = np.exp(-0.5 * ((np.linspace(0.0, 2000.0, 9)[:, None] - np.linspace(0.0, 2000.0, 41)) / 250.0) ** 2)
WINDOWS /= WINDOWS.sum(axis=1, keepdims=True)


def gravity(depth, velocity):
    return (depth + 0.5 * velocity) @ WINDOWS.T


def sounding(depth, velocity):
    return 0.5 * depth + velocity
"""


def write_table(path, names, *columns):
    rows = [",".join(names), *(",".join(map(repr, map(float, row))) for row in zip(*columns, strict=True))]
    path.write_text("\n".join(rows), encoding="utf-8")


def test_that_a_mix_is_read_from_a_configuration(tmp_path):
    write_table(tmp_path / "gravity.csv", ("x", "g"), STATIONS, GRAVITY)
    write_table(tmp_path / "soundings.csv", ("x_m", "s"), SITES, SOUNDINGS)
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    (tmp_path / "survey.toml").write_text(CONFIG, encoding="utf-8")
    found = invgp.invert(invgp.load(tmp_path / "survey.toml"))
    assert deviation(found, closed_form()) < 1e-5
    assert found.attrs["invgp_sources"] == "survey soundings"
