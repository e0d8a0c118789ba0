"""Between the sites: the posterior on a grid over them, as the file tells it, rather than lines from site to site."""

from __future__ import annotations

import numpy as np
import xarray as xr

from invgp.gaussian_processes import read_process_posterior
from invgp.maps.predict import predict

MOST_UNKNOWNS = 2500  # inducing points times processes: beyond, prediction would keep the reader waiting
LINE, SIDE = 200, 80  # points along a line, along the longest side of a map
MARGIN = 0.03  # of the longest side of a map, around the sites


def between_sites(ds: xr.Dataset, draws: int = 0) -> xr.Dataset:
    """The posterior on a grid over its sites; as it is where the file cannot tell, or not in a moment."""
    if "site" not in ds.dims or "node" in ds.dims:
        return ds
    names = str(ds.attrs["invgp_coordinates"]).split()
    if len(names) > 2 or not _can_predict(ds, names) or not _spans(ds, names):
        return ds
    return predict(ds, _grid(ds, names), draws=draws)


def _can_predict(ds: xr.Dataset, names: list[str]) -> bool:
    held = read_process_posterior(ds, names)
    if held is None:
        return False
    inducing = getattr(held, "inducing", None)
    points = ds.sizes["site"] if inducing is None else inducing.shape[1]
    return bool(points * ds.sizes["process"] <= MOST_UNKNOWNS)


def _spans(ds: xr.Dataset, names: list[str]) -> bool:
    """Whether the sites span a line, or an area."""
    at = np.stack([ds[name].values - float(ds[name].mean()) for name in names], axis=-1)
    return bool(len(at) > len(names) + 1 and np.linalg.matrix_rank(at, tol=1e-6 * np.abs(at).max()) == len(names))


def _grid(ds: xr.Dataset, names: list[str]) -> str:
    """In the words of `predict`."""
    ends = {name: (float(ds[name].min()), float(ds[name].max())) for name in names}
    longest = max(high - low for low, high in ends.values())
    margin, points = (0.0, max(LINE, 2 * ds.sizes["site"])) if len(names) == 1 else (MARGIN * longest, SIDE)
    step = longest / (points - 1)
    return ",".join(
        f"{name}={low - margin!r}:{high + margin + 1e-6 * step!r}:{step!r}" for name, (low, high) in ends.items()
    )
