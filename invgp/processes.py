"""The posterior of the latent processes as a file holds it: all that it takes to predict anywhere.

The prior of each process is in the attributes of its latent. What the data said is held in one of three ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from invgp.problem import Floats

INDUCING = "_inducing"  # after the name of a coordinate


@dataclass(frozen=True)
class StoredSiteFactors:
    """The coupled posterior: what each site says about its own latents, N (Q + 1) Q numbers.

    Attributes
    ----------
    precision, shift : (N, Q, Q) and (N, Q), as in `invgp.core.coupled.coupled_gaussian`.
    inducing : inducing inputs, (Q, M, D); None where they are the sites.
    jitter : share of the variance added to the inducing inputs' covariance.
    """

    precision: Floats
    shift: Floats
    inducing: Floats | None = None
    jitter: float = 0.0

    def variables(self, units: Mapping[str, str]) -> dict[str, xr.DataArray]:
        """What of it is in a file, where the coordinates have these units."""
        about = "of a site about its latent processes: it says exp(shift f - f precision f / 2), f from the prior mean"
        found = {
            "site_precision": _process_array(
                ("site", "process", "other_process"), self.precision, f"precision {about}"
            ),
            "site_shift": _process_array(("site", "process"), self.shift, f"shift {about}"),
        }
        if self.inducing is not None:
            found |= _inducing_variables(self.inducing, units)
            found["site_shift"].attrs["inducing_jitter"] = self.jitter
        return found


@dataclass(frozen=True)
class WhitenedGaussians:
    """The full Gaussian of the paper at the sites: independent processes, N (N + 1) Q numbers.

    Attributes
    ----------
    mean : v, (Q, N), whitened by the factor of the prior's covariance.
    factor : R, (Q, N, N), lower triangular, with covariance R R^T of v.
    """

    mean: Floats
    factor: Floats

    def variables(self, units: Mapping[str, str]) -> dict[str, xr.DataArray]:  # noqa: ARG002 - as the other
        """What of it is in a file, where the coordinates have these units."""
        about = "of the processes at the sites, whitened by the Cholesky factor of their prior covariance"
        return {
            "whitened_mean": _process_array(("process", "site"), self.mean, f"mean {about}"),
            "whitened_factor": _process_array(
                ("process", "site", "other_site"), self.factor, f"Cholesky factor of the covariance {about}"
            ),
        }


@dataclass(frozen=True)
class WhitenedInducing:
    """The posterior of a field model: a Gaussian at some nodes of its grid, which say all that its modes do.

    Attributes
    ----------
    inducing : (Q, M, D), the nodes of each process.
    mean : v, (Q, M), whitened by the factor of the prior's covariance.
    root : T, (Q M, Q M), with covariance T^T T of v.
    """

    inducing: Floats
    mean: Floats
    root: Floats

    def variables(self, units: Mapping[str, str]) -> dict[str, xr.DataArray]:
        """What of it is in a file, where the coordinates have these units."""
        about = "of the processes at the inducing points, whitened by the Cholesky factor of their prior covariance"
        found = {
            "whitened_mean": _process_array(("process", "inducing"), self.mean, f"mean {about}"),
            "whitened_root": _process_array(
                ("whitened", "other_whitened"), self.root, f"T, with covariance T^T T, {about}"
            ),
        }
        return found | _inducing_variables(self.inducing, units)


Processes = StoredSiteFactors | WhitenedGaussians | WhitenedInducing


def held_by(dataset: xr.Dataset, coordinates: Sequence[str]) -> Processes | None:
    """What a file holds of the processes; None for a file of an older invgp, or one that is no posterior."""
    if "whitened_root" in dataset:
        at = np.stack([dataset[f"{name}{INDUCING}"].values for name in coordinates], axis=-1)
        return WhitenedInducing(at, dataset["whitened_mean"].values, dataset["whitened_root"].values)
    if "whitened_mean" in dataset:
        return WhitenedGaussians(dataset["whitened_mean"].values, dataset["whitened_factor"].values)
    if "site_shift" not in dataset:
        return None
    inducing, shift = None, dataset["site_shift"]
    if f"{coordinates[0]}{INDUCING}" in dataset:
        inducing = np.stack([dataset[f"{name}{INDUCING}"].values for name in coordinates], axis=-1)
    jitter = float(shift.attrs.get("inducing_jitter", 0.0))
    return StoredSiteFactors(dataset["site_precision"].values, shift.values, inducing, jitter)


def _process_array(dims: tuple[str, ...], values: Floats, long_name: str, unit: str = "1") -> xr.DataArray:
    return xr.DataArray(values, dims=dims, attrs={"long_name": long_name, "units": unit})


def _inducing_variables(inducing: Floats, units: Mapping[str, str]) -> dict[str, xr.DataArray]:
    """The coordinates of inducing inputs (Q, M, D)."""
    dims = ("process", "inducing")
    return {
        f"{name}{INDUCING}": _process_array(dims, inducing[..., d], f"{name} of the inducing points", unit)
        for d, (name, unit) in enumerate(units.items())
    }
