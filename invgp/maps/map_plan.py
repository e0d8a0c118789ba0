"""Plan of a map: its variables, and their values block by block, so that a map can be larger than the memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from invgp.files.meshes import add_mesh
from invgp.maps.grids import MapGrid, Slices
from invgp.maps.joint_draws import DrawMethods, JointDraws
from invgp.maps.map_quantities import LatentQuantity, MapQuantity
from invgp.maps.map_variables import (
    copied_attributes,
    map_attributes,
    map_coordinates,
    quantity_variables,
    scalar_variable,
)
from invgp.maps.nodes import survey_positions
from invgp.maps.posterior_field import FEWEST_VALUES, LocatedPosterior, PosteriorField
from invgp.netcdf import BlockVariable
from invgp.posterior.contents import mode_probabilities
from invgp.problem import Floats

LARGEST_BLOCK = 2**16  # points
KERNEL_ARRAYS = 6  # temporary arrays of the size of a covariance
FEWEST_THREADED_POINTS = 2 * 10**4  # for fewer points, BLAS threads would wait for each other


@dataclass(frozen=True)
class MapPlan:
    """A map to compute: quantities, points, quantiles and draws.

    Attributes
    ----------
    posterior : Dataset
    posterior_field : PosteriorField
    grid : MapGrid
    quantities : tuple of MapQuantity
    units, dimensions : dict
        Unit and dimension of the labels (or None) of each quantity.
    levels : array, shape (K,)
        Probabilities of the quantiles.
    draws : int
        Number of joint draws.
    seed : int
        Random seed of the draws.
    memory : int
        Approximate size of temporary arrays, in bytes.
    mode : int or None
        Number of the mode that is mapped; None for all.
    scalars : tuple of LatentQuantity
        Latents that are the same everywhere, of which the map has numbers.
    undefined : set of str
        Derived quantities that are undefined at some point; complete after all blocks are computed.
    """

    posterior: xr.Dataset
    posterior_field: PosteriorField
    grid: MapGrid
    quantities: tuple[MapQuantity, ...]
    units: dict[str, str]
    dimensions: dict[str, str | None]
    levels: Floats
    draws: int
    seed: int
    memory: int
    mode: int | None = None
    scalars: tuple[LatentQuantity, ...] = ()
    undefined: set[str] = field(default_factory=set)

    @cached_property
    def draw_methods(self) -> DrawMethods:
        """Methods of the draws."""
        return DrawMethods.choose(self.drawn_field, self.grid, self.draws)

    @cached_property
    def drawn_field(self) -> PosteriorField:
        """The posterior with the draws at the inducing points that the joint draws start from."""
        return self.posterior_field.thin(self.draws, self.seed)

    @cached_property
    def joint_draws(self) -> JointDraws | None:
        """The joint draws; None if there are none."""
        if not self.draws:
            return None
        rng = np.random.default_rng(self.seed)
        return JointDraws.sample(self.drawn_field, self.draw_methods, self.draws, rng)

    @cached_property
    def variables(self) -> dict[str, BlockVariable]:
        """Dimensions and attributes of the variables, by name."""
        return {
            name: variable
            for quantity in self.quantities
            for name, variable in quantity_variables(
                self.posterior,
                self.grid,
                quantity,
                self.units[quantity.name],
                self.dimensions[quantity.name],
                levels=len(self.levels),
                draws=self.draws,
            ).items()
        }

    def scalar_variables(self) -> dict[str, xr.DataArray]:
        """Return the variables of the scalars, which have no dimension of points."""
        if not self.scalars:
            return {}
        first = tuple(slice(0, 1) for _ in self.grid.shape)
        X, processes = self.grid.at(first), list(range(self.posterior_field.process_count))
        at = self.posterior_field.at(X, processes)
        f = None
        if self.joint_draws is not None:
            f = self.joint_draws.at(X, np.zeros(1, dtype=np.intp), self.drawn_field.at(X, processes))
        found: dict[str, xr.DataArray] = {}
        for quantity in self.scalars:
            attributes = copied_attributes(self.posterior, quantity.name)
            for name, values in self._values(quantity, at, f).items():
                about = attributes.get(name.removeprefix(quantity.name), {})
                found[name] = scalar_variable(quantity, name, values, self.dimensions[quantity.name], about)
        return found

    def skeleton(self) -> xr.Dataset:
        """Return a dataset with coordinates, attributes and scalars of the map, without the variables of its points."""
        both = (*self.quantities, *self.scalars)
        coordinates = map_coordinates(self.posterior, self.grid, both, self.units, self.levels, self.draws)
        dimensions = {d for d in self.dimensions.values() if d is not None}
        kept = {
            name: array
            for name, array in self.posterior.coords.items()
            if len(array.dims) == 1 and array.dims[0] in dimensions
        }
        names = [q.name for q in both]
        dataset = xr.Dataset(coords={**kept, **coordinates}, attrs=map_attributes(self.posterior, self.grid, names))
        if self.draws:
            dataset.attrs["invgp_map_draws"] = self.draw_methods.name
        if self.mode is not None:
            probability = float(mode_probabilities(self.posterior)[self.mode - 1])
            dataset.attrs |= {"invgp_mode": self.mode, "invgp_mode_probability": probability}
        if self.joint_draws is not None and len(mode_probabilities(self.posterior)) > 1:
            about = {"long_name": "mode of the draw, the most probable first", "units": "1"}
            modes = self.joint_draws.mode.astype(np.int32)
            dataset = dataset.assign(mode=xr.DataArray(modes, dims=("realization",), attrs=about))
        dataset = dataset.assign(survey_positions(self.posterior)).assign(self.scalar_variables())
        if self.grid.mesh is not None:
            dataset = add_mesh(dataset, self.grid.mesh, "site")
        return dataset.assign(crs=self.posterior["crs"]) if "crs" in self.posterior else dataset

    @cached_property
    def block_points(self) -> int:
        """Number of points per block, so that temporary arrays fit in `memory`."""
        posterior_field = self.posterior_field
        M, Q = posterior_field.inducing, posterior_field.process_count
        most = max(
            1 if isinstance(q, LatentQuantity) and q.field.link.elementwise else len(q.processes)
            for q in self.quantities
        )
        kernels = sum(len(prior.kernels) for prior in posterior_field.priors)
        numbers = M * (kernels + most * most + KERNEL_ARRAYS)
        numbers += (len(self.levels) + 10) * Q + 6 * self.draws * Q
        if posterior_field.groups:
            numbers += 6 * max(posterior_field.draw_count, FEWEST_VALUES) * (most + 1)
        return max(1, min(LARGEST_BLOCK, self.memory // (8 * numbers)))

    def block_shape(self) -> tuple[int, ...]:
        """Return the shape of the blocks along the dimensions of the grid."""
        return self.grid.blocks(self.block_points)[0]

    def blocks(self) -> Iterator[tuple[Slices, dict[str, Floats]]]:
        """Compute the map block by block.

        Yields
        ------
        block : tuple of slice
            Position of the block in the grid.
        values : dict of str to array
            Values of all variables, in the order of their dimensions.
        """
        with threadpool_limits(1 if self.grid.size < FEWEST_THREADED_POINTS else None):
            yield from self._blocks()

    def _blocks(self) -> Iterator[tuple[Slices, dict[str, Floats]]]:
        posterior_field, processes = self.posterior_field, sorted({j for q in self.quantities for j in q.processes})
        joint_draws = self.joint_draws
        if joint_draws is not None:
            processes = list(range(posterior_field.process_count))
        for block in self.grid.blocks(self.block_points)[1]:
            X = self.grid.at(block)
            at = posterior_field.at(X, processes)
            f = None
            if joint_draws is not None:
                same = self.drawn_field is posterior_field
                f = joint_draws.at(X, self._indices(block), at if same else self.drawn_field.at(X, processes))
            found: dict[str, Floats] = {}
            for quantity in self.quantities:
                for name, values in self._values(quantity, at, f).items():
                    found[name] = self._arrange(values, block, self.dimensions[quantity.name])
            yield block, found

    def _values(self, quantity: MapQuantity, at: LocatedPosterior, f: Floats | None) -> dict[str, Floats]:
        """Return the values (..., B, L) of each variable of a quantity."""
        summary, name = quantity.summary(at, self.levels), quantity.name
        if not np.all(np.isfinite(summary.mean)):
            self.undefined.add(name)
        found = {name: summary.mean, f"{name}_std": summary.std}
        if len(self.levels):
            found[f"{name}_quantile"] = summary.quantiles
        if quantity.thresholds:
            found[f"{name}_exceedance"] = summary.exceedance
        if summary.information is not None and summary.prior_mean is not None and summary.prior_std is not None:
            found[f"{name}_prior"] = summary.prior_mean
            found[f"{name}_prior_std"] = summary.prior_std
            found[f"{name}_information"] = summary.information
        if f is not None:
            found[f"{name}_sample"] = quantity.values(f)
        return found

    def _arrange(self, values: Floats, block: Slices, dimension: str | None) -> Floats:
        """Reshape values (..., B, L) to a block: labels after the points of a list, before the axes of a grid."""
        leading, L = values.shape[:-2], values.shape[-1]
        if self.grid.axes is None:
            return values if dimension else values[..., 0]
        shape = tuple(part.stop - part.start for part in block)
        if dimension is None:
            return values.reshape(*leading, *shape)
        return np.moveaxis(values, -1, -2).reshape(*leading, L, *shape)

    def _indices(self, block: Slices) -> NDArray[np.intp]:
        """Return the indices of the points of a block among all points."""
        ranges = [np.arange(part.start, part.stop) for part in block]
        return np.asarray(np.ravel_multi_index(np.meshgrid(*ranges, indexing="ij"), self.grid.shape)).ravel()
