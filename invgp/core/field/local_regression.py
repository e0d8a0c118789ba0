"""A forward model whose outputs feel the field near them alone: a regression for each block of data that lie together.

Within a block's reach the field varies in few directions, and few runs show how outputs depend on them. What a block
feels from beyond its reach all the same is taken for noise of the regression, and so for uncertainty.
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
from invgp.core.field.regression import Hyperparameters, Modes, Regression, fit


@dataclass(frozen=True)
class Block:
    """Data that lie together, and what they feel of the variables.

    Attributes
    ----------
    data : numbers (d,) of the data.
    turn : (R, r), with orthonormal columns: of variables w, the block feels w turn; None for all of them.
    modes : of these.
    """

    data: NDArray[np.intp]
    turn: Array | None
    modes: Modes

    def project(self, w: Array) -> Array:
        """(n, r), of variables (n, R)."""
        return w if self.turn is None else w @ self.turn


@dataclass(frozen=True)
class LocalRegression:
    """Regressions of all blocks as one; see `Regression` for what it has in common with it.

    Attributes
    ----------
    blocks, parts : of data, and the regression of each.
    outputs : (n, D), of the runs.
    scale : (D,), of the outputs.
    """

    blocks: Sequence[Block]
    parts: Sequence[Regression]
    outputs: Array
    scale: Array

    @cached_property
    def centre(self) -> Array:
        """(D,), of the outputs times their scale."""
        return array_namespace(self.outputs).mean(self.outputs * self.scale, axis=0)

    @cached_property
    def directions(self) -> Array:
        """(k, D), of the outputs: orthonormal, each within a block."""
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

    def inner(self, w: Array) -> Array:
        """Inner products (m, n B) of w (m, R) with the runs, block by block."""
        return array_namespace(w).concat(
            [part.inner(w @ block.turn) for block, part in zip(self.blocks, self.parts, strict=True)], axis=1
        )

    def mean(self, w: Array) -> Array:
        """Outputs (m, D) expected at w (m, R)."""
        return (self.centre + self.predictions(w)[0] @ self.directions) / self.scale

    def predictions(self, w: Array, inner: Array | None = None) -> tuple[Array, Array]:
        """Expected z (m, k) at w (m, R), and the variance (m, k) of what the runs leave open there."""
        xp, runs = array_namespace(w), self.outputs.shape[0]
        found = [
            part.predictions(w @ block.turn, None if inner is None else inner[:, number * runs : (number + 1) * runs])
            for number, (block, part) in enumerate(zip(self.blocks, self.parts, strict=True))
        ]
        expected, errors = zip(*found, strict=True)
        return xp.concat(expected, axis=1), xp.concat(errors, axis=1)

    def run_weights(self, w: Array) -> list[Array]:
        """How much each run counts at w (m, R) in what is expected of a block's outputs, (m, n) for each."""
        return [
            weights
            for block, part in zip(self.blocks, self.parts, strict=True)
            for weights in part.run_weights(w @ block.turn)
        ]

    def average_over(self, q: LowRankGaussian) -> tuple[Array, Array]:
        """Value (k,) and slope (k, R) of z, averaged over w ~ q, in closed form."""
        xp = array_namespace(q.mean)
        values, slopes = [], []
        for block, part in zip(self.blocks, self.parts, strict=True):
            value, slope = part.average_over(q.along(block.turn))
            values.append(value)
            slopes.append(slope @ xp.matrix_transpose(block.turn))
        return xp.concat(values), xp.concat(slopes)


def _zeros(like: Array, columns: int) -> Array:
    """As many rows as an array has."""
    return array_namespace(like).zeros((like.shape[0], columns), dtype=like.dtype, device=device_of(like))


def fit_blocks(
    blocks: Sequence[Block],
    w: Array,
    outputs: Array,
    hyper: Sequence[Hyperparameters] | None,
    drawn: Array | None = None,
    scale: Array | None = None,
) -> LocalRegression:
    """The regressions of outputs (n, D), in standard deviations of the noise, on w (n, R); see `fit`."""
    xp = array_namespace(w, outputs)
    starts = [None] * len(blocks) if hyper is None else hyper
    scale = xp.ones_like(outputs[0, :]) if scale is None else scale
    parts = []
    for block, start in zip(blocks, starts, strict=True):
        columns = index_array(block.data, outputs)
        own = [None if every is None else xp.take(every, columns, axis=1) for every in (outputs, drawn)]
        parts.append(fit(block.modes, w @ block.turn, own[0], start, own[1], xp.take(scale, columns)))
    return LocalRegression(blocks, parts, outputs, scale)


def taper(distance: np.ndarray) -> np.ndarray:
    """1 at distance 0, falling smoothly to 0 at 1 and beyond (Wendland 1995)."""
    near = np.maximum(1.0 - distance, 0.0)
    return np.asarray(near**4 * (4.0 * distance + 1.0))
