"""Runs of earlier inversions with the same simulator, read from the ledger at the start of an inversion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel
from scipy.spatial import cKDTree

from invgp.adapters.protocol import former_digest, output_size, split_jacobian
from invgp.core.backend import Backend, to_numpy
from invgp.emulation import Runs, join_runs
from invgp.emulation.training_runs import Integers
from invgp.execution.simulator import FieldBatch
from invgp.latent_model.prior_field import field_of
from invgp.ledger import Recorder
from invgp.problem import Floats, Part, Problem

MOST, MOST_FIELDS = 20_000, 1_000  # most earlier runs that are used, of site and of field models; the latest
BEFORE = -1  # stage of earlier runs
SAME = 1e-5  # prior standard deviations, or ranges of an input: latents that differ by less are those of the same run
FARTHEST = (
    100.0  # prior standard deviations from the prior mean, beyond which a run is not informative about the posterior
)
# Fields that do not change the posterior.
IGNORED_FIELDS = frozenset(
    {"first_source", "workers", "backend", "scheduler", "worker_timeout", "output", "config_text", "title"}
)
# Fields that were added later: without them the digest is that of earlier versions.
ADDED = frozenset(
    {
        "sources",
        "kinds",
        "extents",
        "maps",
        "label_correlation",
        "correlated_with",
        "discrepancy",
        "discrepancy_of",
        "scale_degrees",
        "coarse",
        "max_coarse_runs",
    }
)
PROVENANCE = frozenset({"file", "digest"})  # fields of the survey that do not change its values


def earlier_runs(
    problem: Problem, recorders: Sequence[Recorder | None], seed: int, *, everything: bool = False
) -> Runs:
    """Read the runs that the ledger contained when this inversion was first started.

    An inversion that is resumed or repeated reads the same runs as the first time, so that its result is the same.

    Parameters
    ----------
    problem : Problem
    recorders : sequence of Recorder or None
        One for each simulator.
    seed : int
    everything : bool
        Whether to read all runs that the ledger contains now.
    """
    marks = _inversion_names(problem, seed, everything=everything)
    if not problem.sources:
        return _earlier_runs(problem, recorders[0], *marks)
    parts = [part for part in problem.parts if not part.direct]
    found = [_earlier_runs(part.problem, recorder, *marks) for part, recorder in zip(parts, recorders, strict=True)]
    return join_runs(list(zip(parts, found, strict=True)), problem.noise_std.shape[1])


def _inversion_names(problem: Problem, seed: int, *, everything: bool) -> tuple[str | None, str]:
    """Return the names of an inversion in ledgers of this version and of version 1; None for all runs."""
    return None if everything else fingerprint(problem, seed), former_fingerprint(problem, seed)


def _earlier_runs(problem: Problem, recorder: Recorder | None, mark: str | None, former: str) -> Runs:
    none = Runs.empty(problem.latent_count, problem.noise_std.shape[1])
    if recorder is None:
        return none
    inputs, outputs = recorder.read_earlier_runs(mark, former, MOST)
    if not len(inputs):
        return none
    outputs, _ = split_jacobian(problem.forward, outputs)
    latents, columns = problem.from_simulator_inputs(inputs)
    sites = _match_sites(problem, columns, len(inputs))
    kept = (sites >= 0) & _is_plausible(problem, latents).all(axis=1)
    if not kept.any():
        return none
    count = int(kept.sum())
    answers = problem.from_simulator(outputs[kept], count)
    return none.append(
        latents[kept][None], answers.reshape(1, count, -1), np.ones((1, count), bool), sites[kept], BEFORE
    )


def earlier_fields(
    problem: Problem, recorders: Sequence[Recorder | None], seed: int, *, everything: bool = False
) -> tuple[Floats, FieldBatch]:
    """Read latent processes (n, G + n', Q) at `Problem.nodes` and outputs of such runs of a field model.

    With several simulators, those are the fields at which all of them have run.
    """
    marks = _inversion_names(problem, seed, everything=everything)
    simulators = [part for part in problem.parts if not part.direct]
    pairs = list(zip(simulators, recorders, strict=True))
    of_fields = [(part, recorder) for part, recorder in pairs if part.problem.grid is not None]
    parts = [part for part, _ in of_fields]
    found = [_earlier_fields(part.problem, recorder, *marks) for part, recorder in of_fields]
    latents = found[0][0]
    rows = [np.arange(len(latents))] if len(found) == 1 else _rows_of_same_fields(problem, parts, found)
    latents = latents[rows[0]].copy()
    outputs = np.full((len(latents), *problem.noise_std.shape), np.nan)
    jacobians = []
    if not len(latents):
        return latents, FieldBatch(outputs, np.ones(0, dtype=bool), None)
    for part, chosen, (own, answers) in zip(parts, rows, found, strict=True):
        columns = _processes_of(problem, part)
        latents[..., columns] = own[chosen][..., columns]
        values, jacobian = split_jacobian(part.problem.forward, answers[chosen])
        outputs[np.ix_(np.arange(len(latents)), part.sites, part.columns)] = part.problem.field_from_simulator(values)
        if jacobian is not None:
            jacobians.append((part, values, jacobian))
    if len(parts) == len(pairs):
        complete = tuple(jacobians) if len(jacobians) == len(parts) else None
        return latents, FieldBatch(outputs, np.ones(len(latents), dtype=bool), complete)
    known = {j for part in parts for j in _processes_of(problem, part)}
    if len(known) < problem.latent_count:  # the grid of a latent that only site models take is not known
        return latents[:0], FieldBatch(outputs[:0], np.ones(0, dtype=bool), None)
    latents, reproduced = _extend_to_nodes(problem, latents)
    kept = np.flatnonzero(reproduced)
    for part, recorder in pairs:
        if part.problem.grid is None and kept.size:
            found_at = _earlier_answers(part.problem, recorder, latents[kept][:, problem.nodes_of(part)], *marks)
            answered = np.isfinite(found_at).any(axis=(1, 2))
            outputs[np.ix_(kept, part.sites, part.columns)] = found_at
            kept = kept[answered]
    return latents[kept], FieldBatch(outputs[kept], np.ones(len(kept), dtype=bool), None)


def _extend_to_nodes(problem: Problem, latents: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return latents (n, G, Q) on the grid at all `Problem.nodes`, and whether the modes of the prior contain them."""
    field = field_of(problem, Backend(np, "cpu"))
    G = latents.shape[1]
    found = np.empty((len(latents), len(problem.nodes), problem.latent_count))
    for j, (mean, std, basis) in enumerate(zip(field.mean.T, field.std, field.bases, strict=True)):
        modes = to_numpy(basis.modes)
        w = np.linalg.lstsq(modes[:G], ((latents[..., j] - mean[:G]) / std).T, rcond=None)[0]
        found[..., j] = mean + std * (modes @ w).T
    off = np.abs(found[:, :G] - latents) / field.std
    found[:, :G] = latents
    return found, np.asarray(off.max(axis=(1, 2), initial=0.0) < SAME)


def _earlier_answers(
    problem: Problem, recorder: Recorder | None, latents: Floats, mark: str | None, former: str
) -> Floats:
    """Return the outputs (n, B, P) of the runs of a site model at latents (n, B, Q) of its sites; NaN without a run."""
    answers = np.full((*latents.shape[:2], problem.noise_std.shape[1]), np.nan)
    inputs, outputs = (None, None) if recorder is None else recorder.read_earlier_runs(mark, former, MOST)
    if inputs is None or outputs is None or not len(inputs):
        return answers
    outputs, _ = split_jacobian(problem.forward, outputs)
    wanted = problem.to_simulator(problem.to_physical(latents))
    scale = np.maximum(np.ptp(inputs, axis=0), 1e-12 * np.abs(inputs).max(axis=0))
    scale[scale == 0.0] = 1.0
    distance, nearest = cKDTree(inputs / scale).query(wanted / scale)
    values = problem.from_simulator(outputs[nearest], len(latents))
    return np.where(np.reshape(distance, latents.shape[:2])[..., None] < SAME, values, answers)


def _earlier_fields(
    problem: Problem, recorder: Recorder | None, mark: str | None, former: str
) -> tuple[Floats, Floats]:
    """Read latent processes (n, G, Q) and outputs of the runs of one simulator, as in `Evaluations`."""
    nodes = 0 if problem.grid is None else problem.grid.size
    none = np.empty((0, nodes, problem.latent_count)), np.empty((0, output_size(problem.forward)))
    if recorder is None:
        return none
    inputs, outputs = recorder.read_earlier_runs(mark, former, MOST_FIELDS)
    if not len(inputs):
        return none
    latents, columns = problem.field_from_simulator_inputs(inputs)
    known = {c.name: c.values for c in (*problem.survey.coordinates, *problem.survey.covariates)}
    kept = _is_plausible(problem, latents).all(axis=(1, 2))
    for name, values in columns.items():
        kept &= np.isclose(values, known[name], rtol=1e-9, atol=0.0).all(axis=1)
    return latents[kept], outputs[kept]


def _is_plausible(problem: Problem, latents: Floats) -> NDArray[np.bool_]:
    """Return whether latents (..., Q) are finite and not extremely far from the prior mean.

    An inversion with a wrong prior or noise may have made such runs. A regression on them cannot be computed.
    """
    _, std = problem.prior_moments()
    scale = np.ones_like(std)
    for j, own in enumerate(kernel for latent in problem.latents for kernel in latent.kernels):
        kernel = problem.survey.kernel_at_sites(own) if problem.grid is None else own
        scale[j] = max(1.0, float(np.sqrt(np.max(kernel.diagonal(problem.points)))))
    reach, mean = FARTHEST * scale * std, problem.prior_mean
    inside = (latents >= mean.min(axis=0) - reach) & (latents <= mean.max(axis=0) + reach)
    return np.asarray(np.isfinite(latents) & inside)


def _processes_of(problem: Problem, part: Part) -> list[int]:
    """Return the indices of the processes that a simulator takes."""
    names = [variable.name for variable in part.problem.inputs if variable.name in problem.latent_slices]
    return [j for name in names for j in range(*problem.latent_slices[name].indices(problem.latent_count))]


def _rows_of_same_fields(
    problem: Problem, parts: Sequence[Part], found: Sequence[tuple[Floats, Floats]]
) -> list[Integers]:
    """Return the runs (n,) of each simulator at fields at which all of them have run; none if they share no latent."""
    shared = sorted(set.intersection(*(set(_processes_of(problem, part)) for part in parts)))
    if not shared:
        return [np.arange(0) for _ in parts]
    _, std = problem.prior_moments()
    keys = [
        {np.round(field / std[shared], 6).tobytes(): n for n, field in enumerate(latents[..., shared])}
        for latents, _ in found
    ]
    both = [key for key in keys[0] if all(key in others for others in keys[1:])]
    return [np.asarray([own[key] for key in both], dtype=np.intp) for own in keys]


def _match_sites(problem: Problem, columns: dict[str, Floats], runs: int) -> Integers:
    """Find the site (R,) of each run by the site columns among the inputs; -1 if no site matches.

    If the simulator takes no site columns, the runs are assigned to the sites in turn.
    """
    known = {c.name: c.values for c in (*problem.survey.coordinates, *problem.survey.covariates)}
    if not columns:
        return np.arange(runs) % problem.survey.size
    sites = np.full(runs, -1)
    for n in range(problem.survey.size):
        same = [np.isclose(values, known[name][n], rtol=1e-9, atol=0.0) for name, values in columns.items()]
        sites[np.logical_and.reduce(same) & (sites < 0)] = n
    return sites


def fingerprint(problem: Problem, seed: int) -> str:
    """Compute a digest of everything that determines an inversion, independent of the paths of its files."""
    return _fingerprint(problem, seed, former=False)


def former_fingerprint(problem: Problem, seed: int) -> str:
    """Compute the digest of ledgers of version 1, which includes the paths of the files."""
    return _fingerprint(problem, seed, former=True)


def _fingerprint(problem: Problem, seed: int, *, former: bool) -> str:
    digest = blake2b(str(seed).encode(), digest_size=16)
    _add(digest, problem, former)
    return digest.hexdigest()


def _is_absent(name: str, value: Any) -> bool:
    return name in ADDED and (value is None or (hasattr(value, "__len__") and len(value) == 0))


def _add(digest: Any, value: Any, former: bool) -> None:
    """Add a value to a digest, with all its parts."""
    if isinstance(value, np.ndarray):
        digest.update(np.ascontiguousarray(value).tobytes() if value.dtype != object else repr(value.tolist()).encode())
    elif hasattr(value, "digest") and hasattr(value, "evaluate"):
        digest.update((former_digest(value) if former else value.digest).encode())
    elif is_dataclass(value) or isinstance(value, BaseModel):
        ignored = IGNORED_FIELDS if former else IGNORED_FIELDS | PROVENANCE
        names = type(value).model_fields if isinstance(value, BaseModel) else [field.name for field in fields(value)]
        for name in names:
            if name not in ignored and not _is_absent(name, getattr(value, name)):
                digest.update(name.encode())
                _add(digest, getattr(value, name), former)
    elif isinstance(value, dict):
        for key in sorted(value):
            digest.update(str(key).encode())
            _add(digest, value[key], former)
    elif isinstance(value, tuple | list):
        for one in value:
            _add(digest, one, former)
    else:
        digest.update(repr(value).encode())
    digest.update(b"\0")
