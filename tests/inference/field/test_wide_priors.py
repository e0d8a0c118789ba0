"""Field models of few scalars with priors over several decades."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import invgp

CONFIG = """
version = 1

[survey]
file = "survey.csv"
[survey.observations.level]
columns = ["value"]
unit = "1"

[dimensions]
name = ["flow", "slope"]

[latents.rate]
unit = "1"
domain = "scalar"
dimension = "name"
mean = [0.704, 28.2]   # medians 0.05 and 2, standard deviations of the logarithms 2.3
std = [9.89, 395.5]
link = "log"

[latents.storage]
unit = "1"
domain = "scalar"
mean = 0.17    # median 0.1, standard deviation of the logarithm 1.03
std = 0.234
link = "log"

[forward]
kind = "field"
adapter = "callable"
function = "ridge:levels"
vectorised = false
inputs = ["rate", "storage"]
outputs = ["level"]

[noise]
std.level = "std"

[output]
file = "posterior.nc"
realizations = 2000
"""
CONTRADICTION = """
version = 1

[survey]
file = "survey.csv"
[survey.observations.level]
columns = ["value"]
unit = "1"

[latents.a]
unit = "1"
domain = "scalar"
mean = 0
std = 1

[forward]
kind = "field"
adapter = "callable"
function = "twice:levels"
vectorised = false
inputs = ["a"]
outputs = ["level"]

[noise]
std.level = "std"

[output]
file = "posterior.nc"
"""
FUNCTION = """
import numpy as np

def levels(rate, storage):
    flow, slope = np.ravel(rate)
    i = np.arange(1.0, 7.0)
    return np.append(10.0 - i / (100.0 * flow) - i**2 * np.ravel(storage) / slope, flow)
"""
VALUES = np.array([9.55, 8.9, 8.05, 7.0, 5.75, 4.3, 0.02])
NOISE = np.array([*[0.05] * 6, 0.002])


def quadrature(prior_mean: np.ndarray, prior_std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the logarithms: the data depend on the flow and on the ratio storage / slope."""
    flow, ratio = np.meshgrid(np.linspace(-4.2, -3.2, 401), np.linspace(-3.0, -1.8, 401), indexing="ij")
    i = np.arange(1.0, 7.0)
    levels = 10.0 - i / (100.0 * np.exp(flow[..., None])) - i**2 * np.exp(ratio[..., None])
    misfit = np.sum(((levels - VALUES[:6]) / NOISE[:6]) ** 2, axis=-1) + ((np.exp(flow) - VALUES[6]) / NOISE[6]) ** 2
    variances = np.log1p((prior_std / prior_mean) ** 2)
    centres = np.log(prior_mean) - 0.5 * variances
    total = variances[1] + variances[2]
    off = ratio - (centres[2] - centres[1])
    weights = -0.5 * (misfit + (flow - centres[0]) ** 2 / variances[0] + off**2 / total)
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    # Given the ratio, slope and storage are normal with a common remaining variance.
    rest = variances[1] * variances[2] / total
    values = [flow, centres[1] - off * variances[1] / total, centres[2] + off * variances[2] / total]
    means = np.array([np.sum(weights * value) for value in values])
    spreads = np.array([np.sum(weights * (v - m) ** 2) for v, m in zip(values, means, strict=True)])
    return means, np.sqrt(spreads + np.array([0.0, rest, rest]))


@pytest.mark.slow
def test_that_a_ridge_under_a_wide_prior_has_its_exact_posterior(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{value},{std}" for value, std in zip(VALUES, NOISE, strict=True)]
    (tmp_path / "survey.csv").write_text("\n".join(["value,std", *rows]) + "\n", encoding="utf-8")
    (tmp_path / "survey.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "ridge.py").write_text(FUNCTION, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    posterior = invgp.invert(invgp.load(tmp_path / "survey.toml"))
    assert posterior.attrs["invgp_converged"] == "yes"
    assert posterior.attrs["invgp_runs"] <= 250
    draws = [posterior[f"{name}_sample"].transpose("realization", ...).to_numpy() for name in ("rate", "storage")]
    draws = np.log(np.concatenate([values.reshape(2000, -1) for values in draws], axis=1))
    mean, std = quadrature(np.array([0.704, 28.2, 0.17]), np.array([9.89, 395.5, 0.234]))
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / std, 0.0, atol=0.15)
    widths = np.subtract(*np.quantile(draws, [0.95, 0.05], axis=0)) / (3.29 * std)
    np.testing.assert_allclose(widths, 1.0, atol=0.12)


def test_that_a_posterior_that_does_not_explain_the_data_has_not_converged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "survey.csv").write_text("value,std\n0,0.05\n3,0.05\n", encoding="utf-8")
    (tmp_path / "survey.toml").write_text(CONTRADICTION, encoding="utf-8")
    (tmp_path / "twice.py").write_text("import numpy as np\ndef levels(a):\n    return np.repeat(a, 2)\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    posterior = invgp.invert(invgp.load(tmp_path / "survey.toml"))
    assert posterior.attrs["invgp_converged"] == "no"
    assert posterior.attrs["invgp_runs"] < 100
    assert "does not explain the data" in posterior.attrs["invgp_status"]
