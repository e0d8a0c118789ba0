"""The regression that stands in for the simulator, and whether what it says of its errors is true."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import invgp
from helpers.problems import map_problem
from invgp.emulation import Runs, fit_emulator
from invgp.emulation.hermite_basis import Basis
from invgp.emulation.polynomial import fit_polynomial
from invgp.emulation.residual_process import add_process
from invgp.forward_models import two_way_times
from invgp.problem import Column

SITES = np.arange(113)
JUMP_LATENT, JUMP_AT, JUMP_OUTPUT = 6, 0.5, 2  # a velocity, in prior standard deviations, and a time


@pytest.fixture(scope="module")
def line(otway):
    problem = invgp.load(otway / "otway.toml")
    return replace(problem, inference=problem.inference.replace(posterior="coupled gaussian"))


def rms(errors, axis=None):
    return np.sqrt(np.nanmean(np.square(errors), axis=axis))


def prior_draws(problem, rng, samples):
    mean, std = problem.prior_moments()
    return mean + std * rng.standard_normal((samples, problem.survey.size, len(mean)))


def smooth_centres(problem, rng):
    """One draw of the prior along the line, in prior standard deviations: where each site's posterior is."""
    X = problem.survey.X
    covariance = np.exp(-0.5 * ((X - X.T) / 4480.0) ** 2) + 1e-8 * np.eye(len(X))
    return np.linalg.cholesky(covariance) @ rng.standard_normal((len(X), problem.latent_count))


def posterior_draws(problem, rng, centres, width, samples):
    """Narrow clouds, with depth and velocity strongly correlated, as travel times leave them."""
    mean, std = problem.prior_moments()
    z = rng.standard_normal((samples, *centres.shape))
    z[..., 4:] = 0.9 * z[..., :4] + np.sqrt(1 - 0.9**2) * z[..., 4:]
    return mean + std * (centres + width * z)


def times(f):
    return two_way_times(f[..., :4], f[..., 4:])


def times_with_jump(problem, size):
    mean, std = problem.prior_moments()

    def simulate(f):
        y = times(f)
        beyond = (f[..., JUMP_LATENT] - mean[JUMP_LATENT]) / std[JUMP_LATENT] > JUMP_AT
        y[..., JUMP_OUTPUT] += size * problem.noise_std[0, JUMP_OUTPUT] * beyond
        return y

    return simulate


def run(runs, f, simulate, stage=0, sites=None):
    sites = np.arange(f.shape[1]) if sites is None else sites
    return runs.append(f, simulate(f), np.ones(f.shape[:2], dtype=bool), sites, stage)


def emulate(problem, runs, seed=1):
    return fit_emulator(problem, runs, noise_std=problem.noise_std, rng=np.random.default_rng(seed))


def true_errors(problem, emulator, f, simulate):
    sites = np.arange(f.shape[1])
    return (emulator.predict(f, sites) - simulate(f)) / problem.noise_std


def test_that_runs_grow_and_failed_ones_are_nan():
    f, y = np.arange(12.0).reshape(2, 2, 3), np.ones((2, 2, 1))
    runs = Runs.empty(3, 1).append(f, y, np.asarray([[True, True], [False, True]]), np.asarray([4, 7]), 0)
    runs = run(runs, f[:1], lambda f: f[..., :1], stage=1, sites=np.asarray([1, 2]))
    assert len(runs) == 6
    np.testing.assert_array_equal(runs.sites, [4, 7, 4, 7, 1, 2])
    np.testing.assert_array_equal(runs.stage, [0, 0, 0, 0, 1, 1])
    np.testing.assert_array_equal(runs.has_output, [True, True, False, True, True, True])
    np.testing.assert_array_equal(runs.latents[3], f[1, 1])
    np.testing.assert_array_equal(runs.latest(2), runs.stage == 1)
    assert runs.latest(100).all()


def test_that_bases_hold_all_products_or_those_of_pairs():
    """Against the number of products, and a product of three inputs that only the whole basis can say."""
    x = np.random.default_rng(0).standard_normal((60, 3))
    whole, pairs = Basis(3, 3, 3), Basis(3, 3, 2)
    assert (len(whole), len(pairs)) == (20, 19)
    product = np.prod(x, axis=1)
    left = [np.linalg.lstsq(basis(x).T, product, rcond=None)[1] for basis in (whole, pairs)]
    np.testing.assert_allclose(left[0], 0.0, atol=1e-20)
    assert left[1] > 0.1
    np.testing.assert_array_equal(pairs(x)[0], 1.0)


def test_that_left_out_errors_are_those_of_fits_without_the_fold(monkeypatch):
    monkeypatch.setattr("invgp.emulation.ridge.STRENGTHS", (1e-12,))
    rng = np.random.default_rng(0)
    x, folds = rng.standard_normal((60, 3)), rng.integers(0, 15, 60)
    y = np.stack([np.sin(x[:, 0]) + x[:, 1] * x[:, 2], np.exp(0.3 * x[:, 1])], axis=-1)
    basis = Basis(3, 2, 2)
    _, errors = fit_polynomial(basis, x, y, folds)
    features = basis(x)
    for fold in range(15):
        out = folds == fold
        coefficients = np.linalg.lstsq(features[:, ~out].T, y[~out], rcond=None)[0]
        np.testing.assert_allclose(errors[out], y[out] - features[:, out].T @ coefficients, atol=1e-7)


def test_that_left_out_errors_of_a_process_are_those_of_fits_without_the_fold(monkeypatch):
    rng = np.random.default_rng(0)
    x, folds, outputs = rng.standard_normal((60, 2)), rng.integers(0, 10, 60), np.asarray([0])
    y = np.abs(x[:, :1])
    polynomial, errors = fit_polynomial(Basis(2, 1, 1), x, y, folds)
    whole, _ = add_process(polynomial, x, y, errors, folds, outputs, rng)
    monkeypatch.setattr("invgp.emulation.residual_process._learn", lambda x, y, smoothness: (whole.kernel, 1e-3))
    _, left_out = add_process(polynomial, x, y, errors, folds, outputs, rng)
    for fold in range(10):
        out = folds == fold
        without, _ = add_process(polynomial, x[~out], y[~out], errors[~out], folds[~out], outputs, rng)
        expected = y[out] - without(x[out], np.zeros(out.sum(), dtype=int))
        np.testing.assert_allclose(left_out[out], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_that_a_polynomial_is_recovered_exactly(line):
    rng = np.random.default_rng(0)
    mean, std = line.prior_moments()
    weights = rng.standard_normal((4, 8, 8))

    def cubic(f):
        z = (f - mean) / std
        return line.noise_std[0] * (5 + np.einsum("...i,pij,...j->...p", z, weights, z) + z[..., 4:] ** 2 * z[..., :4])

    emulator = emulate(line, run(Runs.empty(8, 4), prior_draws(line, rng, 2), cubic))
    assert emulator.name == "cubic polynomial in pairs"
    assert emulator.error < 1e-6
    assert np.abs(true_errors(line, emulator, prior_draws(line, rng, 20), cubic)).max() < 1e-4
    assert emulator.site_error(SITES).max() < 1e-5


def test_that_the_degree_grows_with_the_accuracy_that_is_wanted(line):
    """A function that is no polynomial: the degree is as high as the wanted error needs, and the error is true."""
    rng = np.random.default_rng(0)
    mean, std = line.prior_moments()

    def simulate(f):
        z = (f - mean) / std
        return line.noise_std[0] * 20.0 * np.exp(0.4 * z[..., :4]) / (3.0 + np.cos(0.5 * z[..., 4:]))

    runs = run(Runs.empty(8, 4), prior_draws(line, rng, 16), simulate)
    fresh, errors, names = prior_draws(line, rng, 16), [], []
    for wanted in (0.1, 0.01, 0.002):
        emulator = fit_emulator(line, runs, noise_std=line.noise_std, rng=np.random.default_rng(1), wanted=wanted)
        errors.append(rms(true_errors(line, emulator, fresh, simulate)))
        assert 1 / 3 < emulator.error / errors[-1] < 2  # few runs are as far outside as some of the fresh draws
        names.append(emulator.name)
    assert errors[0] > 3.0 * errors[1] > 6.0 * errors[2]
    assert names == ["cubic polynomial in pairs", "quartic polynomial in pairs", "polynomial of degree 6 in pairs"]


def test_that_a_high_degree_is_not_used_where_it_varies_between_the_outermost_runs(line):
    """A rough function: the clipped errors of high degrees are smaller, but those at the outermost runs are huge."""
    rng = np.random.default_rng(0)
    mean, std = line.prior_moments()

    def simulate(f):
        z = (f - mean) / std
        return line.noise_std[0] * 5.0 * np.sin(3.0 * z[..., :4])

    emulator = emulate(line, run(Runs.empty(8, 4), prior_draws(line, rng, 3), simulate))
    assert rms(true_errors(line, emulator, prior_draws(line, rng, 16), simulate)) < 2.0 * 5.0


@pytest.mark.parametrize(("runs_a_site", "largest_error"), [(1, 0.12), (2, 0.04), (4, 0.02)])
def test_that_errors_over_the_prior_are_small_and_correctly_estimated(line, runs_a_site, largest_error):
    printed, found = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        emulator = emulate(line, run(Runs.empty(8, 4), prior_draws(line, rng, runs_a_site), times))
        printed.append(emulator.error)
        found.append(rms(true_errors(line, emulator, prior_draws(line, rng, 64), times)))
    assert rms(found) < largest_error
    assert 1 / 1.5 < rms(printed) / rms(found) < 1.5


@pytest.mark.parametrize("width", [0.5, 0.2])
def test_that_runs_of_the_posterior_make_it_better_where_it_will_be_used(line, width):
    rng = np.random.default_rng(0)
    centres, runs = smooth_centres(line, rng), Runs.empty(8, 4)
    runs = run(runs, prior_draws(line, rng, 1), times, stage=0)
    for stage in (1, 2):
        runs = run(runs, posterior_draws(line, rng, centres, width, 1), times, stage)
    emulator = emulate(line, runs)
    fresh = posterior_draws(line, rng, centres, width, 64)
    found = rms(true_errors(line, emulator, fresh, times))
    assert found < 0.02
    assert 1 / 1.5 < emulator.error / found < 1.5
    assert emulator.trusted_sites(fresh, SITES, 0.1).mean() > 0.95
    assert not emulator.trusted_sites(fresh + 4 * line.prior_moments()[1], SITES, 0.1).any()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "size", "seed"), [(0.15, 20.0, 0), (0.15, 3.0, 1)])
def test_that_a_jump_is_detected_and_does_not_affect_other_regions(line, width, size, seed):
    rng = np.random.default_rng(seed)
    centres, simulate = smooth_centres(line, rng), times_with_jump(line, size)
    runs = run(Runs.empty(8, 4), prior_draws(line, rng, 1), simulate, stage=0)
    for stage in (1, 2):
        runs = run(runs, posterior_draws(line, rng, centres, width, 4), simulate, stage)
    emulator = emulate(line, runs)
    fresh = posterior_draws(line, rng, centres, width, 128)
    distance = np.abs(centres[:, JUMP_LATENT] - JUMP_AT) / width
    error, trusted = emulator.site_error(SITES), emulator.trusted_sites(fresh, SITES, 0.2)
    true = rms(true_errors(line, emulator, fresh, simulate), axis=0).max(axis=-1)
    assert (error[distance < 1] > 0.2).all()
    assert trusted[distance > 6].mean() > 0.95
    assert (true[trusted] < 0.4).mean() > 0.97
    assert 1 / 2 < rms(error) / rms(true) < 2


@pytest.mark.slow
def test_that_roughness_which_no_polynomial_can_follow_is_left_to_a_process(line):
    mean, std = line.prior_moments()

    def rough(f):
        z = (f - mean) / std
        return times(f) + line.noise_std[0] * np.sin(4 * z[..., 6])[..., None]

    rng = np.random.default_rng(0)
    emulator = emulate(line, run(Runs.empty(8, 4), prior_draws(line, rng, 4), rough))
    found = rms(true_errors(line, emulator, prior_draws(line, rng, 32), rough))
    assert emulator.name.endswith("+ Gaussian process")
    assert found < 0.35  # of 0.7 without
    assert 1 / 1.5 < emulator.error / found < 1.5


def test_that_site_covariates_are_inputs_and_log_links_stay_on_the_scale_of_the_process():
    problem = many_sites(map_problem(), 60)
    rng = np.random.default_rng(0)

    def simulate(f, sites=None):
        rows = problem.to_simulator(problem.to_physical(f), sites)
        resistivity, thickness, elevation = rows[:, :2], rows[:, 2], rows[:, 3]
        near = 0.7 * resistivity[:, 0] + 0.03 * elevation * thickness
        return np.stack([near, 1e-3 * resistivity[:, 1], 1e-3 * thickness], axis=-1).reshape(*f.shape[:2], 3)

    emulator = emulate(problem, run(Runs.empty(3, 3), prior_draws(problem, rng, 4), simulate))
    assert emulator.inputs.size == 4  # the coordinates vary too, but the simulator does not take them
    found = rms(true_errors(problem, emulator, prior_draws(problem, rng, 64), simulate))
    assert found < 0.05
    assert 1 / 1.5 < emulator.error / found < 1.5
    few, f = np.asarray([40, 3]), prior_draws(problem, rng, 5)
    np.testing.assert_allclose(emulator.predict(f[:, few], few), emulator.predict(f, np.arange(60))[:, few])


def many_sites(problem, count):
    """The same problem with its sites repeated, and an elevation for each."""
    survey, rng = problem.survey, np.random.default_rng(1)
    repeated = {
        "coordinates": tuple(replace(c, values=np.resize(c.values, count)) for c in survey.coordinates),
        "observations": tuple(
            replace(o, values=np.resize(o.values, (count, o.values.shape[1]))) for o in survey.observations
        ),
        "covariates": (Column("elevation", "m", 10.0 * rng.random(count)),),
    }
    noise = {name: np.resize(std, (count, std.shape[1])) for name, std in problem.noise.std.items()}
    return replace(problem, survey=replace(survey, **repeated), noise=replace(problem.noise, std=noise))


def test_that_a_covariate_that_does_not_vary_is_no_input():
    problem = many_sites(map_problem(), 30)
    level = replace(problem.survey, covariates=(Column("elevation", "m", np.full(30, 5.0)),))
    rng = np.random.default_rng(0)
    runs = run(Runs.empty(3, 3), prior_draws(problem, rng, 2), lambda f: np.exp(0.1 * f))
    assert emulate(replace(problem, survey=level), runs).inputs.size == 3


def test_that_an_output_that_failed_takes_only_its_own_run_away(line):
    rng = np.random.default_rng(0)
    runs = run(Runs.empty(8, 4), prior_draws(line, rng, 2), times)
    outputs = runs.outputs.copy()
    outputs[::5, 3] = np.nan
    outputs[7] = np.nan
    partly = replace(runs, outputs=outputs)
    emulator = emulate(line, partly)
    fresh = prior_draws(line, rng, 32)
    assert rms(true_errors(line, emulator, fresh, times)) < 0.1
    np.testing.assert_array_equal(np.isnan(emulator.held_out_error), np.isnan(outputs))
    assert np.isfinite(emulator.site_error(SITES)).all()


def test_that_too_few_runs_make_no_emulator(line):
    assert emulate(line, Runs.empty(8, 4)) is None
    f = prior_draws(line, np.random.default_rng(0), 1)[:, :11]
    assert emulate(line, run(Runs.empty(8, 4), f, times)) is None
    runs = run(Runs.empty(8, 4), prior_draws(line, np.random.default_rng(0), 1), times)
    outputs = runs.outputs.copy()
    outputs[5:, 1] = np.nan
    assert emulate(line, replace(runs, outputs=outputs)) is None


def test_that_few_runs_make_a_simple_emulator_with_a_large_error(line):
    rng = np.random.default_rng(0)
    runs = run(Runs.empty(8, 4), prior_draws(line, rng, 1)[:, :20], times)
    emulator = emulate(line, runs)
    assert emulator.name.startswith("linear polynomial")
    found = rms(true_errors(line, emulator, prior_draws(line, rng, 32), times))
    assert 1 / 2 < emulator.error / found < 2


@pytest.mark.slow
def test_that_errors_are_in_units_of_the_noise_and_ignore_missing_observations(line):
    rng = np.random.default_rng(0)
    runs = run(Runs.empty(8, 4), prior_draws(line, rng, 1), times)
    noise = line.noise_std.copy()
    noise[50] *= 10.0
    plain = emulate(line, runs)
    noisy = fit_emulator(line, runs, noise_std=noise, rng=np.random.default_rng(1))
    np.testing.assert_allclose(noisy.site_error(SITES)[50], plain.site_error(SITES)[50] / 10)
    np.testing.assert_allclose(noisy.held_out_error[50], plain.held_out_error[50] / 10)
    blind = line.survey.Y.copy()
    blind[20] = np.nan
    (time_,) = line.survey.observations
    unseen = replace(line, survey=replace(line.survey, observations=(replace(time_, values=blind),)))
    assert emulate(unseen, runs).site_error(SITES)[20] == 0.0


def test_that_a_site_without_runs_is_taken_to_be_like_its_neighbour_on_the_map(line):
    rng = np.random.default_rng(0)
    sites = SITES[::2]
    runs = run(Runs.empty(8, 4), prior_draws(line, rng, 2)[:, ::2], times, sites=sites)
    error = emulate(line, runs).site_error(SITES)
    assert all(error[n] in (error[n - 1], error[n + 1]) for n in SITES[1:-1:2])


def test_that_few_sites_with_many_runs_have_an_emulator_too(line):
    rng = np.random.default_rng(0)
    runs = Runs.empty(8, 4)
    for site in (3, 90):
        runs = run(runs, prior_draws(line, rng, 150)[:, [site]], times, sites=np.asarray([site]))
    emulator = emulate(line, runs)
    found = rms(true_errors(line, emulator, prior_draws(line, rng, 32), times))
    assert 1 / 1.5 < emulator.error / found < 1.5


@pytest.mark.slow
def test_that_the_same_generator_gives_the_same_emulator(line):
    rng = np.random.default_rng(0)
    runs = run(
        Runs.empty(8, 4), posterior_draws(line, rng, smooth_centres(line, rng), 0.3, 2), times_with_jump(line, 5)
    )
    first, second = emulate(line, runs), emulate(line, runs)
    fresh = prior_draws(line, rng, 4)
    assert first.name == second.name
    np.testing.assert_array_equal(first.predict(fresh, SITES), second.predict(fresh, SITES))
    np.testing.assert_array_equal(first.held_out_error, second.held_out_error)


@pytest.mark.slow
def test_that_scikit_learn_waits_until_a_process_is_needed():
    code = "import sys, invgp.emulation; sys.exit('sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def distance(a):
    return np.abs(a)


def fold_problem(y):
    """Sites whose datum is the distance of one unknown from 0."""
    return invgp.define(
        {"x": np.arange(float(len(y))), "y": y},
        coordinates={"x": "km"},
        observations={"y": {"unit": "1"}},
        latents={"a": {"unit": "1", "mean": 0.0, "std": 1.0, "kernel": {"length_scale": 0.001}}},
        noise={"std": {"y": 0.1}},
        forward=distance,
        inference={"posterior": "sampled"},
    )


def test_that_an_emulator_does_not_contradict_older_runs_that_fit_the_data():
    """The latest runs are all on one side of a kink, where a linear function is exact."""
    problem, rng = fold_problem(np.full(20, 1.0)), np.random.default_rng(1)
    first, last = rng.standard_normal((4, 20, 1)), 1.0 + 0.1 * rng.standard_normal((4, 20, 1))
    runs = Runs.empty(1, 1)
    for stage, values in enumerate((first, last)):
        runs = runs.append(values, np.abs(values), np.ones(values.shape[:2], dtype=bool), np.arange(20), stage)
    emulator = fit_emulator(problem, runs, noise_std=problem.noise_std, rng=rng)
    other_side = np.full((1, 20, 1), -1.0)
    np.testing.assert_allclose(emulator.predict(other_side, np.arange(20)), 1.0, atol=0.05)


def test_that_a_product_of_powers_needs_few_runs():
    """A polynomial of the logarithm is exact; polynomials of so few runs are not."""
    y = np.full((20, 1), 30.0)
    problem = invgp.define(
        {"x": np.arange(20.0), "y": y[:, 0]},
        coordinates={"x": "km"},
        observations={"y": {"unit": "1"}},
        latents={
            name: {"unit": "1", "mean": 2.0, "std": 0.8, "link": "log", "kernel": {"length_scale": 0.001}}
            for name in "ab"
        },
        noise={"std": {"y": 0.3}},
        forward=lambda a, b: a**4 * b,
        inference={"posterior": "sampled"},
    )
    rng = np.random.default_rng(1)
    mean, std = problem.prior_moments()
    f, new = (mean + std * rng.standard_normal((2, 20, 2)) for _ in range(2))
    runs = Runs.empty(2, 1).append(f, np.exp(f @ [[4.0], [1.0]]), np.ones(f.shape[:2], dtype=bool), np.arange(20), 0)
    emulator = fit_emulator(problem, runs, noise_std=problem.noise_std, rng=rng)
    assert emulator.name.endswith("of the logarithm")
    np.testing.assert_allclose(emulator.predict(new, np.arange(20)), np.exp(new @ [[4.0], [1.0]]), rtol=1e-4)
    values, sites = new[:1], np.arange(20)
    outputs, pull_back = emulator.linearise(values, sites)
    np.testing.assert_allclose(pull_back(np.ones_like(outputs)), outputs * [4.0, 1.0], rtol=1e-3)


def test_that_errors_far_from_the_data_count_less():
    problem, rng = fold_problem(np.full(20, 1.0)), np.random.default_rng(1)
    values = np.concatenate([np.linspace(0.9, 1.1, 60), np.linspace(5.0, 8.0, 60)]).reshape(6, 20, 1)
    outputs = np.where(values > 4.0, 40.0 + 20.0 * rng.standard_normal(values.shape), values)
    runs = Runs.empty(1, 1).append(values, outputs, np.ones(values.shape[:2], dtype=bool), np.arange(20), 0)
    emulator = fit_emulator(problem, runs, noise_std=problem.noise_std, rng=rng)
    far = np.abs(outputs.ravel() - 1.0) > 0.5
    assert np.all(emulator.relevance[~far] == 1.0)
    np.testing.assert_allclose(emulator.relevance[far, 0], 0.5 / np.abs(outputs.ravel() - 1.0)[far])
