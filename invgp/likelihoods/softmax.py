"""Likelihood of several classes, with the softmax function."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace
from invgp.core.checks import check_integer
from invgp.likelihoods._arrays import check_latents, check_shapes, fill_missing
from invgp.likelihoods._fixed import WithoutParameters


@dataclass(frozen=True)
class Softmax(WithoutParameters):
    """Multi-class classification: p(class c | f) = exp(f_c) / sum_i exp(f_i), with P = Q = C and no parameters.

    Labels are one-hot rows: 1 in the column of the class, 0 elsewhere. A row with any NaN is missing. `moments` returns
    the moments of the indicators, so the mean contains the probabilities of the classes.

    Parameters
    ----------
    classes : int
        Number of classes C, at least 2.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import Softmax
    >>> probabilities, variance = Softmax(2).moments(np.array([[[0.0, 0.0]]]))
    >>> probabilities
    array([[[0.5, 0.5]]])
    """

    classifier: ClassVar[bool] = True
    whole_rows: ClassVar[bool] = True
    classes: int

    def __post_init__(self) -> None:
        check_integer("classes", self.classes, 2)

    @property
    def latents(self) -> int:
        """Number of latents, Q = C."""
        return self.classes

    @property
    def outputs(self) -> int:
        """Number of outputs, P = C."""
        return self.classes

    def check(self, y: NDArray[Any]) -> None:
        """Raise `ValueError` unless each row of y is a one-hot label or missing.

        Parameters
        ----------
        y : NumPy array, shape (N, C)
            One-hot labels; a row with NaN is missing.
        """
        rows = y[~np.any(np.isnan(y), axis=1)]
        fine = np.all((rows == 0.0) | (rows == 1.0), axis=1) & (np.sum(rows, axis=1) == 1.0)
        if not np.all(fine):
            raise ValueError(
                f"each row of y must be a label for Softmax, 1 in the column of its class and 0 elsewhere, "
                f"had the row {rows[~fine][0]}"
            )

    def log_density(self, y: Array, f: Array) -> Array:
        """Compute log p(y_n | f_sn), (S, N), for one-hot y (N, C) and f (S, N, C)."""
        xp = array_namespace(y, f)
        check_shapes(y, f, outputs=self.classes, latents=self.classes)
        # Loop over classes: NumPy is slower at reductions over a short axis.
        scores = [f[..., c] for c in range(self.classes)]
        top = reduce(xp.maximum, scores)
        total = sum(xp.exp(score - top) for score in scores)
        labels = fill_missing(y)
        terms = sum(labels[:, c] * score for c, score in enumerate(scores)) - top - xp.log(total)
        return xp.where(xp.any(xp.isnan(y), axis=-1), xp.zeros_like(terms), terms)

    def moments(self, f: Array) -> tuple[Array, Array]:
        """Compute the probabilities of the classes and the variances of their indicators, (S, N, C) each."""
        xp = array_namespace(f)
        check_latents(f, self.classes)
        weight = xp.exp(f - xp.max(f, axis=-1, keepdims=True))
        probability = weight / xp.sum(weight, axis=-1, keepdims=True)
        return probability, probability * (1.0 - probability)
