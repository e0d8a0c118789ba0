"""Names of the latents of a posterior or a map: fields, and scalars, which are the same everywhere."""

from __future__ import annotations

import xarray as xr


def latent_names(dataset: xr.Dataset) -> list[str]:
    """Return the names of all latents, in the order of the processes."""
    return str(dataset.attrs["invgp_latents"]).split()


def scalar_names(dataset: xr.Dataset) -> list[str]:
    """Return the names of the latents that are scalars."""
    return str(dataset.attrs.get("invgp_scalars", "")).split()


def field_names(dataset: xr.Dataset) -> list[str]:
    """Return the names of the latents that depend on the position."""
    scalars = scalar_names(dataset)
    return [name for name in latent_names(dataset) if name not in scalars]
