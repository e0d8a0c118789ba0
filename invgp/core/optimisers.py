"""Optimisers in ask/tell form: immutable state in, new state out. The caller evaluates the objective.

Another optimiser for `Blocks` must have `tolerance`, `init(point)` and `tell(state, value, gradient)`. Its states must
have `trial`, `point`, `gradient`, `accepted` and `finished`, with the meanings of `LBFGSState`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from invgp.core.backend import Array, array_namespace
from invgp.core.checks import check_integer, check_number

CONVERGED = "the bound has converged"
NO_STEP, NO_START = "no further step improves the bound", "the objective is not finite at the start"
GAVE_UP = (NO_STEP, NO_START)


@dataclass(frozen=True)
class LBFGSState:
    """State of L-BFGS.

    Attributes
    ----------
    trial : array
        Point at which value and gradient are evaluated next.
    point, value, gradient : array, float and array
        The best point so far, with its value and gradient.
    accepted : bool
        Whether the last trial became the best point.
    finished : str
        Why the search ended; empty while it continues.
    """

    trial: Array
    point: Array
    value: float = math.inf
    gradient: Array = None
    direction: Array = None
    slope: float = 0.0
    step: float = 1.0
    backtracks: int = 0
    converged: int = 0
    memory: tuple[tuple[Array, Array, float], ...] = ()
    accepted: bool = False
    finished: str = ""


@dataclass(frozen=True)
class LBFGS:
    """Limited-memory BFGS with a backtracking line search, minimising.

    Unlike the implementation of SciPy, it can be paused between two evaluations, and the vectors stay on their device.
    The line search steps back from a trial whose value is not finite.

    Parameters
    ----------
    tolerance : float
        Relative to max(1, |value|). The search has converged when two successive steps improve the value by less, or
        when a line search reaches steps whose predicted improvement is smaller.
    memory : int
        Number of stored pairs of steps and gradient changes.
    max_backtracks : int
        Number of reductions of a step before the search direction is given up.
    sufficient_decrease : float
        Constant of the Armijo condition.
    first_step : float
        Largest length of a step along the gradient, before curvatures are known.

    References
    ----------
    Nocedal and Wright (2006), Numerical Optimization, 2nd edition, algorithms 7.4 and 3.1.
    """

    tolerance: float = 1e-7
    memory: int = 10
    max_backtracks: int = 12
    sufficient_decrease: float = 1e-4
    first_step: float = 1.0

    def __post_init__(self) -> None:
        check_number("tolerance", self.tolerance, 0.0)
        check_integer("memory", self.memory, 1)
        check_integer("max_backtracks", self.max_backtracks, 0)
        check_number("sufficient_decrease", self.sufficient_decrease, 0.0, 1.0)
        check_number("first_step", self.first_step, 0.0, open_below=True)

    def init(self, point: Array) -> LBFGSState:
        """Return the initial state at `point`.

        Parameters
        ----------
        point : array, shape (R,)
            First point.

        Returns
        -------
        LBFGSState
        """
        return LBFGSState(trial=point, point=point)

    def tell(self, state: LBFGSState, value: float, gradient: Array) -> LBFGSState:
        """Return the state after an evaluation of value and gradient at `state.trial`.

        Parameters
        ----------
        state : LBFGSState
            State whose `trial` was evaluated.
        value : float
            Value of the function there.
        gradient : array, shape (R,)
            Gradient there.

        Returns
        -------
        LBFGSState
        """
        if state.gradient is None:
            if not math.isfinite(value):
                return replace(state, finished=NO_START)
            return self._start_line(replace(state, accepted=True), value, gradient, converged=0)
        if not value <= state.value + self.sufficient_decrease * state.step * state.slope:
            return self._step_back(state, value)
        return self._accept(state, value, gradient)

    def _accept(self, state: LBFGSState, value: float, gradient: Array) -> LBFGSState:
        xp = array_namespace(gradient)
        move, change = state.trial - state.point, gradient - state.gradient
        curvature = float(xp.sum(move * change))
        memory = state.memory
        # Relative to both lengths, so that the test does not depend on the scale of the problem.
        lengths = float(xp.sum(move * move)) * float(xp.sum(change * change))
        if curvature > 1e-10 * math.sqrt(lengths):
            memory = (*memory, (move, change, curvature))[-self.memory :]
        small = state.value - value <= self.tolerance * max(1.0, abs(value))
        moved = replace(state, point=state.trial, memory=memory, accepted=True)
        return self._start_line(moved, value, gradient, converged=state.converged + 1 if small else 0)

    def _start_line(self, state: LBFGSState, value: float, gradient: Array, converged: int) -> LBFGSState:
        xp = array_namespace(gradient)
        finished = CONVERGED if converged >= 2 else ""
        direction = -self._inverse_hessian_times(gradient, state.memory)
        slope = float(xp.sum(direction * gradient))
        memory = state.memory
        if slope >= 0.0:
            direction, memory = -gradient, ()
            slope = -float(xp.sum(gradient * gradient))
        if slope == 0.0:
            finished = "the gradient is zero"
        step = 1.0 if memory else self.first_step / max(self.first_step, math.sqrt(-slope))
        return replace(
            state,
            trial=state.point + step * direction,
            value=value,
            gradient=gradient,
            direction=direction,
            slope=slope,
            step=step,
            backtracks=0,
            converged=converged,
            memory=memory,
            finished=finished,
        )

    def _step_back(self, state: LBFGSState, value: float) -> LBFGSState:
        if -state.step * state.slope <= self.tolerance * max(1.0, abs(state.value)):
            return replace(state, accepted=False, finished=CONVERGED)
        if state.backtracks >= self.max_backtracks:
            if not state.memory:
                return replace(state, accepted=False, finished=NO_STEP)
            forgetful = replace(state, memory=(), accepted=False)
            return self._start_line(forgetful, state.value, state.gradient, converged=state.converged)
        shrink = 0.1
        if math.isfinite(value):
            # The minimum of the parabola through both values and the slope, limited to 0.1 to 0.5 of the step.
            excess = value - state.value - state.step * state.slope
            shrink = min(max(-0.5 * state.step * state.slope / excess, 0.1), 0.5)
        step = shrink * state.step
        return replace(
            state,
            trial=state.point + step * state.direction,
            step=step,
            backtracks=state.backtracks + 1,
            accepted=False,
        )

    @staticmethod
    def _inverse_hessian_times(gradient: Array, memory: tuple[tuple[Array, Array, float], ...]) -> Array:
        """Multiply the gradient by the approximate inverse Hessian (two-loop recursion)."""
        xp = array_namespace(gradient)
        result, weights = gradient, []
        for move, change, curvature in reversed(memory):
            weight = xp.sum(move * result) / curvature
            result = result - weight * change
            weights.append(weight)
        if memory:
            _, change, curvature = memory[-1]
            result = result * (curvature / xp.sum(change * change))
        for (move, change, curvature), weight in zip(memory, reversed(weights), strict=True):
            result = result + move * (weight - xp.sum(change * result) / curvature)
        return result
