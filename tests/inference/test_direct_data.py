"""Direct data: values of the latents that need no simulator, against closed forms and numerical integration."""

import numpy as np
import pytest

import invgp
from helpers.joint_problems import (
    COMPOSED,
    LOG,
    MEAN,
    NOISE,
    SITES,
    WELLS,
    ClosedForm,
    composed_correlation,
    deviations,
    latents,
    line_problem,
)

PLACES = np.concatenate([SITES, WELLS["coordinates"]["x"]])
POINTS = np.arange(len(PLACES))
BOTH = {"wells": WELLS, "log": LOG}


@pytest.mark.parametrize("direct", [{"wells": WELLS}, {"log": LOG}, BOTH], ids=["points", "averages", "both"])
@pytest.mark.parametrize(
    "settings",
    [{"emulator": False}, {}, {"emulator": False, "batch": 7}, {"inducing": 25}],
    ids=["simulator", "emulator", "mini-batches", "inducing points for all places"],
)
def test_that_linear_data_give_the_closed_form(direct, settings):
    posterior = invgp.invert(line_problem(direct, **settings))
    places = PLACES if "wells" in direct else SITES
    assert deviations(posterior, ClosedForm(direct.values()), places, np.arange(len(places))) < 1e-6


@pytest.mark.parametrize("settings", [{"emulator": False}, {}, {"inducing": 25}])
def test_that_direct_data_have_the_closed_form_with_a_composed_kernel(settings):
    posterior = invgp.invert(line_problem(BOTH, latent_keys=latents(kernel=COMPOSED), **settings))
    exact = ClosedForm(BOTH.values(), kernel=composed_correlation)
    assert deviations(posterior, exact, PLACES, POINTS) < 1e-6
    found = invgp.predict(posterior, grid="x=-100:2000:300")
    assert deviations(found, exact, found["x"].values, slice(None)) < 1e-5


def test_that_direct_data_need_no_runs():
    with_wells, without = (invgp.invert(line_problem(direct)) for direct in (BOTH, {}))
    assert with_wells.attrs["invgp_runs"] == without.attrs["invgp_runs"] > 0
    assert set(np.unique(with_wells["source"])) == {0, 1, 2}
    assert with_wells["source"].attrs["flag_meanings"] == "survey wells log"


def test_that_the_bound_is_the_evidence_of_all_data():
    posterior = invgp.invert(line_problem(BOTH, emulator=False))
    assert posterior["elbo"].values[-1] == pytest.approx(ClosedForm(BOTH.values()).evidence(), abs=1e-5)


def test_that_averages_are_reported_with_their_interval_and_prior():
    posterior = invgp.invert(line_problem({"log": LOG}))
    np.testing.assert_allclose(posterior["x_bounds"][-2:], [[300.0, 500.0], [1200.0, 1700.0]])
    assert posterior["x"].attrs["bounds"] == "x_bounds"
    exact = ClosedForm([])
    nodes, shares = np.polynomial.legendre.leggauss(40)
    average = {"velocity": (1450.0 + 250.0 * nodes, 0.5 * shares)}
    assert posterior["velocity_prior_std"].values[-1] == pytest.approx(np.sqrt(exact.covariance(average, average)))
    assert posterior["velocity_prior_std"].values[0] == pytest.approx(8.0)
    assert 0.9 < posterior["velocity_information"].values[-1] < 1.0


def test_that_draws_have_the_moments_of_the_closed_form():
    posterior = invgp.invert(line_problem(BOTH, posterior="sampled"))
    assert posterior.attrs["invgp_converged"] == "yes"
    assert deviations(posterior, ClosedForm(BOTH.values()), PLACES, POINTS) < 0.12


def test_that_the_factorised_posterior_takes_direct_data():
    """Without correlations between latents in the data, the factorised posterior is exact."""
    wells = {"coordinates": WELLS["coordinates"], "values": {"top": WELLS["values"]["top"]}}
    latent = {"depth": latents()["depth"]}
    problem = line_problem(
        {"wells": wells}, forward=lambda depth: 0.6 * depth + 55.0, latent_keys=latent, posterior="full gaussian"
    )
    coupled = invgp.invert(problem.with_inference(posterior="coupled gaussian"))
    full = invgp.invert(problem)
    np.testing.assert_allclose(full["depth"], coupled["depth"], atol=1e-3)
    np.testing.assert_allclose(full["depth_std"], coupled["depth_std"], rtol=1e-3)


def test_that_few_inducing_points_are_nearly_exact():
    posterior = invgp.invert(line_problem(BOTH, inducing=18, emulator=False))
    assert deviations(posterior, ClosedForm(BOTH.values()), PLACES, POINTS) < 0.02


def test_that_learnt_hyperparameters_maximise_the_evidence_with_the_direct_data():
    keys = latents(learn={"length_scale": True})
    posterior = invgp.invert(line_problem(BOTH, emulator=False, latent_keys=keys))
    found = np.asarray([posterior[name].attrs["length_scale"] for name in MEAN])
    from helpers import joint_problems  # noqa: PLC0415

    def evidence(scales):
        old = dict(joint_problems.LENGTH)
        joint_problems.LENGTH.update(zip(MEAN, scales, strict=True))
        try:
            return ClosedForm(BOTH.values()).evidence()
        finally:
            joint_problems.LENGTH.update(old)

    best = evidence(found)
    for change in ([1.1, 1.0], [0.9, 1.0], [1.0, 1.1], [1.0, 0.9]):
        assert evidence(found * change) < best


def one_value(mean, std, y, noise, function):
    """Moments of an unknown N(mean, std) with a datum of a function of it, by a sum over a grid."""
    f = mean + std * np.linspace(-8.0, 8.0, 20001)
    weight = np.exp(-0.5 * ((f - mean) / std) ** 2 - 0.5 * ((y - function(f)) / noise) ** 2)
    weight /= weight.sum()
    physical = function(f)
    centre = np.sum(weight * physical)
    return centre, np.sqrt(np.sum(weight * (physical - centre) ** 2))


def test_that_values_of_a_log_linked_latent_have_the_exact_posterior():
    """Far from the survey, the posterior at the well is that of its own datum."""
    latent = {"a": {"unit": "1", "mean": 10.0, "std": 4.0, "link": "log", "kernel": {"length_scale": 1.0}}}
    well = {"coordinates": {"x": 9000.0}, "values": {"value": {"quantity": "a", "value": 14.0, "std": 3.0}}}
    problem = line_problem({"well": well}, forward=lambda a: 11.5 * a, latent_keys=latent, posterior="sampled")
    variance = np.log1p((4.0 / 10.0) ** 2)
    mean, std = one_value(np.log(10.0) - 0.5 * variance, np.sqrt(variance), 14.0, 3.0, np.exp)
    posterior = invgp.invert(problem)
    assert posterior["a"].values[-1] == pytest.approx(mean, abs=0.1 * std)
    assert posterior["a_std"].values[-1] == pytest.approx(std, rel=0.08)
    gaussian = invgp.invert(problem.with_inference(posterior="coupled gaussian"))
    assert gaussian["a"].values[-1] == pytest.approx(mean, abs=0.1 * std)


def test_that_tops_of_layers_that_cannot_cross_are_honoured():
    keys = {
        "depth": {
            "unit": "m",
            "dimension": "layer",
            "mean": [100.0, 250.0],
            "std": [30.0, 40.0],
            "link": "increasing",
            "kernel": {"length_scale": 500.0},
        }
    }
    problem = invgp.define(
        {"x": SITES, "y": np.where(np.arange(20) < 1, 120.0, np.nan)},
        coordinates={"x": "m"},
        observations={"y": "m"},
        dimensions={"layer": [1, 2]},
        latents=keys,
        forward=lambda depth: depth[:, 0],
        noise={"y": 20.0},
        direct={
            "well": {
                "coordinates": {"x": 950.0},
                "values": {"top": {"quantity": "depth", "value": [80.0, 310.0], "std": 2.0}},
            }
        },
        inference={"posterior": "coupled gaussian", "emulator": False},
    )
    posterior = invgp.invert(problem)
    np.testing.assert_allclose(posterior["depth"].values[-1], [80.0, 310.0], atol=2.0)
    assert (posterior["depth_std"].values[-1] < 2.5).all()
    np.testing.assert_allclose(posterior["top_residual"].values[-1], 0.0, atol=2.0)


def test_that_gaussian_values_can_stand_beside_other_noise():
    """Student-t noise with many degrees of freedom is Gaussian."""
    noise = {"std": {"y": NOISE}, "kind": "student-t", "degrees": 1e6}
    posterior = invgp.invert(line_problem({"wells": WELLS}, noise=noise, emulator=False, samples=64))
    assert deviations(posterior, ClosedForm([WELLS]), PLACES, POINTS) < 1e-3


def test_that_a_resumed_inversion_is_bit_identical(tmp_path):
    problem, ledger = line_problem(BOTH), tmp_path / "runs.db"
    first, again = (invgp.invert(problem, ledger=ledger) for _ in range(2))
    assert again.attrs["invgp_runs_from_ledger"] == again.attrs["invgp_runs"]
    np.testing.assert_array_equal(first["depth"], again["depth"])


def test_that_a_well_at_a_site_is_as_good_as_next_to_it():
    well = {
        "coordinates": {"x": [float(SITES[3])]},
        "values": {"top": {"quantity": "depth", "value": [112.0], "std": 2.0}},
    }
    posterior = invgp.invert(line_problem({"well": well}))
    assert deviations(posterior, ClosedForm([well]), [*SITES, SITES[3]], np.arange(21)) < 1e-6


def test_that_the_model_of_direct_data_conforms_to_the_protocol(tmp_path):
    from invgp.adapters.testing import check_forward_model  # noqa: PLC0415

    model = line_problem(BOTH).sources[0].forward
    check_forward_model(model, np.random.default_rng(0).standard_normal((7, 2)), tmp_path)


@pytest.mark.slow
def test_that_averages_over_hyperparameters_take_direct_data():
    """With a strong prior on the length-scales, the average is nearly the posterior at their fixed values."""
    keys = latents(learn={"length_scale": 1.001})
    posterior = invgp.invert(line_problem(BOTH, posterior="sampled", latent_keys=keys))
    assert deviations(posterior, ClosedForm(BOTH.values()), PLACES, POINTS) < 0.2
