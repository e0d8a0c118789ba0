"""Outputs that some runs lack: what the runs that have them expect, and how far off that may be.

An output is a Gaussian process over the runs, with the covariance that the regression has. So what a run lacks is known
up to a Gaussian. The regression takes its mean, and the data get more noise for it: what the regression would know
better if nothing lacked. Outputs that go together are wrong together, so that many of them must not average it out.
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
from invgp.core.field.regression import Hyperparameters, across_runs, covariance_of_runs

VOID = 1e12  # of the noise's variance, for data whose output no run near the posterior has


@dataclass(frozen=True)
class CompletedOutputs:
    """Outputs of which nothing lacks any more.

    Attributes
    ----------
    expected : (n, D), with what the other runs expect of what is missing.
    drawn : (n, D), with a draw of it instead: to learn from these how well runs predict each other is fair.
    excess : (D,), weighted row sums of a matrix that bounds the covariance of what is left open for want of outputs.
    """

    expected: Array
    drawn: Array
    excess: Array


def fill_missing(outputs: Array, covariance: Array) -> Array:
    """Outputs (n, D) with what the other runs expect where a run lacks one, NaN; what all lack stays so.

    Parameters
    ----------
    covariance : (n, n), of the runs, as the regression has it.
    """
    xp = array_namespace(outputs)
    missing = xp.isnan(outputs)
    lacking = missing & ~xp.all(missing, axis=0)
    if not bool(xp.any(lacking)):
        return outputs
    means = [(group.columns, group.mean) for group in _groups(outputs, covariance)]
    return xp.where(lacking, _in_order(means, outputs), outputs)


def complete_outputs(
    outputs: Array, covariance: Array, across: Array, normals: Array, weights: Array
) -> CompletedOutputs:
    """What is missing among outputs (n, D), NaN there.

    Parameters
    ----------
    covariance : (n, n), of the runs, as the regression has it.
    across : (m, n), of the runs with points all over the posterior.
    normals : (n, D), standard normals for the draws.
    weights : (D,), of the outputs in the row sums.
    """
    xp = array_namespace(outputs)
    factor = cholesky(covariance)
    explained = sum_of_squares(solve_triangular(factor, xp.matrix_transpose(across)))
    unit = factor @ normals
    means, deviations, variances, gaps = [], [], [], []
    for group in _groups(outputs, covariance):
        own = xp.take(unit, index_array(group.columns, unit), axis=1)
        means.append((group.columns, group.mean))
        deviations.append((group.columns, own - group.expected(group.of_runs(own))))
        variances.append((group.columns, group.variance[None, :]))
        gaps.append((group.columns, group.gap(explained, across) * xp.ones_like(variances[-1][1])))
    missing = xp.isnan(outputs)
    expected = xp.where(missing, _in_order(means, outputs), outputs)
    variance, gap = (_in_order(parts, outputs[:1, :])[0, :] for parts in (variances, gaps))
    # The output's own variance, with a run's worth of what is usual: few runs may be alike by chance.
    runs = xp.sum(xp.astype(~missing, outputs.dtype), axis=0)
    scale = xp.sqrt(variance + xp.mean(variance) / xp.where(runs > 0.0, runs, xp.ones_like(runs)))
    drawn = xp.where(missing, expected + scale * _in_order(deviations, outputs), outputs)
    half = solve_triangular(factor, drawn - xp.mean(drawn, axis=0)) * xp.sqrt(gap)
    # A covariance is at most the diagonal of the sums of the magnitudes in its rows.
    bound = xp.abs(xp.matrix_transpose(half) @ half) / outputs.shape[0]
    void = xp.astype(xp.all(missing, axis=0), outputs.dtype)
    return CompletedOutputs(expected, drawn, bound @ weights + VOID * void)


def complete_blocks(
    blocks: Sequence[Block],
    w: Array,
    outputs: Array,
    hyper: Sequence[Hyperparameters] | None,
    points: Array,
    unmixing: Array | None,
) -> CompletedOutputs:
    """What is missing among outputs (n, D) of runs at w (n, R), block by block; the excess is of independent data.

    Parameters
    ----------
    hyper : of each block's regression before; None for the usual.
    points : (m, R), all over the posterior.
    unmixing : (D, D): the independent data are this times the outputs; None if they are the outputs.
    """
    xp = array_namespace(outputs)
    weights = xp.ones_like(outputs[0, :])
    if unmixing is not None:
        weights = weights @ xp.abs(unmixing)
    normals = backend_of(outputs).asarray(np.random.default_rng(0).standard_normal(outputs.shape))
    parts = []
    for number, block in enumerate(blocks):
        own = block.modes.usual if hyper is None else hyper[number]
        columns, at = index_array(block.data, outputs), block.project(w)
        parts.append(
            complete_outputs(
                xp.take(outputs, columns, axis=1),
                covariance_of_runs(block.modes, own, at),
                across_runs(block.modes, own, block.project(points), at),
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
class _Group:
    """Outputs that the same runs have.

    Attributes
    ----------
    runs, columns : numbers (k,) and (d,) of these runs and outputs.
    centre, known : (d,) and (k, d): averages of the outputs, and the outputs less these.
    towards : (n, k), covariance of all runs with these.
    factor : (k, k), of the covariance of these.
    """

    runs: NDArray[np.intp]
    columns: NDArray[np.intp]
    centre: Array
    known: Array
    step_towards: Array
    factor: Array

    @staticmethod
    def on(runs: NDArray[np.intp], columns: NDArray[np.intp], outputs: Array, covariance: Array) -> _Group:
        xp = array_namespace(outputs)
        rows = index_array(runs, outputs)
        known = xp.take(xp.take(outputs, rows, axis=0), index_array(columns, outputs), axis=1)
        centre = xp.mean(known, axis=0)
        step_towards = xp.take(covariance, rows, axis=1)
        factor = cholesky(xp.take(step_towards, rows, axis=0))
        return _Group(runs, columns, centre, known - centre, step_towards, factor)

    @property
    def mean(self) -> Array:
        """What is expected at all runs, (n, d)."""
        return self.centre + self.expected(self.known)

    @property
    def variance(self) -> Array:
        """(d,), of each output in units of the covariance."""
        return sum_of_squares(solve_triangular(self.factor, self.known)) / len(self.runs)

    def of_runs(self, rows: Array) -> Array:
        """Those rows (k, d) of (n, d) that belong to these runs."""
        return array_namespace(rows).take(rows, index_array(self.runs, rows), axis=0)

    def expected(self, known: Array) -> Array:
        """At all runs (n, d), given (k, d) at these."""
        half = solve_triangular(self.factor, known)
        return self.step_towards @ solve_triangular(self.factor, half, transposed=True)

    def gap(self, explained: Array, across: Array) -> Array:
        """How much less these runs explain than all, (m,), of points with covariances `across` (m, n), on average."""
        xp = array_namespace(across)
        if len(self.runs) == across.shape[1]:
            return xp.zeros_like(explained[0])
        own = xp.take(xp.matrix_transpose(across), index_array(self.runs, across), axis=0)
        return xp.mean(clip_negative(explained - sum_of_squares(solve_triangular(self.factor, own))))


def _groups(outputs: Array, covariance: Array) -> Iterator[_Group]:
    """Outputs that some runs have, by which these are; one after the other, for each may hold as much as all runs."""
    patterns, which = np.unique(~np.isnan(to_numpy(outputs)), axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        if pattern.any():
            yield _Group.on(np.flatnonzero(pattern), np.flatnonzero(which.ravel() == number), outputs, covariance)


def _in_order(parts: Sequence[tuple[NDArray[np.intp], Array]], like: Array) -> Array:
    """Columns (n, D) from parts, numbers (d,) of columns and (n, d) each; 0 for those that no part has."""
    xp = array_namespace(like)
    said = np.concatenate([np.arange(0), *[columns for columns, _ in parts]])
    rest = np.setdiff1d(np.arange(like.shape[1]), said)
    none = xp.zeros_like(xp.take(like, index_array(rest, like), axis=1))
    order = index_array(np.argsort(np.concatenate([said, rest])), like)
    return xp.take(xp.concat([*[part for _, part in parts], none], axis=1), order, axis=1)
