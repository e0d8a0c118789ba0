"""Numbers of samples per site and of sites per batch; searches end at their limits."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.inversions import SearchUnderWay, sites_on_a_line
from invgp.inference.sample_sizes import plan_emulator_stages, plan_stages, sites_at_once
from invgp.inference.site_evaluation import emulator_evaluator
from invgp.inference.site_model import simulator_stages


@pytest.mark.parametrize(
    ("latents", "inference", "plan"),
    [
        (2, {}, [("linear", 9), ("hermite", 24)]),  # 3 for each of 3 numbers, 2 for each of 6, but 24 at the least
        (8, {}, [("linear", 27), ("hermite", 90)]),
        (8, {"samples": 300}, [("linear", 27), ("hermite", 300)]),
        (8, {"estimator": "linearisation"}, [("linear", 27)]),
        (8, {"estimator": "linearisation", "samples": 50}, [("linear", 50)]),
        (8, {"estimator": "score"}, [("log density", 90)]),
        (8, {"samples": 20}, [("linear", 20), ("hermite", 68)]),  # half as many again as the 45 numbers
    ],
)
def test_that_estimators_have_samples_for_all_they_estimate(latents, inference, plan):
    problem = sites_on_a_line(np.arange(3), (1.0,) * latents, **inference)
    assert [(p.kind, p.samples) for p in plan_stages(problem)] == plan


@pytest.mark.parametrize(("sites", "samples"), [(40, 256), (1000, 256), (2000, 128), (100_000, 64)])
def test_that_many_sites_have_fewer_samples_of_an_emulator(sites, samples):
    problem = sites_on_a_line(np.arange(sites), (1.0, 1.0))
    assert [p.samples for p in plan_emulator_stages(problem)] == [samples, samples]


def test_that_the_size_of_mini_batches_follows_from_memory_or_the_config():
    problem = sites_on_a_line(np.arange(3), (1.0,) * 5)
    assert sites_at_once(problem, 1000) == 5 * 10**7 // 5000  # five latents; the one output takes less
    assert sites_at_once(problem.with_inference(batch=2), 1000) == 2
    assert sites_at_once(problem, 10**9) == 1


@pytest.mark.parametrize("batch", [None, 2])
def test_that_a_search_ends_at_the_most_evaluations(batch, tmp_path):
    problem = sites_on_a_line([0.0, 100.0, 200.0, 300.0], max_evaluations=2, batch=batch)
    search = SearchUnderWay(lambda f: np.exp(3.0 * f), problem, tmp_path)
    looked_at = []

    def evaluate_emulator(latents, label, sites):
        looked_at.extend(sites)
        return emulator_evaluator(search.emulator)(latents, label, sites)

    algorithm = search.model.algorithm(search.model.emulator_stages)
    ended = search.model.optimiser(algorithm, algorithm.init(), evaluate_emulator, lambda _elbo, _found: None)
    assert ended.result.status == "stopped at inference.max_evaluations = 2 before the posterior converged"
    assert not ended.result.converged
    assert len(looked_at) == 2 * 4


@pytest.mark.parametrize("batch", [None, 2])
def test_that_a_search_that_has_converged_ends_with_its_last_step(batch, tmp_path):
    """Of a linear simulator the first step is exact; so it has converged at once, if any movement is small enough."""
    problem = sites_on_a_line([0.0, 100.0, 200.0, 300.0], batch=batch)
    survey = replace(problem.survey, observations=(replace(problem.survey.observations[0], values=np.ones((4, 1))),))
    search = SearchUnderWay(lambda f: f, replace(problem, survey=survey), tmp_path)
    stage = replace(search.model.emulator_stages[0], tolerance=100.0, max_movement=np.inf)
    algorithm, evaluate = search.model.algorithm([stage]), emulator_evaluator(search.emulator)
    ended = search.model.optimiser(algorithm, algorithm.init(), evaluate, lambda _elbo, _found: None)
    assert ended.result.converged
    np.testing.assert_allclose(
        ended.candidate.posterior.marginals.mean, 0.5, atol=1e-6
    )  # prior and datum weigh the same


def test_that_a_bound_is_by_the_last_estimator_which_has_the_most_samples(tmp_path):
    search = SearchUnderWay(np.square, sites_on_a_line([0.0, 100.0]), tmp_path)
    taken = []

    def evaluate_emulator(latents, label, sites):
        taken.append(len(latents))
        return emulator_evaluator(search.emulator)(latents, label, sites)

    algorithm = search.model.algorithm(simulator_stages(search.model, search.runner))
    search.model.optimiser.bound(algorithm, search.state.start, evaluate_emulator)
    assert taken == [24]
