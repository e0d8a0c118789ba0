"""Local regression for field models whose outputs depend only on the field near them: one regression per block of data.

Within the neighbourhood of a block, the field varies in few directions, so that few runs show how the outputs depend on
them. Any influence from outside the neighbourhood acts as noise of the regression and increases its uncertainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, device_of
from invgp.core.field.field_gaussian import LowRankGaussian
from invgp.core.field.grid_basis import index_array
from invgp.core.field.regression import ChainRule, KernelParameters, Modes, Regression, fit_regression


@dataclass(frozen=True)
class Block:
    """Neighbouring data, and the variables on which they depend.

    Attributes
    ----------
    data : array of int, shape (d,)
        Indices of the data.
    projection : Array, shape (R, r), or None
        Matrix with orthonormal columns: the data depend on w @ projection; None if they depend on all variables.
    modes : Modes
        Modes of the projected variables.
    """

    data: NDArray[np.intp]
    projection: Array | None
    modes: Modes

    def project(self, w: Array) -> Array:
        """Project variables (n, R) to those of the block (n, r).

        Parameters
        ----------
        w : Array, shape (n, R)

        Returns
        -------
        Array, shape (n, r)
        """
        return w if self.projection is None else w @ self.projection


@dataclass(frozen=True)
class LocalRegression:
    """Regressions of all blocks, with the interface of `Regression`.

    Attributes
    ----------
    blocks : sequence of Block
        Blocks of data.
    parts : sequence of Regression
        Regression of each block.
    outputs : Array, shape (n, D)
        Outputs of the runs.
    scale : Array, shape (D,)
        Scale of the outputs; see `Regression`.
    """

    blocks: Sequence[Block]
    parts: Sequence[Regression]
    outputs: Array
    scale: Array

    @cached_property
    def centre(self) -> Array:
        """Mean (D,) of the scaled outputs."""
        return array_namespace(self.outputs).mean(self.outputs * self.scale, axis=0)

    @cached_property
    def directions(self) -> Array:
        """Orthonormal directions (k, D) of the outputs, each of them within one block."""
        xp = array_namespace(self.outputs)
        order = index_array(np.argsort(np.concatenate([block.data for block in self.blocks])), self.outputs)
        rows = []
        for number, part in enumerate(self.parts):
            own = part.directions
            across = [
                own if other == number else _zeros(own, len(block.data)) for other, block in enumerate(self.blocks)
            ]
            rows.append(xp.take(xp.concat(across, axis=1), order, axis=1))
        return xp.concat(rows)

    def inner_products(self, w: Array) -> Array:
        """Compute the inner products (m, n B) of w (m, R) with the runs, for each of B blocks.

        Parameters
        ----------
        w : Array, shape (m, R)

        Returns
        -------
        Array, shape (m, n B)
        """
        return array_namespace(w).concat(
            [part.inner_products(w @ block.projection) for block, part in zip(self.blocks, self.parts, strict=True)],
            axis=1,
        )

    def mean(self, w: Array) -> Array:
        """Compute the expected outputs (m, D) at w (m, R).

        Parameters
        ----------
        w : Array, shape (m, R)

        Returns
        -------
        Array, shape (m, D), in standard deviations of the noise
        """
        return (self.centre + self.predictions(w)[0] @ self.directions) / self.scale

    def predictions(self, w: Array, inner_products: Array | None = None) -> tuple[Array, Array]:
        """Compute expectation and variance (m, k) of z at w (m, R); see `Regression.predictions`."""
        xp, runs = array_namespace(w), self.outputs.shape[0]
        found = [
            part.predictions(
                w @ block.projection,
                None if inner_products is None else inner_products[:, number * runs : (number + 1) * runs],
            )
            for number, (block, part) in enumerate(zip(self.blocks, self.parts, strict=True))
        ]
        expected, errors = zip(*found, strict=True)
        return xp.concat(expected, axis=1), xp.concat(errors, axis=1)

    def predictions_with_derivatives(self, w: Array) -> tuple[Array, Array, ChainRule]:
        """Compute expectation and variance (m, k) of z at w (m, R), and the chain rule for their derivatives.

        Parameters
        ----------
        w : Array, shape (m, R)

        Returns
        -------
        mean, variance : Array, shape (m, k)
        chain_rule : ChainRule
        """
        xp = array_namespace(w)
        found = [
            part.predictions_with_derivatives(w @ block.projection)
            for block, part in zip(self.blocks, self.parts, strict=True)
        ]
        ends = np.cumsum([0, *[expected.shape[1] for expected, _, _ in found]]).tolist()

        def chain_rule(by_expectation: Array, by_variance: Array) -> Array:
            total = xp.zeros_like(w)
            for block, (_, _, own), a, b in zip(self.blocks, found, ends[:-1], ends[1:], strict=True):
                total += own(by_expectation[:, a:b], by_variance[:, a:b]) @ xp.matrix_transpose(block.projection)
            return total

        expected, errors = ([part[i] for part in found] for i in (0, 1))
        return xp.concat(expected, axis=1), xp.concat(errors, axis=1), chain_rule

    def run_weights(self, w: Array) -> list[Array]:
        """Compute the weights (m, n) of the runs in the expected outputs at w (m, R), for each block.

        Parameters
        ----------
        w : Array, shape (m, R)

        Returns
        -------
        list of Array, shape (m, n)
        """
        return [
            weights
            for block, part in zip(self.blocks, self.parts, strict=True)
            for weights in part.run_weights(w @ block.projection)
        ]

    def average_over(self, q: LowRankGaussian) -> tuple[Array, Array]:
        """Compute value (k,) and slope (k, R) of z, averaged over w ~ q, in closed form.

        Parameters
        ----------
        q : LowRankGaussian
            Posterior of the variables.

        Returns
        -------
        value : Array, shape (k,)
        slope : Array, shape (k, R)
        """
        xp = array_namespace(q.mean)
        values, slopes = [], []
        for block, part in zip(self.blocks, self.parts, strict=True):
            value, slope = part.average_over(q.project(block.projection))
            values.append(value)
            slopes.append(slope @ xp.matrix_transpose(block.projection))
        return xp.concat(values), xp.concat(slopes)


def _zeros(like: Array, columns: int) -> Array:
    """Create zeros with the rows, type and device of `like`, and a number of columns."""
    return array_namespace(like).zeros((like.shape[0], columns), dtype=like.dtype, device=device_of(like))


def fit_blocks(
    blocks: Sequence[Block],
    w: Array,
    outputs: Array,
    hyper: Sequence[KernelParameters] | None,
    drawn: Array | None = None,
    scale: Array | None = None,
) -> LocalRegression:
    """Fit the regressions of all blocks; see `fit_regression`.

    Parameters
    ----------
    blocks : sequence of Block
        Blocks of data.
    w : Array, shape (n, R)
        Variables of the runs.
    outputs : Array, shape (n, D), standard deviations of the noise
        Outputs of the runs.
    hyper : sequence of KernelParameters or None
        Start of the search for each block; None for the default start.
    drawn : Array, shape (n, D), or None
        Outputs from which the hyperparameters are learnt; None for `outputs`.
    scale : Array, shape (D,), or None
        Scale of the outputs; None for 1.
    """
    xp = array_namespace(w, outputs)
    starts = [None] * len(blocks) if hyper is None else hyper
    scale = xp.ones_like(outputs[0, :]) if scale is None else scale
    parts = []
    for block, start in zip(blocks, starts, strict=True):
        columns = index_array(block.data, outputs)
        own = [None if every is None else xp.take(every, columns, axis=1) for every in (outputs, drawn)]
        parts.append(fit_regression(block.modes, w @ block.projection, own[0], start, own[1], xp.take(scale, columns)))
    return LocalRegression(blocks, parts, outputs, scale)


def taper(distance: np.ndarray) -> np.ndarray:
    """Compute a weight that decreases smoothly from 1 at distance 0 to 0 at distance 1 and beyond (Wendland 1995).

    Parameters
    ----------
    distance : array
        Distances, relative to the range of the taper.

    Returns
    -------
    array
        Weights of the same shape.
    """
    near = np.maximum(1.0 - distance, 0.0)
    return np.asarray(near**4 * (4.0 * distance + 1.0))
