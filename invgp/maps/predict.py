"""The posterior of a file on a grid or at points: what a person wants, checked, in memory or in a file."""

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
from invgp.maps.belief import Belief
from invgp.maps.expressions import derived
from invgp.maps.grids import Grid, Slices, grid_of
from invgp.maps.mapping import Map
from invgp.maps.nodes import as_points, survey_positions
from invgp.maps.paths import draw_bytes
from invgp.maps.quantities import DerivedQuantity, LatentQuantity, Quantity, ingredients, threshold
from invgp.problem import Floats

MEMORY = 2**29  # bytes of temporary arrays
DERIVED_SUFFIXES = ("", "_std", "_quantile", "_sample", "_exceedance", "_threshold")
RESERVED = ("crs", "site")


def plan(
    posterior: xr.Dataset,
    *,
    grid: str | None = None,
    latents: Sequence[str] = (),
    derive: Sequence[str] = (),
    exceed: Sequence[str] = (),
    quantiles: Sequence[float] | None = None,
    draws: int = 0,
    seed: int | None = None,
    memory: int = MEMORY,
) -> Map:
    """What a person wants of a posterior, checked.

    Parameters
    ----------
    grid : as in `invgp.maps.grids`; by default a grid over the sites.
    latents : of which maps are wanted; by default all.
    derive : `name = expression` of latents.
    exceed : `name > number unit`.
    quantiles : their probabilities; by default those of the posterior.
    draws : joint over the map and over the latents.
    seed : of the draws; by default that of the posterior.
    """
    posterior = as_points(posterior)
    belief = Belief.of(posterior)
    levels = np.asarray(posterior["quantile"].values if quantiles is None else quantiles, dtype=np.float64)
    if levels.size and not np.all((levels > 0.0) & (levels < 1.0)):
        raise ArgumentError(f"quantiles: must be between 0 and 1, were {', '.join(f'{level:g}' for level in levels)}")
    known = {i.name: i for i in ingredients(posterior, belief.fields)}
    for name in latents:
        if name not in known:
            raise ArgumentError(f"latents: must be a latent of the posterior, was {name!r}{suggest(name, [*known])}")
    expressions = [derived(text, [*known.values()]) for text in derive]
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
    for name, value in (threshold(text, units) for text in exceed):
        limits[name] = tuple(sorted({*limits.get(name, ()), value}))
    quantities: list[Quantity] = [
        LatentQuantity(field, limits.get(field.name, ()))
        for field in belief.fields
        if not latents or field.name in latents
    ]
    for one in expressions:
        fields = tuple(field for field in belief.fields if field.name in one.latents)
        quantities.append(DerivedQuantity(one, fields, limits.get(one.name, ())))
    unmapped = [name for name in limits if name not in {q.name for q in quantities}]
    if unmapped:
        raise ArgumentError(
            f"exceed: must be of a quantity that is mapped, was {unmapped[0]!r}, which `latents` leaves out"
        )
    target = grid_of(grid, posterior)
    _check_draws(belief, target, draws)
    return Map(
        posterior,
        belief,
        target,
        tuple(quantities),
        {q.name: units[q.name] for q in quantities},
        {q.name: dimensions[q.name] for q in quantities},
        np.unique(levels),
        draws,
        int(posterior.attrs["invgp_seed"]) if seed is None else seed,
        memory,
    )


def _check_draws(belief: Belief, grid: Grid, draws: int) -> None:
    """Raise `ConfigError` if so many draws do not fit in memory."""
    needed, free = draw_bytes(belief, grid.size, draws), psutil.virtual_memory().available
    if needed > free:
        raise ArgumentError(
            f"draws: must fit in memory, was {draws:,}, which take {needed / 2**30:,.1f} GiB of the "
            f"{free / 2**30:,.1f} GiB that are free; ask for fewer at a time, with another `seed` each"
        )


def predict(
    posterior: xr.Dataset,
    grid: str | None = None,
    *,
    latents: Sequence[str] = (),
    derive: Sequence[str] = (),
    exceed: Sequence[str] = (),
    quantiles: Sequence[float] | None = None,
    draws: int = 0,
    seed: int | None = None,
    memory: int = MEMORY,
) -> xr.Dataset:
    """The posterior on a grid or at points, in memory; see `plan` for the arguments, `write` for larger maps."""
    wish = plan(
        posterior,
        grid=grid,
        latents=latents,
        derive=derive,
        exceed=exceed,
        quantiles=quantiles,
        draws=draws,
        seed=seed,
        memory=memory,
    )
    dataset = wish.skeleton()
    arrays = {name: np.empty([dataset.sizes[d] for d in v.dims]) for name, v in wish.variables.items()}
    for block, values in wish.blocks():
        for name, part in values.items():
            arrays[name][wish.variables[name].place(block)] = part
    return dataset.assign({name: (v.dims, arrays[name], v.attributes) for name, v in wish.variables.items()})


def write(wish: Map, path: str | Path, watch: Callable[[int], object] = lambda _: None) -> Path:
    """Write a map block by block as CF netCDF; `watch` is told how many points each block has."""

    def watched() -> Iterator[tuple[Slices, dict[str, Floats]]]:
        for block, values in wish.blocks():
            yield block, values
            watch(math.prod(part.stop - part.start for part in block))

    return netcdf.write_blocks(wish.skeleton(), wish.variables, wish.block_shape(), watched(), path)


def points_in_words(grid: Grid) -> str:
    """`101 x 81 points`."""
    return " x ".join(f"{size:,}" for size in reversed(grid.shape)) + (
        " points" if math.prod(grid.shape) != 1 else " point"
    )
