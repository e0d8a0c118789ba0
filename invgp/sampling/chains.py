"""Where chains stand, which of their iterations are draws, and what they end as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, SupportsInt

import numpy as np
from numpy.typing import NDArray

from invgp.problem import Floats

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class State:
    """Where W walkers stand, of a chain or of a site of it, each at its own attempt of its own iteration.

    Attributes
    ----------
    v : (W, D), whitened latents.
    log_likelihood : (W,), at `v`.
    point, direction : (W, D), that span the ellipse: `v`, and a draw, in units of the Gaussian that it goes around.
    threshold : (W,), what the logarithm of the target over that Gaussian must exceed on the ellipse.
    angle, lower, upper : (W,), where the ellipse is tried next, and between which bounds.
    iteration, attempt : (W,), iterations done, and attempts made in the present one.
    evaluations : runs so far.
    """

    v: Floats
    log_likelihood: Floats
    point: Floats
    direction: Floats
    threshold: Floats
    angle: Floats
    lower: Floats
    upper: Floats
    iteration: Integers
    attempt: Integers
    evaluations: int


class Schedule(NamedTuple):
    """Which iterations are draws: every `thin`-th after the burn-in, up to the goal."""

    burn_in: int
    thin: int
    goal: int

    def draws(self, iteration: SupportsInt) -> int:
        """Draws that so many iterations give."""
        return max(int(iteration) - self.burn_in, 0) // self.thin


@dataclass(frozen=True)
class Chains:
    """Draws from the posterior.

    Attributes
    ----------
    draws : (C, draws, N, Q), on the scale of the Gaussian process.
    runs : of the simulator, with those that the proposal took, and those before the chains were last stopped.
    """

    draws: Floats
    runs: int
