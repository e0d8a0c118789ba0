"""The next measurement: how much candidates would reduce the uncertainty of targets, and the best few together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from invgp.answers.candidates import CandidateList, DataModel, read_candidates, simulate_data
from invgp.answers.emulated_problem import EmulatedProblem
from invgp.answers.expected_variance import (
    Expected,
    TargetDraws,
    condition,
    expected_variance,
    squared_errors,
    target_draws,
    update_targets,
    variance_after,
)
from invgp.answers.joint_values import Target, draw_jointly, parse_target
from invgp.answers.known_field import FieldDrawsAndData
from invgp.answers.places import points_of, read_places
from invgp.errors import ArgumentError, ConfigError
from invgp.maps.grids import parse_grid
from invgp.maps.process_prior import LatentField
from invgp.maps.read_posterior_field import read_fields, read_posterior_field
from invgp.posterior.contents import field_names
from invgp.problem import Floats, Problem

MOST_PLACES = 100  # of a target, at which its variance is averaged
DEFAULT_BEST = 3  # candidates to choose


def rank_candidates(
    posterior: xr.Dataset,
    emulated: EmulatedProblem | None,
    candidates: Path,
    targets: Sequence[str],
    region: str | None,
    best: int | None,
    seed: int,
    *,
    scalars: tuple[Problem, FieldDrawsAndData] | None = None,
) -> xr.Dataset:
    """Compute the expected reductions of all candidates and choose the best; see `invgp.design`.

    Parameters
    ----------
    posterior : Dataset
    emulated : EmulatedProblem or None
        Its problem with the emulator; None for a field model.
    candidates : Path
        File of candidates.
    targets : sequence of str
    region : str or None
        Places of the targets, as for `parse_grid`; None for the sites or nodes.
    best : int or None
        Number of candidates to choose; None for 3, or all if there are fewer.
    seed : int
    scalars : (Problem, FieldDrawsAndData), optional
        For a field model of scalars only, its problem and draws with the data that they predict.
    """
    points = points_of(posterior)
    model = None if emulated is None else DataModel(emulated.noisy_problem, emulated)
    if scalars is not None:
        model = DataModel(scalars[0], outputs=scalars[1].outputs)
    listed = read_candidates(candidates, points, model)
    count = len(listed.candidates)
    best = min(DEFAULT_BEST, count) if best is None else best
    if not 1 <= best <= count:
        raise ArgumentError(f"best: must be between 1 and {count:,}, the number of candidates, was {best}")
    names = list(targets) or str(points.attrs["invgp_latents"]).split()
    at = _target_places(points, region, seed)
    outside = _count_far_outside(points, listed.X)
    if scalars is None:
        field = read_posterior_field(points)
        fields: Sequence[LatentField] = field.fields
    else:
        fields = read_fields(points, str(points.attrs["invgp_coordinates"]).split())
    parsed = [parse_target(text, points, fields) for text in names]
    if scalars is None:
        f = draw_jointly(field, np.concatenate([listed.X, at]), seed)
    else:
        problem, draws_and_data = scalars
        own_draws = problem.mix(draws_and_data.latents)
        f = np.broadcast_to(own_draws, (len(own_draws), count + len(at), own_draws.shape[-1]))
    rng = np.random.default_rng([seed, 1])
    data, covered = simulate_data(listed, f[:, :count], points, fields, model, rng)
    values = [one.values(f[:, count:]) for one in parsed]
    for one, own in zip(parsed, values, strict=True):
        if not np.isfinite(own).all():
            raise ConfigError(f"target: must be defined for all draws, {one.text!r} was not")
    draws = target_draws(values, [one.threshold for one in parsed])
    before = squared_errors(draws)
    present = before.mean(axis=0)
    for one, variance in zip(parsed, present, strict=True):
        if not variance > 0.0:
            raise ArgumentError(f"target: must be uncertain, {one.text!r} was the same in all draws")
    first = [expected_variance(draws, y, before) for y in data]
    chosen, steps = _choose(draws, data, first, before, best)
    found = _to_dataset(points, listed, parsed, present, first, covered, chosen, steps, len(f), at)
    return found.assign_attrs(invgp_candidates_outside=outside)


def _count_far_outside(points: xr.Dataset, X: Floats) -> int:
    """Return how many places (C, D) are farther outside of the survey than it is wide, as with a wrong unit."""
    known = read_places(points, "posterior")
    low, high = known.min(axis=0), known.max(axis=0)
    reach = np.max(high - low)
    return int(np.count_nonzero(((low - reach > X) | (high + reach < X)).any(axis=1)))


def _target_places(points: xr.Dataset, region: str | None, seed: int) -> Floats:
    """Return the places (B, D) of the targets: some of the sites or nodes, or of the points of a region."""
    if not field_names(points):
        if region is not None:
            raise ArgumentError(f"region: must be left out, since all latents are scalars, was {region!r}")
        return read_places(points, "posterior")[:1]
    if region is None:
        X = read_places(points, "posterior")
    else:
        try:
            grid = parse_grid(region, points)
        except ArgumentError as error:
            raise ArgumentError(str(error).replace("grid:", "region:", 1)) from None
        X = grid.at(tuple(slice(0, n) for n in grid.shape))
    if len(X) <= MOST_PLACES:
        return X
    if X.shape[1] == 1:
        return X[np.linspace(0, len(X) - 1, MOST_PLACES).round().astype(np.intp)]
    return X[np.sort(np.random.default_rng(seed).choice(len(X), MOST_PLACES, replace=False))]


def _choose(
    draws: TargetDraws, data: list[Floats], first: list[Expected], before: Floats, best: int
) -> tuple[list[int], list[Floats]]:
    """Choose candidates one after the other, each the best given those before; return their expected variances, too."""
    chosen: list[int] = []
    steps: list[Floats] = []
    found, present = {i: one.variance for i, one in enumerate(first)}, before.mean(axis=0)
    left = dict(enumerate(data))
    while len(chosen) < best:
        scores = {i: float(np.sum(variance / present)) for i, variance in found.items()}
        winner = min(scores, key=scores.__getitem__)
        chosen.append(winner)
        steps.append(found[winner])
        if len(chosen) == best:
            break
        y = left.pop(winner)
        draws = update_targets(draws, y, before)
        left = {i: condition(own, y) for i, own in left.items()}
        before = squared_errors(draws)
        found = {i: variance_after(draws, own, before) for i, own in left.items()}
    return chosen, steps


def _to_dataset(
    points: xr.Dataset,
    listed: CandidateList,
    targets: Sequence[Target],
    present: Floats,
    first: Sequence[Expected],
    covered: np.ndarray[tuple[int], np.dtype[np.bool_]],
    chosen: Sequence[int],
    steps: Sequence[Floats],
    draws: int,
    places: Floats,
) -> xr.Dataset:
    variance = np.stack([one.variance for one in first])
    std, expected = np.sqrt(present), np.sqrt(variance)
    # The error of a square root: half the relative error of the variance.
    error = np.stack([one.error for one in first]) / np.maximum(2.0 * np.sqrt(variance * present), 1e-300)
    rank = np.zeros(len(first), dtype=np.int32)
    rank[list(chosen)] = np.arange(1, len(chosen) + 1)
    coordinates = str(points.attrs["invgp_coordinates"]).split()
    units = ", ".join(dict.fromkeys(one.unit for one in targets))

    def text(values: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
        return np.asarray(values)

    def of(attribute: str) -> list[str]:
        return [str(getattr(one, attribute)) for one in listed.candidates]

    one: dict[str, object] = {"units": "1"}
    attributes = {"units": units} if len({one.unit for one in targets}) == 1 else {"units": "1", "comment": units}
    about = "root mean square over the places of the target"
    return xr.Dataset(
        {
            "std": ("target", std, {"long_name": f"standard deviation of the target, {about}", **attributes}),
            "expected_std": (
                ("candidate", "target"),
                expected,
                {"long_name": f"expected standard deviation with the measurement, {about}", **attributes},
            ),
            "reduction": (
                ("candidate", "target"),
                1.0 - expected / std,
                {"long_name": "expected reduction of the standard deviation, relative to the present one", **one},
            ),
            "reduction_error": (
                ("candidate", "target"),
                error,
                {"long_name": "standard error of the reduction, from the number of draws", **one},
            ),
            "kind": ("candidate", text(of("kind")), {"long_name": "kind of the measurement"}),
            "measured": ("candidate", text(of("source")), {"long_name": "source or expression that is measured"}),
            "covered": (
                "candidate",
                covered.astype(np.int8),
                {"long_name": "1 where the runs of the emulator surround the draws", **one},
            ),
            "rank": ("candidate", rank, {"long_name": "order in which the candidate was chosen; 0 if not", **one}),
            "chosen": ("choice", text([listed.candidates[i].name for i in chosen]), {"long_name": "chosen candidates"}),
            "chosen_std": (
                ("choice", "target"),
                np.sqrt(np.stack(steps)),
                {"long_name": "expected standard deviation with this and the earlier choices", **attributes},
            ),
        },
        {
            **{name: ("candidate", listed.X[:, d], dict(points[name].attrs)) for d, name in enumerate(coordinates)},
            "candidate_label": ("candidate", text(of("name")), {"long_name": "candidate measurement"}),
            "target_label": ("target", text([one.text for one in targets]), {"long_name": "target"}),
        },
        {
            "title": "Expected reductions of uncertainty by candidate measurements",
            "invgp_answer": "design",
            "invgp_coordinates": " ".join(coordinates),
            "invgp_latents": points.attrs["invgp_latents"],
            **({"invgp_scalars": points.attrs["invgp_scalars"]} if not field_names(points) else {}),
            "invgp_draws_used": draws,
            "invgp_target_places": len(places),
            "invgp_runs": 0,
        },
    )


def best_rows(found: xr.Dataset) -> list[dict[str, object]]:
    """Return the choices of a design, one row per choice and target."""
    rows: list[dict[str, object]] = []
    names = found["candidate_label"].values.tolist()
    rank = found["rank"].values
    coordinates = str(found.attrs["invgp_coordinates"]).split()
    for k in range(found.sizes["choice"]):
        i = int(np.flatnonzero(rank == k + 1)[0])
        for t, target in enumerate(found["target_label"].values.tolist()):
            std = float(found["std"].values[t])
            rows.append(
                {
                    "choice": k + 1,
                    "candidate": names[i],
                    "kind": str(found["kind"].values[i]),
                    "measured": str(found["measured"].values[i]),
                    "place": {c: float(found[c].values[i]) for c in coordinates},
                    "target": target,
                    "std": std,
                    "expected_std": float(found["chosen_std"].values[k, t]),
                    "reduction_alone": float(found["reduction"].values[i, t]),
                    "reduction_error": float(found["reduction_error"].values[i, t]),
                    "reduction_together": 1.0 - float(found["chosen_std"].values[k, t]) / std,
                }
            )
    return rows
