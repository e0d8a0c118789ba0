"""The monotone warp t(y) = y + sum_i a_i tanh(b_i (y + c_i)), its derivatives and its inverse."""

from __future__ import annotations

import math
from typing import NamedTuple

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._arrays import as_floats, convert_like
from invgp.likelihoods._per_output import log_positive

MAX_STEPS = 150  # every third step halves the bracket, so the bracket is halved 50 times


class Warp(NamedTuple):
    """Parameters of the I terms of the warp, (I,) each; a and b as logarithms."""

    log_a: Array
    log_b: Array
    c: Array

    @classmethod
    def of(cls, a: Array, b: Array, c: Array, *, positive: bool) -> Warp:
        """Check a, b and c and take logarithms; with `positive`, a = 0 is an error."""
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
        """Number of terms, I."""
        return int(self.c.shape[0])

    def convert_like(self, like: Array) -> Warp:
        """Convert the parameters to the library, device and type of `like`."""
        return Warp(*(convert_like(part, like) for part in self))

    def value(self, y: Array) -> tuple[Array, Array]:
        """Compute t(y) and t'(y) - 1 at y (..., 1), both of the shape of y."""
        xp = array_namespace(y)
        a, b = xp.exp(self.log_a), xp.exp(self.log_b)
        tanh = xp.tanh(b * (y + self.c))
        value = y + xp.sum(a * tanh, axis=-1, keepdims=True)
        return value, xp.sum(a * b * (1.0 - tanh * tanh), axis=-1, keepdims=True)

    def gradients(self, y: Array) -> tuple[Array, Array]:
        """Compute derivatives (..., 3 I) of t(y) and of log t'(y) by log a, log b and c, at y (..., 1)."""
        xp = array_namespace(y)
        a, b = xp.exp(self.log_a), xp.exp(self.log_b)
        shift = y + self.c
        tanh = xp.tanh(b * shift)
        part = a * b * (1.0 - tanh * tanh)  # term of t'
        bend = -2.0 * b * tanh * part  # term of t''
        slope = 1.0 + xp.sum(part, axis=-1, keepdims=True)
        d_value = xp.concat([a * tanh, shift * part, part], axis=-1)
        return d_value, xp.concat([part, part + shift * bend, bend], axis=-1) / slope


def invert_warp(warp: Warp, t: Array) -> Array:
    """Solve warp(y) = t for y, of the shape of t, by Newton's method safeguarded by bisection."""
    xp = array_namespace(t)
    reach = xp.sum(xp.exp(warp.log_a))
    low, high, y = t - reach, t + reach, t
    rounding = 4.0 * float(xp.finfo(t.dtype).eps)
    for step in range(MAX_STEPS):
        value, excess = warp.value(y[..., None])
        error = value[..., 0] - t
        low, high = xp.where(error < 0.0, y, low), xp.where(error > 0.0, y, high)
        # t' >= 1, so the distance from the root is at most the error, and at most the width of the bracket.
        distance = xp.minimum(xp.abs(error), high - low)
        if bool(xp.all(distance <= rounding * (1.0 + xp.abs(t) + reach))):
            break
        newton = y - error / (1.0 + excess[..., 0])
        outside = (newton <= low) | (newton >= high) | (step % 3 == 2)
        y = xp.where(outside & (error != 0.0), 0.5 * (low + high), newton)
    return y
