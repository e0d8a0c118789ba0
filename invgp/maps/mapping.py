"""A map that is wanted: its variables, and their values block by block, so that it may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import xarray as xr
from threadpoolctl import threadpool_limits

from invgp.maps.belief import Belief, Projections
from invgp.maps.describe import MapVariable, coordinates_of, described, map_attributes
from invgp.maps.grids import Grid, Slices
from invgp.maps.nodes import survey_positions
from invgp.maps.paths import Paths, exact
from invgp.maps.quantities import LatentQuantity, Quantity
from invgp.problem import Floats

LARGEST_BLOCK = 2**16  # points
WHILE_KERNELS_ARE_MADE = 6  # arrays of the size of a covariance
WORTH_THREADS = 2 * 10**4  # points: for fewer, BLAS threads would wait for each other


@dataclass(frozen=True)
class Map:
    """What is wanted, where, and all that it takes.

    Attributes
    ----------
    levels : probabilities of the quantiles, (K,).
    draws, seed : how many joint draws, and of which random numbers.
    memory : bytes of temporary arrays, about.
    undefined : names of derived quantities that were no number at some point, once the blocks are made.
    """

    posterior: xr.Dataset
    belief: Belief
    grid: Grid
    quantities: tuple[Quantity, ...]
    units: dict[str, str]
    dimensions: dict[str, str | None]
    levels: Floats
    draws: int
    seed: int
    memory: int
    undefined: set[str] = field(default_factory=set)

    @cached_property
    def exact(self) -> bool:
        """Whether draws are exact."""
        return exact(self.belief, self.grid.size)

    @cached_property
    def variables(self) -> dict[str, MapVariable]:
        """Names, dimensions and attributes of what the blocks hold."""
        return {
            name: variable
            for quantity in self.quantities
            for name, variable in described(
                self.posterior,
                self.grid,
                quantity,
                self.units[quantity.name],
                self.dimensions[quantity.name],
                levels=len(self.levels),
                draws=self.draws,
            ).items()
        }

    def skeleton(self) -> xr.Dataset:
        """Coordinates and attributes, without the variables."""
        coordinates = coordinates_of(self.posterior, self.grid, self.quantities, self.units, self.levels, self.draws)
        dimensions = {d for d in self.dimensions.values() if d is not None}
        kept = {
            name: array
            for name, array in self.posterior.coords.items()
            if len(array.dims) == 1 and array.dims[0] in dimensions
        }
        names = [q.name for q in self.quantities]
        dataset = xr.Dataset(coords={**kept, **coordinates}, attrs=map_attributes(self.posterior, self.grid, names))
        if self.draws:
            dataset.attrs["invgp_draws"] = "exact" if self.exact else "sums of waves"
        dataset = dataset.assign(survey_positions(self.posterior))
        return dataset.assign(crs=self.posterior["crs"]) if "crs" in self.posterior else dataset

    @cached_property
    def block_points(self) -> int:
        """Points in a block, so that temporary arrays are within the memory."""
        belief = self.belief
        M, Q = belief.inducing, len(belief.shape_of)
        most = max(
            1 if isinstance(q, LatentQuantity) and q.field.link.elementwise else len(q.processes)
            for q in self.quantities
        )
        numbers = M * (len(belief.shapes) + most * most + WHILE_KERNELS_ARE_MADE)
        numbers += (len(self.levels) + 10) * Q + 6 * self.draws * Q
        return max(1, min(LARGEST_BLOCK, self.memory // (8 * numbers)))

    def block_shape(self) -> tuple[int, ...]:
        """Of the blocks, along the dimensions of the grid."""
        return self.grid.blocks(self.block_points)[0]

    def blocks(self) -> Iterator[tuple[Slices, dict[str, Floats]]]:
        """Where each block is, and the values of all variables there, in the order of their dimensions."""
        with threadpool_limits(1 if self.grid.size < WORTH_THREADS else None):
            yield from self._blocks()

    def _blocks(self) -> Iterator[tuple[Slices, dict[str, Floats]]]:
        belief, wanted = self.belief, sorted({j for q in self.quantities for j in q.processes})
        paths = None
        if self.draws:
            points = self.grid.at(tuple(slice(0, size) for size in self.grid.shape)) if self.exact else None
            paths = Paths.of(belief, points, self.draws, np.random.default_rng(self.seed))
            wanted = list(range(len(belief.shape_of)))
        for block in self.grid.blocks(self.block_points)[1]:
            X = self.grid.at(block)
            at = belief.projections(X, wanted)
            f = None if paths is None else paths.at(X, self._number(block), at)
            found: dict[str, Floats] = {}
            for quantity in self.quantities:
                for name, values in self._values(quantity, at, f).items():
                    found[name] = self._arranged(values, block, self.dimensions[quantity.name])
            yield block, found

    def _values(self, quantity: Quantity, at: Projections, f: Floats | None) -> dict[str, Floats]:
        """(..., B, L) of each variable of a quantity."""
        told, name = quantity.summary(self.belief, at, self.levels), quantity.name
        if not np.all(np.isfinite(told.mean)):
            self.undefined.add(name)
        found = {name: told.mean, f"{name}_std": told.std}
        if len(self.levels):
            found[f"{name}_quantile"] = told.quantiles
        if quantity.thresholds:
            found[f"{name}_exceedance"] = told.exceedance
        if told.information is not None and isinstance(quantity, LatentQuantity):
            prior_mean, prior_std = quantity.field.prior_moments()
            found[f"{name}_prior"] = np.broadcast_to(prior_mean, told.mean.shape)
            found[f"{name}_prior_std"] = np.broadcast_to(prior_std, told.mean.shape)
            found[f"{name}_information"] = told.information
        if f is not None:
            found[f"{name}_sample"] = quantity.values(f)
        return found

    def _arranged(self, values: Floats, block: Slices, dimension: str | None) -> Floats:
        """(..., B, L) as a block: labels after the points of a list, before the axes of a grid."""
        leading, L = values.shape[:-2], values.shape[-1]
        if self.grid.axes is None:
            return values if dimension else values[..., 0]
        shape = tuple(part.stop - part.start for part in block)
        if dimension is None:
            return values.reshape(*leading, *shape)
        return np.moveaxis(values, -1, -2).reshape(*leading, L, *shape)

    def _number(self, block: Slices) -> int:
        """Of the first point of a block among all; of use where a block is contiguous, as where draws are exact."""
        return int(np.ravel_multi_index([part.start for part in block], self.grid.shape))
