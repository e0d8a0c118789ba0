"""Runs that lack some of their outputs: closed forms of a Gaussian process, and posteriors that are never too sure."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from helpers.linear_field import LinearProblem
from invgp.core.backend import Backend, to_numpy
from invgp.core.field.field_inference import FieldState
from invgp.core.field.local_regression import Block
from invgp.core.field.missing_outputs import ABSENT_VARIANCE, complete_blocks, complete_outputs, fill_missing
from invgp.core.field.regression import Modes, cross_covariance, run_covariance

Tolerance = Callable[..., float]
RUNS, POINTS = 9, 5


class Process:
    """Two outputs of 9 runs, of which the first lacks the runs 2, 5 and 6, and 5 points besides."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        root = rng.standard_normal((RUNS + POINTS, RUNS + POINTS))
        whole = root @ root.T + 0.1 * np.eye(len(root))
        self.covariance, self.across, self.points = whole[:RUNS, :RUNS], whole[RUNS:, :RUNS], whole[RUNS:, RUNS:]
        self.outputs = np.linalg.cholesky(self.covariance) @ rng.standard_normal((RUNS, 2))
        self.lacks = np.asarray([2, 5, 6])
        self.has = np.setdiff1d(np.arange(RUNS), self.lacks)
        self.outputs[self.lacks, 0] = np.nan
        self.normals = rng.standard_normal((RUNS, 2))

    def complete(self, backend: Backend, **changed: np.ndarray):
        given = [self.outputs, self.covariance, self.across, changed.get("normals", self.normals), np.ones(2)]
        return complete_outputs(*(backend.asarray(part) for part in given))

    @property
    def of_known(self) -> np.ndarray:
        return self.covariance[np.ix_(self.has, self.has)]

    @property
    def gap(self) -> float:
        """How much more all runs explain of the points' variance than those that have the output, on average."""
        across = self.across[:, self.has]
        return np.mean(
            np.sum(self.across * np.linalg.solve(self.covariance, self.across.T).T, axis=1)
            - np.sum(across * np.linalg.solve(self.of_known, across.T).T, axis=1)
        )


def test_that_what_is_missing_is_what_a_gaussian_process_expects(backend: Backend, tolerance: Tolerance) -> None:
    process = Process()
    known = process.outputs[process.has, 0]
    across = process.covariance[np.ix_(process.lacks, process.has)]
    exact = known.mean() + across @ np.linalg.solve(process.of_known, known - known.mean())
    whole = process.outputs.copy()
    whole[process.lacks, 0] = exact
    found = [
        process.complete(backend).expected,
        fill_missing(backend.asarray(process.outputs), backend.asarray(process.covariance)),
    ]
    for outputs in found:
        np.testing.assert_allclose(to_numpy(outputs), whole, atol=tolerance(backend, 1e-9, 1e-3))


def test_that_draws_scatter_as_the_process_does() -> None:
    """They are a line in the normals, whose slopes are the root of their covariance."""
    process, backend = Process(), Backend(np, "cpu")
    zero = np.zeros((RUNS, 2))
    middle = process.complete(backend, normals=zero)
    np.testing.assert_array_equal(middle.drawn, middle.expected)
    pushed = [np.where(np.arange(RUNS)[:, None] == run, 1.0, zero) for run in range(RUNS)]
    root = np.stack([process.complete(backend, normals=normals).drawn - middle.drawn for normals in pushed], axis=-1)
    assert np.all(root[:, 1] == 0.0)
    across = process.covariance[np.ix_(process.lacks, process.has)]
    exact = process.covariance[np.ix_(process.lacks, process.lacks)]
    exact = exact - across @ np.linalg.solve(process.of_known, across.T)
    known, whole = (part - part.mean() for part in (process.outputs[process.has, 0], process.outputs[:, 1]))
    own = known @ np.linalg.solve(process.of_known, known) / len(known)
    usual = 0.5 * (own + whole @ np.linalg.solve(process.covariance, whole) / RUNS)
    found = root[process.lacks, 0]
    np.testing.assert_allclose(found @ found.T, (own + usual / len(known)) * exact, rtol=1e-8)
    assert np.all(root[process.has, 0] == 0.0)


def test_that_many_patterns_of_gaps_take_no_memory_each() -> None:
    """Every output that other runs lack has a covariance of runs of its own."""
    rng = np.random.default_rng(1)
    runs, data = 60, 400
    w = rng.standard_normal((runs + POINTS, 10))
    whole = 1.0 + w @ w.T + 0.01 * np.eye(len(w))
    outputs = np.where(rng.random((runs, data)) < 0.3, np.nan, rng.standard_normal((runs, data)))
    normals = rng.standard_normal((runs, data))
    tracemalloc.start()
    complete_outputs(outputs, whole[:runs, :runs], whole[runs:, :runs], normals, np.ones(data))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20 * 8 * data * max(runs, data)
    assert most < 0.5 * 8 * data * runs**2


def test_that_the_excess_is_what_the_missing_runs_would_explain(backend: Backend, tolerance: Tolerance) -> None:
    process = Process()
    completed = process.complete(backend)
    excess, drawn = to_numpy(completed.excess), to_numpy(completed.drawn)
    off = drawn[:, 0] - drawn[:, 0].mean()
    exact = process.gap * off @ np.linalg.solve(process.covariance, off) / RUNS
    np.testing.assert_allclose(excess, [exact, 0.0], atol=tolerance(backend, 1e-8, 1e-2) * exact)


def test_that_outputs_that_go_together_are_wrong_together(backend: Backend, tolerance: Tolerance) -> None:
    """Noise of so much variance for each output is no less than what is open, in any direction."""
    process = Process()
    process.outputs[:, 1] = 0.9 * process.outputs[:, 0] + 0.1 * process.outputs[:, 1]
    completed = process.complete(backend)
    excess, drawn = to_numpy(completed.excess), to_numpy(completed.drawn)
    half = np.linalg.solve(np.linalg.cholesky(process.covariance), drawn - drawn.mean(axis=0))
    left = np.linalg.eigvalsh(np.diag(excess) - process.gap * half.T @ half / RUNS)
    assert left.min() > -tolerance(backend, 1e-9, 1e-4) * excess[0]


def test_that_an_output_missing_in_all_runs_contributes_no_information(backend: Backend) -> None:
    process = Process()
    process.outputs[:, 1] = np.nan
    completed = process.complete(backend)
    assert float(completed.excess[1]) == pytest.approx(ABSENT_VARIANCE)
    assert not np.isnan(to_numpy(completed.expected)).any()
    assert np.isnan(
        to_numpy(fill_missing(backend.asarray(process.outputs), backend.asarray(process.covariance)))[:, 1]
    ).all()


def remove_outputs(how: str, share: float, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """A share of the runs lacks one output, half of all outputs, or any."""
    rng = np.random.default_rng(seed)
    columns = {"one": slice(3, 4), "half": slice(None, None, 2), "first half": slice(20)}

    def available_outputs(outputs: np.ndarray) -> np.ndarray:
        if how == "any":
            gone = rng.random(outputs.shape) < share
        else:
            gone = np.zeros(outputs.shape, dtype=bool)
            gone[rng.random(len(outputs)) < share, columns[how]] = True
            gone[0] = False
        return np.where(gone, np.nan, outputs)

    return available_outputs


@pytest.mark.slow
@pytest.mark.parametrize("how", ["one", "half", "first half", "any"])
@pytest.mark.parametrize("runs", [14, 30])
@pytest.mark.parametrize("seed", range(2))
def test_that_missing_outputs_never_make_the_posterior_overconfident(how: str, runs: int, seed: int) -> None:
    backend = Backend(np, "cpu")
    problem = LinearProblem(backend, seed=seed)
    state = problem.run_batches(backend, [runs // 2, runs - runs // 2], seed, remove_outputs(how, 0.7, seed))
    ratio = problem.spread(to_numpy(state.q.covariance)) / problem.spread(problem.covariance)
    assert np.median(ratio) > 0.9
    off = problem.modes @ (to_numpy(state.q.mean) - problem.truth) / problem.spread(to_numpy(state.q.covariance))
    assert np.sqrt(np.mean(off**2)) < 1.8
    if how != "one":
        assert np.trace(to_numpy(state.few_runs)) > 0.1 * np.trace(to_numpy(state.q.covariance))


def test_that_an_output_missing_in_most_runs_contributes_little() -> None:
    """Many outputs that are alike are wrong alike: a thousand of them must not average out what all of them lack."""
    backend = Backend(np, "cpu")
    problem = LinearProblem(backend, data=400)
    state = problem.run_batches(backend, [15, 15], given=remove_outputs("half", 0.8, 1))
    off = problem.modes @ (to_numpy(state.q.mean) - problem.truth) / problem.spread(to_numpy(state.q.covariance))
    assert np.sqrt(np.mean(off**2)) < 1.5


def assert_exact(problem: LinearProblem, state: FieldState) -> None:
    exact = problem.spread(problem.covariance)
    np.testing.assert_allclose(problem.modes @ (to_numpy(state.q.mean) - problem.mean) / exact, 0.0, atol=0.02)
    np.testing.assert_allclose(problem.spread(to_numpy(state.q.covariance)) / exact, 1.01, atol=0.02)


@pytest.mark.parametrize("how", ["one", "half", "any"])
def test_that_a_linear_model_is_exact_once_enough_runs_have_each_output(how: str) -> None:
    backend = Backend(np, "cpu")
    problem = LinearProblem(backend)
    state = problem.run_batches(backend, [60, 30], given=remove_outputs(how, 0.4, 3))
    assert_exact(problem, state)


@pytest.mark.parametrize("runs", [24, 90])
def test_that_correlated_noise_and_gaps_go_together(runs: int) -> None:
    """The same data, before a transformation makes their noise independent."""
    backend = Backend(np, "cpu")
    problem = LinearProblem(backend)
    places = np.arange(40)
    mixing = np.linalg.cholesky(np.exp(-np.abs(places[:, None] - places) / 3.0))
    problem.inference = replace(problem.inference, unmixing=np.linalg.inv(mixing))
    gaps = remove_outputs("half", 0.6, 4)
    state = problem.run_batches(backend, [runs // 2, runs // 2], given=lambda outputs: gaps(outputs @ mixing.T))
    if runs == 90:
        assert_exact(problem, state)
    ratio = problem.spread(to_numpy(state.q.covariance)) / problem.spread(problem.covariance)
    assert np.median(ratio) > 0.9


def test_that_blocks_fill_their_own_gaps() -> None:
    backend = Backend(np, "cpu")
    problem = LinearProblem(backend)
    everything = np.eye(problem.size)
    blocks = [Block(data, everything, problem.inference.modes) for data in (np.arange(20), np.arange(20, 40))]
    problem.inference = replace(problem.inference, blocks=blocks)
    state = problem.run_batches(backend, [60, 30], given=remove_outputs("any", 0.3, 5))
    assert_exact(problem, state)


def test_that_noise_of_blocks_and_joined_data_covers_what_gaps_leave_open(
    backend: Backend, tolerance: Tolerance
) -> None:
    """By brute force: the predictions of missing outputs by the runs that lack them, at each point."""
    rng = np.random.default_rng(6)
    w, points = rng.standard_normal((12, 4)), rng.standard_normal((9, 4))
    outputs = w @ rng.standard_normal((4, 6)) + np.sin(w[:, :1])
    outputs[[1, 4, 5], 2] = outputs[[4, 7], 3] = outputs[2:6, 5] = np.nan
    mixing = np.linalg.cholesky(np.kron(np.eye(3), [[1.0, 0.7], [0.7, 1.0]]))
    modes = Modes(backend.asarray([1.0, 0.5, 0.3, 0.2]), (4,))
    data = [np.asarray([4, 5, 0, 1]), np.asarray([2, 3])]
    blocks = [Block(part, None, modes) for part in data]
    hypers = [np.asarray([decay, -2.0, 1.0, -6.0]) for decay in (1.0, 0.2)]
    given = [backend.asarray(part) for part in (w, outputs, points, np.linalg.inv(mixing))]
    whole = complete_blocks(blocks, *given[:2], hypers, *given[2:])
    excess, drawn = to_numpy(whole.excess), to_numpy(whole.drawn)
    assert whole.excess.dtype == whole.drawn.dtype == given[0].dtype
    left = np.zeros((6, 6))
    for part, hyper in zip(data, hypers, strict=True):
        C = to_numpy(run_covariance(modes, hyper, given[0]))
        across = to_numpy(cross_covariance(modes, hyper, given[2], given[0]))
        lost = np.stack([np.linalg.solve(C, across.T)] * len(part))  # how runs count in what each output lacks
        for own, number in zip(lost, part, strict=True):
            has = np.flatnonzero(~np.isnan(outputs[:, number]))
            own[has] -= np.linalg.solve(C[np.ix_(has, has)], across[:, has].T)
            known = outputs[has, number]
            expected = known.mean() + C[:, has] @ np.linalg.solve(C[np.ix_(has, has)], known - known.mean())
            np.testing.assert_allclose(
                to_numpy(whole.expected)[:, number], expected, atol=tolerance(backend, 1e-8, 0.05)
            )
        half = np.linalg.solve(np.linalg.cholesky(C), (drawn - drawn.mean(axis=0))[:, part])
        left[np.ix_(part, part)] = half.T @ half / 12 * np.einsum("dip,ij,ejp->de", lost, C, lost) / 9
    left = np.linalg.solve(mixing, np.linalg.solve(mixing, left).T)
    slack = tolerance(backend, 1e-9, 1e-3) * excess.max()
    assert np.linalg.eigvalsh(np.diag(excess) - left).min() > -slack
    assert excess.max() < 4.0 * np.linalg.eigvalsh(left).max()
    assert np.all(excess[:2] <= slack)


def test_that_the_bound_of_a_linear_model_with_gaps_is_its_evidence() -> None:
    """Both count what gaps leave open as noise: in units of the outputs, and in those of the regression."""
    backend, rng = Backend(np, "cpu"), np.random.default_rng(1)
    problem = LinearProblem(backend)
    w = problem.inference.ask(problem.inference.init(), 16, rng)
    outputs = remove_outputs("half", 0.7, 2)(problem.outputs(w))
    state, info = problem.inference.tell(problem.inference.init(), w, outputs, rng)
    line = problem.inference.linearised_data(state)
    assert np.log(state.regression.scale).sum() < -10.0
    above = line.log_evidence(line.slope @ line.slope.T, np.zeros(40)) - info.elbo
    assert 0.0 < above < 0.5  # what the regression does not know varies a little over the posterior
