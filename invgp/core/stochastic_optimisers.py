"""Stochastic optimisers in ask/tell form, for noisy gradients of mini-batches.

One of your own for `MiniBatches` has `init(point)` and `tell(state, gradient)`; its states are dataclasses whose fields
are arrays and numbers, `trial` among them, so that a checkpoint can hold them.
"""

from __future__ import annotations

from dataclasses import dataclass

from invgp.core.backend import Array, array_namespace
from invgp.core.checks import check_number


@dataclass(frozen=True)
class AdaptiveState:
    """Where a stochastic optimiser stands.

    Attributes
    ----------
    trial : the point whose gradient is wanted next.
    first, second : running averages of gradients, of squared gradients, or of squared steps.
    """

    trial: Array
    first: Array
    second: Array
    steps: int = 0


class Adaptive:
    """What starts with nothing known of the gradients."""

    def init(self, point: Array) -> AdaptiveState:
        """Start at `point`."""
        zeros = array_namespace(point).zeros_like(point)
        return AdaptiveState(point, zeros, zeros)


@dataclass(frozen=True)
class Adam(Adaptive):
    """Kingma and Ba, Adam: a method for stochastic optimization, 2015. Minimises."""

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
        """Take in the gradient at `state.trial`."""
        xp = array_namespace(gradient)
        a, b = self.decay
        steps = state.steps + 1
        first = a * state.first + (1.0 - a) * gradient
        second = b * state.second + (1.0 - b) * xp.square(gradient)
        size = self.rate * (1.0 - b**steps) ** 0.5 / (1.0 - a**steps)
        return AdaptiveState(state.trial - size * first / (xp.sqrt(second) + self.epsilon), first, second, steps)


@dataclass(frozen=True)
class AdaDelta(Adaptive):
    """Zeiler, ADADELTA: an adaptive learning rate method, 2012, with the paper's decay. Minimises."""

    rate: float = 1.0
    decay: float = 0.95
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        check_number("rate", self.rate, 0.0, open_below=True)
        check_number("decay", self.decay, 0.0, 1.0, open_above=True)
        check_number("epsilon", self.epsilon, 0.0, open_below=True)

    def tell(self, state: AdaptiveState, gradient: Array) -> AdaptiveState:
        """Take in the gradient at `state.trial`."""
        xp = array_namespace(gradient)
        gradients = self.decay * state.first + (1.0 - self.decay) * xp.square(gradient)
        step = gradient * xp.sqrt(state.second + self.epsilon) / xp.sqrt(gradients + self.epsilon)
        moves = self.decay * state.second + (1.0 - self.decay) * xp.square(step)
        return AdaptiveState(state.trial - self.rate * step, gradients, moves, state.steps + 1)
