"""Stochastic optimisers in ask/tell form, for noisy gradients of mini-batches.

Another optimiser for `MiniBatches` must have `init(point)` and `tell(state, gradient)`. Its states must be dataclasses
of arrays and numbers with a field `trial`, so that a checkpoint can store them.
"""

from __future__ import annotations

from dataclasses import dataclass

from invgp.core.backend import Array, array_namespace
from invgp.core.checks import check_number


@dataclass(frozen=True)
class AdaptiveState:
    """State of a stochastic optimiser.

    Attributes
    ----------
    trial : array
        Point at which the gradient is evaluated next.
    first, second : array
        Running averages of gradients, of squared gradients, or of squared steps.
    steps : int
        Number of steps so far.
    """

    trial: Array
    first: Array
    second: Array
    steps: int = 0


class Adaptive:
    """Base class of optimisers whose running averages start at zero."""

    def init(self, point: Array) -> AdaptiveState:
        """Return the initial state at `point`."""
        zeros = array_namespace(point).zeros_like(point)
        return AdaptiveState(point, zeros, zeros)


@dataclass(frozen=True)
class Adam(Adaptive):
    """The optimiser Adam; it minimises.

    Parameters
    ----------
    rate : float
        Step size.
    decay : tuple of two floats
        Decay rates of the averages of gradients and of squared gradients.
    epsilon : float
        Added to the denominator of the step.

    References
    ----------
    Kingma and Ba (2015), Adam: a method for stochastic optimization.
    """

    rate: float = 0.01
    decay: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        check_number("rate", self.rate, 0.0, open_below=True)
        if not isinstance(self.decay, tuple) or len(self.decay) != 2:
            raise ValueError(f"decay must be two numbers from 0 to below 1, was {self.decay!r}")
        for decay in self.decay:
            check_number("decay", decay, 0.0, 1.0, open_above=True)
        check_number("epsilon", self.epsilon, 0.0, open_below=True)

    def tell(self, state: AdaptiveState, gradient: Array) -> AdaptiveState:
        """Return the state after a step with the gradient at `state.trial`.

        Parameters
        ----------
        state : AdaptiveState
            State before the step.
        gradient : array, shape (P,)
            Gradient of the function that is minimised.

        Returns
        -------
        AdaptiveState
        """
        xp = array_namespace(gradient)
        a, b = self.decay
        steps = state.steps + 1
        first = a * state.first + (1.0 - a) * gradient
        second = b * state.second + (1.0 - b) * xp.square(gradient)
        size = self.rate * (1.0 - b**steps) ** 0.5 / (1.0 - a**steps)
        return AdaptiveState(state.trial - size * first / (xp.sqrt(second) + self.epsilon), first, second, steps)


@dataclass(frozen=True)
class AdaDelta(Adaptive):
    """The optimiser AdaDelta; it minimises.

    Parameters
    ----------
    rate : float
        Factor of the step.
    decay : float
        Decay rate of the averages.
    epsilon : float
        Added to the averages before their square roots.

    References
    ----------
    Zeiler (2012), ADADELTA: an adaptive learning rate method.
    """

    rate: float = 1.0
    decay: float = 0.95
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        check_number("rate", self.rate, 0.0, open_below=True)
        check_number("decay", self.decay, 0.0, 1.0, open_above=True)
        check_number("epsilon", self.epsilon, 0.0, open_below=True)

    def tell(self, state: AdaptiveState, gradient: Array) -> AdaptiveState:
        """Return the state after a step with the gradient at `state.trial`.

        Parameters
        ----------
        state : AdaptiveState
            State before the step.
        gradient : array, shape (P,)
            Gradient of the function that is minimised.

        Returns
        -------
        AdaptiveState
        """
        xp = array_namespace(gradient)
        gradients = self.decay * state.first + (1.0 - self.decay) * xp.square(gradient)
        step = gradient * xp.sqrt(state.second + self.epsilon) / xp.sqrt(gradients + self.epsilon)
        moves = self.decay * state.second + (1.0 - self.decay) * xp.square(step)
        return AdaptiveState(state.trial - self.rate * step, gradients, moves, state.steps + 1)
