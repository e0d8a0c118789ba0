"""Posteriors made up for figures, and what can be read off a figure."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

QUANTILES = np.array([0.025, 0.5, 0.975])
SCORES = np.array([-1.96, 0.0, 1.96])
PRIOR = {"depth": [200.0, 500.0, 1600.0, 2200.0], "velocity": [1950.0, 2300.0, 2750.0, 3650.0]}
ATTRIBUTES = {
    "depth": {"units": "m", "long_name": "depth of the reflector", "positive": "down"},
    "velocity": {"units": "m s-1", "long_name": "seismic velocity"},
}


def wave(coordinates: dict[str, xr.DataArray], phase: float) -> np.ndarray:
    """Return a smooth field (N, 1) between -1 and 1 over the coordinates."""
    waves = [np.sin(phase + (x - x.min()).values / 7e3) for x in coordinates.values()]
    return np.asarray(np.prod(waves, axis=0))[:, None]


def posterior(coordinates: dict[str, xr.DataArray], seed: int = 1) -> xr.Dataset:
    """Build a posterior of four layers as `invgp run` writes it, with skewed quantiles and a missing time."""
    rng = np.random.default_rng(seed)
    sites, layers = next(iter(coordinates.values())).size, 4
    dims = ("site", "layer")
    ds = xr.Dataset(coords={**coordinates, "layer": np.arange(1, layers + 1), "quantile": QUANTILES})
    for phase, (name, prior) in enumerate(PRIOR.items()):
        mean = np.array(prior) * (1.0 + 0.06 * wave(coordinates, phase))
        std = np.broadcast_to(0.05 * np.array(prior), mean.shape) * (1.0 + 0.3 * wave(coordinates, phase + 2))
        ds[name] = (dims, mean, ATTRIBUTES[name])
        ds[f"{name}_std"] = (dims, std, {"units": ATTRIBUTES[name]["units"]})
        ds[f"{name}_prior"] = (dims, np.tile(prior, (sites, 1)))
        skew = 1.0 + 0.2 * (SCORES[:, None, None] > 0.0)
        ds[f"{name}_quantile"] = (("quantile", *dims), mean + skew * SCORES[:, None, None] * std)
    thickness = np.diff(ds["depth"].values, axis=1, prepend=0.0)
    predicted = np.cumsum(2.0 * thickness / ds["velocity"].values, axis=1)
    noise = np.broadcast_to([0.025, 0.05, 0.075, 0.1], predicted.shape)
    observed = predicted + noise * rng.standard_normal(predicted.shape)
    observed[1, 2] = np.nan
    attributes = {"units": "s", "long_name": "observed two-way travel time"}
    ds["time_observed"] = (dims, observed, attributes)
    ds["time_noise_std"] = (dims, noise)
    ds["time_predicted"] = (dims, predicted)
    ds["time_predicted_std"] = (dims, 0.4 * noise)
    ds["time_residual"] = (dims, observed - predicted)
    ds.attrs = {
        "invgp_coordinates": " ".join(coordinates),
        "invgp_latents": "depth velocity",
        "invgp_observations": "time",
    }
    return ds


def distance(metres: np.ndarray) -> dict[str, xr.DataArray]:
    attributes = {"units": "m", "long_name": "distance along the line"}
    return {"position": xr.DataArray(metres, dims="site", attrs=attributes)}


def bands(ax: Axes) -> list[PolyCollection]:
    return [collection for collection in ax.collections if isinstance(collection, PolyCollection)]


def edges_of(band: PolyCollection, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    vertices = np.asarray(band.get_paths()[0].vertices)
    columns = [vertices[np.isclose(vertices[:, 0], value), 1] for value in x]
    return np.array([c.min() for c in columns]), np.array([c.max() for c in columns])


def overlaps(texts: list[Text]) -> bool:
    boxes = [text.get_window_extent() for text in texts if text.get_visible() and text.get_text()]
    return any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def assert_that_labels_can_be_read(figure: Figure) -> None:
    """Labels of ticks stand clear of each other and of the labels of the axes, and on the page, once drawn."""
    for ax in [*figure.axes, *(bar for panel in figure.axes for bar in panel.child_axes)]:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            inside = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            labels = [tick.label2 if tick.label2.get_visible() else tick.label1 for tick in inside]
            assert not overlaps([*labels, axis.label]), [label.get_text() for label in labels]
            for text in (*labels, axis.label):
                if text.get_visible() and text.get_text():
                    box = text.get_window_extent()
                    assert figure.bbox.x0 <= box.x0
                    assert box.x1 <= figure.bbox.x1


def draw(figure: Figure) -> None:
    figure.draw_without_rendering()


def add_information(ds: xr.Dataset) -> xr.Dataset:
    """With information of 0.1 at the first half of the sites, and 0.9 at the others."""
    values = np.where(np.arange(ds.sizes["site"]) < ds.sizes["site"] / 2, 0.1, 0.9)
    shape = ("site", "layer"), np.tile(values[:, None], ds.sizes["layer"])
    return ds.assign(depth_information=shape, velocity_information=shape)
