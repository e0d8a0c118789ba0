"""Posteriors at common places: the sites of a survey, the nodes of a field model, or the points of a map."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr

from invgp.errors import ArgumentError
from invgp.formatting import join_names
from invgp.maps.map_quantities import LatentQuantity
from invgp.maps.nodes import as_points
from invgp.maps.read_posterior_field import read_posterior_field
from invgp.problem import Floats

POINTS_AT_ONCE = 500  # to limit memory


class Moments(NamedTuple):
    """Posterior mean and standard deviation (N, L) of a latent with L labels at N places, in its unit."""

    mean: Floats
    std: Floats


def read_places(points: xr.Dataset, name: str) -> Floats:
    """Return the coordinates (N, D) of the places of a posterior at points.

    Parameters
    ----------
    points : Dataset
        A posterior after `as_points`.
    name : str
        Argument that gave it, for the message.

    Raises
    ------
    ArgumentError
        It is a map on a grid.
    """
    if "site" not in points.dims:
        raise ArgumentError(f"{name}: must be a posterior of `invgp run` or a map at points, was a map on a grid")
    coordinates = points.attrs["invgp_coordinates"].split()
    return np.stack([np.asarray(points[one].values, dtype=np.float64) for one in coordinates], axis=-1)


def check_comparable(before: xr.Dataset, after: xr.Dataset) -> list[str]:
    """Return the latents that two posteriors share.

    Raises
    ------
    ArgumentError
        The posteriors have other coordinates, no common latent, or a common latent with another unit or other labels,
        or that is a field in one and a scalar in the other.
    """
    own = [f"{name} ({before[name].attrs['units']})" for name in before.attrs["invgp_coordinates"].split()]
    theirs = [f"{name} ({after[name].attrs['units']})" for name in after.attrs["invgp_coordinates"].split()]
    if own != theirs:
        raise ArgumentError(f"after: must have the coordinates {join_names(own)}, had {join_names(theirs)}")
    known = before.attrs["invgp_latents"].split(), after.attrs["invgp_latents"].split()
    shared = [name for name in known[0] if name in known[1]]
    if not shared:
        raise ArgumentError(f"after: must have a latent of {join_names(known[0])}, had {join_names(known[1])}")
    for name in shared:
        units = before[name].attrs["units"], after[name].attrs["units"]
        if units[0] != units[1]:
            raise ArgumentError(f"after: must have {name!r} in {units[0]!r}, had it in {units[1]!r}")
        if is_field(before, name) != is_field(after, name):
            domain = "field" if is_field(before, name) else "scalar"
            raise ArgumentError(f"after: must have {name!r} with domain = {domain!r}, had it with the other one")
        if _labels(before, name) != _labels(after, name):
            raise ArgumentError(
                f"after: must have the labels {_labels(before, name)} of {name!r}, had {_labels(after, name)}"
            )
    return shared


def is_field(points: xr.Dataset, name: str) -> bool:
    """Return whether a latent of a posterior after `as_points` is a field; otherwise it is a scalar."""
    return "site" in points[name].dims


def _labels(posterior: xr.Dataset, name: str) -> list[object]:
    """Return the labels of a latent; an empty list without labels."""
    dimension = next((str(d) for d in posterior[name].dims if d not in ("site", "node")), None)
    if dimension is None:
        return []
    labels: list[object] = posterior.get(f"{dimension}_label", posterior[dimension]).values.tolist()
    return labels


def moments_at(points: xr.Dataset, X: Floats, names: list[str]) -> dict[str, Moments]:
    """Return the moments of latents at places.

    Parameters
    ----------
    points : Dataset
        A posterior after `as_points`.
    X : array, shape (N, D)
    names : list of str
        Latents.

    Returns
    -------
    dict of str to Moments
        Those of the file if the places are its own, otherwise predicted from its draws or its Gaussian.
    """
    own = read_places(points, "after")
    if own.shape == X.shape and np.allclose(own, X, rtol=1e-9, atol=0.0):
        return {name: Moments(*(_columns(points[name + suffix]) for suffix in ("", "_std"))) for name in names}
    field = read_posterior_field(points)
    found = {}
    for latent in field.fields:
        if latent.name in names:
            blocks = [X[i : i + POINTS_AT_ONCE] for i in range(0, len(X), POINTS_AT_ONCE)]
            none = np.empty(0)
            parts = [LatentQuantity(latent).summary(field.at(block, latent.processes), none) for block in blocks]
            found[latent.name] = Moments(*(np.concatenate([getattr(p, k) for p in parts]) for k in ("mean", "std")))
    return found


def scalar_moments(points: xr.Dataset, names: list[str]) -> dict[str, Moments]:
    """Return the moments (1, L) of scalars, which are the same everywhere."""
    return {
        name: Moments(*(np.asarray(points[name + suffix].values, dtype=np.float64)[None] for suffix in ("", "_std")))
        for name in names
    }


def _columns(array: xr.DataArray) -> Floats:
    """Return the values (N, L) of a field."""
    values = np.asarray(array.transpose("site", ...).values, dtype=np.float64)
    return values.reshape(len(values), -1)


def points_of(posterior: xr.Dataset) -> xr.Dataset:
    """Return a posterior with the dimension ``site`` for the places of its latents."""
    return as_points(posterior)


def place_dataset(points: xr.Dataset, names: list[str]) -> xr.Dataset:
    """Return a dataset with the places of some latents and their labels, and without variables."""
    places = points[names].drop_vars(names)
    kept = {key: points.attrs[key] for key in ("Conventions", "invgp_coordinates") if key in points.attrs}
    places.attrs = kept
    return places
