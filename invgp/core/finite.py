"""Log densities that must be finite: a likelihood that runs in this process, unlike a simulator, never fails."""

from __future__ import annotations

from invgp.core.backend import Array, array_namespace
from invgp.core.bound import Bound, LogDensity, Parameters, all_finite
from invgp.core.data import Data
from invgp.core.sampling import Points


class NotFiniteError(Exception):
    """A trial at which the bound counts as minus infinity."""


def finite(log_density: LogDensity) -> LogDensity:
    """The same, but it raises where a value is not finite."""

    def evaluate(f: Array, start: int, stop: int) -> tuple[Array, Array | None]:
        values, slopes = log_density(f, start, stop)
        if not all_finite(values):
            raise NotFiniteError
        return values, slopes

    return evaluate


def check_start(bound: Bound, parameters: Parameters, data: Data, points: Points) -> None:
    """Raise unless the log density is finite, and of the right shape, at every sample that a fit starts with."""
    frame = bound.frame(parameters)
    density = data.log_density(parameters.likelihood, derivatives=False)
    wrong = total = 0
    for start, stop in bound.batches(points.base.shape[0]):
        mean, variance = frame.marginals(frame.geometry(start, stop))
        xp = array_namespace(mean)
        for k in range(mean.shape[0]):
            f = points.at(start, stop).samples(mean[k, ...], xp.sqrt(variance[k, ...]))
            values, _ = density(f, start, stop)
            if tuple(values.shape) != tuple(f.shape[:2]):
                raise ValueError(
                    f"log_density of {_name(data)} must have shape {tuple(f.shape[:2])} for f of shape "
                    f"{tuple(f.shape)}, had {tuple(values.shape)}"
                )
            wrong += int(xp.sum(xp.astype(~xp.isfinite(values), mean.dtype)))
            total += f.shape[0] * f.shape[1]
    if wrong:
        raise ValueError(
            f"log_density of {_name(data)} must be finite, was not for {wrong} of {total} samples at the start"
        )


def _name(data: Data) -> str:
    function = getattr(getattr(data.likelihood, "function", None), "__name__", "")
    return type(data.likelihood).__name__ + (f"({function})" if function else "")
