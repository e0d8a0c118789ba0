"""An earlier posterior as the prior: the Gaussian factors of its data join the problem as data without a simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from pyproj import CRS

from invgp.adapters import Quantity
from invgp.bounded_links import link_attributes, link_from_attributes
from invgp.core.kernels import Averaged, Scalar
from invgp.errors import ConfigError
from invgp.formatting import count_noun, join_names
from invgp.netcdf import read
from invgp.posterior.attributes import has_converged
from invgp.posterior.coordinates import coordinate_order, latent_coordinates
from invgp.posterior.dataset import grid_mapping
from invgp.posterior.gaussian_processes import (
    MIXING,
    StoredSiteFactors,
    WhitenedInducing,
    kernel_from_attributes,
    read_prior_maps,
    read_process_posterior,
    site_locations,
)
from invgp.problem import (
    SITE_COLUMN,
    Column,
    EarlierField,
    EarlierSites,
    Floats,
    Latent,
    Noise,
    Observation,
    Problem,
    SimulatorVariable,
    Survey,
)

NAME = "prior"  # of the source
VALUES = "prior_data"  # its observation
DIRECTION = "prior_direction"  # dimension of the observation
LARGEST_K_HAT = 0.7  # Pareto k above which the posterior is not Gaussian
LARGEST_ERROR = 0.25  # standard deviations of the draws from the Gaussian at a site
COMPARED = 200  # most points at which priors are compared, about
SMALLEST = 1e-12, 1e-13  # precision of a direction in prior standard deviations, alone and over the largest of the site


def add_earlier_posterior(problem: Problem, given: xr.Dataset | Path) -> Problem:
    """Return the problem with an earlier posterior as part of its prior.

    Parameters
    ----------
    problem : Problem
        All its sources have been joined.
    given : Dataset or Path
        The earlier posterior.

    Raises
    ------
    ConfigError
        The file is not a posterior, or not one of the same latents and coordinates.
    """
    posterior, file = (given, "") if isinstance(given, xr.Dataset) else (_read(given), given.name)
    if not {"invgp_latents", "invgp_coordinates"} <= posterior.attrs.keys() or "site" not in posterior.dims:
        raise ConfigError(f"prior: must be a posterior that `invgp run` wrote, was {file or 'another dataset'!r}")
    if NAME in [part.name for part in problem.parts]:
        raise ConfigError(f"prior: must be left out if a source is called {NAME!r}, was given")
    latents = _check_latents(problem, posterior)
    _check_coordinates(problem, posterior)
    stored = read_process_posterior(posterior, posterior.attrs["invgp_coordinates"].split())
    doubts = tuple(f"The prior is the posterior in {file or 'a dataset'}: {one}" for one in _doubts(posterior))
    if isinstance(stored, StoredSiteFactors):
        return _add_sites(problem, posterior, stored, latents, file, doubts)
    if not isinstance(stored, WhitenedInducing):
        raise ConfigError(
            "prior: must be a posterior with the variables for prediction, which this file lacks; repeat its inversion "
            "with this version of invgp"
        )
    return _add_field(problem, posterior, stored, latents, file, doubts)


def _read(file: Path) -> xr.Dataset:
    try:
        return read(file)
    except ConfigError as error:
        raise ConfigError([f"prior: {sentence}" for sentence in error.sentences]) from None


def _check_latents(problem: Problem, posterior: xr.Dataset) -> tuple[Latent, ...]:
    """Return the latents of the earlier posterior; raise `ConfigError` unless the problem has the same."""
    known = {latent.name: latent for latent in problem.latents}
    names = posterior.attrs["invgp_latents"].split()
    missing = [name for name in names if name not in known]
    if missing:
        raise ConfigError(
            f"prior: must be a posterior of latents of this problem, {join_names(known)}, had {join_names(missing)} too"
        )
    wrong = []
    for name in names:
        latent, array = known[name], posterior[name]
        for what, own, theirs in (
            ("unit", latent.unit, array.attrs.get("units", "")),
            ("labels", _label_list(latent.dimension, latent.labels), _read_labels(posterior, name)),
            ("link", link_attributes(latent.link), _read_link(array, latent.size)),
        ):
            if not _agree(own, theirs):
                wrong.append(f"latents.{name}: must have the {what} of the prior, {_show(theirs)}, had {_show(own)}")
    if wrong:
        raise ConfigError(wrong)
    return tuple(known[name] for name in names)


def _label_list(dimension: str | None, labels: Sequence[Any] | None) -> list[Any]:
    return [] if labels is None else [dimension, *labels]


def _read_labels(posterior: xr.Dataset, name: str) -> list[Any]:
    """Return the dimension and the labels of a latent; an empty list without labels."""
    dims = [str(d) for d in posterior[name].dims if d not in ("site", "node")]
    if not dims:
        return []
    values = posterior[f"{dims[0]}_label"] if f"{dims[0]}_label" in posterior else posterior[dims[0]]
    return [dims[0], *values.values.tolist()]


def _read_link(array: xr.DataArray, size: int) -> Any:
    try:
        return link_attributes(link_from_attributes(array.attrs, size))
    except ValueError:  # another number of labels
        return array.attrs.get("link")


def _check_coordinates(problem: Problem, posterior: xr.Dataset) -> None:
    """Raise `ConfigError` unless the earlier posterior has the same coordinates and coordinate reference system."""
    columns = latent_coordinates(problem)
    wanted = {c.name: c.unit for c in columns}
    found = {name: posterior[name].attrs.get("units", "") for name in posterior.attrs["invgp_coordinates"].split()}
    if problem.has_fields and wanted != found:
        texts = [join_names([f"{name} ({unit})" for name, unit in one.items()]) for one in (wanted, found)]
        raise ConfigError(f"prior: must have the coordinates of this problem, {texts[0]}, had {texts[1]}")
    crs = problem.survey.crs
    own = None if crs is None else CRS.from_cf(grid_mapping(crs, problem.survey.coordinates[0].unit))
    theirs = CRS.from_cf(dict(posterior["crs"].attrs)) if "crs" in posterior else None
    if own != theirs:
        names = ["none" if one is None else one.name for one in (own, theirs)]
        raise ConfigError(
            f"prior: must have the coordinate reference system of this problem, {names[0]}, had {names[1]}"
        )


def _doubts(posterior: xr.Dataset) -> list[str]:
    """Return predicates on the accuracy of the Gaussian that an earlier posterior is replaced by."""
    found = []
    if not has_converged(posterior):
        found.append("it had not converged.")
    k_hat = float(posterior.attrs.get("invgp_gaussian_k_hat", np.nan))
    modes = int(posterior.attrs.get("invgp_modes", 1))
    far = 0
    if "gaussian_error" in posterior:
        far = int(np.count_nonzero(posterior["gaussian_error"].values > LARGEST_ERROR))
    if modes > 1:
        found.append(f"it had {modes} modes, and a Gaussian replaces all of them; invert all data together instead.")
    elif k_hat > LARGEST_K_HAT and far:
        found.append(
            f"it was not Gaussian (Pareto k {k_hat:.2g}; at {count_noun(far, 'site')} its draws are more than "
            f"{LARGEST_ERROR} standard deviations from a Gaussian), but a Gaussian replaces it; invert all data "
            "together instead."
        )
    if posterior.attrs.get("invgp_hyperparameters", ""):
        found.append(
            "its draws were averaged over learnt hyperparameters, and their most probable values replace them."
        )
    return found


def _differences(
    problem: Problem, posterior: xr.Dataset, latents: Sequence[Latent], points: Sequence[Floats]
) -> list[str]:
    """Return the names of latents whose prior mean or covariance at some points differs from the earlier one.

    Parameters
    ----------
    problem : Problem
    posterior : Dataset
    latents : sequence of Latent
        Its latents.
    points : sequence of arrays, shape (N, D) or (N, 2 D)
        Points for each latent, with coordinates in the order of the file.
    """
    coordinates = posterior.attrs["invgp_coordinates"].split()
    order, D, found = coordinate_order(problem), len(coordinates), []
    for latent, given in zip(latents, points, strict=True):
        X = given[:: max(len(given) // COMPARED, 1)]
        maps = read_prior_maps(posterior, latent.name, coordinates)
        about = posterior[latent.name].attrs
        theirs = kernel_from_attributes(about)
        kernels = (theirs,) * latent.size if maps is None else maps.scale_kernel(theirs)
        std = np.broadcast_to(about["process_std"], latent.size)
        own = replace(latent, kernel=latent.kernel.permute(order), maps=latent.maps and latent.maps.permute(order))
        _, own_std = latent.link.prior_to_process(latent.mean, latent.std)
        pairs = [(own.process_mean(X, D), _earlier_mean(posterior, latent, X, coordinates))]
        for one, other, s, t in zip(own.kernels, kernels, own_std, std, strict=True):
            k, m = (kernel if isinstance(kernel, Scalar) else Averaged(kernel, D) for kernel in (one, other))
            pairs.append((s**2 * k(X, X), t**2 * m(X, X)))
        if not all(np.allclose(a, b, rtol=1e-8, atol=1e-10 * np.abs(b).max()) for a, b in pairs):
            found.append(latent.name)
    return found


def _agree(one: Any, other: Any) -> bool:
    """Return whether attributes are the same, numbers up to rounding."""
    if one is None or other is None:
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_agree(one[key], other[key]) for key in one)
    if isinstance(one, str) or isinstance(other, str):
        return bool(np.all(one == other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_agree, one, other))
    try:
        a, b = (np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in (one, other))
    except (TypeError, ValueError):
        return bool(one == other)
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=0.0, equal_nan=True)


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(str(one) if key == "link" else f"{key} {one}" for key, one in value.items())
    if isinstance(value, list):
        return f"{value[0]} {join_names([str(one) for one in value[1:]])}" if value else "none"
    return repr(value)


def _add_sites(
    problem: Problem,
    posterior: xr.Dataset,
    stored: StoredSiteFactors,
    latents: tuple[Latent, ...],
    file: str,
    doubts: tuple[str, ...],
) -> Problem:
    """Add the site factors of an earlier site model as data that are linear in the latents, with noise of 1."""
    coordinates = posterior.attrs["invgp_coordinates"].split()
    X = site_locations(posterior, coordinates)
    mean = np.concatenate([_earlier_mean(posterior, latent, X, coordinates) for latent in latents], axis=-1)
    std = np.concatenate([np.atleast_1d(posterior[latent.name].attrs["process_std"]) for latent in latents])
    precision, shift = stored.precision, stored.shift
    if MIXING in posterior:
        unmixing = np.linalg.inv(np.asarray(posterior[MIXING].values, dtype=np.float64))
        precision, shift = unmixing.T @ precision @ unmixing, shift @ unmixing
    weights, values, dropped = whiten_factors(precision, shift, mean, std)
    if dropped:
        doubts += (
            f"The prior is the posterior in {file or 'a dataset'}: at {count_noun(dropped, 'site')} the Gaussian "
            "factor of its data is wider than flat in some direction, which was left out.",
        )
    different = [
        name
        for name in _differences(problem, posterior, latents, [X] * len(latents))
        if not next(latent.learn for latent in latents if latent.name == name)
    ]
    if different:
        doubts += (
            f"The prior is the posterior in {file or 'a dataset'}: {join_names(different)} had another mean, standard "
            "deviation or kernel there; the earlier data were combined with the new ones.",
        )
    labels = tuple(range(1, values.shape[1] + 1))
    columns = latent_coordinates(problem)
    order, D = [coordinates.index(c.name) for c in columns] if problem.has_fields else [0], len(coordinates)
    survey = Survey(
        tuple(replace(c, values=X[:, d]) for c, d in zip(columns, order, strict=False)),
        (Observation(VALUES, "1", values, DIRECTION, labels, "data of the earlier posterior, over their noise"),),
        (Column(SITE_COLUMN, "1", np.arange(len(X), dtype=np.float64), "site of the earlier posterior, from 0"),),
        crs=problem.survey.crs,
        extents=X[:, D:][:, order] if X.shape[1] > D else None,
    )
    outputs = (Quantity(VALUES, "1", labels),)
    model = EarlierSites(NAME, latents, weights, outputs, file, doubts)
    noise = Noise(kind="gaussian", std={VALUES: np.ones_like(values)})
    return _join(problem, survey, noise, model)


def _earlier_mean(posterior: xr.Dataset, latent: Latent, X: Floats, coordinates: Sequence[str]) -> Floats:
    """Return the earlier prior mean (N, L) of the arguments of the link of a latent."""
    maps = read_prior_maps(posterior, latent.name, coordinates)
    if maps is not None:
        return maps.mean_at(X, len(coordinates))
    mean = np.atleast_1d(np.asarray(posterior[latent.name].attrs["process_mean"], dtype=np.float64))
    return np.broadcast_to(mean, (len(X), latent.size))


def whiten_factors(precision: Floats, shift: Floats, mean: Floats, std: Floats) -> tuple[Floats, Floats, int]:
    """Write the factors exp(shift (f - mean) - (f - mean) precision (f - mean) / 2) as data W f = y with noise of 1.

    Parameters
    ----------
    precision : array, shape (N, K, K)
        Symmetric.
    shift, mean : array, shape (N, K)
    std : array, shape (K,)
        Prior standard deviations, by which f is scaled.

    Returns
    -------
    weights : array, shape (N, K, K)
        W; 0 for a missing value.
    values : array, shape (N, K)
        y; NaN for a missing value: a direction without information.
    negative : int
        Number of sites with a direction of negative precision, which is left out.
    """
    scaled = std[:, None] * 0.5 * (precision + precision.swapaxes(1, 2)) * std
    eigenvalues, vectors = np.linalg.eigh(scaled)
    least = np.maximum(SMALLEST[0], SMALLEST[1] * np.abs(eigenvalues).max(axis=1, keepdims=True))
    informed = eigenvalues > least
    roots = np.sqrt(np.where(informed, eigenvalues, 1.0))
    rows = vectors.swapaxes(1, 2)  # one direction each
    along_shift, along_mean = ((rows @ one[..., None])[..., 0] for one in (std * shift, mean / std))
    values = np.where(informed, along_shift / roots + roots * along_mean, np.nan)
    weights = np.where(informed, roots, 0.0)[..., None] * rows / std
    return weights, values, int(np.count_nonzero((eigenvalues < -least).any(axis=1)))


def _add_field(
    problem: Problem,
    posterior: xr.Dataset,
    stored: WhitenedInducing,
    latents: tuple[Latent, ...],
    file: str,
    doubts: tuple[str, ...],
) -> Problem:
    """Add the Gaussian of an earlier field model."""
    if problem.grid is None:
        raise ConfigError("prior: must be a posterior of a site model for a site model, was one of a field model")
    if [latent.name for latent in latents] != [latent.name for latent in problem.latents]:
        names = [join_names([one.name for one in some]) for some in (problem.latents, latents)]
        raise ConfigError(f"prior: must have the latents of this field model, {names[0]}, had {names[1]}")
    first = [problem.latent_slices[latent.name].start for latent in latents]
    different = _differences(problem, posterior, latents, [stored.inducing[j] for j in first])
    mixing = np.asarray(posterior[MIXING].values) if MIXING in posterior else None
    if not different and not _agree(problem.mixing, mixing):
        different = ["correlations"]
    if different:
        raise ConfigError(
            "prior: must have the mean, standard deviation and kernel of each latent of this field model, "
            f"{join_names(different)} had others; set those that the earlier inversion had or learnt"
        )
    coordinates = posterior.attrs["invgp_coordinates"].split()
    order = [coordinates.index(c.name) for c in problem.grid.coordinates]
    inducing = stored.inducing[..., order]
    places = inducing.reshape(-1, len(order))
    survey = Survey(
        tuple(replace(c, values=places[:, d]) for d, c in enumerate(problem.grid.coordinates)),
        (),
        crs=problem.survey.crs,
    )
    model = EarlierField(NAME, inducing, stored.mean, stored.root, file, doubts)
    return _join(problem, survey, Noise(kind="gaussian", std={}), model)


def _join(problem: Problem, survey: Survey, noise: Noise, model: EarlierSites | EarlierField) -> Problem:
    """Return the joint problem with the data of an earlier posterior."""
    own = replace(
        problem,
        survey=survey,
        noise=noise,
        forward=model,
        inputs=tuple(SimulatorVariable(q.name) for q in model.inputs),
        outputs=tuple(SimulatorVariable(q.name) for q in model.outputs),
        sources=(),
    )
    return problem.join({NAME: own}, direct=[NAME])
