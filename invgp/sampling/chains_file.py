"""The file that keeps chains while they run, so that they go on if they are stopped."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.archives import CHAINS, read_archive, write_archive
from invgp.errors import ConfigError
from invgp.problem import Floats, Problem
from invgp.sampling.chains import Schedule, State
from invgp.sampling.proposal import Proposal


class ChainsFile(NamedTuple):
    """Where chains are kept while they run."""

    path: Path
    mark: str
    proposal: Proposal
    kept: Floats
    schedule: Schedule

    def save(self, state: State | None) -> None:
        """Write the chains so far, None for not yet begun; the file is there whole, or as it was."""
        begun = 0 if state is None else self.schedule.draws(state.iteration.max())
        arrays = {} if state is None else {f"state_{f.name}": getattr(state, f.name) for f in fields(State)}
        arrays |= {f"proposal_{f.name}": getattr(self.proposal, f.name) for f in fields(Proposal)}
        write_archive(self.path, CHAINS, {"mark": self.mark}, arrays | {"kept": self.kept[:, :begun]})


def resumed(path: Path | None, mark: str) -> tuple[State, Floats] | None:
    """Where saved chains stood, and their draws; None if none were begun."""
    if path is None or not path.exists():
        return None
    found, saved = _read(path)
    if found != mark:
        raise ConfigError(
            f"the chains in {str(path)!r} are of another problem, or of another number of chains, burn-in, thinning or "
            "seed: ask for the same as before, or remove the file to start anew"
        )
    if "state_v" not in saved:
        return None
    arrays: dict[str, Any] = {f.name: saved[f"state_{f.name}"] for f in fields(State)}
    arrays["evaluations"] = int(arrays["evaluations"])
    return State(**arrays), saved["kept"]


def saved_proposal(checkpoint: Path) -> Proposal | None:
    """The proposal of saved chains, so that it need not be found again; None if there are none."""
    if not checkpoint.exists():
        return None
    _, saved = _read(checkpoint)
    mean, axes, gain = (saved[f"proposal_{name}"] for name in ("mean", "axes", "gain"))
    return Proposal(mean, axes, gain, int(saved["proposal_runs"]))


def fingerprint(problem: Problem, proposal: Proposal, made: tuple[object, ...]) -> str:
    """Of all that decides how chains go on; `made` is how they are made."""
    survey, noise, digest = problem.survey, problem.noise, hashlib.sha256()
    columns = [c.values for c in (*survey.coordinates, *survey.covariates)]
    for array in (*columns, survey.Y, problem.noise_std, *problem.prior(), proposal.mean, proposal.axes, proposal.gain):
        digest.update(np.ascontiguousarray(array).tobytes())
    for latent in problem.latents:
        digest.update(repr((latent.name, latent.kernel, latent.length_scale.tolist(), latent.link.name)).encode())
    digest.update(
        repr(
            (
                noise.kind,
                noise.degrees,
                {name: block.tolist() for name, block in noise.correlation.items()},
                problem.forward.digest,
                problem.inputs,
                problem.outputs,
            )
        ).encode()
    )
    digest.update(repr(made).encode())
    return digest.hexdigest()


def _read(path: Path) -> tuple[str, dict[str, NDArray[Any]]]:
    """The mark of saved chains, and their arrays."""
    try:
        about, arrays = read_archive(path, CHAINS, {"mark": str})
    except ValueError as error:
        raise ConfigError(
            f"{error}; chains that an invgp before this one saved cannot go on either: remove the file to start anew"
        ) from error
    names = {"kept", *(f"proposal_{f.name}" for f in fields(Proposal))}
    names |= {f"state_{f.name}" for f in fields(State)} if "state_v" in arrays else set()
    if not names <= set(arrays):
        raise ConfigError(f"{str(path)!r} must be {CHAINS}, was a file that lacks {min(names - set(arrays))!r}")
    return about["mark"], arrays
