"""State, schedule and result of Markov chains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, SupportsInt

import numpy as np
from numpy.typing import NDArray

from invgp.problem import Floats

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class State:
    """State of W walkers, each at its own attempt of its own iteration.

    A walker is a chain, or one site of a chain.

    Attributes
    ----------
    v : array, shape (W, D)
        Whitened latents.
    log_likelihood : array, shape (W,)
        Log likelihood at `v`.
    point, direction : arrays, shape (W, D)
        They span the ellipse: `v` and a random draw, in standard units of the Gaussian of the ellipse.
    threshold : array, shape (W,)
        Slice level: an accepted point has a larger log ratio of the target to this Gaussian.
    angle, lower, upper : arrays, shape (W,), radians
        Next angle on the ellipse, and the bracket that contains it.
    iteration, attempt : arrays of int, shape (W,)
        Number of completed iterations, and of attempts in the current one.
    evaluations : int
        Number of simulator runs so far.
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
    """Selection of the iterations that are stored: every `thin`-th after `burn_in`, up to iteration `goal`."""

    burn_in: int
    thin: int
    goal: int

    def draws(self, iteration: SupportsInt) -> int:
        """Return the number of samples that are stored after `iteration` iterations."""
        return max(int(iteration) - self.burn_in, 0) // self.thin


@dataclass(frozen=True)
class Chains:
    """Samples from the posterior.

    Attributes
    ----------
    draws : array, shape (C, draws, N, Q), on the scale of the Gaussian processes
    runs : int
        Number of simulator runs, including the runs of the proposal and of earlier calls with the same checkpoint.
    """

    draws: Floats
    runs: int
