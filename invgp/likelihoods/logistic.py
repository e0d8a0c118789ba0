"""Likelihood of two classes, with the logistic function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, clip_negative, exp_in_place, log_in_place
from invgp.likelihoods._arrays import check_latents, check_shapes, mask_missing
from invgp.likelihoods._fixed import WithoutParameters


class BinaryLabels(WithoutParameters):
    """A likelihood of two classes without parameters; the labels are -1 and 1, or 0 and 1."""

    classifier: ClassVar[bool] = True

    def check(self, y: NDArray[Any]) -> None:
        """Raise `ValueError` unless all values of y are labels of one of the two types."""
        found = np.unique(y[~np.isnan(y)])
        if not (np.all(np.isin(found, (0.0, 1.0))) or np.all(np.isin(found, (-1.0, 1.0)))):
            some = ", ".join(f"{label:g}" for label in found[:5])
            raise ValueError(f"y must be labels, 0 and 1 or -1 and 1, for {type(self).__name__}, had {some}")


@dataclass(frozen=True)
class Logistic(BinaryLabels):
    """Binary classification: p(y = 1 | f) = 1 / (1 + exp(-f)), with P = Q = 1 and no parameters.

    The labels are -1 and 1, or 0 and 1. `moments` returns the moments of the indicator of class 1, so the mean is the
    probability of class 1 for both types of labels.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import Logistic
    >>> probability, variance = Logistic().moments(np.array([[[0.0]]]))
    >>> probability
    array([[[0.5]]])
    """

    latents: ClassVar[int] = 1
    outputs: ClassVar[int] = 1

    def log_density(self, y: Array, f: Array) -> Array:
        """Compute log p(y_n | f_sn), (S, N), for y (N, 1) and f (S, N, 1)."""
        xp = array_namespace(y, f)
        check_shapes(y, f, outputs=1, latents=1)
        against = xp.where(y > 0.0, -xp.ones_like(y), xp.ones_like(y)) * f
        # log(1 + exp(a)) = log(1 + exp(-|a|)) + max(a, 0) without overflow, and several times as fast as logaddexp.
        # log is twice as fast as log1p; the lost digits are below the rounding error of p itself.
        term = xp.abs(against)
        term *= -1.0
        term = exp_in_place(term)
        term += 1.0
        term = log_in_place(term)
        term += clip_negative(against)
        term *= -1.0
        return mask_missing(y, term)[..., 0]

    def moments(self, f: Array) -> tuple[Array, Array]:
        """Compute the probability of class 1 and the variance of its indicator, (S, N, 1) each."""
        check_latents(f, 1)
        return _sigmoid(f), _sigmoid(f) * _sigmoid(-f)


def _sigmoid(f: Array) -> Array:
    """Compute 1 / (1 + exp(-f)) without overflow."""
    xp = array_namespace(f)
    small = xp.exp(-xp.abs(f))
    return xp.where(f > 0.0, xp.ones_like(f), small) / (1.0 + small)
