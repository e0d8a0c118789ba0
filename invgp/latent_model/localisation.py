"""Localisation: groups of nearby sites, whose data depend only on the field near them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from invgp.core.backend import Backend, to_numpy
from invgp.core.field.local_regression import Block, taper
from invgp.core.field.regression import Modes
from invgp.latent_model.grid_modes import Field
from invgp.problem import Floats, Problem


class Neighbourhood(NamedTuple):
    """A group of nearby sites.

    Attributes
    ----------
    sites : array of int, shape (n,)
        Numbers of the sites.
    block : Block
        Their data, and the directions of the field on which they depend.
    """

    sites: NDArray[np.intp]
    block: Block


def neighbourhoods(problem: Problem, field: Field, backend: Backend) -> list[Neighbourhood]:
    """Divide the sites into cells of the size `inference.localisation`, each with the local directions of the field.

    The list is empty without localisation.
    """
    if problem.grid is None or problem.inference.localisation is None:
        return []
    reach = problem.inference.localisation
    coordinates = {column.name: column.values for column in problem.survey.coordinates}
    places = np.stack([coordinates[column.name] for column in problem.grid.coordinates], axis=-1) / reach
    nodes = problem.grid.X / reach
    site_of_datum = np.nonzero(~np.isnan(problem.survey.Y))[0]
    measured = np.unique(site_of_datum)
    _, cell = np.unique(np.floor(places[measured] - places[measured].min(axis=0)), axis=0, return_inverse=True)
    nearest = measured[cKDTree(places[measured]).query(places)[1]]
    cell_of_site = cell.ravel()[np.searchsorted(measured, nearest)]
    found = []
    for number in range(cell.max() + 1):
        sites = np.flatnonzero(cell_of_site == number)
        weight = taper(np.asarray(cKDTree(places[sites]).query(nodes)[0]))
        data = np.flatnonzero(cell_of_site[site_of_datum] == number)
        projection, modes = _local_directions(problem, field, weight, backend)
        found.append(Neighbourhood(sites, Block(data, projection, modes)))
    return found


def _local_directions(problem: Problem, field: Field, weight: Floats, backend: Backend) -> tuple[Floats, Modes]:
    """Return the directions (R, r) of w that describe the field where nodes have weight (G,), and their modes."""
    near = np.flatnonzero(weight)
    projection = np.zeros((field.slices[-1].stop, 0))
    sizes, variances = [], []
    for basis, part in zip(field.bases, field.slices, strict=True):
        windowed = np.sqrt(weight[near])[:, None] * to_numpy(basis.modes)[near]
        _, scales, directions = np.linalg.svd(windowed, full_matrices=False)
        share = np.cumsum(scales**2) / np.sum(scales**2)
        kept = int(np.argmax(share >= problem.inference.kept_variance)) + 1
        columns = np.zeros((projection.shape[0], kept))
        columns[part] = directions[:kept].T
        projection = np.concatenate([projection, columns], axis=1)
        sizes.append(kept)
        variances.append(scales[:kept] ** 2)
    groups = tuple(sum(sizes[problem.latent_slices[latent.name]]) for latent in problem.latents)
    return backend.asarray(projection), Modes(backend.asarray(np.concatenate(variances)), groups)
