"""Survey and grid: positions of the sites and nodes, observations and covariates."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from invgp.core.kernels import Averaged, Kernel, Scalar
from invgp.files.meshes import Mesh

Floats = NDArray[np.float64]
Labels = tuple[int, ...] | tuple[str, ...]

# Values that other programs write where there is no datum, with either sign.
MARKERS = (99.0, 999.0, 999.25, 9999.0, 9999.99, 99999.0, 999999.0, 1e20, 1e30)
MARKER_DISTANCE = 3.0  # a marker is at least so many times as large as all other values


@dataclass(frozen=True)
class Column:
    """A known quantity with one value per site or node: a coordinate, or a covariate of the simulator.

    Parameters
    ----------
    name : str
    unit : str
        Unit that UDUNITS understands; ``"1"`` for none.
    values : array, shape (N,)
        Values, in `unit`.
    long_name : str
        Name for figures and the file.
    standard_name : str
        CF standard name.
    positive : str
        ``"down"`` or ``"up"`` for a vertical position, otherwise empty.
    """

    name: str
    unit: str
    values: Floats
    long_name: str = ""
    standard_name: str = ""
    positive: str = ""


@dataclass(frozen=True)
class Observation:
    """A measured quantity: one number per site, or one per site and label.

    Parameters
    ----------
    name : str
    unit : str
        Unit that UDUNITS understands; ``"1"`` for none.
    values : array, shape (N, p)
        Measured values, in `unit`; NaN for a missing observation.
    dimension : str or None
        Name of the dimension of the labels; None without labels.
    labels : tuple of int or str, length p, or None
    long_name : str
        Name for figures and the file.
    standard_name : str
        CF standard name.
    """

    name: str
    unit: str
    values: Floats
    dimension: str | None = None
    labels: Labels | None = None
    long_name: str = ""
    standard_name: str = ""


@dataclass(frozen=True)
class Survey:
    """The sites of a survey with their coordinates, observations and covariates.

    Parameters
    ----------
    coordinates : tuple of Column
        One to three coordinates of the sites.
    observations : tuple of Observation
    covariates : tuple of Column
        Known numbers per site that the simulator needs.
    crs : str or None
        Coordinate reference system that PROJ understands, such as ``"EPSG:28354"``; None for local coordinates.
    file, digest : str
        File that the survey was read from, and its SHA-256 digest, for provenance; empty for a survey made in Python.
    extents : array, shape (N, D), or None
        Half-widths of the intervals of the coordinates over which the latents of a site are averaged, in the units of
        the coordinates; None if every site is a point.
    """

    coordinates: tuple[Column, ...]
    observations: tuple[Observation, ...]
    covariates: tuple[Column, ...] = ()
    crs: str | None = None
    file: str = ""
    digest: str = ""
    extents: Floats | None = None

    @property
    def size(self) -> int:
        """Number of sites, N."""
        return len(self.coordinates[0].values)

    @property
    def X(self) -> Floats:  # noqa: N802 - the paper's name
        """Site coordinates, (N, D)."""
        return np.stack([c.values for c in self.coordinates], axis=-1)

    def suspected_markers(self) -> dict[str, tuple[float, int]]:
        """Return, by observation, a value that probably marks missing data, and how often it occurs.

        Such a value is a usual marker, such as -999, and far outside the other values of the observation.
        """
        found = {}
        for observation in self.observations:
            present = observation.values[np.isfinite(observation.values)]
            marked = np.isin(np.abs(present), MARKERS)
            if marked.any() and not marked.all():
                others = float(np.abs(present[~marked]).max())
                if np.abs(present[marked]).min() > MARKER_DISTANCE * others:
                    found[observation.name] = float(present[marked][0]), int(marked.sum())
        return found

    def select(self, sites: NDArray[np.intp]) -> Survey:
        """Return the survey of a subset of the sites, given by their numbers (B,).

        Parameters
        ----------
        sites : array of int, shape (B,)
            Numbers of the sites, from 0.

        Returns
        -------
        Survey
        """
        return replace(
            self,
            coordinates=tuple(replace(c, values=c.values[sites]) for c in self.coordinates),
            covariates=tuple(replace(c, values=c.values[sites]) for c in self.covariates),
            observations=tuple(replace(o, values=o.values[sites]) for o in self.observations),
            extents=None if self.extents is None else self.extents[sites],
        )

    @property
    def locations(self) -> Floats:
        """Inputs of the kernels: X (N, D), or X with the extents (N, 2 D) if a site is an interval."""
        return self.X if self.extents is None else np.concatenate([self.X, self.extents], axis=-1)

    def kernel_at_sites(self, kernel: Kernel) -> Kernel:
        """Return the kernel of a process for `locations`, of which some may be intervals.

        Parameters
        ----------
        kernel : Kernel
            Kernel as a function of the coordinates.

        Returns
        -------
        Kernel
            As a function of `locations`.
        """
        if self.extents is None or isinstance(kernel, Scalar):
            return kernel
        return Averaged(kernel, len(self.coordinates))

    @property
    def Y(self) -> Floats:  # noqa: N802 - the paper's name
        """All observations, (N, P)."""
        return np.concatenate([np.empty((self.size, 0)), *(o.values for o in self.observations)], axis=-1)


@dataclass(frozen=True)
class Grid:
    """The nodes of a field model, at which its latents are defined.

    Parameters
    ----------
    coordinates : tuple of Column
        One to three coordinates of the nodes.
    shape : tuple of int
        Numbers of nodes of a regular grid along each coordinate, the last of which varies fastest; empty for an
        irregular grid.
    mesh : Mesh or None
        The mesh whose cells are the nodes.
    """

    coordinates: tuple[Column, ...]
    shape: tuple[int, ...] = ()
    mesh: Mesh | None = None

    @staticmethod
    def of_scalars() -> Grid:
        """Return the grid of a model all of whose latents are scalars: a single node, whose coordinate has no use."""
        return Grid((Column("node", "1", np.zeros(1)),))

    @property
    def size(self) -> int:
        """Number of nodes, G."""
        return len(self.coordinates[0].values)

    @property
    def X(self) -> Floats:  # noqa: N802 - the paper's name
        """Node coordinates, (G, D)."""
        return np.stack([c.values for c in self.coordinates], axis=-1)
