"""Missing outputs of runs: their expectation from the other runs, and the resulting uncertainty.

An output is a Gaussian process over the runs, with the covariance of the regression, so a missing output has a Gaussian
distribution given the other runs. The regression uses its mean. The variance that the regression loses because outputs
are missing is added to the noise of the data. The errors of correlated outputs are correlated, so their sum is bounded
in such a way that they do not average out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import (
    Array,
    array_namespace,
    backend_of,
    cholesky,
    clip_negative,
    solve_triangular,
    sum_of_squares,
    to_numpy,
)
from invgp.core.field.grid_basis import index_array
from invgp.core.field.local_regression import Block
from invgp.core.field.regression import KernelParameters, cross_covariance, run_covariance

ABSENT_VARIANCE = 1e12  # noise variances, added to a datum whose output is missing in all runs of the regression


@dataclass(frozen=True)
class CompletedOutputs:
    """Outputs of n runs with all missing values replaced.

    Attributes
    ----------
    expected : Array, shape (n, D)
        Outputs with the expectation of missing values.
    drawn : Array, shape (n, D)
        Outputs with a random sample of missing values. They are used to learn hyperparameters, because expectations
        would make the runs look more predictable than they are.
    excess : Array, shape (D,)
        Additional variance of each datum: weighted row sums of a matrix that bounds the covariance of the errors due to
        missing outputs.
    """

    expected: Array
    drawn: Array
    excess: Array


def fill_missing(outputs: Array, covariance: Array) -> Array:
    """Replace missing outputs (NaN) by their expectation given the other runs.

    Parameters
    ----------
    outputs : Array, shape (n, D)
        Outputs of n runs. An output that is missing in all runs stays NaN.
    covariance : Array, shape (n, n)
        Covariance of the runs in the regression.
    """
    xp = array_namespace(outputs)
    missing = xp.isnan(outputs)
    fillable = missing & ~xp.all(missing, axis=0)
    if not bool(xp.any(fillable)):
        return outputs
    means = [(group.columns, group.mean) for group in _groups_by_runs(outputs, covariance)]
    return xp.where(fillable, _assemble_columns(means, outputs), outputs)


def complete_outputs(
    outputs: Array, covariance: Array, across: Array, normals: Array, weights: Array
) -> CompletedOutputs:
    """Replace missing outputs (NaN), and bound the additional variance.

    Parameters
    ----------
    outputs : Array, shape (n, D)
        Outputs of n runs.
    covariance : Array, shape (n, n)
        Covariance of the runs in the regression.
    across : Array, shape (m, n)
        Covariance of m samples from the posterior with the runs.
    normals : Array, shape (n, D)
        Standard normals for the samples of missing outputs.
    weights : Array, shape (D,)
        Weights of the outputs in the row sums.
    """
    xp = array_namespace(outputs)
    factor = cholesky(covariance)
    explained = sum_of_squares(solve_triangular(factor, xp.matrix_transpose(across)))
    unit = factor @ normals
    means, deviations, variances, lost_variances = [], [], [], []
    for group in _groups_by_runs(outputs, covariance):
        own = xp.take(unit, index_array(group.columns, unit), axis=1)
        means.append((group.columns, group.mean))
        deviations.append((group.columns, own - group.expected_deviations(group.take_runs(own))))
        variances.append((group.columns, group.variance[None, :]))
        lost_variances.append((group.columns, group.lost_variance(explained, across) * xp.ones_like(variances[-1][1])))
    missing = xp.isnan(outputs)
    expected = xp.where(missing, _assemble_columns(means, outputs), outputs)
    variance, lost_variance = (_assemble_columns(parts, outputs[:1, :])[0, :] for parts in (variances, lost_variances))
    # Variance of the output, plus the mean variance with the weight of one run: a few runs may agree by chance.
    runs = xp.sum(xp.astype(~missing, outputs.dtype), axis=0)
    scale = xp.sqrt(variance + xp.mean(variance) / xp.where(runs > 0.0, runs, xp.ones_like(runs)))
    drawn = xp.where(missing, expected + scale * _assemble_columns(deviations, outputs), outputs)
    half = solve_triangular(factor, drawn - xp.mean(drawn, axis=0)) * xp.sqrt(lost_variance)
    # A covariance matrix is bounded by the diagonal matrix of the row sums of its absolute values.
    bound = xp.abs(xp.matrix_transpose(half) @ half) / outputs.shape[0]
    void = xp.astype(xp.all(missing, axis=0), outputs.dtype)
    return CompletedOutputs(expected, drawn, bound @ weights + ABSENT_VARIANCE * void)


def complete_blocks(
    blocks: Sequence[Block],
    w: Array,
    outputs: Array,
    hyper: Sequence[KernelParameters] | None,
    points: Array,
    unmixing: Array | None,
) -> CompletedOutputs:
    """Replace missing outputs for each block; the additional variance refers to data with independent noise.

    Parameters
    ----------
    blocks : sequence of Block
        Blocks of data, each with its own regression.
    w : Array, shape (n, R)
        Variables of the runs.
    outputs : Array, shape (n, D)
        Outputs of the runs; NaN for missing outputs.
    hyper : sequence of KernelParameters or None
        Hyperparameters of the previous regression of each block; None for the defaults.
    points : Array, shape (m, R)
        Samples from the posterior.
    unmixing : Array, shape (D, D), or None
        Matrix that converts outputs to data with independent noise; None if their noise is independent.
    """
    xp = array_namespace(outputs)
    weights = xp.ones_like(outputs[0, :])
    if unmixing is not None:
        weights = weights @ xp.abs(unmixing)
    normals = backend_of(outputs).asarray(np.random.default_rng(0).standard_normal(outputs.shape))
    parts = []
    for number, block in enumerate(blocks):
        own = block.modes.default_hyperparameters() if hyper is None else hyper[number]
        columns, at = index_array(block.data, outputs), block.project(w)
        parts.append(
            complete_outputs(
                xp.take(outputs, columns, axis=1),
                run_covariance(block.modes, own, at),
                cross_covariance(block.modes, own, block.project(points), at),
                xp.take(normals, columns, axis=1),
                xp.take(weights, columns),
            )
        )
    order = index_array(np.argsort(np.concatenate([block.data for block in blocks])), outputs)
    expected, drawn = (
        xp.take(xp.concat(columns, axis=1), order, axis=1)
        for columns in ([part.expected for part in parts], [part.drawn for part in parts])
    )
    excess = xp.take(xp.concat([part.excess for part in parts]), order)
    return CompletedOutputs(expected, drawn, excess if unmixing is None else xp.abs(unmixing) @ excess)


@dataclass(frozen=True)
class _OutputGroup:
    """Outputs that are present in the same runs.

    Attributes
    ----------
    runs, columns : array of int, shapes (k,) and (d,)
        Indices of these runs and outputs.
    centre : Array, shape (d,)
        Mean of each output over these runs.
    deviations : Array, shape (k, d)
        Outputs minus their means.
    covariance_with_runs : Array, shape (n, k)
        Covariance of all runs with these runs.
    factor : Array, shape (k, k)
        Cholesky factor of the covariance of these runs.
    """

    runs: NDArray[np.intp]
    columns: NDArray[np.intp]
    centre: Array
    deviations: Array
    covariance_with_runs: Array
    factor: Array

    @staticmethod
    def from_runs(runs: NDArray[np.intp], columns: NDArray[np.intp], outputs: Array, covariance: Array) -> _OutputGroup:
        """Collect the outputs `columns` of the given runs."""
        xp = array_namespace(outputs)
        rows = index_array(runs, outputs)
        values = xp.take(xp.take(outputs, rows, axis=0), index_array(columns, outputs), axis=1)
        centre = xp.mean(values, axis=0)
        covariance_with_runs = xp.take(covariance, rows, axis=1)
        factor = cholesky(xp.take(covariance_with_runs, rows, axis=0))
        return _OutputGroup(runs, columns, centre, values - centre, covariance_with_runs, factor)

    @property
    def mean(self) -> Array:
        """Expected outputs at all runs, shape (n, d)."""
        return self.centre + self.expected_deviations(self.deviations)

    @property
    def variance(self) -> Array:
        """Variance of each output (d,), in units of the covariance of the runs."""
        return sum_of_squares(solve_triangular(self.factor, self.deviations)) / len(self.runs)

    def take_runs(self, rows: Array) -> Array:
        """Select the rows (k, d) of these runs from rows (n, d) of all runs."""
        return array_namespace(rows).take(rows, index_array(self.runs, rows), axis=0)

    def expected_deviations(self, deviations: Array) -> Array:
        """Compute the expected deviations at all runs (n, d), given those at these runs (k, d)."""
        half = solve_triangular(self.factor, deviations)
        return self.covariance_with_runs @ solve_triangular(self.factor, half, transposed=True)

    def lost_variance(self, explained: Array, across: Array) -> Array:
        """Compute the variance that these runs explain less than all runs, averaged over m points.

        Parameters
        ----------
        explained : Array, shape (m,)
            Variance at each point that all runs explain.
        across : Array, shape (m, n)
            Covariance of the points with all runs.
        """
        xp = array_namespace(across)
        if len(self.runs) == across.shape[1]:
            return xp.zeros_like(explained[0])
        own = xp.take(xp.matrix_transpose(across), index_array(self.runs, across), axis=0)
        return xp.mean(clip_negative(explained - sum_of_squares(solve_triangular(self.factor, own))))


def _groups_by_runs(outputs: Array, covariance: Array) -> Iterator[_OutputGroup]:
    """Yield groups of outputs that are present in the same runs, one at a time, because each can be large."""
    patterns, which = np.unique(~np.isnan(to_numpy(outputs)), axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        if pattern.any():
            yield _OutputGroup.from_runs(
                np.flatnonzero(pattern), np.flatnonzero(which.ravel() == number), outputs, covariance
            )


def _assemble_columns(parts: Sequence[tuple[NDArray[np.intp], Array]], like: Array) -> Array:
    """Assemble columns (n, D) from parts with column indices (d,) and values (n, d); 0 for columns without a part."""
    xp = array_namespace(like)
    present = np.concatenate([np.arange(0), *[columns for columns, _ in parts]])
    absent = np.setdiff1d(np.arange(like.shape[1]), present)
    zeros = xp.zeros_like(xp.take(like, index_array(absent, like), axis=1))
    order = index_array(np.argsort(np.concatenate([present, absent])), like)
    return xp.take(xp.concat([*[part for _, part in parts], zeros], axis=1), order, axis=1)
