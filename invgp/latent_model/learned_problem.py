"""A problem with learnt hyperparameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from invgp.core.backend import to_numpy
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.problem import Latent, Problem


def with_learned_hyperparameters(problem: Problem, posterior: GaussianPosterior) -> Problem:
    """Return the problem with the prior and noise of a posterior."""
    kernels = posterior.prior.kernels
    latents = []
    for latent in problem.latents:
        own = kernels[problem.latent_slices[latent.name]]
        latents.append(with_kernel(latent, np.asarray([float(k.variance) for k in own]), to_numpy(own[0].length_scale)))
    scales = np.exp(to_numpy(posterior.hyper.noise))
    std = dict(problem.noise.std)
    for scale, name in zip(scales, problem.noise.learn, strict=True):
        std[name] = scale * std[name]
    return replace(problem, latents=tuple(latents), noise=replace(problem.noise, std=std))


def with_kernel(latent: Latent, variance: np.ndarray, length_scale: np.ndarray) -> Latent:
    """Return the latent with learnt variances (L,) of its processes and learnt length-scales (D,).

    Hyperparameters that are not learnt stay unchanged.
    """
    if "length_scale" in latent.learn:
        latent = replace(latent, length_scale=length_scale)
    if "std" not in latent.learn:
        return latent
    mean, _ = latent.link.prior_to_process(latent.mean, latent.std)
    physical_mean, physical_std = latent.link.process_to_prior(mean, np.sqrt(variance))
    return replace(latent, mean=physical_mean, std=physical_std)
