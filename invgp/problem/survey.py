"""Sites and nodes: where they are, and what is known or was measured there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """A quantity known at each site: a coordinate, or a covariate of the forward model.

    Parameters
    ----------
    values : (N,), in `unit`.
    positive : ``"down"`` or ``"up"`` for a vertical position.
    """

    name: str
    unit: str
    values: Floats
    long_name: str = ""
    standard_name: str = ""
    positive: str = ""


@dataclass(frozen=True)
class Observation:
    """What was measured at each site: one number, or one for each label of a dimension.

    Parameters
    ----------
    values : (N, p), in `unit`; NaN where nothing was measured.
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
    """Sites, where they are, and what was measured there.

    Parameters
    ----------
    coordinates : one to three.
    crs : anything that PROJ understands, such as ``"EPSG:28354"``; None if the coordinates have none.
    file, digest : where it was read from, and the SHA-256 of that file, for provenance; empty if it was made in code.
    """

    coordinates: tuple[Column, ...]
    observations: tuple[Observation, ...]
    covariates: tuple[Column, ...] = ()
    crs: str | None = None
    file: str = ""
    digest: str = ""

    @property
    def size(self) -> int:
        """Number of sites, N."""
        return len(self.coordinates[0].values)

    @property
    def X(self) -> Floats:  # noqa: N802 - the paper's name
        """Site coordinates, (N, D)."""
        return np.stack([c.values for c in self.coordinates], axis=-1)

    @property
    def Y(self) -> Floats:  # noqa: N802 - the paper's name
        """All observations, (N, P)."""
        return np.concatenate([o.values for o in self.observations], axis=-1)


@dataclass(frozen=True)
class Grid:
    """Nodes of a model that takes whole fields; the latents live there.

    Parameters
    ----------
    coordinates : one to three, with a value a node.
    shape : nodes along each coordinate of a regular grid, whose last coordinate runs fastest; empty for any points.
    """

    coordinates: tuple[Column, ...]
    shape: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of nodes, G."""
        return len(self.coordinates[0].values)

    @property
    def X(self) -> Floats:  # noqa: N802 - the paper's name
        """Node coordinates, (G, D)."""
        return np.stack([c.values for c in self.coordinates], axis=-1)
