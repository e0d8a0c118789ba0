"""The evidence of models against closed forms and against tempered sequential Monte Carlo."""

import json

import numpy as np
import pytest

import invgp
from helpers.command_line import run_in_process
from helpers.linear_evidence import exact_evidence, product_problem
from helpers.problems import linear_problem
from invgp.answers.emulated_problem import emulate, runs_of
from invgp.answers.evidence import BOUND, EMULATED, PLUGGED_IN, STORED, ModelEvidence, describe_factor, weigh_models
from invgp.core.sampling.statistics import Evidence, bridge_evidence
from invgp.errors import ConfigError
from invgp.inference.emulated_posterior import SamplingOptions
from invgp.inference.hamiltonian_draws import draw_by_hamiltonian
from invgp.inference.tempered_draws import draw_by_tempering


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sampled", "coupled gaussian"])
def test_that_the_evidence_of_a_linear_problem_is_exact(kind):
    problems = [linear_problem(posterior=kind)]
    problems.append(problems[0].with_scaled_noise(np.full((15, 2), 1.5)))
    posteriors = [invgp.invert(problem) for problem in problems]
    found = invgp.weigh(*posteriors, config=problems, names=["quiet", "noisy"])
    exact = np.asarray([exact_evidence(problem) for problem in problems])
    np.testing.assert_allclose(found["log_evidence"], exact, atol=0.05)
    np.testing.assert_allclose(found["log_bayes_factor"], exact - exact.max(), atol=0.05)
    np.testing.assert_allclose(found["probability"], np.exp(exact) / np.exp(exact).sum(), atol=0.02)
    assert set(found["origin"].values) == {STORED if kind == "sampled" else EMULATED}


@pytest.mark.slow
def test_that_samplers_agree_on_the_evidence_of_a_curved_posterior():
    problem = product_problem()
    posterior = invgp.invert(problem)
    emulated = emulate(problem, runs_of(posterior, problem, None), 1)
    rng, options = np.random.default_rng(2), SamplingOptions(chains=16)
    target, gaussian = emulated.posterior, emulated.gaussian
    tempered, _ = draw_by_tempering(target, gaussian.sites, rng, SamplingOptions(most_particles=512), lambda _: None)
    hamiltonian = draw_by_hamiltonian(target, gaussian, rng, options, lambda _: None)
    error = np.hypot(tempered.log_evidence_error, hamiltonian.log_evidence_error)
    assert error < 0.3
    assert abs(tempered.log_evidence - hamiltonian.log_evidence) < 4.0 * error
    stored = posterior.attrs["invgp_log_evidence"], posterior.attrs["invgp_log_evidence_error"]
    assert abs(tempered.log_evidence - stored[0]) < 4.0 * np.hypot(tempered.log_evidence_error, stored[1])


@pytest.fixture(scope="module")
def posterior():
    return invgp.invert(linear_problem())


def test_that_other_data_are_refused(posterior):
    other = posterior.copy()
    other["first_observed"] = other["first_observed"] + 1.0
    with pytest.raises(ConfigError, match="must have the same data, but the observations 'first' of model 1"):
        invgp.weigh(posterior, other)
    with pytest.raises(
        ConfigError, match="must have the same data, but model 1 has first, second and model 2 has first"
    ):
        invgp.weigh(posterior, posterior.assign_attrs(invgp_observations="first"))
    with pytest.raises(ConfigError, match=r"^posteriors: must be at least two, was 1$"):
        invgp.weigh(posterior)


def test_that_evidence_at_fixed_hyperparameters_is_not_compared_with_averaged_evidence(posterior):
    averaged = posterior.assign_attrs(
        invgp_log_evidence=-12.0, invgp_log_evidence_error=0.1, invgp_learnt="slope", invgp_hyperparameters="slope_std"
    )
    fixed = averaged.copy()
    del fixed.attrs["invgp_hyperparameters"]
    origins = invgp.weigh(averaged, fixed)["origin"].values.tolist()
    assert origins == [STORED, PLUGGED_IN]
    assert np.isnan(invgp.weigh(averaged, fixed)["probability"]).all()
    assert describe_factor(-9.0, 0.1, (STORED, PLUGGED_IN)).startswith("not comparable: fixed hyperparameters")
    assert describe_factor(-9.0, 0.1, (PLUGGED_IN, PLUGGED_IN)) == "evidence against it: very strong"
    assert describe_factor(-9.0, 0.0, (BOUND, BOUND)) == "not comparable: a lower bound"


def test_that_a_bound_is_not_taken_for_the_evidence(posterior, tmp_path, caplog):
    other = posterior.assign_attrs(invgp_log_evidence=-10.0, invgp_log_evidence_error=0.1)
    paths = [invgp.write(one, tmp_path / name) for one, name in ((posterior, "a.nc"), (other, "b.nc"))]
    found = invgp.weigh(*paths)
    assert found["origin"].values.tolist() == [BOUND, STORED]
    assert "only a lower bound" in caplog.text
    result = json.loads(run_in_process("weigh", *paths, "--plot", "odds.png", "--json", cwd=tmp_path).stdout)
    assert [row["name"] for row in result["models"]] == ["a", "b"]
    assert result["models"][0]["in_words"] == "not comparable: a lower bound"
    assert (tmp_path / "odds.png").stat().st_size > 5000


def test_that_bayes_factors_are_put_into_words():
    same = (STORED, STORED)
    assert describe_factor(-0.5, 0.01, same) == "evidence against it: not worth more than a mention"
    assert describe_factor(-2.0, 0.1, same) == "evidence against it: positive"
    assert describe_factor(-4.0, 0.1, same) == "evidence against it: strong"
    assert describe_factor(-9.0, 0.1, same) == "evidence against it: very strong"
    assert describe_factor(-9.0, 6.0, same) == "undecided: within the error"
    assert describe_factor(-9.0, np.nan, same) == "undecided: the error is unknown"


def test_that_models_without_an_evidence_are_refused():
    unknown = [ModelEvidence(name, Evidence(np.nan, np.nan), EMULATED) for name in ("a", "b")]
    with pytest.raises(ConfigError, match=r"^posteriors: must have an evidence that can be computed, none had$"):
        weigh_models(unknown)


def test_that_a_bridge_needs_draws_of_both():
    assert np.isnan(bridge_evidence(np.full(4, -np.inf), np.zeros(4)).log)


def tempered_evidence(problem, seed, particles=2000, moves=8):
    """Sequential Monte Carlo in plain NumPy from the prior of the product problem to its posterior, in nats."""
    rng, X, y = np.random.default_rng(seed), problem.survey.X, problem.survey.Y[:, 0]
    factors = [np.linalg.cholesky(p.kernel(X, X) + 1e-10 * np.eye(len(X))) * p.std[0] for p in problem.latents]

    def likelihood(z):
        a, b = (p.mean[0] + z[:, k] @ L.T for k, (p, L) in enumerate(zip(problem.latents, factors, strict=True)))
        return np.sum(-0.5 * ((y - a * b) / 0.3) ** 2 - np.log(0.3 * np.sqrt(2.0 * np.pi)), axis=1)

    z = rng.standard_normal((particles, 2, len(X)))
    own, power, total, step = likelihood(z), 0.0, 0.0, 0.5
    while power < 1.0:
        low, high = 0.0, 1.0 - power
        for _ in range(40):  # the increment that keeps half of the particles effective
            middle = 0.5 * (low + high)
            w = np.exp(middle * (own - own.max()))
            low, high = (middle, high) if w.sum() ** 2 / (w**2).sum() > 0.5 * particles else (low, middle)
        increment = 1.0 - power if high >= 1.0 - power - 1e-12 else low
        log_w = increment * own
        total += np.log(np.mean(np.exp(log_w - log_w.max()))) + log_w.max()
        power += increment
        w = np.exp(log_w - log_w.max())
        chosen = rng.choice(particles, particles, p=w / w.sum())
        z, own = z[chosen], own[chosen]
        for _ in range(moves):
            proposed = np.sqrt(1.0 - step**2) * z + step * rng.standard_normal(z.shape)
            new = likelihood(proposed)
            accepted = np.log(rng.random(particles)) < power * (new - own)
            z, own = np.where(accepted[:, None, None], proposed, z), np.where(accepted, new, own)
            step = min(max(step * (1.1 if accepted.mean() > 0.25 else 0.9), 0.02), 0.99)
    return total


@pytest.mark.slow
def test_that_the_evidence_of_a_curved_posterior_is_that_of_sequential_monte_carlo():
    problem = product_problem()
    posterior = invgp.invert(problem)
    independent = [tempered_evidence(problem, seed) for seed in range(6)]
    error = np.hypot(np.std(independent) / np.sqrt(6), posterior.attrs["invgp_log_evidence_error"])
    difference = posterior.attrs["invgp_log_evidence"] - np.mean(independent)
    assert np.std(independent) < 0.3
    assert abs(difference) < max(3.0 * error, 0.1)
