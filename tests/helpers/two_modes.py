"""A posterior with two modes: the draws of a Gaussian posterior, and draws that are shifted by four prior spreads."""

import numpy as np
import xarray as xr

from invgp.maps.read_posterior_field import read_posterior_field

DRAWS, STORED = 400, 40
SHARES = (0.75, 0.25)


def add_modes(posterior: xr.Dataset) -> xr.Dataset:
    """Return a posterior of latents without links as `posterior = "sampled"` stores it, with two modes.

    The second mode has a third of the probability of the first. It is the first one, with all processes four prior
    standard deviations higher.
    """
    field = read_posterior_field(posterior)
    [group] = field.draw_inducing(np.random.default_rng(3), DRAWS)
    mode = np.where(np.arange(DRAWS) % 4 < 3, 1, 2).astype(np.int32)
    whitened = group.whitened.copy()
    for j, index in enumerate(field.prior.kernel_index):
        ones = np.linalg.solve(field.prior.kernels[index].factor, np.ones(field.inducing))
        whitened[mode == 2, j] += 4.0 * ones
    stored = slice(0, STORED)
    found = posterior.drop_dims("realization")
    for latent in field.fields:
        f = np.stack(
            [
                latent.mean[i]
                + latent.std[i] * whitened[:, j] @ field.prior.kernels[field.prior.kernel_index[j]].factor.T
                for i, j in enumerate(latent.processes)
            ],
            axis=-1,
        )
        name, values = latent.name, latent.link(f)
        shape = posterior[name].shape
        found[name] = posterior[name].copy(data=values.mean(axis=0).reshape(shape))
        found[f"{name}_std"] = posterior[f"{name}_std"].copy(data=values.std(axis=0).reshape(shape))
        quantiles = np.quantile(values, posterior["quantile"].values, axis=0)
        found[f"{name}_quantile"] = posterior[f"{name}_quantile"].copy(data=quantiles.reshape(-1, *shape))
        about = posterior[f"{name}_sample"]
        found[f"{name}_sample"] = (about.dims, values[stored].reshape(-1, *shape).astype(np.float32), about.attrs)
        found[f"{name}_r_hat"] = posterior[name].copy(data=np.full(shape, 1.003))
        found[f"{name}_effective_sample_size"] = posterior[name].copy(data=np.full(shape, 2500.0))
    found = found.assign_coords(
        realization=("realization", np.arange(1, STORED + 1), posterior["realization"].attrs),
        posterior_mode=("posterior_mode", [1, 2], {"units": "1"}),
    )
    found["whitened_sample"] = (("draw", "process", "site"), whitened.astype(np.float32), {"units": "1"})
    found["draw_mode"] = ("draw", mode, {"units": "1"})
    found["mode"] = ("realization", mode[stored], {"units": "1"})
    found["chain"] = ("realization", (np.arange(STORED) % 4 + 1).astype(np.int32), {"units": "1"})
    found["mode_probability"] = ("posterior_mode", list(SHARES), {"units": "1"})
    for name in posterior.attrs["invgp_observations"].split():
        for what, shift in (("predicted", 1.0), ("predicted_std", 0.0)):
            array = posterior[f"{name}_{what}"]
            both = np.stack([array.values, array.values + shift])
            found[f"{name}_{what}_by_mode"] = (("posterior_mode", *array.dims), both, array.attrs)
    return found.assign_attrs(
        invgp_draws="tempered sequential Monte Carlo",
        invgp_draws_total=4096,
        invgp_modes=2,
        invgp_mode_probabilities=np.asarray(SHARES),
        invgp_gaussian_k_hat=1.4,
        invgp_log_evidence=-12.5,
        invgp_log_evidence_error=0.05,
    )
