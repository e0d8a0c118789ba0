"""The loop ask -> evaluate -> tell on small problems."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import invgp
from helpers.problems import apparent_resistivity, map_problem, matrix_product
from invgp.adapters import CallableModel, Quantity
from invgp.errors import ConfigError, RunsFailedError
from invgp.inference.invert import InterruptedInversion, search_within_budget
from invgp.progress import SilentMonitor


def data_of(posterior: xr.Dataset) -> xr.Dataset:
    """Without attributes, which hold the time of day."""
    return posterior.drop_attrs()


def with_function(problem, function):
    return replace(problem, forward=replace_function(problem.forward, function))


def replace_function(model, function):
    return CallableModel(function=function, inputs=model.inputs, outputs=model.outputs)


@pytest.mark.slow
def test_that_the_same_seed_gives_the_same_posterior_and_another_seed_another():
    problem = map_problem(max_evaluations=4)
    first, second, other = (data_of(invgp.invert(problem, seed=seed)) for seed in (1, 1, 2))
    xr.testing.assert_identical(first, second)
    assert not first.equals(other)


@pytest.mark.slow
def test_that_the_number_of_workers_does_not_change_the_result():
    problem = map_problem(max_evaluations=4)
    alone, two = (data_of(invgp.invert(problem, workers=workers)) for workers in (1, 2))
    xr.testing.assert_identical(alone, two)


def test_that_the_number_of_realizations_does_not_change_the_posterior():
    problem = map_problem(max_evaluations=3)
    more = problem.with_output(realizations=50)
    np.testing.assert_array_equal(invgp.invert(problem)["thickness"], invgp.invert(more)["thickness"])


@pytest.mark.slow
def test_that_units_between_the_latents_and_the_simulator_are_converted():
    """The same physics asked in kilometres and answered in kilo-ohm metres gives the same posterior."""

    def in_other_units(resistivity, thickness, elevation):
        answer = apparent_resistivity(1e3 * resistivity, 1e3 * thickness, elevation)
        return {"near": answer["near"], "far": 1e-3 * answer["far"]}

    problem = map_problem(max_evaluations=6)
    model = CallableModel(
        function=in_other_units,
        inputs=(Quantity("resistivity", "kohm m", (1, 2)), Quantity("thickness", "km"), Quantity("elevation", "m")),
        outputs=(Quantity("near", "ohm m"), Quantity("far", "kohm m", ("early", "late"))),
    )
    resistivity, thickness, elevation = problem.inputs
    near, far = problem.outputs
    other = replace(
        problem,
        forward=model,
        inputs=(
            replace(resistivity, conversion=invgp.units.conversion("ohm m", "kohm m")),
            replace(thickness, conversion=invgp.units.conversion("m", "km")),
            elevation,
        ),
        outputs=(near, replace(far, conversion=invgp.units.IDENTITY)),
    )
    xr.testing.assert_allclose(data_of(invgp.invert(problem)), data_of(invgp.invert(other)), rtol=1e-8)


def test_that_a_few_failed_runs_are_left_out_and_counted():
    def sometimes(resistivity, thickness, elevation):
        answer = apparent_resistivity(resistivity, thickness, elevation)
        # By a digit that has nothing to do with the physics: failures at random.
        answer["near"] = np.where((1e6 * thickness).astype(int) % 50 == 0, np.nan, answer["near"])
        return answer

    problem = map_problem(emulator=False)
    whole, holed = invgp.invert(problem), invgp.invert(with_function(problem, sometimes))
    share = holed.attrs["invgp_runs_failed"] / holed.attrs["invgp_runs"]
    assert 0.01 < share < 0.03
    shift = (whole["resistivity"] - holed["resistivity"]) / whole["resistivity_std"]
    assert float(np.abs(shift).max()) < 0.05


def test_that_too_many_failures_stop_the_inversion_and_name_their_cause():
    def mostly(resistivity, thickness, elevation):
        answer = apparent_resistivity(resistivity, thickness, elevation)
        answer["near"] = np.where(thickness > 10.0, np.nan, answer["near"])
        return answer

    with pytest.raises(RunsFailedError) as stopped:
        invgp.invert(with_function(map_problem(emulator=False), mostly))
    text = str(stopped.value)
    assert "inference.max_failed_share = 0.1" in text
    assert "not a finite number" in text
    assert "evaluation-1-site" in text
    assert "near" in text


def test_that_an_inversion_whose_every_run_fails_stops_at_once():
    calls = []

    def never(resistivity, thickness, elevation):
        calls.append(len(thickness))
        raise ValueError("no licence")

    with pytest.raises(RunsFailedError, match=r"max_failed_share = 0\.1: 24 of 24 runs failed") as stopped:
        invgp.invert(with_function(map_problem(), never))
    shown = str(stopped.value).splitlines()[1:]
    assert len(set(shown)) == len(shown) > 0


@pytest.mark.parametrize("posterior", ["full gaussian", "coupled gaussian"])
def test_that_an_interruption_carries_the_best_posterior_so_far(posterior):
    class Impatient(SilentMonitor):
        seen = 0

        def report_bound(self, elbo, *, accepted):
            self.seen += 1
            if self.seen == 3:
                raise KeyboardInterrupt

    direct = {"emulator": False, "estimator": "score"} if posterior == "full gaussian" else {}
    problem = map_problem(posterior=posterior, **direct)
    with pytest.raises(InterruptedInversion) as interruption:
        invgp.invert(problem, monitor=Impatient())
    kept = interruption.value.posterior
    assert kept.attrs["invgp_status"] == "interrupted before it converged"
    if posterior == "full gaussian":
        stopped = map_problem(posterior=posterior, max_evaluations=3, **direct)
        xr.testing.assert_identical(data_of(kept), data_of(invgp.invert(stopped)))


def test_that_an_interruption_before_the_first_bound_keeps_nothing():
    def stop(resistivity, thickness, elevation):
        raise KeyboardInterrupt

    with pytest.raises(InterruptedInversion) as interruption:
        invgp.invert(with_function(map_problem(), stop))
    assert interruption.value.posterior is None


def test_that_reaching_the_limit_of_evaluations_is_reported():
    problem = map_problem(posterior="full gaussian", emulator=False, max_evaluations=2)
    assert invgp.invert(problem).attrs["invgp_status"] == (
        "stopped at inference.max_evaluations = 2 before the posterior converged"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "workers: must be at least 1, was 0"),
        ({"seed": -1}, "seed: must be at least 0, was -1"),
    ],
)
def test_that_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        invgp.invert(map_problem(), **settings)


def test_that_too_few_samples_are_refused():
    with pytest.raises(ConfigError, match=r"inference.samples: must be at least 15, was 2"):
        invgp.invert(map_problem(samples=2))


def test_that_noise_may_be_unknown_where_nothing_was_observed():
    problem = map_problem(max_evaluations=5)
    unknown = {
        o.name: np.where(np.isnan(o.values), np.nan, problem.noise.std[o.name]) for o in problem.survey.observations
    }
    holed = replace(problem, noise=replace(problem.noise, std=unknown))
    xr.testing.assert_equal(invgp.invert(problem)["resistivity"], invgp.invert(holed)["resistivity"])


@pytest.mark.slow
def test_that_the_number_of_blas_threads_does_not_change_the_result():
    problem = with_function(map_problem(max_evaluations=3), matrix_product)
    alone, two = (data_of(invgp.invert(problem, workers=workers)) for workers in (1, 2))
    xr.testing.assert_identical(alone, two)


def test_that_a_kernel_that_cannot_be_factorised_is_reported_in_one_sentence():
    problem = map_problem()
    broken = replace(
        problem.latents[1], kernel=replace(problem.latents[1].kernel, length_scale=np.asarray([1e-200, 1e-200]))
    )
    with pytest.raises(ConfigError, match="cannot be factorised"):
        invgp.invert(replace(problem, latents=(problem.latents[0], broken)))


def test_that_a_batch_that_cannot_end_well_is_cut_short_and_the_best_posterior_kept():
    """One row a task: after twenty failures in a row, or more than the share allows, the rest is not paid for."""
    calls = []

    def breaks_later(resistivity, thickness, elevation):
        calls.append(1)
        if len(calls) > 768:
            raise ValueError("licence expired")
        single = apparent_resistivity(resistivity[None], np.asarray([thickness]), np.asarray([elevation]))
        return {name: value[0] for name, value in single.items()}

    problem = map_problem(posterior="full gaussian", emulator=False, estimator="score")
    model = CallableModel(
        function=breaks_later, inputs=problem.forward.inputs, outputs=problem.forward.outputs, vectorised=False
    )
    with pytest.raises(RunsFailedError, match=r"max_failed_share = 0\.1: 384 of 1152 runs failed") as stopped:
        invgp.invert(replace(problem, forward=model))
    assert len(calls) == 768 + 6 * 64  # five steps are taken back; each gives up after its first task
    kept = stopped.value.posterior
    assert kept.attrs["invgp_converged"] == "no"
    assert kept.sizes["iteration"] == 1


def test_that_a_step_into_a_region_where_the_simulator_fails_is_taken_back():
    def fragile(resistivity, thickness, elevation):
        answer = apparent_resistivity(resistivity, thickness, elevation)
        # Fails wherever the latents stray far from the prior, as first steps may.
        far = (thickness < 2.0) | (resistivity.max(axis=-1) > 250.0)
        return {**answer, "near": np.where(far, np.nan, answer["near"])}

    posterior = invgp.invert(with_function(map_problem(), fragile))
    whole = invgp.invert(map_problem())
    assert posterior.attrs["invgp_converged"] == "yes"
    shift = (whole["resistivity"] - posterior["resistivity"]) / whole["resistivity_std"]
    assert float(np.abs(shift).max()) < 0.3


def test_that_outputs_from_which_no_posterior_can_be_computed_are_reported():
    """A field simulator whose outputs grow without limit: the covariance of the posterior cannot be factorised."""

    def search(model, runner, state):
        raise np.linalg.LinAlgError("a matrix of 8 x 8 is not positive definite")

    with pytest.raises(RunsFailedError, match=r"no posterior can be computed from the outputs of the runs .*8 x 8"):
        search_within_budget(search, None, None, None)
