"""How a fit ended: whether it converged, and warnings if the bound falls or still increases."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from invgp.core.training import Blocks, MiniBatches, Progress

MAX_FALL_OF_BOUND = 0.01  # relative to the bound: a larger fall since the best epoch is not noise
MAX_FALL_OF_GAIN = 0.1  # likewise, relative to the gain of the bound since the first epoch
CLEAR_FALL = 7.0  # standard deviations of one epoch: 1,000 of them rarely differ by more
SECOND_DIFFERENCE = 0.674 * 6**0.5  # median absolute second difference of numbers with a standard deviation of 1
LATE = 0.4  # share of the epochs, the last ones, in which the bound should hardly increase
MAX_CLIMB = 1.0, 1e-3  # increase of the bound in these epochs, in nats and relative to the bound
CLEAR_CLIMB = 2.5  # standard errors of an increase that is not noise


class FitStatus(NamedTuple):
    """How a fit ended.

    Attributes
    ----------
    converged : bool or None
        None if it is not known.
    status : str
        Why the fit ended.
    warning : str
        Empty if nothing is wrong.
    """

    converged: bool | None
    status: str
    warning: str


def describe_end_of_blocks(method: Blocks, last: Progress | None) -> FitStatus:
    """Describe the end of a fit on all data from its last round."""
    converged = last is not None and last.converged
    status = (last.status if last is not None else "") or f"all {method.rounds} rounds are used up"
    return FitStatus(converged, status, "" if converged else f"the fit has not converged: {status}")


def describe_end_of_batches(
    method: MiniBatches, trace: list[float], *, whole: bool = False, gain: float = 0.0
) -> FitStatus:
    """Describe the end of a fit on mini-batches from the bound after each epoch, in nats.

    Parameters
    ----------
    method : MiniBatches
        The optimisation.
    trace : list of float
        Bound after each epoch.
    whole : bool
        Whether each batch contains all sites.
    gain : float
        By how much a few steps on all data increase the bound, in nats.
    """
    status, problem = f"{len(trace)} epochs are over", ""
    climb = late_climb(method, trace)
    shorter = "natural" if method.natural != 0 else "the optimiser's rate"
    if _has_fallen(trace):
        best = int(np.argmax(trace))
        reason, cure = ("", "use Blocks") if whole else (" for the noise of a batch", "increase batch")
        problem = (
            f", but the bound has fallen since epoch {best + 1}, from {trace[best]:.6g} to {trace[-1]:.6g}: the steps "
            f"are too long{reason}; reduce {shorter}, or {cure}"
        )
    elif climb.increase > max(MAX_CLIMB[0], MAX_CLIMB[1] * abs(trace[-1]), CLEAR_CLIMB * climb.standard_error):
        problem = (
            f", but the bound still increases, by {climb.increase:.2g} in the last {LATE:.0%} of the epochs: increase "
            "epochs, or use Blocks"
        )
    elif gain > max(MAX_CLIMB[0], MAX_CLIMB[1] * abs(trace[-1])):
        problem = (
            f", but a few steps of Blocks on all data increase the bound by {gain:.2g}: reduce {shorter}, increase "
            "epochs, or use Blocks"
        )
    return FitStatus(None, status + problem, status + problem if problem else "")


def _has_fallen(trace: list[float]) -> bool:
    """Whether the final bound is lower than the best one by more than the noise of mini-batches."""
    first, best, last = trace[0], max(trace), trace[-1]
    # Second differences, because the bound of the first epochs increases fast. The median ignores jumps.
    noise = float(np.median(np.abs(np.diff(trace, 2)))) / SECOND_DIFFERENCE if len(trace) > 3 else 0.0
    allowed = max(MAX_FALL_OF_BOUND * max(1.0, abs(best)), MAX_FALL_OF_GAIN * (best - first), CLEAR_FALL * noise)
    return best - last > allowed


class Climb(NamedTuple):
    """Increase of the bound in the late epochs, and its standard error, in nats."""

    increase: float
    standard_error: float


def late_climb(method: MiniBatches, trace: list[float]) -> Climb:
    """Fit a line to the bounds of the late epochs in which all parameters move; no increase if these are too few."""
    count = len(trace) - (len(trace) // 20 if method.final_epochs is None else method.final_epochs)
    late = np.asarray(trace[max(0, min(int((1.0 - LATE) * count), count - 3)) : max(count, 0)])
    if len(late) < 3:
        return Climb(0.0, 0.0)
    times = np.linspace(-0.5, 0.5, len(late))
    slope = float(times @ late / (times @ times))
    residuals = late - late.mean() - slope * times
    variance = float(residuals @ residuals) / (len(late) - 2)
    return Climb(slope, float(np.sqrt(variance / (times @ times))))
