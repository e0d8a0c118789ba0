"""Draws from posteriors that are known, and what becomes of chains that are stopped, fail or disagree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from arviz_stats.base.array import array_stats

from helpers.problems import map_problem
from invgp.adapters import CallableModel, Quantity
from invgp.errors import ConfigError, RunsFailedError, WriteError
from invgp.execution.monitor import SilentMonitor
from invgp.execution.pools import Loop
from invgp.execution.simulator import Batch
from invgp.inference.invert import open_recorder
from invgp.plots import plot_comparison
from invgp.problem import Column, Latent, Noise, Observation, OutputSettings, Problem, SimulatorVariable, Survey
from invgp.sampling import slice_sampling
from invgp.sampling.chains import Chains
from invgp.sampling.proposal import Proposal
from invgp.sampling.slice_sampling import sample
from invgp.sampling.target_density import WhitenedPrior
from invgp.validation.comparison import (
    chains_have_converged,
    compare_with_chains,
    comparison_rows,
    describe_convergence,
    spread_mcse,
)
from invgp.validation.reference_chains import DirectSimulator, fit_linearised_gaussian, fit_runs, reference

NOISE = 0.3
SLOPES = np.asarray([[1.0, 0.5], [0.0, 1.0]])  # (P, Q)


def square_root(**latents: np.ndarray) -> np.ndarray:
    return np.sqrt(latents["f0"])


def line_problem(Y: np.ndarray, latents: int = 2, length_scale: float = 2.0) -> Problem:
    """Sites 1 m apart, latents of mean 1 and spread 1; data Y (N, P), with noise of 0.3."""
    N, P = Y.shape
    names = tuple(range(P))
    return Problem(
        title="A line",
        survey=Survey((Column("position", "m", np.arange(float(N))),), (Observation("data", "1", Y, "output", names),)),
        latents=tuple(
            Latent(f"f{q}", "1", np.ones(1), np.ones(1), "matern 5/2", np.asarray([length_scale]))
            for q in range(latents)
        ),
        noise=Noise("gaussian", {"data": np.full(Y.shape, NOISE)}),
        forward=CallableModel(
            function=square_root,
            inputs=tuple(Quantity(f"f{q}", "1") for q in range(latents)),
            outputs=(Quantity("data", "1", names if P > 1 else None),),
        ),
        inputs=tuple(SimulatorVariable(f"f{q}") for q in range(latents)),
        outputs=(SimulatorVariable("data"),),
        output=OutputSettings(file=Path("unused.nc")),
    )


def linear(f: np.ndarray, sites: np.ndarray) -> Batch:
    return Batch(f @ SLOPES.T, np.ones(f.shape[:2], dtype=bool))


TIED, INDEPENDENT = 2.0, 0.01  # length-scales of sites 1 m apart


def linear_problem(length_scale: float = TIED) -> Problem:
    Y = np.asarray([[1.0, 0.5], [2.5, 1.5], [np.nan, 2.0], [np.nan, np.nan], [3.0, 0.0]])
    return line_problem(Y, length_scale=length_scale)


def exact_posterior(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Mean (N, Q) and covariance (N Q, N Q) of the linear problem, by the textbook."""
    prior, Y = WhitenedPrior(problem), problem.survey.Y
    N, Q = len(Y), len(prior.mean)
    K = np.zeros((N, Q, N, Q))
    for q in range(Q):
        K[:, q, :, q] = prior.factor[q] @ prior.factor[q].T
    K = K.reshape(N * Q, N * Q)
    seen = np.isfinite(Y).ravel()
    H = np.kron(np.eye(N), SLOPES)[seen]
    gain = K @ H.T @ np.linalg.inv(H @ K @ H.T + NOISE**2 * np.eye(len(H)))
    mean = np.tile(prior.mean, N)
    return (mean + gain @ (Y.ravel()[seen] - H @ mean)).reshape(N, Q), K - gain @ H @ K


def wrong_proposal(problem: Problem) -> Proposal:
    """Off centre, too narrow in some directions and too wide in others."""
    rng = np.random.default_rng(1)
    D = problem.survey.size * problem.latent_count
    axes, _ = np.linalg.qr(rng.standard_normal((D, D)))
    return Proposal(0.5 * rng.standard_normal(D), axes, 4.0 * rng.random(D))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("proposal", "length_scale"),
    [("prior", TIED), ("linearised", TIED), ("wrong", TIED), ("linearised", INDEPENDENT), ("wrong", INDEPENDENT)],
)
def test_that_the_posterior_of_a_linear_problem_is_drawn_from(proposal: str, length_scale: float) -> None:
    problem = linear_problem(length_scale)
    proposals = {
        "prior": Proposal.prior,
        "linearised": lambda problem: fit_linearised_gaussian(problem, linear),
        "wrong": wrong_proposal,
    }
    draws = sample(problem, linear, proposals[proposal](problem), draws=1500, seed=2).draws.reshape(4, 1500, -1)
    mean, covariance = exact_posterior(problem)
    axes = {"chain_axis": 0, "draw_axis": 1}
    off = (draws.mean(axis=(0, 1)) - mean.ravel()) / array_stats.mcse(draws, **axes)
    assert np.abs(off).max() < 4.0
    spread = np.sqrt(np.diag(covariance))
    off = (draws.std(axis=(0, 1)) - spread) / spread_mcse(draws)
    assert np.abs(off).max() < 4.0
    correlation = np.corrcoef(draws.reshape(-1, draws.shape[-1]).T)
    assert np.abs(correlation - covariance / np.outer(spread, spread)).max() < 0.2


def test_that_a_fitted_gaussian_is_exact_for_a_linear_problem_and_mixes_at_once() -> None:
    problem = linear_problem()
    proposal = fit_linearised_gaussian(problem, linear)
    mean, covariance = exact_posterior(problem)
    prior = WhitenedPrior(problem)
    np.testing.assert_allclose(prior(proposal.mean[None])[0], mean, atol=1e-6)
    root = prior(proposal.mean + proposal.root(1.0).T)  # each axis in turn
    spread = np.sqrt(np.sum((root - mean) ** 2, axis=0)).ravel()
    np.testing.assert_allclose(spread, np.sqrt(np.diag(covariance)), rtol=1e-6)
    chains = sample(problem, linear, proposal, draws=300)
    assert array_stats.ess(chains.draws, chain_axis=0, draw_axis=1).min() > 400


def test_that_a_proposal_from_a_covariance_is_that_from_its_inverse() -> None:
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((6, 6))
    precision, mean = np.eye(6) + factor @ factor.T, rng.standard_normal(6)
    roots = [
        proposal.root(1.2)
        for proposal in (
            Proposal.from_precision(mean, precision),
            Proposal.from_covariance(mean, np.linalg.inv(precision)),
        )
    ]
    np.testing.assert_allclose(roots[0] @ roots[0].T, roots[1] @ roots[1].T, atol=1e-12)


def squared(f: np.ndarray, sites: np.ndarray) -> Batch:
    return Batch((f[..., :1] - 1.0) ** 2, np.ones(f.shape[:2], dtype=bool))


@pytest.mark.slow
def test_that_both_modes_of_a_bimodal_posterior_are_visited() -> None:
    problem = line_problem(np.asarray([[1.0]]), latents=1)
    f = reference(problem, squared, draws=1000, seed=3).draws[..., 0, 0] - 1.0
    assert np.all(np.abs(np.mean(f > 0.0, axis=1) - 0.5) < 0.2)  # in each chain
    grid = np.linspace(-5.0, 5.0, 4001)
    density = np.exp(-0.5 * grid**2 - 0.5 * ((grid**2 - 1.0) / NOISE) ** 2)
    density /= density.sum()
    assert np.mean(f**2) == pytest.approx(np.sum(density * grid**2), abs=0.03)


def grown(f: np.ndarray, sites: np.ndarray) -> Batch:
    return Batch(np.exp(f), np.ones(f.shape[:2], dtype=bool))


@pytest.mark.slow
def test_that_independent_sites_move_on_their_own_ellipses() -> None:
    sites = 40
    problem = line_problem(np.ones((sites, 1)), latents=1, length_scale=INDEPENDENT)
    f = reference(problem, grown, draws=200, seed=3).draws
    assert np.median(array_stats.ess(f, chain_axis=0, draw_axis=1)) > 200.0  # moved together: less than 20
    grid = np.linspace(-5.0, 5.0, 4001)
    density = np.exp(-0.5 * (grid - 1.0) ** 2 - 0.5 * ((np.exp(grid) - 1.0) / NOISE) ** 2)
    density /= density.sum()
    error = f.mean(axis=(0, 1)).ravel() - np.sum(density * grid)
    assert np.abs(error.mean()) < 4.0 * error.std() / np.sqrt(sites)


@pytest.mark.parametrize("length_scale", [TIED, INDEPENDENT])
def test_that_interrupted_chains_resume_bit_identically_and_repeat_no_run(length_scale: float, tmp_path: Path) -> None:
    problem, file = linear_problem(length_scale), tmp_path / "chains.npz"
    proposal = wrong_proposal(problem)
    calls: list[int] = []

    def counted(f: np.ndarray, sites: np.ndarray) -> Batch:
        calls.append(len(f))
        return linear(f, sites)

    how = {"chains": 3, "burn_in": 5, "thin": 2, "seed": 7}
    whole = sample(problem, counted, proposal, draws=40, **how)
    paid = sum(calls)

    def interrupted(f: np.ndarray, sites: np.ndarray) -> Batch:
        if calls[0] > 61:
            calls[0] = 0
            raise KeyboardInterrupt
        calls[0] += len(f)
        calls[1] += len(f)
        return linear(f, sites)

    calls[:] = [0, 0]
    stops = 0
    while True:
        try:
            chains = sample(problem, interrupted, proposal, draws=40, checkpoint=file, **how)
            break
        except KeyboardInterrupt:
            stops += 1
    assert stops > 3
    np.testing.assert_array_equal(chains.draws, whole.draws)
    assert (chains.runs, calls[1]) == (whole.runs, paid)
    assert not list(tmp_path.glob("*.part"))


def test_that_more_draws_of_saved_chains_cost_only_what_they_add(tmp_path: Path) -> None:
    problem, file = linear_problem(), tmp_path / "chains.npz"

    def none_left(f: np.ndarray, sites: np.ndarray) -> Batch:
        raise AssertionError("paid twice")

    few = reference(problem, linear, draws=10, checkpoint=file)
    again = reference(problem, none_left, draws=10, checkpoint=file)
    many = reference(problem, linear, draws=30, checkpoint=file)
    still_many = reference(problem, none_left, draws=5, checkpoint=file)
    at_once = reference(problem, linear, draws=30)
    np.testing.assert_array_equal(again.draws, few.draws)
    for chains in (many, still_many):
        np.testing.assert_array_equal(chains.draws, at_once.draws)


@pytest.mark.parametrize(
    ("problem", "change"),
    [(line_problem(np.ones((5, 2))), {}), (linear_problem(), {"thin": 2}), (linear_problem(), {"seed": 1})],
    ids=["other data", "other thinning", "other seed"],
)
def test_that_chains_of_another_problem_are_not_gone_on_with(problem: Problem, change: dict, tmp_path: Path) -> None:
    file = tmp_path / "chains.npz"
    reference(linear_problem(), linear, draws=5, checkpoint=file)
    with pytest.raises(ConfigError, match="remove the file to start again"):
        reference(problem, linear, draws=5, checkpoint=file, **change)


def test_that_saved_chains_which_are_damaged_or_older_are_rejected_with_a_message(tmp_path: Path) -> None:
    file = tmp_path / "chains.npz"
    reference(linear_problem(), linear, draws=5, checkpoint=file)
    whole = file.read_bytes()
    with np.load(file) as archive:
        arrays = dict(archive)
    older = {**{name: array for name, array in arrays.items() if name != "about"}, "mark": "of an older invgp"}
    changed = {**arrays, "kept": arrays["kept"] + 1.0}
    for make, told in (
        (lambda: file.write_bytes(whole[:100]), "was a file that is damaged, or that invgp did not write"),
        (lambda: np.savez(file, **older), "chains of an earlier version of invgp cannot be resumed either: remove"),
        (lambda: np.savez(file, **changed), "holds other numbers than were written to it"),
    ):
        make()
        with pytest.raises(ConfigError, match=told):
            reference(linear_problem(), linear, draws=5, checkpoint=file)


def test_that_chains_that_cannot_be_written_are_reported_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, where a folder should be")
    with pytest.raises(WriteError, match=r"the chains of a reference could not be written to '.*chains\.npz'"):
        reference(linear_problem(), linear, draws=5, checkpoint=tmp_path / "taken" / "chains.npz")


@pytest.mark.slow
def test_that_a_failed_run_is_a_likelihood_of_zero() -> None:
    problem = line_problem(np.asarray([[1.0], [np.nan]]), latents=1, length_scale=0.01)
    seen = []

    def fails_above_one(f: np.ndarray, sites: np.ndarray) -> Batch:
        seen.append(sites)
        return Batch(np.where(f > 1.0, np.nan, 1.0), f[..., 0] <= 1.0)

    f = sample(problem, fails_above_one, Proposal.prior(problem), draws=2000).draws[..., 0]
    assert f[..., 0].max() <= 1.0
    assert np.mean(f[..., 0]) == pytest.approx(1.0 - np.sqrt(2.0 / np.pi), abs=0.05)  # half a normal distribution
    assert np.mean(f[..., 1]) == pytest.approx(1.0, abs=0.06)  # nothing was observed there, and nothing is run
    assert all(sites.tolist() == [0] for sites in seen)


def test_that_chains_without_a_starting_point_are_reported() -> None:
    problem = linear_problem()
    with pytest.raises(RunsFailedError, match="the chains could not start"):
        sample(problem, lambda f, sites: Batch.all_failed(len(f), len(sites), 2), Proposal.prior(problem), draws=5)


def test_that_chains_start_nearer_where_runs_fail_further_out() -> None:
    problem = linear_problem()

    def fails_far_out(f: np.ndarray, sites: np.ndarray) -> Batch:
        far = np.abs(f - exact_posterior(problem)[0][sites]).max(axis=-1) > 1.0
        return Batch(linear(f, sites).outputs, ~far)

    chains = sample(problem, fails_far_out, fit_linearised_gaussian(problem, linear), draws=5)
    assert np.isfinite(chains.draws).all()


def test_that_a_simulator_which_does_not_repeat_itself_cannot_hang_a_chain() -> None:
    problem, worse = linear_problem(), [0.0]

    def ever_worse(f: np.ndarray, sites: np.ndarray) -> Batch:
        worse[0] += 10.0
        return Batch(linear(f, sites).outputs + worse[0], np.ones(f.shape[:2], dtype=bool))

    assert sample(problem, ever_worse, Proposal.prior(problem), chains=2, draws=3, burn_in=0).draws.shape[1] == 3


def test_that_a_chain_whose_runs_all_fail_does_not_harm_the_others(tmp_path: Path) -> None:
    problem = line_problem(np.ones((30, 1)), latents=1)
    f = np.stack([np.full((30, 1), -1.0), np.full((30, 1), 4.0)])
    run = DirectSimulator.of(problem, tmp_path, Loop(), SilentMonitor())
    batch = run(f, np.arange(30))
    assert not batch.valid[0].any()
    assert batch.valid[1].all()
    np.testing.assert_array_equal(batch.outputs[1], 2.0)


def dataset_of(problem: Problem, mean: np.ndarray, std: np.ndarray) -> xr.Dataset:
    """What `compare` and its figure read of a posterior, from arrays (N, Q) of the physical quantities."""
    variables = {}
    for latent in problem.latents:
        columns = problem.latent_slices[latent.name]
        dims = ("site",) if latent.dimension is None else ("site", latent.dimension)
        for suffix, values in (("", mean), ("_std", std), ("_prior", mean)):
            own = values[:, columns].reshape([-1, latent.size][: len(dims)])
            variables[f"{latent.name}{suffix}"] = xr.DataArray(own, dims=dims, attrs={"units": latent.unit})
    coordinates = {c.name: ("site", c.values, {"units": c.unit}) for c in problem.survey.coordinates}
    names = {
        "invgp_latents": " ".join(latent.name for latent in problem.latents),
        "invgp_coordinates": " ".join(coordinates),
        "invgp_runs": 5,
    }
    labels = {d: list(latent.labels) for latent in problem.latents if (d := latent.dimension)}
    return xr.Dataset(variables, coordinates | labels, names)


@pytest.mark.slow
def test_that_the_exact_posterior_compares_well_and_a_wrong_one_does_not() -> None:
    problem = linear_problem()
    mean, covariance = exact_posterior(problem)
    std = np.sqrt(np.diag(covariance)).reshape(mean.shape)
    chains = reference(problem, linear, draws=1000, seed=1)
    exact = compare_with_chains(problem, dataset_of(problem, mean, std), chains)
    assert chains_have_converged(exact)
    assert "have converged" in describe_convergence(exact)
    for row in comparison_rows(exact):
        assert row.error < 3.0 * row.error_mcse < 0.15
        assert abs(row.ratio - 1.0) < 3.0 * row.ratio_mcse < 0.15
        assert row.r_hat < 1.01
        assert row.ess > 400
    wrong = comparison_rows(compare_with_chains(problem, dataset_of(problem, mean + std, 0.5 * std), chains))
    assert [(round(row.error, 1), round(row.ratio, 1)) for row in wrong] == [(1.0, 0.5)] * 2


def test_that_chains_in_different_modes_are_no_reference() -> None:
    problem = line_problem(np.asarray([[1.0]]), latents=1)
    rng = np.random.default_rng(0)
    modes = np.asarray([-1.0, -1.0, 1.0, 1.0])[:, None, None, None]
    chains = Chains(modes + 0.1 * rng.standard_normal((4, 1000, 1, 1)), 1)
    apart = compare_with_chains(problem, dataset_of(problem, np.zeros((1, 1)), np.ones((1, 1))), chains)
    assert not chains_have_converged(apart)
    assert "have not converged, and are no reference yet" in describe_convergence(apart)
    assert apart.attrs["invgp_reference_converged"] == "no"
    short = compare_with_chains(
        problem,
        dataset_of(problem, np.zeros((1, 1)), np.ones((1, 1))),
        Chains(rng.standard_normal((4, 50, 1, 1)), 1),
    )
    assert not chains_have_converged(short)


@pytest.mark.slow
def test_that_a_map_with_links_units_and_labels_compares(tmp_path: Path) -> None:
    problem = map_problem()
    run = DirectSimulator.of(problem, tmp_path, Loop(), SilentMonitor())
    chains = reference(problem, run, draws=60, burn_in=20)
    assert run.simulator.runs == chains.runs
    physical = problem.to_physical(chains.draws.reshape(-1, 12, 3))
    posterior = dataset_of(problem, physical.mean(axis=0), physical.std(axis=0))
    found = compare_with_chains(problem, posterior, chains)
    assert [(row.latent, row.label) for row in comparison_rows(found)] == [
        ("resistivity", "layer 1"),
        ("resistivity", "layer 2"),
        ("thickness", ""),
    ]
    assert found["resistivity_reference_draw"].dims == ("chain", "draw", "site", "layer")
    assert max(abs(row.error) for row in comparison_rows(found)) < 1e-9
    figure = plot_comparison(posterior, found)
    assert len(figure.axes) == 4


def test_that_the_widening_does_not_change_the_prior() -> None:
    proposal = Proposal(np.zeros(2), np.eye(2), np.asarray([0.0, 99.0]))
    np.testing.assert_allclose(np.diag(proposal.root(slice_sampling.WIDENING)), [1.0, 0.1099], atol=1e-4)


def test_that_a_ledger_keeps_the_runs_of_the_fit_and_all_that_are_not_quick(tmp_path: Path) -> None:
    problem = map_problem()
    with open_recorder(problem, tmp_path / "runs.sqlite") as recorder:
        run = DirectSimulator.of(problem, tmp_path, Loop(), SilentMonitor(), recorder)
        simulator = run.simulator
        assert run.kept == fit_runs(problem) == fit_linearised_gaussian(problem, run).runs == simulator.runs
        for seconds, kept in ((0.0, False), (0.09 * simulator.runs, False), (0.11 * simulator.runs, True)):
            simulator.concurrency.busy = seconds
            assert run.keeps_next_runs is kept
