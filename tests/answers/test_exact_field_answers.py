"""Answers about field models, with a borehole or of scalars only, against closed forms and importance sampling."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import invgp
from helpers.averaged_fields import DATA, NODES, NOISE, SENSORS, WINDOWS, X, averages, quadratic_averages

PLACE, VALUE, STD = 15, 0.4, 0.2  # of a direct value


def field_problem(function, std):
    value = {"quantity": "field", "value": VALUE, "std": STD}
    return invgp.define(
        {"sensor": np.linspace(0.1, 0.9, SENSORS), "datum": DATA},
        coordinates={"sensor": "km"},
        observations={"datum": "1"},
        latents={"field": {"unit": "1", "mean": 0.0, "std": std, "kernel": {"length_scale": 0.3}}},
        grid={"x": {"unit": "km", "start": 0.0, "stop": 1.0, "step": 1.0 / (NODES - 1)}},
        forward=function,
        noise={"datum": NOISE},
        direct={"well": {"coordinates": {"x": float(X[PLACE])}, "values": {"core": value}}},
        inference={"workers": 1},
    )


def prior_covariance(problem):
    return problem.latents[0].kernel(X[:, None], X[:, None]) * problem.latents[0].std[0] ** 2


@pytest.mark.slow
def test_that_answers_about_a_linear_field_model_with_a_borehole_are_exact(tmp_path):
    problems = {name: field_problem(averages, std) for name, std in (("usual", 1.0), ("wide", 3.0))}
    A, y = np.vstack([WINDOWS, np.eye(NODES)[PLACE]]), np.append(DATA, VALUE)
    noise, paths, exact = np.diag(np.append(np.full(SENSORS, NOISE**2), STD**2)), [], []
    for name, problem in problems.items():
        posterior = invgp.invert(problem, ledger=tmp_path / f"{name}.ledger.sqlite")
        assert "invgp_log_evidence" not in posterior.attrs
        paths.append(invgp.write(posterior, tmp_path / f"{name}.nc"))
        exact.append(multivariate_normal(np.zeros(len(y)), A @ prior_covariance(problem) @ A.T + noise).logpdf(y))
    before = [path.with_suffix(".ledger.sqlite").read_bytes() for path in paths]
    found = invgp.weigh(*paths, config=list(problems.values()))
    np.testing.assert_allclose(found["log_evidence"], exact, atol=0.05)
    assert float(found["log_evidence_error"].max()) < 0.01
    revised = invgp.revise(paths[0], problem=problems["wide"], config=problems["usual"])
    assert revised.attrs["invgp_log_evidence"] == pytest.approx(exact[1], abs=0.05)
    influence = invgp.influence(paths[0], config=problems["usual"])
    stds = []
    for rows in (slice(0, None), slice(SENSORS, None), slice(0, SENSORS)):  # all, only the borehole, and without it
        K, B, R = prior_covariance(problems["usual"]), A[rows], noise[rows, rows]
        stds.append(np.sqrt(np.diagonal(K - K @ B.T @ np.linalg.solve(B @ K @ B.T + R, B @ K))))
    assert influence["data_label"].values.tolist() == ["survey", "well"]
    for k in range(2):
        np.testing.assert_allclose(influence["field_reduction"][k], 1.0 - stds[0] / stds[k + 1], atol=0.02)
    with pytest.raises(invgp.InvgpError, match=r"^by: must be 'site' or 'block', since the problem has one source of"):
        invgp.crossvalidate(paths[0], by="source", config=problems["usual"])
    assert [path.with_suffix(".ledger.sqlite").read_bytes() for path in paths] == before


def sampled_evidence(problem, count=20_000):
    """Importance sampling of the nodes from the Gaussian at the mode of the posterior, in nats."""
    root = np.linalg.cholesky(prior_covariance(problem) + 1e-9 * np.eye(NODES))
    scale = np.append(np.full(SENSORS, NOISE), STD)

    def residuals(z):
        f = z @ root.T
        return np.concatenate([quadratic_averages(f) - DATA, f[:, [PLACE]] - VALUE], axis=1) / scale

    z = np.zeros((1, NODES))
    for _ in range(50):
        J = (residuals(z + 1e-6 * np.eye(NODES)) - residuals(z)).T / 1e-6
        precision = np.eye(NODES) + J.T @ J
        z = z - 0.5 * np.linalg.solve(precision, z[0] + J.T @ residuals(z)[0])
    normals = np.random.default_rng(0).standard_normal((count, NODES))
    draws = z + 1.1 * np.linalg.solve(np.linalg.cholesky(precision).T, normals.T).T
    log = -0.5 * np.sum(residuals(draws) ** 2, axis=1) - np.sum(np.log(scale * np.sqrt(2.0 * np.pi)))
    log += 0.5 * np.sum(normals**2 - draws**2, axis=1) + NODES * np.log(1.1)
    log -= 0.5 * np.linalg.slogdet(precision)[1]
    return logsumexp(log) - np.log(count), 1.0 / np.sqrt(np.exp(2.0 * logsumexp(log) - logsumexp(2.0 * log)))


@pytest.mark.slow
def test_that_the_evidence_of_a_nonlinear_field_model_is_that_of_importance_sampling():
    problem = field_problem(quadratic_averages, 1.0)
    reference, error = sampled_evidence(problem)
    posterior = invgp.invert(problem)
    assert error < 0.05
    assert posterior.attrs["invgp_log_evidence_error"] < 0.05
    assert posterior.attrs["invgp_log_evidence"] == pytest.approx(reference, abs=0.1)


@pytest.mark.slow
def test_that_answers_about_scalars_without_a_grid_are_exact(tmp_path):
    rng = np.random.default_rng(2)
    H, std, noise = rng.standard_normal((15, 3)), 1.5, 0.3
    y = H @ np.asarray([1.0, -0.5, 2.0]) + noise * rng.standard_normal(15)

    def scalar_problem(std):
        return invgp.define(
            {"y": y},
            observations={"y": "m"},
            latents={name: {"unit": "1", "domain": "scalar", "mean": 0, "std": std} for name in "abc"},
            forward={"function": lambda a, b, c: np.stack([a, b, c], axis=-1) @ H.T, "kind": "field"},
            noise={"y": noise},
        )

    def moments(kept, std=std):
        S = std**2 * H[kept] @ H[kept].T + noise**2 * np.eye(kept.sum())
        gain = np.linalg.solve(S, std**2 * H[kept]).T
        return gain @ y[kept], std**2 * np.eye(3) - std**2 * gain @ H[kept], multivariate_normal(cov=S).logpdf(y[kept])

    problem, path, every = scalar_problem(std), tmp_path / "posterior.nc", np.ones(15, dtype=bool)
    invgp.write(invgp.invert(problem, ledger=tmp_path / "posterior.ledger.sqlite"), path)
    mean, covariance, _ = moments(every)
    narrow = invgp.revise(path, problem=scalar_problem(0.5), config=problem)
    changed, spread, evidence = moments(every, 0.5)
    np.testing.assert_allclose([narrow[name].item() for name in "abc"], changed, atol=1e-3)
    np.testing.assert_allclose([narrow[f"{name}_std"].item() for name in "abc"], np.sqrt(np.diag(spread)), rtol=1e-3)
    assert narrow.attrs["invgp_log_evidence"] == pytest.approx(evidence, abs=0.05)
    influence = invgp.influence(path, config=problem)
    scores = invgp.crossvalidate(path, config=problem)["held_out_log_score"].values
    for n in range(15):
        own, cover, _ = moments(np.arange(15) != n)
        pull = np.max(np.abs(mean - own) / np.sqrt(np.diagonal(covariance)))
        assert influence["y_pull"].values[n] == pytest.approx(pull, rel=0.01)
        exact = multivariate_normal(H[n] @ own, H[n] @ cover @ H[n] + noise**2).logpdf(y[n])
        assert scores[n] == pytest.approx(exact, abs=0.3)
    places = tmp_path / "places.csv"
    places.write_text("name,quantity,std,site,noise_factor\nvalue,a - b,0.05,,\nrepeated,,,4,0.2\n")
    found = invgp.design(path, places, target=["a", "a + c"], config=problem, plot=tmp_path / "design.png")
    measured = ((np.asarray([1.0, -1.0, 0.0]), 0.05**2), (H[3], noise**2 / (0.2**-2 - 1.0)))
    for reductions, errors, (g, variance) in zip(
        found["reduction"].values, found["reduction_error"].values, measured, strict=True
    ):
        left = covariance - np.outer(covariance @ g, covariance @ g) / (g @ covariance @ g + variance)
        for k, t in enumerate(([1.0, 0.0, 0.0], [1.0, 0.0, 1.0])):
            exact = 1.0 - np.sqrt((t @ left @ t) / (t @ covariance @ t))
            assert reductions[k] == pytest.approx(exact, abs=max(0.01, 4.0 * errors[k]))
    assert found.sizes["choice"] == 2  # as many as there are
    for text, options, words in (
        ("quantity,std\na,1\n", {"region": "x=1"}, "region: must be left out, since all latents are scalars"),
        ("quantity,std\na,1\n,\n", {}, "candidates: must have 'site_number' in every row, row 2 had not"),
        ("site_number\n1.5\n", {}, "candidates: must have a quantity or a site in every row, row 1 had none"),
    ):
        places.write_text(text)
        with pytest.raises(invgp.InvgpError, match=f"^{words}"):
            invgp.design(path, places, config=problem, **options)
