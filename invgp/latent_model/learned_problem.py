"""A problem with learnt hyperparameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from invgp.core.backend import select_backend, to_numpy
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.kernels import Kernel
from invgp.problem import Floats, Latent, Problem


def with_learned_hyperparameters(problem: Problem, posterior: GaussianPosterior) -> Problem:
    """Return the problem with the prior and noise of a posterior."""
    kernels, host = posterior.prior.kernels, select_backend("cpu")
    latents = []
    for latent in problem.latents:
        own = kernels[problem.latent_slices[latent.name]]
        latents.append(with_kernel(latent, own[0].on_backend(host), np.asarray([float(k.variance) for k in own])))
    scales = np.exp(to_numpy(posterior.hyper.noise))
    std = dict(problem.noise.std)
    for scale, name in zip(scales, problem.noise.learn, strict=True):
        std[name] = scale * std[name]
    return replace(problem, latents=tuple(latents), noise=replace(problem.noise, std=std))


def with_kernel(latent: Latent, kernel: Kernel, variance: Floats) -> Latent:
    """Return the latent with the parameters of a learnt kernel, of any variance, and learnt process variances (L,).

    Hyperparameters that are not learnt stay unchanged.
    """
    if set(latent.learn) - {"std"}:
        latent = replace(latent, kernel=latent.kernel.with_parameters(kernel.parameters).with_variance(1.0))
    if not {"std", "share"} & set(latent.learn):
        return latent
    mean, _ = latent.link.prior_to_process(latent.mean, latent.std)
    physical_mean, physical_std = latent.link.process_to_prior(mean, np.sqrt(variance))
    return replace(latent, mean=physical_mean, std=physical_std)
