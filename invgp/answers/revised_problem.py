"""Checks of a revised problem, and its learnt hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from invgp.errors import ArgumentError
from invgp.formatting import join_names
from invgp.problem import Latent, Problem


def check_revised(base: Problem, problem: Problem, argument: str) -> None:
    """Raise `ArgumentError`, with the name of an argument, unless the runs of one problem hold for another."""
    if [latent.name for latent in base.latents] != [latent.name for latent in problem.latents]:
        names = join_names(latent.name for latent in problem.latents)
        raise ArgumentError(f"{argument}: must keep the latents of the posterior, had {names}")
    for old, new in zip(base.latents, problem.latents, strict=True):
        if (old.unit, old.labels, old.link.name) != (new.unit, new.labels, new.link.name):
            raise ArgumentError(f"{argument}: must keep the unit, the labels and the link of latents.{old.name}")
    simulators = {part.name: part.problem.forward.digest for part in base.parts if not part.direct}
    for part in problem.parts:
        if not part.direct and simulators.get(part.name) != part.problem.forward.digest:
            raise ArgumentError(f"{argument}: must keep the simulator of {part.name!r}: its runs hold only for itself")


def fix_learnt(problem: Problem, base: Problem, changes: Mapping[str, object], *, other_data: bool) -> Problem:
    """Return a revised problem without learning: with the values that were learnt, or those that were changed.

    Parameters
    ----------
    problem : Problem
        The revised problem, as configured.
    base : Problem
        The problem of the posterior, with learnt hyperparameters fixed.
    changes : mapping of str to object
        Changed keys.
    other_data : bool
        Whether the survey is another one.
    """
    known = {latent.name: latent for latent in base.latents}
    latents = tuple(
        latent
        if not latent.learn
        else replace(latent, learn={})
        if any(key.startswith(_keys_of(latent)) for key in changes)
        else known[latent.name]
        for latent in problem.latents
    )
    std = dict(problem.noise.std)
    for name in problem.noise.scaled_observations:
        if any(
            key == "noise.scale_degrees" or (key.startswith("noise.") and name in key.split(".")) for key in changes
        ):
            continue
        if other_data or base.noise.std[name].shape != std[name].shape:
            raise ArgumentError(f"data: must be left out, since the noise of {name!r} was learnt; or change its noise")
        std[name] = base.noise.std[name]
    return replace(problem, latents=latents, noise=replace(problem.noise.fixed, std=std))


def _keys_of(latent: Latent) -> tuple[str, str]:
    """Return the starts of the keys that define a latent, which may be a discrepancy."""
    return f"latents.{latent.name}.", f"noise.discrepancy.{latent.discrepancy_of}."
