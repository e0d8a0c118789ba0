"""The monotone warp t(y) = y + sum_i a_i tanh(b_i (y + c_i)), its derivatives and its inverse."""

from __future__ import annotations

import math
from typing import NamedTuple

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._arrays import as_floats, convert_like
from invgp.likelihoods._per_output import log_positive

MAX_STEPS = 150  # enough to halve the bracket 50 times


class Warp(NamedTuple):
    """The terms of the warp, (I,) each, in free form."""

    log_a: Array
    log_b: Array
    c: Array

    @classmethod
    def of(cls, a: Array, b: Array, c: Array, *, positive: bool) -> Warp:
        """Check the natural values; `positive` if a = 0 will not do."""
        a, b, c = as_floats("a", a), as_floats("b", b), as_floats("c", c)
        if not (a.ndim == 1 and a.shape == b.shape == c.shape):
            raise ValueError(f"a, b and c must have one shape (I,), were {a.shape}, {b.shape} and {c.shape}")
        xp = array_namespace(a)
        if bool(xp.any(a < 0.0)) or (positive and bool(xp.any(a == 0.0))):
            raise ValueError(f"a must be {'positive' if positive else '0 or positive'}, was {a}")
        log_a = xp.where(a > 0.0, xp.log(xp.where(a > 0.0, a, xp.ones_like(a))), xp.full_like(a, -math.inf))
        return cls(log_a, log_positive("b", b), c)

    @property
    def terms(self) -> int:
        """I."""
        return int(self.c.shape[0])

    def convert_like(self, like: Array) -> Warp:
        """The same warp where `like` lives."""
        return Warp(*(convert_like(part, like) for part in self))

    def value(self, y: Array) -> tuple[Array, Array]:
        """t(y) and t'(y) - 1 at y (..., 1), of the shape of y."""
        xp = array_namespace(y)
        a, b = xp.exp(self.log_a), xp.exp(self.log_b)
        tanh = xp.tanh(b * (y + self.c))
        value = y + xp.sum(a * tanh, axis=-1, keepdims=True)
        return value, xp.sum(a * b * (1.0 - tanh * tanh), axis=-1, keepdims=True)

    def gradients(self, y: Array) -> tuple[Array, Array]:
        """Derivatives of t(y) and of log t'(y) with respect to log a, log b and c, (..., 3 I) each, at y (..., 1)."""
        xp = array_namespace(y)
        a, b = xp.exp(self.log_a), xp.exp(self.log_b)
        shift = y + self.c
        tanh = xp.tanh(b * shift)
        part = a * b * (1.0 - tanh * tanh)  # of the term in t'
        bend = -2.0 * b * tanh * part  # of the term in t''
        slope = 1.0 + xp.sum(part, axis=-1, keepdims=True)
        d_value = xp.concat([a * tanh, shift * part, part], axis=-1)
        return d_value, xp.concat([part, part + shift * bend, bend], axis=-1) / slope


def invert_warp(warp: Warp, t: Array) -> Array:
    """The y with warp(y) = t, of the shape of t: Newton's method, kept in a bracket that shrinks."""
    xp = array_namespace(t)
    reach = xp.sum(xp.exp(warp.log_a))
    low, high, y = t - reach, t + reach, t
    rounding = 4.0 * float(xp.finfo(t.dtype).eps)
    for step in range(MAX_STEPS):
        value, excess = warp.value(y[..., None])
        error = value[..., 0] - t
        low, high = xp.where(error < 0.0, y, low), xp.where(error > 0.0, y, high)
        # t' is 1 at least, so the error bounds the distance from the root, as does the bracket.
        distance = xp.minimum(xp.abs(error), high - low)
        if bool(xp.all(distance <= rounding * (1.0 + xp.abs(t) + reach))):
            break
        newton = y - error / (1.0 + excess[..., 0])
        outside = (newton <= low) | (newton >= high) | (step % 3 == 2)
        y = xp.where(outside & (error != 0.0), 0.5 * (low + high), newton)
    return y
