"""Likelihood of classes with an order, such as grades."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace
from invgp.core.checks import check_boolean, check_integer
from invgp.likelihoods._arrays import (
    as_floats,
    check_latents,
    check_parameters,
    check_shapes,
    check_values,
    convert_like,
    fill_missing,
    format_call,
    mask_missing,
    no_gradient,
    replace_fields,
    set_fields,
)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Ordinal:
    """Ordered logit: p(y <= c | f) = 1 / (1 + exp(f - cut_c)) for the classes 0 to C - 1, with P = Q = 1.

    Parameters
    ----------
    classes : int
        Number of classes C, at least 2.
    cuts : array, shape (C - 1,), increasing, optional
        Values of f at which a class ends. By default they divide the logistic distribution into equal parts.
    learn : bool
        Whether the first cut and the logarithms of the distances between cuts are parameters, K = C - 1.

    Notes
    -----
    In `SAVIGP`, labels may be any numbers, in increasing order, or an ordered categorical column of pandas; `predict`
    returns labels. `moments` returns mean and variance of the number of the class.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import Ordinal
    >>> likelihood = Ordinal(3)
    >>> [round(float(np.exp(likelihood.log_density(np.array([[c]]), np.zeros((1, 1, 1)))[0, 0])), 6) for c in range(3)]
    [0.333333, 0.333333, 0.333333]
    """

    classifier: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    latents: ClassVar[int] = 1
    outputs: ClassVar[int] = 1
    classes: int
    free: Array
    learn: bool

    def __init__(self, classes: int, cuts: Array | None = None, *, learn: bool = True) -> None:
        check_integer("classes", classes, 2)
        check_boolean("learn", learn)
        shares = np.arange(1, classes) / classes
        values = as_floats("cuts", np.log(shares / (1.0 - shares)) if cuts is None else cuts)
        xp = array_namespace(values)
        gaps = values[1:] - values[:-1] if values.ndim == 1 else values
        if tuple(values.shape) != (classes - 1,) or not bool(xp.all(gaps > 0)):
            raise ValueError(f"cuts must be {classes - 1} increasing numbers for {classes} classes, was {values}")
        set_fields(self, classes=classes, free=xp.concat([values[:1], xp.log(gaps)]), learn=learn)

    def __repr__(self) -> str:
        return format_call(self, **self.arguments())

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor by name; None for a default."""
        return {"classes": self.classes, "cuts": self.cuts, "learn": None if self.learn else False}

    @property
    def cuts(self) -> Array:
        """Values of f at which a class ends, (C - 1,)."""
        xp = array_namespace(self.free)
        return xp.cumulative_sum(xp.concat([self.free[:1], xp.exp(self.free[1:])]))

    @property
    def parameters(self) -> Array:
        """The first cut and the logarithms of the distances between cuts, (K,)."""
        return self.free if self.learn else self.free[:0]

    def with_parameters(self, parameters: Array) -> Self:
        """Return the same likelihood with other cuts."""
        parameters = check_parameters(parameters, self.parameters.shape[0])
        return replace_fields(self, free=parameters) if self.learn else self

    def check(self, y: NDArray[Any]) -> None:
        """Raise `ValueError` unless all values of y are numbers of classes.

        Parameters
        ----------
        y : NumPy array, shape (N, 1)
            Observations; NaN marks a missing one.
        """
        check_values(self, y, np.isin(y, np.arange(self.classes)), f"numbers of classes from 0 to {self.classes - 1}")

    def log_density(self, y: Array, f: Array) -> Array:
        """Compute log p(y_n | f_sn), (S, N), for classes y (N, 1) and f (S, N, 1)."""
        check_shapes(y, f, outputs=1, latents=1)
        xp = array_namespace(y, f)
        upper, lower, first, last = self._limits(y, f)
        # s(u) - s(l) = s(u) s(-l) (1 - exp(l - u)) for the logistic function s.
        inner = xp.log(-xp.expm1(xp.where(first | last, -xp.ones_like(upper), lower - upper)))
        nothing = xp.zeros_like(upper)
        terms = xp.where(last, nothing, _log_sigmoid(upper)) + xp.where(first, nothing, _log_sigmoid(-lower))
        return mask_missing(y, terms + xp.where(first | last, nothing, inner))[..., 0]

    def parameter_gradient(self, y: Array, f: Array) -> Array:
        """Compute the derivative of `log_density` with respect to each parameter, (S, N, K)."""
        check_shapes(y, f, outputs=1, latents=1)
        if not self.learn:
            return no_gradient(f)
        xp = array_namespace(y, f)
        upper, lower, first, last = self._limits(y, f)
        nothing = xp.zeros_like(upper)
        between = 1.0 / xp.expm1(xp.where(first | last, xp.ones_like(upper), upper - lower))
        between = xp.where(first | last, nothing, between)
        by_upper = mask_missing(y, xp.where(last, nothing, xp.exp(_log_sigmoid(-upper)) + between))[..., 0]
        by_lower = mask_missing(y, xp.where(first, nothing, -xp.exp(_log_sigmoid(lower)) - between))[..., 0]
        number, gaps = fill_missing(y)[:, 0], xp.exp(convert_like(self.free, f))
        columns = []
        for k in range(self.classes - 1):  # parameter k moves all cuts from k on
            moved = xp.where(number >= k, by_upper, xp.zeros_like(by_upper))
            moved = moved + xp.where(number - 1.0 >= k, by_lower, xp.zeros_like(by_lower))
            columns.append(moved if k == 0 else gaps[k] * moved)
        return xp.stack(columns, axis=-1)

    def moments(self, f: Array) -> tuple[Array, Array]:
        """Compute mean and variance of the number of the class given f, (S, N, 1) each."""
        check_latents(f, 1)
        xp = array_namespace(f)
        above = [xp.exp(_log_sigmoid(f - cut)) for cut in xp.unstack(convert_like(self.cuts, f))]  # p(y > c)
        mean = sum(above[1:], start=above[0])
        squares = sum(((2.0 * c + 1.0) * share for c, share in enumerate(above)), start=xp.zeros_like(f))
        return mean, xp.maximum(squares - mean * mean, xp.zeros_like(f))

    def class_probabilities(self, f: Array) -> Array:
        """Compute the probabilities of the classes given f, (S, N, C).

        Parameters
        ----------
        f : array, shape (S, N, 1)
            Samples of the latent.

        Returns
        -------
        array, shape (S, N, C)
        """
        check_latents(f, 1)
        xp = array_namespace(f)
        above = [xp.exp(_log_sigmoid(f - cut)) for cut in xp.unstack(convert_like(self.cuts, f))]  # p(y > c)
        limits = [xp.ones_like(f), *above, xp.zeros_like(f)]
        return xp.concat([one - following for one, following in itertools.pairwise(limits)], axis=-1)

    def _limits(self, y: Array, f: Array) -> tuple[Array, Array, Array, Array]:
        """Compute the limits of each class minus f, (S, N, 1), and whether it is the first or last class, (N, 1)."""
        xp = array_namespace(y, f)
        number, cuts = fill_missing(y), convert_like(self.cuts, f)
        upper, lower = xp.zeros_like(number), xp.zeros_like(number)
        for c in range(self.classes - 1):
            upper = xp.where(number == c, cuts[c], upper)
            lower = xp.where(number == c + 1, cuts[c], lower)
        return upper - f, lower - f, number == 0, number == self.classes - 1


def _log_sigmoid(a: Array) -> Array:
    xp = array_namespace(a)
    return xp.minimum(a, xp.zeros_like(a)) - xp.log1p(xp.exp(-xp.abs(a)))
