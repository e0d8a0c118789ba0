"""Likelihood of counts, for the log Gaussian Cox process on a grid of cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._arrays import (
    COUNTS,
    are_counts,
    check_latents,
    check_shapes,
    check_values,
    fill_missing,
    format_call,
    log_factorial,
    mask_missing,
    replace_fields,
    set_fields,
)
from invgp.likelihoods._per_output import PerOutput, per_output


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Poisson:
    """Poisson counts y with mean exp(f + offset), with P = Q.

    If the mean overflows the floating-point type, the log density is -inf.

    Parameters
    ----------
    offset : float or array, shape (P,) or (N, P)
        Offset of the logarithm of the mean, for all outputs, per output, or per datum. With shape (N, P) it is known
        and not learnt, for example the logarithm of the size of each cell.
    outputs : int, optional
        P; by default the last dimension of `offset`, or 1.
    learn : bool
        Whether the offset is a parameter.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import Poisson
    >>> Poisson().log_density(np.array([[2.0]]), np.array([[[0.0]]])).round(4)
    array([[-1.6931]])
    """

    separable: ClassVar[bool] = True
    positive: ClassVar[bool] = True
    log_mean: PerOutput

    def __init__(self, offset: Array = 0.0, outputs: int | None = None, *, learn: bool = True) -> None:
        set_fields(self, log_mean=per_output("offset", offset, outputs, learn=learn))

    def __repr__(self) -> str:
        return format_call(self, **self.arguments())

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor by name; None for a default."""
        values, learn = self.log_mean.values, self.log_mean.learn
        outputs = self.outputs if values.ndim == 0 and self.outputs > 1 else None
        return {"offset": values, "outputs": outputs, "learn": None if learn or values.ndim == 2 else False}

    @property
    def outputs(self) -> int:
        """Number of outputs, P."""
        return self.log_mean.outputs

    @property
    def latents(self) -> int:
        """Number of latents, Q = P."""
        return self.outputs

    @property
    def offset(self) -> Array:
        """Offset of the logarithm of the mean, shape (), (P,) or (N, P)."""
        return self.log_mean.values

    @property
    def parameters(self) -> Array:
        """The offset, (K,): K = 1 if shared, P if one for each output, 0 if known."""
        return self.log_mean.parameters

    def with_parameters(self, parameters: Array) -> Self:
        """Return the same likelihood with another offset, (K,)."""
        return replace_fields(self, log_mean=self.log_mean.with_parameters(parameters))

    def at_sites(self, rows: slice | Array) -> Self:
        """Return the likelihood of some sites, given by a slice or by row numbers.

        Parameters
        ----------
        rows : slice or array of int, shape (B,)
            The sites.

        Returns
        -------
        Poisson
        """
        return replace_fields(self, log_mean=self.log_mean.at_sites(rows))

    def check(self, y: NDArray[Any]) -> None:
        """Raise `ValueError` unless all values of y are counts.

        Parameters
        ----------
        y : NumPy array, shape (N, P)
            Observations; NaN marks a missing one.
        """
        check_values(self, y, are_counts(y), COUNTS)

    def log_density(self, y: Array, f: Array) -> Array:
        """Compute log p(y_n | f_sn), (S, N), for counts y (N, P) and f (S, N, P)."""
        xp = array_namespace(y, f)
        check_shapes(y, f, outputs=self.outputs, latents=self.outputs)
        log_rate, counts = f + self.log_mean.convert_like(f), fill_missing(y)
        terms = counts * log_rate - xp.exp(log_rate) - log_factorial(counts)
        return xp.sum(mask_missing(y, terms), axis=-1)

    def parameter_gradient(self, y: Array, f: Array) -> Array:
        """Compute the derivative of `log_density` with respect to the offset, (S, N, K)."""
        check_shapes(y, f, outputs=self.outputs, latents=self.outputs)
        return self.log_mean.gradient(mask_missing(y, fill_missing(y) - self.moments(f)[0]))

    def expected_log_density(self, y: Array, mean: Array, variance: Array) -> tuple[Array, Array, Array, Array]:
        """Compute E[log p(y_n | f_n)] (N,) and its derivatives in closed form, for latents with moments (N, P).

        Parameters
        ----------
        y : array, shape (N, P)
            Counts; NaN marks a missing one.
        mean, variance : array, shape (N, P)
            Moments of independent normal latents.

        Returns
        -------
        value : array, shape (N,), in nats
        mean_derivative : array, shape (N, P)
        variance_derivative : array, shape (N, P)
            Twice the derivative with respect to the variance.
        parameter_derivative : array, shape (N, K)
        """
        xp = array_namespace(y, mean)
        log_rate, counts = mean + self.log_mean.convert_like(mean[None, ...]), fill_missing(y)
        rate = mask_missing(y, xp.exp(log_rate + 0.5 * variance))
        terms = mask_missing(y, counts * log_rate - rate - log_factorial(counts))
        gradient = mask_missing(y, counts - rate)
        return xp.sum(terms, axis=-1), gradient, -rate, self.log_mean.gradient(gradient[None, ...])[0, ...]

    def moments(self, f: Array) -> tuple[Array, Array]:
        """Compute mean and variance of the counts given f, (S, N, P) each; they are equal."""
        xp = array_namespace(f)
        check_latents(f, self.outputs)
        rate = xp.exp(f + self.log_mean.convert_like(f))
        return rate, rate
