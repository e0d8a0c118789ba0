"""Learnt hyperparameters of a problem: their names, their priors, and the problem at given values of them.

The prior of a hyperparameter is log-normal. Its median is the value in the configuration, and a change by a factor,
which the configuration states, is one standard deviation of the logarithm. The variance of the noise can have an
inverse-gamma prior instead, whose most probable logarithm is that of the configuration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import gammaln, polygamma
from scipy.stats import chi2

from invgp.core.backend import select_backend, to_numpy
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.core.kernels import Kernel
from invgp.posterior.gaussian_processes import kernel_attributes
from invgp.posterior.solution import HyperparameterDraws
from invgp.problem import WEAK_FACTOR, Column, Floats, Latent, Problem


def with_learned_hyperparameters(problem: Problem, posterior: GaussianPosterior) -> Problem:
    """Return the problem with the prior and noise of a posterior.

    Parameters
    ----------
    problem : Problem
        Problem with the configured values.
    posterior : GaussianPosterior
        Posterior with learnt hyperparameters.

    Returns
    -------
    Problem
    """
    kernels, host = posterior.prior.kernels, select_backend("cpu")
    latents = []
    for latent in problem.latents:
        own = kernels[problem.latent_slices[latent.name]]
        latents.append(with_kernel(latent, own[0].on_backend(host), np.asarray([float(k.variance) for k in own])))
    factors = np.exp(to_numpy(posterior.hyper.noise))
    std = dict(problem.noise.std)
    for factor, scale in zip(factors, problem.noise.scales, strict=True):
        std |= {name: factor * std[name] for name in scale.observations}
    return replace(problem, latents=tuple(latents), noise=replace(problem.noise, std=std))


def with_kernel(latent: Latent, kernel: Kernel, variance: Floats) -> Latent:
    """Return the latent with the parameters of a learnt kernel, of any variance, and learnt process variances (L,).

    Hyperparameters that are not learnt stay unchanged.

    Parameters
    ----------
    latent : Latent
    kernel : Kernel
        Kernel with learnt parameters.
    variance : array, shape (L,)
        Variance of each process.

    Returns
    -------
    Latent
    """
    if set(latent.learn) - {"std"}:
        latent = replace(latent, kernel=latent.kernel.with_parameters(kernel.parameters).with_variance(1.0))
    if not {"std", "share"} & set(latent.learn):
        return latent
    mean, _ = latent.link.prior_to_process(latent.mean, latent.std)
    physical_mean, physical_std = latent.link.process_to_prior(mean, np.sqrt(variance))
    return replace(latent, mean=physical_mean, std=physical_std)


@dataclass(frozen=True)
class LearntParameters:
    """Learnt hyperparameters theta (H,): logarithms of factors on the configured values.

    It is true if any hyperparameter is learnt.

    Parameters
    ----------
    problem : Problem
        Problem with the configured values.
    """

    problem: Problem

    @property
    def coordinates(self) -> tuple[Column, ...]:
        """Coordinates of the latents, in the order of their length-scales."""
        grid = self.problem.grid
        return self.problem.survey.coordinates if grid is None else grid.coordinates

    @cached_property
    def columns(self) -> dict[tuple[str, str], slice]:
        """Elements of theta, by the latent and a key of `Latent.learn`, or ``"noise"`` and that of `NoiseScale`."""
        columns, first = {}, 0
        for latent in self.problem.latents:
            for name in latent.learn:
                count = latent.learnt_parameters(name).shape[1]
                columns[latent.name, name] = slice(first, first + count)
                first += count
        for scale in self.problem.noise.scales:
            columns["noise", scale.name] = slice(first, first + 1)
            first += 1
        return columns

    @cached_property
    def spreads(self) -> Floats:
        """Prior standard deviations (H,) of theta; an infinite factor has the weak prior of `WEAK_FACTOR`."""
        spreads = [
            np.full(latent.learnt_parameters(name).shape[1], _log_factor(factor))
            for latent in self.problem.latents
            for name, factor in latent.learn.items()
        ]
        for scale in self.problem.noise.scales:
            # The variance of the logarithm of a gamma variable is the trigamma function of its shape.
            inverse = None if scale.degrees is None else 0.5 * np.sqrt(polygamma(1, 0.5 * scale.degrees))
            spreads.append(np.atleast_1d(_log_factor(scale.factor) if inverse is None else inverse))
        return np.concatenate(spreads) if spreads else np.empty(0)

    @cached_property
    def degrees(self) -> Floats:
        """Degrees of freedom (H,) of inverse-gamma priors of exp(2 theta); 0 where the prior is log-normal."""
        found = np.zeros(len(self.spreads))
        for scale in self.problem.noise.scales:
            found[self.columns["noise", scale.name]] = scale.degrees or 0.0
        return found

    def log_prior(self, theta: Floats) -> float:
        """Compute the log prior density of hyperparameters theta (H,).

        Parameters
        ----------
        theta : array, shape (H,)

        Returns
        -------
        float, in nats
        """
        inverse = self.degrees > 0.0
        spreads, nu = self.spreads[~inverse], self.degrees[inverse]
        normal = -0.5 * (theta[~inverse] / spreads) ** 2 - np.log(spreads * np.sqrt(2.0 * np.pi))
        return float(np.sum(normal) + np.sum(log_scale_density(theta[inverse], nu)))

    def __bool__(self) -> bool:
        return bool(self.columns)

    def of(self, theta: Floats, owner: str, name: str) -> Floats:
        """Return the elements of theta (H,) of one hyperparameter; zero if it is not learnt.

        Parameters
        ----------
        theta : array, shape (H,)
            Logarithms of factors on the configured values.
        owner : str
            A latent, or "noise".
        name : str
            Key of `Latent.learn`, or name of a `NoiseScale`.

        Returns
        -------
        array, shape (h,)
        """
        columns = self.columns.get((owner, name))
        return np.zeros(1) if columns is None else theta[columns]

    def kernel(self, latent: Latent, theta: Floats) -> Kernel:
        """Return the kernel of a latent with hyperparameters theta (H,); its variance is the factor on the variance.

        Parameters
        ----------
        latent : Latent
        theta : array, shape (H,)
            Logarithms of factors on the configured values.

        Returns
        -------
        Kernel
        """
        if not latent.learn:
            return latent.kernel
        changes = [latent.learnt_parameters(name) @ self.of(theta, latent.name, name) for name in latent.learn]
        return latent.kernel.with_parameters(latent.kernel.parameters + np.sum(changes, axis=0))

    def problem_at(self, theta: Floats) -> Problem:
        """Return the problem with hyperparameters theta (H,).

        Parameters
        ----------
        theta : array, shape (H,)
            Logarithms of factors on the configured values.

        Returns
        -------
        Problem
        """
        latents = []
        for latent in self.problem.latents:
            _, std = latent.link.prior_to_process(latent.mean, latent.std)
            kernel = self.kernel(latent, theta)
            latents.append(with_kernel(latent, kernel, std**2 * float(kernel.variance)))
        noise = self.problem.noise
        noise_std = dict(noise.std)
        for scale in noise.scales:
            factor = np.exp(self.of(theta, "noise", scale.name))
            noise_std |= {name: factor * noise_std[name] for name in scale.observations}
        return replace(self.problem, latents=tuple(latents), noise=replace(noise, std=noise_std))

    def _process_std(self, latent: Latent) -> Floats:
        """Return the configured standard deviation (L,) of the processes of a latent."""
        return latent.link.prior_to_process(latent.mean, latent.std)[1]

    def _unit(self, name: str, kind: str) -> str:
        """Return the unit of a parameter of a kind of kernel; "1" if it has none or the coordinates have several."""
        units = {coordinate.unit for coordinate in self.coordinates}
        has_unit = name == "period" or (name == "length_scale" and kind != "periodic")
        return units.pop() if has_unit and len(units) == 1 else "1"

    def describe(self, theta: Floats, most_probable: Floats) -> tuple[HyperparameterDraws, ...]:
        """Return draws theta (R, H) as values of the hyperparameters, with names and units.

        Parameters
        ----------
        theta : array, shape (R, H)
        most_probable : array, shape (H,)
            Theta of the Gaussian approximation.
        """
        drawn, point = np.exp(theta), np.exp(most_probable)
        found = []

        def add(column: int, name: str, about: str, unit: str, median: float, std: Floats | None = None) -> None:
            values, best = median * drawn[:, column], median * float(point[column])
            factor = float(np.exp(self.spreads[column]))
            found.append(HyperparameterDraws(name, about, unit, values, median, factor, best, std))

        for latent in self.problem.latents:
            what = latent.long_name or latent.name
            for name in latent.learn:
                first = self.columns[latent.name, name].start
                if name == "std":
                    about = f"factor on the configured prior standard deviation of {what}"
                    add(first, f"{latent.name}_std_factor", about, "1", 1.0, self._process_std(latent))
                    continue
                if "length_scale" in kernel_attributes(latent.kernel):
                    for d, coordinate in enumerate(self.coordinates):
                        about = f"length-scale of {what} along {coordinate.long_name or coordinate.name}"
                        scale = float(np.exp(latent.kernel.parameters[1 + d]))
                        add(first + d, f"{latent.name}_length_scale_{coordinate.name}", about, coordinate.unit, scale)
                    continue
                std = self._process_std(latent) if name == "share" else None
                for k, index in enumerate(np.argmax(latent.learnt_parameters(name), axis=0)):
                    kind = latent.kernel.qualified_names[index].rpartition(".")[0]
                    about = f"{name.replace('_', '-')} of the {kind} part of the kernel of {what}"
                    value = float(np.exp(latent.kernel.parameters[index]))
                    add(first + k, f"{latent.name}_{name}_{k + 1}", about, self._unit(name, kind), value, std)
        words = {o.name: o.long_name or o.name for o in self.problem.survey.observations}
        for noise in self.problem.noise.scales:
            about = f"factor on the configured noise of {' and '.join(words[name] for name in noise.observations)}"
            add(self.columns["noise", noise.name].start, f"{noise.name}_noise_factor", about, "1", 1.0)
            if noise.degrees is not None:
                median = float(np.sqrt(noise.degrees / chi2.median(noise.degrees)))
                found[-1] = replace(found[-1], median=median, degrees=noise.degrees)
        return tuple(found)


def log_scale_density(theta: Floats, degrees: Floats) -> Floats:
    """Compute the log density of theta (G,) if exp(2 theta) has an inverse-gamma distribution.

    Parameters
    ----------
    theta : array, shape (G,)
    degrees : array, shape (G,)
        Degrees of freedom; shape and scale of the distribution are half of them.

    Returns
    -------
    array, shape (G,), in nats
    """
    shape = 0.5 * degrees
    constant = math.log(2.0) + shape * np.log(shape) - gammaln(shape)
    return np.asarray(constant - degrees * theta - shape * np.exp(-2.0 * theta))


def _log_factor(factor: float) -> float:
    """Return the prior standard deviation of a log-normal hyperparameter with this factor."""
    return math.log(factor if np.isfinite(factor) else WEAK_FACTOR)
