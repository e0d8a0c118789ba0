"""Prior distributions and bounds of the parameters of kernels that are learnt.

The optimisers work on variables t on the whole real line. A free parameter of a kernel, the logarithm of a positive
quantity, is t itself, or middle + half tanh((t - middle) / half) if it has bounds middle - half and middle + half.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from invgp.core.backend import Array, Backend, array_namespace, to_numpy
from invgp.core.kernels import Kernel

OPEN_END = 30.0  # logarithm of the largest change of a parameter with one bound only, in the direction without bound
EDGE = 1e-9  # distance from a bound, relative to the range, of a start that is equal to it


@dataclass(frozen=True)
class Hyperprior:
    """Prior of a positive parameter of a kernel: log-normal around its initial value, between bounds.

    Parameters
    ----------
    factor : float
        A change of the parameter by this factor is one standard deviation. Infinite for a flat prior; 1 to keep the
        initial value.
    low, high : float
        Bounds, in the unit of the parameter.
    """

    factor: float = math.inf
    low: float = 0.0
    high: float = math.inf

    def __post_init__(self) -> None:
        numbers = (self.factor, self.low, self.high)
        if any(isinstance(value, bool) or not isinstance(value, int | float) for value in numbers):
            raise ValueError(f"factor, low and high must be numbers, were {numbers}")
        if not self.factor >= 1.0:
            raise ValueError(f"factor must be at least 1, was {self.factor!r}")
        if not 0.0 <= self.low < self.high:
            raise ValueError(f"low must be at least 0 and less than high, were {self.low!r} and {self.high!r}")


@dataclass(frozen=True)
class Hyperpriors:
    """Priors and bounds of R free parameters.

    Attributes
    ----------
    centre : array, shape (R,)
        Medians of the free parameters.
    precision : array, shape (R,)
        One over the variance of each free parameter; 0 for a flat prior.
    middle, half : array, shape (R,)
        Middle and half of the range between the bounds.
    bounded : array of bool, shape (R,)
        Which parameters have bounds.
    learnt : array, shape (R,)
        0 for a parameter that keeps its value, otherwise 1.
    """

    centre: Array
    precision: Array
    middle: Array
    half: Array
    bounded: Array
    learnt: Array

    @staticmethod
    def build(kernels: Sequence[Kernel], priors: Mapping[str, Hyperprior], backend: Backend) -> Hyperpriors:
        """Collect the priors of the free parameters of kernels.

        Parameters
        ----------
        kernels : sequence of Kernel
            Their parameters are the medians of the priors.
        priors : mapping of str to Hyperprior
            By name of a parameter, such as ``"variance"``, or by kind and name, such as ``"white.variance"``, which
            takes precedence.
        backend : Backend

        Raises
        ------
        ValueError
            A name is not that of a parameter, or an initial value is not between its bounds.
        """
        names = [name for kernel in kernels for name in kernel.qualified_names]
        centre = np.concatenate([to_numpy(kernel.parameters) for kernel in kernels]).astype(np.float64)
        known = {*names, *(name.rpartition(".")[2] for name in names)}
        for name in priors:
            if name not in known:
                raise ValueError(
                    f"hyperpriors must be for parameters of the kernel, {', '.join(sorted(known))}, had {name!r}"
                )
        own = [priors.get(name) or priors.get(name.rpartition(".")[2]) or Hyperprior() for name in names]
        with np.errstate(divide="ignore"):
            low, high, spread = (np.log([getattr(one, part) for one in own]) for part in ("low", "high", "factor"))
        bounded = np.isfinite(low) | np.isfinite(high)
        low, high = (
            np.where(np.isfinite(low), low, centre - OPEN_END),
            np.where(np.isfinite(high), high, centre + OPEN_END),
        )
        for i in np.flatnonzero((centre < low) | (centre > high)):
            raise ValueError(
                f"{names[i].rpartition('.')[2]} must be between its bounds {own[i].low:g} and {own[i].high:g}, "
                f"was {math.exp(centre[i]):g}"
            )
        learnt = np.where(spread > 0.0, 1.0, 0.0)
        precision = np.where(spread > 0.0, spread, np.inf) ** -2.0
        return Hyperpriors(
            centre=backend.asarray(centre),
            precision=backend.asarray(precision),
            middle=backend.asarray(0.5 * (low + high)),
            half=backend.asarray(0.5 * (high - low)),
            bounded=backend.asmask(bounded),
            learnt=backend.asarray(learnt),
        )

    def constrain(self, t: Array) -> Array:
        """Return the free parameters (R,) of the kernels from the variables t (R,) of the optimiser.

        Parameters
        ----------
        t : array, shape (R,)
            Variables of the optimiser, without bounds.

        Returns
        -------
        array, shape (R,)
        """
        xp = array_namespace(t)
        t = xp.where(self.learnt > 0.0, t, self._unconstrained_centre)
        return xp.where(self.bounded, self.middle + self.half * xp.tanh((t - self.middle) / self.half), t)

    def unconstrain(self, free: Array) -> Array:
        """Return the variables t (R,) of the optimiser from free parameters (R,): the inverse of `constrain`.

        Parameters
        ----------
        free : array, shape (R,)
            Free parameters, inside their bounds.

        Returns
        -------
        array, shape (R,)
        """
        xp = array_namespace(free)
        share = (free - self.middle) / self.half
        largest = (1.0 - EDGE) * xp.ones_like(share)
        share = xp.minimum(xp.maximum(share, -largest), largest)
        return xp.where(self.bounded, self.middle + self.half * xp.atanh(share), free)

    @property
    def _unconstrained_centre(self) -> Array:
        return self.unconstrain(self.centre)

    def log_density(self, t: Array) -> Array:
        """Compute the log prior density of the free parameters, shape (), without constants.

        Parameters
        ----------
        t : array, shape (R,)
            Variables of the optimiser.

        Returns
        -------
        array, shape (), in nats
        """
        xp = array_namespace(t)
        return -0.5 * xp.sum(self.precision * xp.square(self.constrain(t) - self.centre))

    def pull_back(self, t: Array, gradient: Array) -> Array:
        """Convert a gradient (R,) with respect to the free parameters, plus that of `log_density`, to one of t.

        Parameters
        ----------
        t : array, shape (R,)
            Variables of the optimiser.
        gradient : array, shape (R,)
            Gradient with respect to the free parameters.

        Returns
        -------
        array, shape (R,)
        """
        xp = array_namespace(t)
        free = self.constrain(t)
        slope = xp.where(self.bounded, 1.0 - xp.square((free - self.middle) / self.half), xp.ones_like(t))
        return self.learnt * slope * (gradient - self.precision * (free - self.centre))
