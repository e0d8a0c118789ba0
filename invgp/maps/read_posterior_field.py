"""The posterior of the latent processes at any points, from a posterior file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.bounded_links import link_from_attributes
from invgp.core.coupled.coupled_gaussian import CoupledGaussian, SiteFactors, gaussian_from_natural, natural_parameters
from invgp.core.coupled.prior import Prior
from invgp.core.geometry import inducing_factor
from invgp.core.kernels import Averaged, Kernel, Scalar
from invgp.errors import ArgumentError, ConfigError
from invgp.maps.posterior_field import DrawGroup, PosteriorField
from invgp.maps.process_prior import LatentField, ProcessPrior, SharedKernel
from invgp.posterior.contents import draws_of_mode
from invgp.posterior.gaussian_processes import (
    MIXING,
    ProcessPosterior,
    StoredSiteFactors,
    WhitenedGaussians,
    WhitenedInducing,
    kernel_from_attributes,
    read_prior_maps,
    read_process_posterior,
    site_locations,
)
from invgp.problem import Floats


def read_posterior_field(posterior: xr.Dataset, mode: int | None = None) -> PosteriorField:
    """Return the posterior of a dataset that `invgp run` wrote.

    Parameters
    ----------
    posterior : Dataset
    mode : int, optional
        Number of a mode, from 1; by default all.

    Returns
    -------
    PosteriorField

    Raises
    ------
    ConfigError
        The dataset does not have the variables for prediction or this mode, or is damaged.
    """
    coordinates = posterior.attrs["invgp_coordinates"].split()
    stored = read_process_posterior(posterior, coordinates)
    if stored is None:
        raise ConfigError(
            "the posterior lacks the variables for prediction: it is a map, was written by an earlier version of "
            "invgp (repeat the inversion; runs in its ledger are reused), or has too many modes to store them "
            "(use its own grid)"
        )
    fields = read_fields(posterior, coordinates)
    X = site_locations(posterior, coordinates)
    try:
        found = _build_posterior_field(fields, X, len(coordinates), stored)
    except np.linalg.LinAlgError as error:
        raise ConfigError(
            "the posterior is damaged: its variable 'site_precision' gives a covariance that is not positive definite"
        ) from error
    mixing = np.asarray(posterior[MIXING].values, dtype=np.float64) if MIXING in posterior else None
    if mixing is not None:
        fields = tuple(_with_label_correlation(f, mixing, found.prior.std) for f in fields)
        found = replace(found, fields=fields)
    return replace(found, groups=_read_groups(found, posterior, coordinates, mode), mixing=mixing)


def read_draws(posterior: xr.Dataset, mode: int | None = None) -> tuple[Floats, NDArray[np.int64]] | None:
    """Return the draws (R, Q, M) of the whitened inducing variables and their modes (R,); None if the file has none.

    Parameters
    ----------
    posterior : Dataset
    mode : int, optional
        Number of a mode, from 1; by default all.

    Raises
    ------
    ConfigError
        There are no draws of this mode.
    """
    if "whitened_sample" not in posterior:
        if mode is not None:
            raise ArgumentError(f"mode: must not be given, since the posterior is a Gaussian, was {mode}")
        return None
    values = np.asarray(posterior["whitened_sample"].values, dtype=np.float64)
    modes = np.ones(len(values), dtype=np.int64)
    if "draw_mode" in posterior:
        modes = np.asarray(posterior["draw_mode"].values, dtype=np.int64)
    if mode is None:
        return values, modes
    chosen = draws_of_mode(posterior, "draw_mode", mode)
    return values[chosen], modes[chosen]


def _read_groups(
    field: PosteriorField, posterior: xr.Dataset, coordinates: Sequence[str], mode: int | None
) -> tuple[DrawGroup, ...]:
    """Return the draws of a file by their hyperparameters; one group if the hyperparameters are fixed."""
    draws = read_draws(posterior, mode)
    if draws is None:
        return ()
    if not str(posterior.attrs.get("invgp_hyperparameters", "")):
        return (DrawGroup(field.prior, *draws),)
    whitened, modes = draws
    parameters, stds = _read_hyperparameters(field, posterior, coordinates)
    if mode is not None:
        chosen = draws_of_mode(posterior, "draw_mode", mode)
        parameters, stds = [own[chosen] for own in parameters], stds[chosen]
    both = np.concatenate([*parameters, stds], axis=1)
    _, first, number = np.unique(both, axis=0, return_index=True, return_inverse=True)
    groups = []
    for k, row in enumerate(first):
        kernels: dict[tuple[int, bytes], SharedKernel] = {}
        keys = []
        for f, own in zip(field.fields, parameters, strict=True):
            for j in f.processes:
                keys.append((field.prior.kernel_index[j], own[row].tobytes()))
                if keys[-1] not in kernels:
                    kernels[keys[-1]] = _with_parameters(field.prior.kernels[keys[-1][0]], own[row])
        numbers = {key: index for index, key in enumerate(kernels)}
        prior = ProcessPrior(stds[row], tuple(kernels.values()), tuple(numbers[key] for key in keys))
        members = number.ravel() == k
        groups.append(DrawGroup(prior, whitened[members], modes[members]))
    return tuple(groups)


def _with_parameters(kernel: SharedKernel, parameters: Floats) -> SharedKernel:
    """Return a kernel with other free parameters (P,)."""
    unit = kernel.kernel.with_parameters(parameters)
    return replace(kernel, kernel=unit, factor=inducing_factor([unit], kernel.Z[None], kernel.jitter)[0])


def _read_hyperparameters(
    field: PosteriorField, posterior: xr.Dataset, coordinates: Sequence[str]
) -> tuple[list[Floats], Floats]:
    """Return free parameters (R, P) of the kernel of each latent, and standard deviations (R, Q), of all draws."""
    count = posterior.sizes["draw"]
    parameters, stds = [], []
    for f in field.fields:
        free, std = np.tile(f.kernel.parameters, (count, 1)), np.tile(f.std, (count, 1))
        for learnt, index in _parameter_variables(f, coordinates).items():
            if learnt in posterior:
                free[:, index] = np.log(posterior[learnt].values)
        shares = [name for name in _variables_of_parameter(f, "share") if name in posterior]
        for learnt in (*shares[:1], f"{f.name}_std_factor_sample"):
            if learnt in posterior:
                base = np.atleast_1d(np.asarray(posterior[learnt].attrs["process_std"], dtype=np.float64))
                std = np.tile(base, (count, 1))
        if learnt in posterior:
            std = posterior[learnt].values[:, None] * std
        if shares:  # the variance of the kernel is 1 again, and the standard deviation has its factor
            variance = np.asarray([float(f.kernel.with_parameters(row).variance) for row in free])
            free[:, list(f.kernel.scale_mask)] -= np.log(variance)[:, None]
            std = np.sqrt(variance)[:, None] * std
        parameters.append(free)
        stds.append(std)
    return parameters, np.concatenate(stds, axis=1)


def _parameter_variables(field: LatentField, coordinates: Sequence[str]) -> dict[str, int]:
    """Return the variables with draws of parameters of the kernel of a latent, with the index of the parameter."""
    scales = _variables_of_parameter(field, "length_scale").values()
    found = {f"{field.name}_length_scale_{name}_sample": i for name, i in zip(coordinates, scales, strict=False)}
    for name in ("share", *dict.fromkeys(field.kernel.parameter_names)):
        found |= _variables_of_parameter(field, name)
    return found


def _variables_of_parameter(field: LatentField, name: str) -> dict[str, int]:
    """Return the variables of all parameters of this name, or of all shares of the variance, with their indices."""
    kernel = field.kernel
    chosen = kernel.scale_mask if name == "share" else [own == name for own in kernel.parameter_names]
    indices = [int(i) for i in np.flatnonzero(chosen)]
    return {f"{field.name}_{name}_{k}_sample": i for k, i in enumerate(indices, start=1)}


def read_fields(posterior: xr.Dataset, coordinates: Sequence[str]) -> tuple[LatentField, ...]:
    """Return the latents of a posterior with their links and priors, also of one without variables for prediction."""
    fields: list[LatentField] = []
    for name in posterior.attrs["invgp_latents"].split():
        about = posterior[name].attrs
        mean, std = (np.atleast_1d(np.asarray(about[key], dtype=np.float64)) for key in ("process_mean", "process_std"))
        first = fields[-1].first + fields[-1].size if fields else 0
        maps, link = read_prior_maps(posterior, name, coordinates), link_from_attributes(about, len(mean))
        fields.append(LatentField(name, link, first, mean, std, kernel_from_attributes(about), maps))
    return tuple(fields)


def _with_label_correlation(field: LatentField, mixing: Floats, std: Floats) -> LatentField:
    """Return a latent with the prior correlation of its labels, from `PosteriorField.mixing` (Q, Q)."""
    rows = mixing[field.processes] * std / field.std[:, None]
    return replace(field, label_correlation=rows @ rows.T)


def _build_posterior_field(
    fields: tuple[LatentField, ...], X: Floats, dimensions: int, stored: ProcessPosterior
) -> PosteriorField:
    """Return the posterior with inducing points at X, (N, D) or (N, 2 D) with half-widths, in D dimensions."""
    std, kernels = np.concatenate([f.std for f in fields]), [kernel for f in fields for kernel in f.kernels]
    Q = len(std)
    if X.shape[1] > dimensions:
        kernels = [k if isinstance(k, Scalar) else Averaged(k, dimensions) for k in kernels]
    inducing = None if isinstance(stored, WhitenedGaussians) else stored.inducing
    jitter = stored.jitter if isinstance(stored, StoredSiteFactors) else 0.0
    Z = np.broadcast_to(X, (Q, *X.shape)) if inducing is None else inducing
    shared, kernel_index = _share_kernels(kernels, Z, jitter)
    if isinstance(stored, WhitenedGaussians):
        centre, roots = stored.mean, tuple(np.ascontiguousarray(R.T) for R in stored.factor)
    elif isinstance(stored, WhitenedInducing):
        centre, roots = stored.mean, (stored.root,)
    else:
        scaled = tuple(kernel.with_variance(np.float64(s) ** 2) for kernel, s in zip(kernels, std, strict=True))
        prior = Prior(scaled, np.zeros(Q), X, Z, dense=inducing is None, jitter=jitter)
        q: CoupledGaussian = gaussian_from_natural(
            natural_parameters(prior, SiteFactors(stored.precision, stored.shift))
        )
        centre, roots = q.mean, (q.root,)
    return PosteriorField(fields, ProcessPrior(std, shared, kernel_index), centre, roots)


def _share_kernels(
    kernels: Sequence[Kernel], Z: Floats, jitter: float
) -> tuple[tuple[SharedKernel, ...], tuple[int, ...]]:
    """Return the distinct kernels, of nominal variance 1, and the index of the kernel of each process."""
    shared: list[SharedKernel] = []
    numbers: dict[tuple[str, bytes], int] = {}
    kernel_index = []
    for j, kernel in enumerate(kernels):
        key = (json.dumps(kernel.describe()), Z[j].tobytes())
        if key not in numbers:
            numbers[key] = len(shared)
            factor = inducing_factor([kernel], Z[j][None], jitter)[0]
            shared.append(SharedKernel(kernel, np.ascontiguousarray(Z[j]), factor, jitter))
        kernel_index.append(numbers[key])
    return tuple(shared), tuple(kernel_index)
