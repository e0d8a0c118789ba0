"""Shared parts of both learning methods: progress reports, checks, evaluation of the bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
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
    """State after a round or epoch, from which the fit can continue.

    Attributes
    ----------
    round : int
        Number of the round or epoch, from 1.
    elbo : float
        The bound, in nats.
    parameters : Parameters
        The current parameters.
    converged : bool
        Whether the bound no longer increases and no search failed.
    status : str
        Why no further round follows; empty while the fit continues or if all rounds are used up.
    optimiser : object or None
        State of the optimiser of mini-batches.
    samples : int
        Number of samples per site.
    """

    round: int
    elbo: float
    parameters: Parameters
    converged: bool = False
    status: str = ""
    optimiser: Any = None
    samples: int = 0


Report = Callable[[Progress], None]


def evaluate(bound: Bound, parameters: Parameters, data: Data, points: Points, learn: Sequence[str]) -> Terms:
    """Evaluate the bound and its gradient with respect to the blocks to learn."""
    density = data.log_density(parameters.likelihood, derivatives="likelihood" in learn)
    return bound.bound_state(parameters).evaluate(density, points, learn)


def check_start(bound: Bound, parameters: Parameters, data: Data, points: Points) -> None:
    """Raise `ValueError` unless the log density is finite at every initial sample.

    Unlike a simulator, a likelihood in the same process must not fail.
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
    """Select the blocks of `learn` that the model has; a dense model has no free inducing inputs."""
    absent = {"inducing"} if bound.dense else set()
    if not parameters.likelihood.shape[0]:
        absent.add("likelihood")
    return [name for name in learn if name not in absent]


def format_settings(method: Any) -> str:
    """Format a method as a call of its class, with the settings that differ from their defaults."""
    values = {one.name: getattr(method, one.name) for one in fields(method)}
    usual = type(method)()
    changed = (f"{name}={value!r}" for name, value in values.items() if value != getattr(usual, name))
    return f"{type(method).__name__}({', '.join(changed)})"


def check_blocks(argument: str, names: Sequence[str]) -> None:
    """Raise `ValueError` unless all names are names of blocks."""
    unknown = [name for name in names if name not in BLOCKS]
    if unknown or isinstance(names, str):
        raise ValueError(f"{argument} must be a tuple of names among {', '.join(BLOCKS)}, was {names!r}")


def check_optimiser(optimiser: Any, argument: str, method: str, choices: str) -> None:
    """Raise `ValueError` unless the optimiser has `init(point)` and a suitable `tell`."""
    try:
        names = list(signature(optimiser.tell).parameters)
        takes_value = "value" in names
        fine = callable(optimiser.init) and takes_value == (argument == "value") and not isinstance(optimiser, type)
    except (AttributeError, TypeError, ValueError):
        fine = False
    if not fine:
        raise ValueError(f"optimiser of {method} must be {choices}, or have the same methods, was {optimiser!r}")
