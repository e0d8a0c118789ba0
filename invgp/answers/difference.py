"""The difference of two posteriors of the same area."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from invgp.answers.places import (
    check_comparable,
    is_field,
    moments_at,
    place_dataset,
    points_of,
    read_places,
    scalar_moments,
)
from invgp.errors import ArgumentError


def compute_difference(before: xr.Dataset, after: xr.Dataset, level: float) -> xr.Dataset:
    """Compute the change from one posterior to another, at the places of the first; see `invgp.difference`."""
    if not 0.0 < level < 100.0:
        raise ArgumentError(f"level: must be between 0 and 100, was {level:g}")
    first, second = points_of(before), points_of(after)
    names = check_comparable(first, second)
    fields = [name for name in names if is_field(first, name)]
    moments = [scalar_moments(one, [name for name in names if name not in fields]) for one in (first, second)]
    if fields:
        X = read_places(first, "before")
        for one, points in zip(moments, (first, second), strict=True):
            one.update(moments_at(points, X, fields))
    variables: dict[str, xr.DataArray] = {}
    for name in names:
        like = first[name].transpose("site", ..., missing_dims="ignore")
        (mean, std), (new_mean, new_std) = moments[0][name], moments[1][name]
        joint = np.hypot(std, new_std)
        change = new_mean - mean
        with np.errstate(invalid="ignore", divide="ignore"):
            standardised = np.where(change == 0.0, 0.0, change / joint)
            ratio = new_std / std
        about = str(like.attrs.get("long_name", name))
        unit = {"units": like.attrs["units"]}
        parts: dict[str, tuple[Any, dict[str, Any]]] = {
            "before": (mean, {"long_name": f"{about}, first posterior", **unit}),
            "after": (new_mean, {"long_name": f"{about}, second posterior", **unit}),
            "change": (change, {"long_name": f"change of the mean of {about}", **unit}),
            "joint_std": (joint, {"long_name": f"joint standard deviation of {about}", **unit}),
            "standardised_change": (
                standardised,
                {"long_name": f"change of {about} in joint standard deviations", "units": "1"},
            ),
            "std_ratio": (ratio, {"long_name": f"second over first standard deviation of {about}", "units": "1"}),
            "changed": (
                (np.abs(standardised) > level).astype(np.int8),
                {
                    "long_name": f"whether the change of {about} exceeds the joint uncertainty",
                    "flag_values": np.asarray([0, 1], dtype=np.int8),
                    "flag_meanings": "within_uncertainty exceeds_uncertainty",
                },
            ),
        }
        for suffix, (values, attributes) in parts.items():
            variables[f"{name}_{suffix}"] = xr.DataArray(values.reshape(like.shape), dims=like.dims, attrs=attributes)
    return (
        place_dataset(first, names)
        .assign(variables)
        .assign_attrs(
            title="Difference of two posteriors",
            invgp_answer="difference",
            invgp_latents=" ".join(names),
            invgp_level=float(level),
        )
    )


class DifferenceRow(NamedTuple):
    """The difference of one process, over all places.

    Attributes
    ----------
    latent, label, unit : str
    change : float
        Mean change, in the unit of the latent.
    largest : float
        Largest absolute change in joint standard deviations.
    std_ratio : float
        Median ratio of the standard deviations.
    changed : float
        Share of places where the change exceeds the joint uncertainty.
    """

    latent: str
    label: str
    unit: str
    change: float
    largest: float
    std_ratio: float
    changed: float


def difference_rows(difference: xr.Dataset) -> list[DifferenceRow]:
    """Return the summary of a difference, one row per latent and label."""
    rows = []
    for name in difference.attrs["invgp_latents"].split():
        array = difference[f"{name}_change"]
        dimension = next((str(d) for d in array.dims if d != "site"), None)
        labels = [""] if dimension is None else _label_texts(difference, dimension)
        for i, label in enumerate(labels):
            part = {} if dimension is None else {dimension: i}
            own = {
                suffix: difference[f"{name}_{suffix}"].isel(part).values
                for suffix in ("change", "standardised_change", "std_ratio", "changed")
            }
            rows.append(
                DifferenceRow(
                    name,
                    label,
                    str(array.attrs["units"]),
                    float(np.mean(own["change"])),
                    float(np.max(np.abs(own["standardised_change"]))),
                    float(np.median(own["std_ratio"])),
                    float(np.mean(own["changed"])),
                )
            )
    return rows


def _label_texts(ds: xr.Dataset, dimension: str) -> list[str]:
    labels = ds.get(f"{dimension}_label", ds[dimension]).values.tolist()
    return [label if isinstance(label, str) else f"{dimension} {label}" for label in labels]
