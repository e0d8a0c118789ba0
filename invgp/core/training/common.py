"""What both ways of learning share: what they report, what they check, the bound that they raise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

from invgp.core.backend import array_namespace
from invgp.core.bound import Bound, Terms
from invgp.core.expectations import iterate_samples
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import BLOCKS, Parameters
from invgp.core.point_sets import Points


@dataclass(frozen=True)
class Progress:
    """What a round, or an epoch, came to: all that is needed to go on after it.

    Attributes
    ----------
    round : its number, or the epoch's, from 1.
    elbo : the bound.
    settled : whether the bound has stopped rising, and no search gave up.
    status : why no round follows; empty while the fit goes on, or has used up its rounds.
    optimiser : of mini-batches, where it stands.
    """

    round: int
    elbo: float
    parameters: Parameters
    converged: bool = False
    status: str = ""
    optimiser: Any = None


Report = Callable[[Progress], None]


def evaluate(bound: Bound, parameters: Parameters, data: Data, points: Points, learn: Sequence[str]) -> Terms:
    """The bound and its gradient with respect to the blocks to learn, at the whitened posterior."""
    density = data.log_density(parameters.likelihood, derivatives="likelihood" in learn)
    return bound.bound_state(parameters).evaluate(density, points, learn)


def check_start(bound: Bound, parameters: Parameters, data: Data, points: Points) -> None:
    """Raise unless the log density is finite at every sample that a fit starts with.

    A likelihood that runs in this process, unlike a simulator, never fails.
    """
    bound_state = bound.bound_state(parameters)
    density = data.log_density(parameters.likelihood, derivatives=False)
    wrong = total = 0
    for start, stop in bound.batches():
        mean, variance = bound_state.marginals(bound_state.geometry(start, stop))
        xp = array_namespace(mean)
        for rows, _, latents in iterate_samples(points.at(start, stop), mean, xp.sqrt(variance)):
            for f in latents:
                values, _ = density(f, start + rows.start, start + rows.stop)
                wrong += int(xp.sum(xp.astype(~xp.isfinite(values), mean.dtype)))
                total += f.shape[0] * f.shape[1]
    if wrong:
        raise ValueError(
            f"log_density of {data.name} must be finite, was not for {wrong} of {total} samples at the start"
        )


def select_blocks(learn: Sequence[str], bound: Bound, parameters: Parameters) -> list[str]:
    """The blocks of `learn` that this model has: dense inducing inputs do not move, some likelihoods have nothing."""
    absent = {"inducing"} if bound.dense else set()
    if not parameters.likelihood.shape[0]:
        absent.add("likelihood")
    return [name for name in learn if name not in absent]


def check_blocks(argument: str, names: Sequence[str]) -> None:
    """Raise unless all of them are names of blocks."""
    unknown = [name for name in names if name not in BLOCKS]
    if unknown or isinstance(names, str):
        raise ValueError(f"{argument} must be a tuple of names among {', '.join(BLOCKS)}, was {names!r}")


def check_optimiser(optimiser: Any, told: str, method: str, choices: str) -> None:
    """Raise unless it has `init(point)` and a `tell` that takes what this method tells it."""
    try:
        names = list(signature(optimiser.tell).parameters)
        fine = callable(optimiser.init) and ("value" in names) == (told == "value") and not isinstance(optimiser, type)
    except (AttributeError, TypeError, ValueError):
        fine = False
    if not fine:
        raise ValueError(f"optimiser of {method} must be {choices}, or have the same methods, was {optimiser!r}")
