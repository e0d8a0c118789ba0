"""How a fit ended: whether it converged, and warnings if the bound falls or still increases."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from invgp.core.training import Blocks, MiniBatches, Progress

MAX_FALL_OF_BOUND = 0.01  # relative to the bound: a larger fall since the best epoch is not noise
MAX_FALL_OF_GAIN = 0.1  # likewise, relative to the gain of the bound since the first epoch
MAX_CLIMB = 0.01  # increase of the bound between 70% and 90% of the epochs, relative to the bound and to its gain


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


def describe_end_of_batches(method: MiniBatches, trace: list[float]) -> FitStatus:
    """Describe the end of a fit on mini-batches from the bound after each epoch, in nats."""
    status, problem = f"{len(trace)} epochs are over", ""
    middle, end = _late_bounds(method, trace)
    if _has_fallen(trace):
        best, shorter = int(np.argmax(trace)), "natural" if method.natural != 0 else "the optimiser's rate"
        problem = (
            f", but the bound has fallen since epoch {best + 1}, from {trace[best]:.6g} to {trace[-1]:.6g}: the steps "
            f"are too long for the noise of a batch; reduce {shorter}, or increase batch"
        )
    elif end - middle > MAX_CLIMB * max(1.0, abs(end), end - trace[0]):
        problem = (
            f", but the bound still increases, from {middle:.6g} to {end:.6g} between 70% and 90% of the epochs: "
            "increase epochs, or use Blocks"
        )
    return FitStatus(None, status + problem, status + problem if problem else "")


def _has_fallen(trace: list[float]) -> bool:
    """Whether the final bound is lower than the best one by more than the noise of mini-batches."""
    first, best, last = trace[0], max(trace), trace[-1]
    return best - last > max(MAX_FALL_OF_BOUND * max(1.0, abs(best)), MAX_FALL_OF_GAIN * (best - first))


def _late_bounds(method: MiniBatches, trace: list[float]) -> tuple[float, float]:
    """Return the median bounds of the epochs around 70% and 90% of those in which all parameters move."""
    count = len(trace) - (len(trace) // 20 if method.final_epochs is None else method.final_epochs)
    middle, end = (
        float(np.median(trace[int((share - 0.05) * count) : max(int((share + 0.05) * count), 1)] or [np.nan]))
        for share in (0.7, 0.9)
    )
    return middle, end
