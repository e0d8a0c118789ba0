"""Checkpoint file of Markov chains, from which they can be resumed."""

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
    """Checkpoint file of chains, with the data that all checkpoints share.

    `mark` is the fingerprint of the chains; `kept` (C, draws, N, Q) are their samples.
    """

    path: Path
    mark: str
    proposal: Proposal
    kept: Floats
    schedule: Schedule

    def save(self, state: State | None) -> None:
        """Write the chains atomically; a state of None means that they have not started."""
        begun = 0 if state is None else self.schedule.draws(state.iteration.max())
        arrays = {} if state is None else {f"state_{f.name}": getattr(state, f.name) for f in fields(State)}
        arrays |= {f"proposal_{f.name}": getattr(self.proposal, f.name) for f in fields(Proposal)}
        write_archive(self.path, CHAINS, {"mark": self.mark}, arrays | {"kept": self.kept[:, :begun]})


def read_chains(path: Path | None, mark: str) -> tuple[State, Floats] | None:
    """Read the state and the samples of saved chains; None if none have started.

    Raises
    ------
    ConfigError
        The chains in the file have another fingerprint than `mark`.
    """
    if path is None or not path.exists():
        return None
    found, saved = _read(path)
    if found != mark:
        raise ConfigError(
            f"the chains in {str(path)!r} are of another problem, or of another number of chains, burn-in, thinning or "
            "seed: use the same settings as before, or remove the file to start again"
        )
    if "state_v" not in saved:
        return None
    arrays: dict[str, Any] = {f.name: saved[f"state_{f.name}"] for f in fields(State)}
    arrays["evaluations"] = int(arrays["evaluations"])
    return State(**arrays), saved["kept"]


def saved_proposal(checkpoint: Path) -> Proposal | None:
    """Read the proposal of saved chains; None if there is no file."""
    if not checkpoint.exists():
        return None
    _, saved = _read(checkpoint)
    mean, axes, gain = (saved[f"proposal_{name}"] for name in ("mean", "axes", "gain"))
    return Proposal(mean, axes, gain, int(saved["proposal_runs"]))


def fingerprint(problem: Problem, proposal: Proposal, made: tuple[object, ...]) -> str:
    """Compute a digest of everything that determines the chains; `made` are the settings of the sampler."""
    survey, noise, digest = problem.survey, problem.noise, hashlib.sha256()
    columns = [c.values for c in (*survey.coordinates, *survey.covariates)]
    for array in (
        *columns,
        survey.Y,
        problem.noise_std,
        *problem.prior_moments(),
        proposal.mean,
        proposal.axes,
        proposal.gain,
    ):
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
    """Read the fingerprint and the arrays of saved chains."""
    try:
        about, arrays = read_archive(path, CHAINS, {"mark": str})
    except ValueError as error:
        raise ConfigError(
            f"{error}; chains of an earlier version of invgp cannot be resumed either: remove the file to start again"
        ) from error
    names = {"kept", *(f"proposal_{f.name}" for f in fields(Proposal))}
    names |= {f"state_{f.name}" for f in fields(State)} if "state_v" in arrays else set()
    if not names <= set(arrays):
        raise ConfigError(f"{str(path)!r} must be {CHAINS}, was a file that lacks {min(names - set(arrays))!r}")
    return about["mark"], arrays
