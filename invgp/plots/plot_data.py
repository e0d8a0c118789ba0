"""Data that the figures read from a posterior or a map: names, curves, values, grids, values between the sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.errors import PlotError
from invgp.files.meshes import mesh_of
from invgp.maps.grids import read_axis_letters
from invgp.maps.nodes import SURVEY, as_map
from invgp.maps.predict import predict
from invgp.maps.select_mode import select_mode
from invgp.plots.style import choose_colours
from invgp.posterior.contents import mode_probabilities, scalar_names
from invgp.posterior.gaussian_processes import read_process_posterior

Floats = NDArray[np.float64]

TWO_SIGMA = 1.96  # standard deviations from the mean to the end of a central 95% interval
LOG_RATIO = 3.0  # ratio of the highest to the lowest value from which the axis of a log-normal latent is logarithmic
_PROCESS_VARIABLES = ("site_precision", "site_shift", "whitened_mean", "whitened_factor", "whitened_root")
_REQUIRED_SUFFIXES = {
    "coordinates": ("",),
    "site_coordinates": ("",),
    "latents": ("", "_std"),
    "fields": ("", "_std"),
    "scalars": ("", "_std"),
    "observations": ("_observed", "_noise_std", "_predicted", "_predicted_std", "_residual"),
}
_SCALAR_SUFFIXES = ("", "_std", "_quantile", "_sample", "_prior", "_prior_std", "_information")
MOST_UNKNOWNS = 2500  # inducing points times processes; prediction with more takes too long for a figure
LINE_POINTS, MAP_POINTS = 200, 80  # along a line, along the longest side of a map
MOST_LISTED = 4  # modes whose probabilities are listed
MOST_LINES, LEAST_PROBABLE = 3, 0.05  # modes that are drawn apart, and their smallest probability
MARGIN = 0.03  # of the longest side of a map, around the sites


class Curve(NamedTuple):
    """One label of a variable."""

    column: int
    label: str  # "" for a variable without labels
    colour: Any


class FigureGrid(NamedTuple):
    """The dimensions of a grid, the slowest first, with their sizes."""

    dimensions: tuple[str, ...]
    shape: tuple[int, ...]


def read_names(ds: xr.Dataset, kind: str) -> list[str]:
    """Return the names of the ``coordinates``, ``latents`` or ``observations`` of a dataset.

    Parameters
    ----------
    ds : Dataset
        A posterior or a map.
    kind : str
        ``"coordinates"``, ``"site_coordinates"``, ``"latents"`` (including derived quantities), ``"fields"`` (those of
        them that depend on the position), ``"scalars"`` (the others) or ``"observations"``.

    Returns
    -------
    list of str

    Raises
    ------
    PlotError
        The dataset is not a posterior, or lacks one of the variables.
    """
    scalars = scalar_names(ds)
    names = str(ds.attrs.get("invgp_latents" if kind in ("latents", "fields") else f"invgp_{kind}", "")).split()
    if kind in ("latents", "fields"):  # and the quantities that `invgp predict` derived from them
        names += str(ds.attrs.get("invgp_derived", "")).split()
    if not names and kind != "scalars":
        raise PlotError(
            f"The dataset is not an invgp posterior: its attribute 'invgp_{kind}' is missing or empty. "
            "Open a file that `invgp run` wrote."
        )
    if kind == "fields":
        names = [name for name in names if name not in scalars]
    variables = [f"{name}{suffix}" for name in names for suffix in _REQUIRED_SUFFIXES[kind]]
    missing = [variable for variable in variables if variable not in ds]
    if missing:
        raise PlotError(f"The dataset is not a complete invgp posterior: it lacks {', '.join(missing)}.")
    return names


def require_variable(ds: xr.Dataset, variable: str) -> None:
    """Raise `PlotError` unless a dataset has a variable."""
    if variable not in ds:
        raise PlotError(f"The dataset is not a complete invgp posterior: it lacks {variable}.")


def read_site_coordinates(ds: xr.Dataset) -> list[str]:
    """Return the coordinate names of the data; for a field model they differ from those of the latents."""
    return read_names(ds, "site_coordinates" if "invgp_site_coordinates" in ds.attrs else "coordinates")


def check_fields(ds: xr.Dataset, latents: tuple[str, ...], labels: tuple[str, ...], figure: str) -> None:
    """Raise `PlotError` if all latents that are drawn are scalars, which have no places."""
    read_names(ds, "coordinates")  # which every posterior has
    chosen = select_latents(ds, latents, labels)
    if not read_names(chosen, "fields"):
        names = ", ".join(read_names(chosen, "scalars"))
        raise PlotError(f"{figure} needs a latent that is a field, but these are scalars: {names}. Use plot_scalars.")


def read_one_coordinate(ds: xr.Dataset) -> list[str]:
    """Return the name of the only coordinate, which a section needs."""
    names = read_names(ds, "coordinates")
    if len(names) != 1:
        raise PlotError(f"A section needs sites with 1 coordinate, but these have {len(names)}: {', '.join(names)}.")
    return names


def read_two_coordinates(ds: xr.Dataset) -> tuple[list[str], list[str]]:
    """Return the names of the horizontal and vertical axis of a map, and of the coordinates that it does not show.

    East is horizontal, north or height is vertical.
    """
    letters = read_axis_letters(ds, read_names(ds, "coordinates"))
    names = sorted(letters, key=lambda name: letters[name])
    if len(names) < 2:
        raise PlotError(f"A map needs sites with 2 coordinates or more, but these have 1: {names[0]}.")
    return names[:2], names[2:]


def select_latents(ds: xr.Dataset, latents: Sequence[str] = (), labels: Sequence[str] = ()) -> xr.Dataset:
    """Return a dataset with a subset of its latents and labels.

    Parameters
    ----------
    ds : Dataset
        A posterior or a map.
    latents : sequence of str
        Latents to keep; empty for all.
    labels : sequence of str
        Labels to keep along the dimensions of the latents; empty for all.

    Returns
    -------
    Dataset

    Raises
    ------
    PlotError
        A latent or label does not exist.
    """
    known = read_names(ds, "latents")
    for name in latents:
        if name not in known:
            raise PlotError(f"latents: must be one of {', '.join(known)}, was {name!r}")
    selected = [name for name in known if not latents or name in latents]
    texts = {name: _label_texts(ds, name) for name in selected}
    for label in labels:
        if not any(label in of_latent for of_latent in texts.values()):
            listed = ", ".join(dict.fromkeys(text for of_latent in texts.values() for text in of_latent if text))
            raise PlotError(f"layers: must be {f'one of {listed}' if listed else 'left out'}, was {label!r}")
    indices = {
        dimension: [i for i, text in enumerate(texts[name]) if text in labels]
        for name in selected
        if (dimension := label_dimension(ds[name])) is not None and set(labels) & set(texts[name])
    }
    processes = [
        name in selected and (label_dimension(ds[name]) not in indices or text in labels)
        for name in known
        for text in _label_texts(ds, name)
    ]
    if "process" in ds.dims and ds.sizes["process"] == len(processes):
        indices |= dict.fromkeys(("process", "other_process"), np.flatnonzero(processes).tolist())
    kept = {dimension: chosen for dimension, chosen in indices.items() if dimension in ds.dims}
    ds = ds.drop_vars(_PROCESS_VARIABLES, errors="ignore")  # a part of them cannot be used for prediction
    scalars = " ".join(name for name in scalar_names(ds) if name in selected)
    return ds.isel(kept).assign_attrs(invgp_latents=" ".join(selected), invgp_derived="", invgp_scalars=scalars)


def _label_texts(ds: xr.Dataset, variable: str) -> list[str]:
    """Return the labels of a variable as a user writes them; an empty one for a variable without labels."""
    dimension = label_dimension(ds[variable])
    return [""] if dimension is None else [str(label) for label in _read_labels(ds, dimension)]


def _read_labels(ds: xr.Dataset, dimension: str) -> list[Any]:
    """Return the labels along a dimension: text or numbers."""
    labels: list[Any] = ds.get(f"{dimension}_label", ds[dimension]).values.tolist()
    return labels


def label_dimension(array: xr.DataArray) -> str | None:
    """Return the dimension of the labels of a variable; the axes of a grid are recognised by their units."""
    others = ("site", "node", "quantile", "realization")
    return next((str(d) for d in array.dims if d not in others and "units" not in array[d].attrs), None)


def point_dimension(ds: xr.Dataset) -> str:
    """Return the dimension of the latents of a posterior: the nodes of a field model, or the sites."""
    return "node" if "node" in ds.dims else "site"


def with_nodes_as_sites(ds: xr.Dataset) -> xr.Dataset:
    """Return the latents of a field model with the name of the dimension of a site model, without the data."""
    return ds.drop_dims("site", errors="ignore").rename(node="site") if "node" in ds.dims else ds


def read_site(ds: xr.Dataset, number: int | None) -> int:
    """Return the index of a site by its number, from 1; by default of the site in the middle of the table."""
    if number is None:
        return (ds.sizes["site"] - 1) // 2
    numbers = ds["site"].values
    if number not in numbers:
        raise PlotError(f"site: must be the number of a site, {numbers.min()} to {numbers.max()}, was {number}")
    return int(np.flatnonzero(numbers == number)[0])


def read_cells(ds: xr.Dataset, across: str, up: str) -> list[Floats] | None:
    """Return the corners of the faces of a mesh in the coordinates of a map.

    Parameters
    ----------
    ds : Dataset
        A posterior or a map.
    across, up : str
        Coordinates of the map.

    Returns
    -------
    list of array, shape (K, 2), or None
        None without a mesh, or if its cells are volumes.
    """
    mesh = mesh_of(ds)
    if mesh is None or mesh.dimension != 2:
        return None
    # A coordinate is an axis of the mesh, possibly in another unit or with the other sign.
    corners = []
    for name in (across, up):
        values, centres = ds[name].values, mesh.centres
        fits = [np.polyfit(centre, values, 1) if np.ptp(centre) > 0.0 else np.zeros(2) for centre in centres.T]
        errors = [np.ptp(values - np.polyval(fit, centre)) for fit, centre in zip(fits, centres.T, strict=True)]
        axis = int(np.argmin(errors))
        corners.append(np.polyval(fits[axis], mesh.vertices[:, axis]))
    vertices = np.stack(corners, axis=-1)
    return [vertices[cell[cell >= 0]] for cell in mesh.cells]


def read_curves(ds: xr.Dataset, variable: str) -> list[Curve]:
    """Return one curve per label of a variable, or one curve without a label."""
    array = ds[variable]
    dimension = label_dimension(array)
    if dimension is None:
        return [Curve(0, "", choose_colours(1)[0])]
    labels = _read_labels(ds, dimension)
    texts = [label if isinstance(label, str) else f"{dimension} {label}" for label in labels]
    colours = choose_colours(len(texts))
    return [Curve(i, text, colour) for i, (text, colour) in enumerate(zip(texts, colours, strict=True))]


def read_values(ds: xr.Dataset, variable: str, curve: Curve) -> Floats:
    """Return the values (N,) of a curve at the sites; of a scalar, (1,)."""
    array = ds[variable] if "site" in ds[variable].dims else ds[variable].expand_dims("site")
    values = np.asarray(array.transpose("site", ...).values, dtype=np.float64)
    return values if values.ndim == 1 else values[:, curve.column]


def read_interval(ds: xr.Dataset, variable: str, curve: Curve) -> tuple[Floats, Floats]:
    """Return the ends (N,) of the central 95% interval: quantiles if available, else mean ± 1.96 std."""
    if f"{variable}_quantile" in ds:
        levels = np.asarray(ds["quantile"].values, dtype=np.float64)
        found = [np.flatnonzero(np.isclose(levels, level)) for level in (0.025, 0.975)]
        if all(indices.size for indices in found):
            tables = (ds.isel(quantile=int(indices[0])) for indices in found)
            lower, upper = (read_values(table, f"{variable}_quantile", curve) for table in tables)
            return lower, upper
    mean, std = read_values(ds, variable, curve), read_values(ds, f"{variable}_std", curve)
    return mean - TWO_SIGMA * std, mean + TWO_SIGMA * std


def read_prior_interval(ds: xr.Dataset, latent: str, curve: Curve) -> tuple[Floats, Floats] | None:
    """Return the ends (N,) of the central 95% interval of the prior; None if the dataset does not have the prior.

    The prior of a latent with a log link is log-normal. With the link ``increasing`` it is a sum of log-normal
    variables, which is approximated by a log-normal distribution with the same mean and standard deviation.
    """
    if f"{latent}_prior" not in ds or f"{latent}_prior_std" not in ds:
        return None
    mean, std = read_values(ds, f"{latent}_prior", curve), read_values(ds, f"{latent}_prior_std", curve)
    if read_link(ds, latent) == "identity":
        return mean - TWO_SIGMA * std, mean + TWO_SIGMA * std
    variance = np.log1p((std / mean) ** 2)
    centre, reach = np.log(mean) - 0.5 * variance, TWO_SIGMA * np.sqrt(variance)
    return np.exp(centre - reach), np.exp(centre + reach)


def read_link(ds: xr.Dataset, latent: str) -> str:
    """Return the link of a latent; a map names it in the comment on the information."""
    if "link" in ds[latent].attrs:
        return str(ds[latent].attrs["link"])
    information = ds.get(f"{latent}_information")
    comment = "" if information is None else str(information.attrs.get("comment", ""))
    return next((link for link in ("log", "increasing") if f"(link: {link})" in comment), "identity")


def increases_downwards(array: xr.DataArray) -> bool:
    """Return whether a quantity increases downwards, as depth does."""
    return bool(array.attrs.get("positive") == "down")


def describe_crs(ds: xr.Dataset) -> str:
    """Return the name of the coordinate reference system of a dataset; empty if it has none."""
    about = ds["crs"].attrs if "crs" in ds.variables else {}
    return str(about.get("projected_crs_name", about.get("geographic_crs_name", "")))


def read_survey(ds: xr.Dataset, coordinates: Sequence[str]) -> xr.Dataset | None:
    """Return the sites of the survey of a map, with these coordinates; None if the map does not have them."""
    names = {f"{SURVEY}{name}": name for name in coordinates}
    if not all(name in ds for name in names):
        return None
    return ds[list(names)].rename(names).rename(survey_site="site")


def survey_coordinates(ds: xr.Dataset) -> list[str]:
    """Return the coordinates of the sites of the survey that a map has."""
    names = [str(name) for name, array in ds.data_vars.items() if array.dims == ("survey_site",)]
    return [name.removeprefix(SURVEY) for name in names]


def read_grid(ds: xr.Dataset) -> FigureGrid | None:
    """Return the grid of a dataset; None if its points are sites or a list of points."""
    coordinates = str(ds.attrs.get("invgp_coordinates", "")).split()
    if "site" in ds.dims or not coordinates or not all(name in ds.dims for name in coordinates):
        return None
    along = tuple(str(d) for d in ds[read_names(ds, "fields")[0]].dims if d in coordinates)
    return FigureGrid(along, tuple(ds.sizes[d] for d in along))


def map_shape(grid: FigureGrid, across: str, up: str) -> tuple[int, int]:
    """Return the numbers of rows and columns of a map of a grid after `flatten_grid`."""
    if grid.dimensions != (up, across):
        raise PlotError(f"A map needs a grid along {up}, {across}, but this one is along {', '.join(grid.dimensions)}.")
    return grid.shape[0], grid.shape[1]


def slice_grid(ds: xr.Dataset, at: Mapping[str, float]) -> xr.Dataset:
    """Return the slice of a grid that is nearest to given coordinates.

    Parameters
    ----------
    ds : Dataset
        A map on a grid, or the posterior of a field model on a regular grid.
    at : mapping of str to float
        Values of the coordinates to fix; empty to return the dataset unchanged.

    Returns
    -------
    Dataset

    Raises
    ------
    PlotError
        The dataset is not a grid, or a coordinate does not exist, or none is left.
    """
    if not at:
        return ds
    ds = as_map(ds)
    grid = read_grid(ds)
    if grid is None:
        raise PlotError("at: must be left out: only a grid can be cut, and these are sites")
    for name, value in at.items():
        if name not in grid.dimensions:
            raise PlotError(f"at: must name one of {', '.join(grid.dimensions)}, was {name!r}")
        if not np.isfinite(value):
            raise PlotError(f"at: must be a number, was {value} for {name!r}")
    if set(at) == set(grid.dimensions):
        raise PlotError(f"at: must leave a coordinate to draw along, was all of {', '.join(grid.dimensions)}")
    ds = ds.sel(dict(at), method="nearest")
    kept = [name for name in str(ds.attrs["invgp_coordinates"]).split() if name not in at]
    return ds.assign_attrs(invgp_coordinates=" ".join(kept))


def flatten_grid(ds: xr.Dataset) -> xr.Dataset:
    """Return a dataset with one dimension ``site`` instead of those of its grid, the last of which varies fastest."""
    grid = read_grid(ds)
    if grid is None:
        return ds
    kept = {name + suffix for name in scalar_names(ds) for suffix in _SCALAR_SUFFIXES}
    per_draw = ("realization",)
    fields = [
        n
        for n, array in ds.data_vars.items()
        if set(grid.dimensions) <= set(array.dims) or array.dims == per_draw or n in kept
    ]
    ds = ds[fields].stack(site=grid.dimensions).reset_index("site")
    return ds.assign_coords(site=np.arange(1, ds.sizes["site"] + 1))


def predict_between_sites(ds: xr.Dataset, draws: int = 0) -> xr.Dataset:
    """Predict the posterior on a fine grid over its sites.

    Parameters
    ----------
    ds : Dataset
        A posterior.
    draws : int
        Number of posterior draws on the grid.

    Returns
    -------
    Dataset
        The prediction, or `ds` itself if it cannot be predicted, or not fast enough for a figure, or if its draws are
        those of reference chains, which are shown at the sites.
    """
    if "site" not in ds.dims or "node" in ds.dims or (is_sampled(ds) and "whitened_sample" not in ds):
        return ds
    names = str(ds.attrs["invgp_coordinates"]).split()
    if len(names) > 2 or not _is_fast_to_predict(ds, names) or not _spans_all_dimensions(ds, names):
        return ds
    return predict(ds, _grid_text(ds, names), draws=draws)


def is_sampled(ds: xr.Dataset) -> bool:
    """Return whether the draws of a posterior come from Markov chains, which the variable ``chain`` numbers."""
    return "chain" in ds.variables and ds["chain"].dims == ("realization",)


def describe_modes(ds: xr.Dataset) -> str:
    """Return a sentence about the mode that a dataset shows, or about its modes; empty if it has only one."""
    probabilities = mode_probabilities(ds)
    if "invgp_mode" in ds.attrs:
        mode = int(ds.attrs["invgp_mode"])
        return f"Mode {mode}, with a probability of {probabilities[mode - 1]:.0%}."
    if len(probabilities) == 1:
        return ""
    modes = [number for number in range(1, len(probabilities) + 1) if probabilities[number - 1] >= 0.005]
    listed = ", ".join(f"{probabilities[number - 1]:.0%}" for number in modes[:MOST_LISTED])
    return f"{len(modes)} modes ({listed}{', ...' if len(modes) > MOST_LISTED else ''})."


def split_modes(ds: xr.Dataset) -> dict[int, xr.Dataset]:
    """Return the posteriors of the most probable modes by their number; empty if there is one mode or no draws."""
    probabilities = mode_probabilities(ds)
    if "whitened_sample" not in ds or "invgp_mode" in ds.attrs:
        return {}
    probable = (1 + np.flatnonzero(probabilities[:MOST_LINES] >= LEAST_PROBABLE)).tolist()
    return {number: select_mode(ds, number) for number in probable} if len(probable) > 1 else {}


def spread_draws(ds: xr.Dataset, count: int) -> xr.Dataset:
    """Return `count` draws: if they are from Markov chains, spread over all modes and chains, else the first."""
    size = ds.sizes["realization"]
    if not is_sampled(ds) or count >= size:
        return ds.isel(realization=slice(min(count, size)))
    order = np.argsort(ds["mode"].values, kind="stable") if "mode" in ds else np.arange(size)
    chosen = order[((np.arange(count) + 0.5) * size / count).astype(np.intp)]
    return ds.isel(realization=np.sort(chosen))


def _is_fast_to_predict(ds: xr.Dataset, names: list[str]) -> bool:
    posterior = read_process_posterior(ds, names)
    if posterior is None:
        return False
    inducing = getattr(posterior, "inducing", None)
    points = ds.sizes["site"] if inducing is None else inducing.shape[1]
    return bool(points * ds.sizes["process"] <= MOST_UNKNOWNS)


def _spans_all_dimensions(ds: xr.Dataset, names: list[str]) -> bool:
    """Return whether the sites span a line or an area."""
    at = np.stack([ds[name].values - float(ds[name].mean()) for name in names], axis=-1)
    return bool(len(at) > len(names) + 1 and np.linalg.matrix_rank(at, tol=1e-6 * np.abs(at).max()) == len(names))


def _grid_text(ds: xr.Dataset, names: list[str]) -> str:
    """Return a grid over the sites, as `predict` takes it."""
    ends = {name: (float(ds[name].min()), float(ds[name].max())) for name in names}
    longest = max(high - low for low, high in ends.values())
    one = len(names) == 1
    margin, points = (0.0, max(LINE_POINTS, 2 * ds.sizes["site"])) if one else (MARGIN * longest, MAP_POINTS)
    step = longest / (points - 1)
    return ",".join(
        f"{name}={low - margin!r}:{high + margin + 1e-6 * step!r}:{step!r}" for name, (low, high) in ends.items()
    )
