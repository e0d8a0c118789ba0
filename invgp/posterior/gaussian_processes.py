"""The posterior of the latent Gaussian processes as a file stores it, so that it can be predicted at any point.

The prior of each process is in the attributes of its latent. There are three representations of the posterior, one per
type of inversion.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from invgp.core.kernels import STATIONARY, Kernel, Stationary, kernel_from_description
from invgp.problem import Column, Floats, PriorMap

INDUCING_SUFFIX = "_inducing"  # after the name of a coordinate
MEAN_MAP, SCALE_MAP = "_map_mean", "_map_scale"  # after the name of a latent
MIXING = "process_mixing"  # matrix from independent to correlated processes
DEFINITION = "kernel_definition"  # attribute with the JSON description of a kernel


def prior_map_variables(name: str, maps: PriorMap, coordinates: Sequence[Column]) -> dict[str, xr.DataArray]:
    """Return the variables of a file that store the prior maps of a latent.

    Parameters
    ----------
    name : str
        Name of the latent.
    maps : PriorMap
    coordinates : sequence of Column
        Coordinates of the latents, in the order of the file.
    """
    own = [coordinates[d] for d in maps.dimensions]
    dims = tuple(f"{name}_map_{c.name}" for c in own)
    found = {
        dim: xr.DataArray(axis, dims=(dim,), attrs={"long_name": f"{c.name} of the prior maps", "units": c.unit})
        for dim, c, axis in zip(dims, own, maps.axes, strict=True)
    }
    about = f"of the processes of {name} on the maps of the prior"
    found[f"{name}{MEAN_MAP}"] = _process_array((f"{name}_process", *dims), maps.mean, f"prior mean {about}")
    if maps.scale is not None:
        long_name = f"prior standard deviation {about}, over the nominal one"
        found[f"{name}{SCALE_MAP}"] = _process_array((f"{name}_process", *dims), maps.scale, long_name)
    return found


def read_prior_maps(dataset: xr.Dataset, name: str, coordinates: Sequence[str]) -> PriorMap | None:
    """Read the prior maps of a latent; None if its prior is the same everywhere.

    Parameters
    ----------
    dataset : Dataset
        A posterior.
    name : str
        A latent.
    coordinates : sequence of str
        Their names, in order.

    Returns
    -------
    PriorMap or None
    """
    if f"{name}{MEAN_MAP}" not in dataset:
        return None
    mean = dataset[f"{name}{MEAN_MAP}"]
    dims = [str(dim) for dim in mean.dims[1:]]
    dimensions = tuple(list(coordinates).index(dim.removeprefix(f"{name}_map_")) for dim in dims)
    axes = tuple(np.asarray(dataset[dim].values, dtype=np.float64) for dim in dims)
    scale = dataset[f"{name}{SCALE_MAP}"].values if f"{name}{SCALE_MAP}" in dataset else None
    return PriorMap(axes, dimensions, mean.values, scale)


def mixing_variable(mixing: Floats | None) -> dict[str, xr.DataArray]:
    """Return the variable of a file that stores `Problem.mixing`; none if the processes are independent.

    Parameters
    ----------
    mixing : array, shape (Q, Q), or None

    Returns
    -------
    dict of str to DataArray
    """
    if mixing is None:
        return {}
    about = "from the independent processes that the file stores to the latents, before the link: prior correlation"
    return {MIXING: _process_array(("process", "other_process"), mixing, f"matrix {about}")}


def kernel_attributes(kernel: Kernel) -> dict[str, Any]:
    """Return the attributes of a latent that define its kernel, of variance 1.

    They are the kind and the length-scales, if these define it, otherwise a formula and a description in JSON.

    Parameters
    ----------
    kernel : Kernel

    Returns
    -------
    dict of str to object
    """
    if (
        isinstance(kernel, Stationary)
        and type(kernel) in STATIONARY.values()
        and set(kernel.parameter_names) == {"variance", "length_scale"}
    ):
        return {"kernel": kernel.kind, "length_scale": np.asarray(kernel.length_scale)}
    return {"kernel": kernel.formula, DEFINITION: json.dumps(kernel.describe())}


def kernel_from_attributes(attributes: Mapping[str, Any]) -> Kernel:
    """Return the kernel that `kernel_attributes` described.

    Parameters
    ----------
    attributes : mapping of str to object

    Returns
    -------
    Kernel

    Raises
    ------
    ValueError
        The attributes are not a description of a kernel, or one of a kind whose module is not imported.
    """
    if DEFINITION in attributes:
        return kernel_from_description(json.loads(attributes[DEFINITION]))
    kind: type[Stationary] = STATIONARY[attributes["kernel"]]
    return kind(1.0, np.atleast_1d(np.asarray(attributes["length_scale"], dtype=np.float64)))


@dataclass(frozen=True)
class StoredSiteFactors:
    """The coupled posterior, stored as its site factors: N (Q + 1) Q numbers.

    Attributes
    ----------
    precision : array, shape (N, Q, Q)
        Precision of the site factors, as in `invgp.core.coupled.coupled_gaussian`.
    shift : array, shape (N, Q)
        Shift of the site factors.
    inducing : array, shape (Q, M, D), or None
        Inducing points; None if they are the sites.
    jitter : float
        Fraction of the prior variance that is added to the covariance of the inducing points.
    """

    precision: Floats
    shift: Floats
    inducing: Floats | None = None
    jitter: float = 0.0

    def to_variables(self, units: Mapping[str, str]) -> dict[str, xr.DataArray]:
        """Return the variables of a file that store this posterior.

        Parameters
        ----------
        units : mapping of str to str
            Unit of each coordinate, in order.

        Returns
        -------
        dict of str to DataArray
        """
        about = "of the site factor exp(shift f - f precision f / 2), with f the processes minus their prior mean"
        variables = {
            "site_precision": _process_array(
                ("site", "process", "other_process"), self.precision, f"precision {about}"
            ),
            "site_shift": _process_array(("site", "process"), self.shift, f"shift {about}"),
        }
        if self.inducing is not None:
            variables |= _inducing_variables(self.inducing, units)
            variables["site_shift"].attrs["inducing_jitter"] = self.jitter
        return variables


@dataclass(frozen=True)
class WhitenedGaussians:
    """The full Gaussian of the paper at the sites, with independent processes: N (N + 1) Q numbers.

    Attributes
    ----------
    mean : array, shape (Q, N)
        Mean v, whitened by the Cholesky factor of the prior covariance.
    factor : array, shape (Q, N, N)
        Lower triangular factor R; the covariance of v is R R^T.
    """

    mean: Floats
    factor: Floats

    def to_variables(self, units: Mapping[str, str]) -> dict[str, xr.DataArray]:  # noqa: ARG002 - as the others
        """Return the variables of a file that store this posterior.

        Parameters
        ----------
        units : mapping of str to str
            Unit of each coordinate; not used.

        Returns
        -------
        dict of str to DataArray
        """
        about = "of the processes at the sites, whitened by the Cholesky factor of their prior covariance"
        return {
            "whitened_mean": _process_array(("process", "site"), self.mean, f"mean {about}"),
            "whitened_factor": _process_array(
                ("process", "site", "other_site"), self.factor, f"Cholesky factor of the covariance {about}"
            ),
        }


@dataclass(frozen=True)
class WhitenedInducing:
    """The posterior of a field model: a Gaussian at a subset of the grid nodes, equivalent to its modes.

    Attributes
    ----------
    inducing : array, shape (Q, M, D)
        Inducing points of each process: nodes of the grid.
    mean : array, shape (Q, M)
        Mean v, whitened by the Cholesky factor of the prior covariance.
    root : array, shape (Q M, Q M)
        T; the covariance of v is T^T T.
    """

    inducing: Floats
    mean: Floats
    root: Floats

    def to_variables(self, units: Mapping[str, str]) -> dict[str, xr.DataArray]:
        """Return the variables of a file that store this posterior.

        Parameters
        ----------
        units : mapping of str to str
            Unit of each coordinate, in order.

        Returns
        -------
        dict of str to DataArray
        """
        about = "of the processes at the inducing points, whitened by the Cholesky factor of their prior covariance"
        variables = {
            "whitened_mean": _process_array(("process", "inducing"), self.mean, f"mean {about}"),
            "whitened_root": _process_array(
                ("whitened", "other_whitened"), self.root, f"T, with covariance T^T T, {about}"
            ),
        }
        return variables | _inducing_variables(self.inducing, units)


ProcessPosterior = StoredSiteFactors | WhitenedGaussians | WhitenedInducing


def read_process_posterior(dataset: xr.Dataset, coordinates: Sequence[str]) -> ProcessPosterior | None:
    """Read the posterior of the processes from a dataset.

    Parameters
    ----------
    dataset : Dataset
        A posterior.
    coordinates : sequence of str
        Names of the coordinates of the latents.

    Returns
    -------
    StoredSiteFactors, WhitenedGaussians, WhitenedInducing or None
        None for a file of an earlier version of invgp, and for a dataset that is not a posterior.
    """
    if "whitened_root" in dataset:
        inducing = _read_inducing(dataset, coordinates)
        return WhitenedInducing(inducing, dataset["whitened_mean"].values, dataset["whitened_root"].values)
    if "whitened_mean" in dataset:
        return WhitenedGaussians(dataset["whitened_mean"].values, dataset["whitened_factor"].values)
    if "site_shift" not in dataset:
        return None
    shift = dataset["site_shift"]
    sparse = f"{coordinates[0]}{INDUCING_SUFFIX}" in dataset
    points = _read_inducing(dataset, coordinates) if sparse else None
    jitter = float(shift.attrs.get("inducing_jitter", 0.0))
    return StoredSiteFactors(dataset["site_precision"].values, shift.values, points, jitter)


def site_locations(dataset: xr.Dataset, coordinates: Sequence[str]) -> Floats:
    """Read the points at which the processes are stored, (N, D), or (N, 2 D) with the half-widths of intervals.

    Parameters
    ----------
    dataset : Dataset
        A posterior.
    coordinates : sequence of str
        Their names, in order.

    Returns
    -------
    array, shape (N, D), or (N, 2 D)
    """
    X = np.stack([np.asarray(dataset[name].values, dtype=np.float64) for name in coordinates], axis=-1)
    if f"{coordinates[0]}_bounds" not in dataset:
        return X
    ends = np.stack([np.asarray(dataset[f"{name}_bounds"].values, dtype=np.float64) for name in coordinates], axis=1)
    return np.concatenate([X, 0.5 * (ends[..., 1] - ends[..., 0])], axis=-1)


def _read_inducing(dataset: xr.Dataset, coordinates: Sequence[str]) -> Floats:
    """Read the inducing points, (Q, M, D)."""
    return np.stack([dataset[f"{name}{INDUCING_SUFFIX}"].values for name in coordinates], axis=-1)


def _process_array(dims: tuple[str, ...], values: Floats, long_name: str, unit: str = "1") -> xr.DataArray:
    return xr.DataArray(values, dims=dims, attrs={"long_name": long_name, "units": unit})


def _inducing_variables(inducing: Floats, units: Mapping[str, str]) -> dict[str, xr.DataArray]:
    """Return the coordinates of inducing points (Q, M, D) as variables."""
    dims = ("process", "inducing")
    return {
        f"{name}{INDUCING_SUFFIX}": _process_array(dims, inducing[..., d], f"{name} of the inducing points", unit)
        for d, (name, unit) in enumerate(units.items())
    }
