"""Predict a posterior on a grid or at points, in memory or in a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import psutil
import xarray as xr

from invgp import netcdf
from invgp.errors import ArgumentError
from invgp.formatting import suggest
from invgp.maps.grids import MapGrid, Slices, parse_grid
from invgp.maps.joint_draws import draw_bytes
from invgp.maps.map_plan import MapPlan
from invgp.maps.map_quantities import DerivedQuantity, LatentQuantity, MapQuantity, expression_latents, parse_threshold
from invgp.maps.nodes import as_points, survey_positions
from invgp.maps.posterior_field import PosteriorField
from invgp.maps.read_posterior_field import read_posterior_field
from invgp.posterior.contents import field_names, scalar_names
from invgp.problem import Floats
from invgp.problem.expressions import parse_expression

MEMORY = 2**29  # bytes of temporary arrays
DERIVED_SUFFIXES = ("", "_std", "_quantile", "_sample", "_exceedance", "_threshold")
RESERVED = ("crs", "site")


def plan_map(
    posterior: xr.Dataset,
    *,
    grid: str | None = None,
    latents: Sequence[str] = (),
    derive: Sequence[str] = (),
    exceed: Sequence[str] = (),
    quantiles: Sequence[float] | None = None,
    draws: int = 0,
    mode: int | None = None,
    seed: int | None = None,
    memory: int = MEMORY,
) -> MapPlan:
    """Check the arguments of `predict` and return the plan of the map.

    Parameters
    ----------
    posterior, grid, latents, derive, exceed, quantiles, draws, mode, seed, memory
        As in `predict`.

    Returns
    -------
    MapPlan

    Raises
    ------
    ConfigError
        An argument is invalid, or the posterior lacks the variables for prediction.
    """
    if not field_names(posterior):
        raise ArgumentError(
            "posterior: must have a latent that depends on the position, had only scalars: their values are in the file"
        )
    posterior = as_points(posterior)
    posterior_field = read_posterior_field(posterior, mode)
    levels = np.asarray(posterior["quantile"].values if quantiles is None else quantiles, dtype=np.float64)
    if levels.size and not np.all((levels > 0.0) & (levels < 1.0)):
        raise ArgumentError(f"quantiles: must be between 0 and 1, were {', '.join(f'{level:g}' for level in levels)}")
    known = {i.name: i for i in expression_latents(posterior, posterior_field.fields)}
    for name in latents:
        if name not in known:
            raise ArgumentError(f"latents: must be a latent of the posterior, was {name!r}{suggest(name, [*known])}")
    expressions = [parse_expression(text, [*known.values()]) for text in derive]
    units = {name: i.unit for name, i in known.items()}
    dimensions = {name: i.dimension for name, i in known.items()}
    taken = {str(name) for name in posterior.variables} | {*RESERVED, *survey_positions(posterior)}
    taken |= {name + suffix for name in known for suffix in DERIVED_SUFFIXES}
    for one in expressions:
        own = {one.name + suffix for suffix in DERIVED_SUFFIXES}
        if own & taken:
            why = f"as {min(own & taken)!r} is taken"
            raise ArgumentError(f"derive: must give a new name, was {one.name!r}, {why}")
        taken |= own
        units[one.name], dimensions[one.name] = one.unit, one.dimension
    limits: dict[str, tuple[float, ...]] = {}
    for name, value in (parse_threshold(text, units) for text in exceed):
        limits[name] = tuple(sorted({*limits.get(name, ()), value}))
    selected = [
        LatentQuantity(field, limits.get(field.name, ()))
        for field in posterior_field.fields
        if not latents or field.name in latents
    ]
    everywhere = scalar_names(posterior)
    scalars = tuple(quantity for quantity in selected if quantity.name in everywhere)
    quantities: list[MapQuantity] = [quantity for quantity in selected if quantity.name not in everywhere]
    for one in expressions:
        fields = tuple(field for field in posterior_field.fields if field.name in one.latents)
        quantities.append(DerivedQuantity(one, fields, limits.get(one.name, ())))
    if not quantities:
        raise ArgumentError(f"latents: must name a latent that depends on the position, was {', '.join(latents)}")
    mapped = {q.name for q in (*quantities, *scalars)}
    unmapped = [name for name in limits if name not in mapped]
    if unmapped:
        raise ArgumentError(
            f"exceed: must be of a quantity that is mapped, was {unmapped[0]!r}, which `latents` leaves out"
        )
    target = parse_grid(grid, posterior)
    _check_draws(posterior_field, target, draws)
    return MapPlan(
        posterior,
        posterior_field,
        target,
        tuple(quantities),
        {name: units[name] for name in mapped},
        {name: dimensions[name] for name in mapped},
        np.unique(levels),
        draws,
        int(posterior.attrs["invgp_seed"]) if seed is None else seed,
        memory,
        mode,
        scalars,
    )


def _check_draws(posterior_field: PosteriorField, grid: MapGrid, draws: int) -> None:
    """Raise `ConfigError` if the draws do not fit in memory."""
    needed, free = draw_bytes(posterior_field, grid, draws), psutil.virtual_memory().available
    if needed > free:
        raise ArgumentError(
            f"draws: must fit in memory, was {draws:,}, which need {needed / 2**30:,.1f} GiB of the "
            f"{free / 2**30:,.1f} GiB that are free; compute fewer at a time, each with another `seed`"
        )


def predict(
    posterior: xr.Dataset | str | Path,
    grid: float | str | Path | None = None,
    *,
    latents: Sequence[str] = (),
    derive: Sequence[str] = (),
    exceed: Sequence[str] = (),
    quantiles: Sequence[float] | None = None,
    draws: int = 0,
    mode: int | None = None,
    seed: int | None = None,
    memory: int = MEMORY,
) -> xr.Dataset:
    """Predict the posterior on a grid or at points.

    Parameters
    ----------
    posterior : xarray.Dataset, str or Path
        Posterior from `invgp.invert`, or its file.
    grid : float, str or Path, optional
        Step along every coordinate (``10``), ranges (``"easting=0:1000:10,northing=::20"``), or a CSV or netCDF file
        with points or axes; by default a grid over the sites.
    latents : sequence of str
        Latents to predict; by default all.
    derive : sequence of str
        Derived quantities: ``"thickness = depth[2] - depth[1]"`` or ``"name [unit] = expression"``.
    exceed : sequence of str
        Exceedance probabilities: ``"velocity > 2500 m/s"``.
    quantiles : sequence of float
        Probabilities of the quantiles; by default those of the posterior.
    draws : int
        Number of posterior draws, joint over the points and the latents.
    mode : int
        Number of a mode of a sampled posterior, from 1, the most probable; by default all modes together.
    seed : int
        Random seed of the draws; by default that of the posterior.
    memory : int
        Approximate size of temporary arrays, in bytes.

    Returns
    -------
    Dataset
        Mean, standard deviation, quantiles, prior, information and draws of each latent, and of each derived quantity
        without prior and information.

    Raises
    ------
    ConfigError
        An argument is invalid, or the posterior lacks the variables for prediction.

    Examples
    --------
    >>> line = invgp.predict(posterior, 50, derive=["double = 2 * depth"], exceed=["depth > 120 m"])
    >>> line["double"].dims, line["x"].values.tolist()
    (('x',), [0.0, 50.0, 100.0, 150.0, 200.0])
    """
    map_plan = plan_map(
        netcdf.read(posterior) if isinstance(posterior, str | Path) else posterior,
        grid=None if grid is None else str(grid),
        latents=latents,
        derive=derive,
        exceed=exceed,
        quantiles=quantiles,
        draws=draws,
        mode=mode,
        seed=seed,
        memory=memory,
    )
    dataset = map_plan.skeleton()
    arrays = {name: np.empty([dataset.sizes[d] for d in v.dims]) for name, v in map_plan.variables.items()}
    for block, values in map_plan.blocks():
        for name, part in values.items():
            arrays[name][map_plan.variables[name].index(block)] = part
    return dataset.assign({name: (v.dims, arrays[name], v.attributes) for name, v in map_plan.variables.items()})


def write(map_plan: MapPlan, path: str | Path, watch: Callable[[int], object] = lambda _: None) -> Path:
    """Compute a map block by block and write it as CF netCDF.

    Parameters
    ----------
    map_plan : MapPlan
    path : str or Path
        File to write.
    watch : callable
        Called after each block with its number of points.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    WriteError
        The file could not be written.
    """

    def watch_blocks() -> Iterator[tuple[Slices, dict[str, Floats]]]:
        for block, values in map_plan.blocks():
            yield block, values
            watch(math.prod(part.stop - part.start for part in block))

    return netcdf.write_blocks(map_plan.skeleton(), map_plan.variables, map_plan.block_shape(), watch_blocks(), path)


def format_points(grid: MapGrid) -> str:
    """Return the number of points of a grid as text: ``101 x 81 points``."""
    return " x ".join(f"{size:,}" for size in reversed(grid.shape)) + (
        " points" if math.prod(grid.shape) != 1 else " point"
    )
