"""A likelihood with its observations: log densities for the bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from invgp.core.backend import Array, array_namespace, device_of
from invgp.core.expectations import ExpectedLogDensity, LogDensity


class Likelihood(Protocol):
    """The members of a likelihood that the core uses; see `invgp.likelihoods.Likelihood`."""

    @property
    def parameters(self) -> Array:
        """Free parameters, shape (P,)."""

    def with_parameters(self, parameters: Array) -> Any:
        """Return a copy with other free parameters.

        Parameters
        ----------
        parameters : array, shape (K,)
            New values of the free parameters.

        Returns
        -------
        Likelihood
        """

    def log_density(self, y: Array, f: Array) -> Array:
        """Compute log densities (S, N) for y (N, P) and f (S, N, Q).

        Parameters
        ----------
        y : array, shape (N, P)
            Observations; NaN marks a missing one.
        f : array, shape (S, N, Q)
            Samples of the latents.

        Returns
        -------
        array, shape (S, N), in nats
        """

    def parameter_gradient(self, y: Array, f: Array) -> Array | None:
        """Compute derivatives (S, N, P) with respect to the parameters, or return None if they are unknown.

        Parameters
        ----------
        y : array, shape (N, P)
            Observations; NaN marks a missing one.
        f : array, shape (S, N, Q)
            Samples of the latents.

        Returns
        -------
        array or None
        """


@dataclass(frozen=True)
class Data:
    """A likelihood with its observations y (N, P), and optionally the weights (N,) of their log densities."""

    likelihood: Likelihood
    y: Array
    weights: Array | None = None

    def log_density(self, parameters: Array, *, derivatives: bool) -> LogDensity:
        """Return a function that computes the log densities of a range of sites, with derivatives on request.

        Parameters
        ----------
        parameters : array, shape (K,)
            Free parameters of the likelihood.
        derivatives : bool
            Whether derivatives with respect to the parameters are computed.

        Returns
        -------
        callable
        """
        likelihood = self.likelihood.with_parameters(parameters) if parameters.shape[0] else self.likelihood
        wanted = derivatives and parameters.shape[0] > 0

        def evaluate(f: Array, start: int, stop: int) -> tuple[Array, Array | None]:
            y, here = _read_only(self.y[start:stop, ...]), _at_sites(likelihood, slice(start, stop))
            f = _read_only(f)
            try:
                slopes = here.parameter_gradient(y, f) if wanted else None
                if wanted and slopes is None:
                    slopes = self._differences(parameters, y, f, slice(start, stop))
                values = here.log_density(y, f)
            except ValueError as error:
                if "read-only" not in str(error):
                    raise
                raise ValueError(f"{self.name} must not change y or f, but work on a copy: {error}") from error
            if tuple(values.shape) != tuple(f.shape[:2]):
                raise ValueError(
                    f"log_density of {self.name} must have shape {tuple(f.shape[:2])} for f of shape "
                    f"{tuple(f.shape)}, had {tuple(values.shape)}"
                )
            if self.weights is not None:
                weights = self.weights[start:stop]
                values = weights * values
                slopes = None if slopes is None else weights[:, None] * slopes
            return values, slopes

        if _has_closed_form(likelihood):
            evaluate.expected = self._closed_form_expectation(likelihood)  # type: ignore[attr-defined]
        return evaluate

    def _closed_form_expectation(self, likelihood: Likelihood) -> ExpectedLogDensity:
        """Return a function that computes the expected log densities of a range of sites in closed form."""

        def expected_density(mean: Array, variance: Array, start: int, stop: int) -> tuple[Array, Array, Array, Array]:
            here: Any = _at_sites(likelihood, slice(start, stop))
            found: tuple[Array, Array, Array, Array] = here.expected_log_density(
                self.y[start:stop, ...], mean, variance
            )
            if self.weights is None:
                return found
            weights = self.weights[start:stop]
            value, gradient, curvature, parameters = found
            by_site = weights[:, None]
            return weights * value, by_site * gradient, by_site * curvature, by_site * parameters

        return expected_density

    @property
    def name(self) -> str:
        """Class of the likelihood, with the name of the function of a black box."""
        function = getattr(getattr(self.likelihood, "function", None), "__name__", "")
        return type(self.likelihood).__name__ + (f"({function})" if function else "")

    def _differences(self, parameters: Array, y: Array, f: Array, sites: slice) -> Array:
        """Compute derivatives by central differences at the same samples, for a likelihood without derivatives."""
        xp = array_namespace(parameters)
        size = float(xp.finfo(parameters.dtype).eps) ** (1.0 / 3.0)
        slopes = []
        for i in range(parameters.shape[0]):
            one = xp.arange(parameters.shape[0], device=device_of(parameters)) == i
            step = size * xp.astype(one, parameters.dtype)
            up, down = (
                _at_sites(self.likelihood.with_parameters(parameters + s), sites).log_density(y, f)
                for s in (step, -step)
            )
            slopes.append((up - down) / (2.0 * size))
        return xp.stack(slopes, axis=-1)

    def rows(self, index: Array) -> Data:
        """Select the observations of some sites.

        Parameters
        ----------
        index : array of int, shape (B,)
            Numbers of the sites.

        Returns
        -------
        Data
        """
        y = array_namespace(self.y).take(self.y, index, axis=0)
        weights = None if self.weights is None else array_namespace(self.y).take(self.weights, index, axis=0)
        return replace(self, y=y, likelihood=_at_sites(self.likelihood, index), weights=weights)


def _has_closed_form(likelihood: Likelihood) -> bool:
    """Whether the likelihood has a closed form of its expected log density, and not only a base class of it."""
    for kind in type(likelihood).__mro__:
        if "expected_log_density" in vars(kind):
            return True
        if {"log_density", "location"} & set(vars(kind)):  # the closed form of a base class is not that of this class
            return False
    return False


def _read_only(array: Array) -> Array:
    """Return an array that cannot be changed, if it is one of NumPy."""
    if isinstance(array, np.ndarray):
        array = array.view()
        array.flags.writeable = False
    return array


def _at_sites(likelihood: Likelihood, rows: slice | Array) -> Likelihood:
    """Restrict a likelihood to some sites, if it holds numbers per site."""
    return likelihood.at_sites(rows) if hasattr(likelihood, "at_sites") else likelihood
