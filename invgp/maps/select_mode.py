"""The part of a posterior that one of its modes contributes."""

from __future__ import annotations

import numpy as np
import xarray as xr

from invgp.errors import ArgumentError
from invgp.maps.map_quantities import LatentQuantity, PointSummary
from invgp.maps.nodes import as_points
from invgp.maps.posterior_field import PosteriorField
from invgp.maps.read_posterior_field import read_posterior_field
from invgp.posterior.contents import draws_of_mode, field_names, latent_names, mode_probabilities, scalar_names
from invgp.problem import Floats

POINTS_AT_ONCE = 500  # to limit memory
ALL_MODES_SUFFIXES = ("_r_hat", "_effective_sample_size")  # of latents: diagnostics of all draws together
ALL_MODES = ("gaussian_error",)


def select_mode(posterior: xr.Dataset, mode: int) -> xr.Dataset:
    """Return the posterior given one of its modes.

    Parameters
    ----------
    posterior : Dataset
        A posterior of `invgp run` with draws from the exact posterior.
    mode : int
        Number of the mode, from 1; mode 1 is the most probable.

    Returns
    -------
    Dataset
        The same variables, computed from the stored draws of the mode, without diagnostics of all draws. The attribute
        ``invgp_mode`` is the number of the mode.

    Raises
    ------
    ConfigError
        The posterior has no such mode, or no draws for prediction.

    Examples
    --------
    >>> invgp.select_mode(posterior, mode=2)  # doctest: +SKIP
    """
    if "invgp_map" in posterior.attrs:
        raise ArgumentError(f"mode: must be given to `invgp predict`, since the dataset is a map, was {mode}")
    if not field_names(posterior):
        return _select_mode_of_scalars(posterior, mode)
    points = as_points(posterior)
    field = read_posterior_field(points, mode)
    found = posterior.isel(realization=draws_of_mode(posterior, "mode", mode))
    found = found.isel(draw=draws_of_mode(posterior, "draw_mode", mode))
    levels = np.asarray(posterior["quantile"].values, dtype=np.float64)
    names = posterior.attrs["invgp_coordinates"].split()
    X = np.stack([np.asarray(points[name].values, dtype=np.float64) for name in names], axis=-1)
    blocks = [X[i : i + POINTS_AT_ONCE] for i in range(0, len(X), POINTS_AT_ONCE)]
    scalars = scalar_names(posterior)
    for latent in field.fields:
        quantity, own = LatentQuantity(latent), [X[:1]] if latent.name in scalars else blocks
        parts = [quantity.summary(field.at(block, latent.processes), levels) for block in own]
        found = found.assign(_latent_variables(posterior, latent.name, _join(parts)))
    if "correlation" in found:
        found["correlation"] = found["correlation"].copy(data=_correlations(field, blocks).astype(np.float32))
    return _with_attributes_of_mode(posterior, found, mode)


def _select_mode_of_scalars(posterior: xr.Dataset, mode: int) -> xr.Dataset:
    """Return the part of one mode of a posterior of scalars, from its stored draws."""
    found = posterior.isel(realization=draws_of_mode(posterior, "mode", mode))
    levels = np.asarray(posterior["quantile"].values, dtype=np.float64)
    for name in latent_names(posterior):
        draws = np.asarray(found[f"{name}_sample"].values, dtype=np.float64)
        values = {"": draws.mean(axis=0), "_std": draws.std(axis=0), "_quantile": np.quantile(draws, levels, axis=0)}
        found = found.assign(_latent_variables(posterior, name, values))
    unknown = [f"{name}_information" for name in latent_names(posterior)]
    return _with_attributes_of_mode(posterior, found.drop_vars(["correlation", *unknown], errors="ignore"), mode)


def _with_attributes_of_mode(posterior: xr.Dataset, found: xr.Dataset, mode: int) -> xr.Dataset:
    """Return the part of one mode with its data and its probability, without diagnostics of all draws."""
    observations = str(posterior.attrs.get("invgp_observations", "")).split()
    if all(f"{name}_predicted_by_mode" in posterior for name in observations):
        for name in observations:
            found = _with_predictions(found, name, mode)
    else:
        found = found.assign_attrs(invgp_observations="")  # their fit is unknown
    found = found.drop_dims("posterior_mode", errors="ignore")
    dropped = [name + suffix for name in posterior.attrs["invgp_latents"].split() for suffix in ALL_MODES_SUFFIXES]
    return found.drop_vars([*dropped, *ALL_MODES], errors="ignore").assign_attrs(
        invgp_mode=mode, invgp_mode_probability=float(mode_probabilities(posterior)[mode - 1])
    )


def _join(parts: list[PointSummary]) -> dict[str, Floats]:
    """Return mean, spread, quantiles and information at all points."""
    return {
        "": np.concatenate([part.mean for part in parts]),
        "_std": np.concatenate([part.std for part in parts]),
        "_quantile": np.concatenate([part.quantiles for part in parts], axis=1),
        "_information": np.concatenate([part.information for part in parts if part.information is not None]),
    }


def _latent_variables(posterior: xr.Dataset, name: str, values: dict[str, Floats]) -> dict[str, xr.DataArray]:
    return {
        name + suffix: posterior[name + suffix].copy(data=value.reshape(posterior[name + suffix].shape))
        for suffix, value in values.items()
    }


def _correlations(field: PosteriorField, blocks: list[Floats]) -> Floats:
    """Return the correlations (N, Q, Q) of the processes at each point."""
    Q, found = field.process_count, []
    for X in blocks:
        at = field.at(X, range(Q))
        f = np.stack([at.process_draws(j) for j in range(Q)], axis=1)
        f -= f.mean(axis=-1, keepdims=True)
        covariance = f @ f.swapaxes(1, 2)
        std = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        found.append(covariance / (std[:, :, None] * std[:, None, :]))
    return np.concatenate(found)


def _with_predictions(posterior: xr.Dataset, name: str, mode: int) -> xr.Dataset:
    """Replace the predicted data by those of a mode."""
    observed = posterior[f"{name}_observed"]
    predicted, std = (
        posterior[f"{name}_{what}_by_mode"].isel(posterior_mode=mode - 1, drop=True).astype(np.float64)
        for what in ("predicted", "predicted_std")
    )
    residual = observed.values - predicted.values
    noise = posterior[f"{name}_noise_std"].values
    seen = np.isfinite(observed.values)
    squares = np.where(seen, (residual / noise) ** 2, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        chi_square = squares / seen.sum(axis=0)
    values = {"predicted": predicted.values, "predicted_std": std.values, "residual": residual}
    changed = {f"{name}_{what}": posterior[f"{name}_{what}"].copy(data=value) for what, value in values.items()}
    chi = f"{name}_chi_square"
    return posterior.assign(changed | {chi: posterior[chi].copy(data=chi_square.reshape(posterior[chi].shape))})
