"""Shared parts of the posterior families.

A posterior over the inducing variables u of Q latents is a mixture of K Gaussians, each of which factorises over the
latents: eq. (8) of Bonilla, Krauth and Dezfouli (2019). Means are whitened, v = L^-1 (u - prior mean), L L^T = K_zz.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, runtime_checkable

from invgp.core.backend import Array, array_namespace
from invgp.core.geometry import Geometry, GeometryGradient

LOG_2PI = math.log(2.0 * math.pi)


class Mixture(NamedTuple):
    """A mixture of Gaussians over the inducing variables.

    Attributes
    ----------
    weights : array, shape (K,)
        pi.
    mean : array, shape (K, Q, M)
        v, whitened.
    spread : array, shape (K, Q, M, M) or (K, Q, M)
        A whitened factor R with covariance R R^T, or the variances of u (not whitened), depending on the family.
    """

    weights: Array
    mean: Array
    spread: Array


class MixtureGradient(NamedTuple):
    """Gradient of a scalar with respect to a mixture, and to the geometry at a fixed mixture."""

    weights: Array
    mean: Array
    spread: Array
    geometry: GeometryGradient


@runtime_checkable
class Posterior(Protocol):
    """A posterior family. `parameters` is one flat array of unconstrained numbers."""

    @property
    def components(self) -> int:
        """Number of Gaussians, K."""

    @property
    def inducing(self) -> int:
        """Number of inducing variables per latent, M."""

    def initial_parameters(self, factor: Array, variance_share: float, jitter: Array) -> Array:
        """Return parameters at the prior mean plus `jitter` (K, Q, M), with a fraction of the prior variance.

        Parameters
        ----------
        factor : array, shape (Q, M, M)
            Cholesky factors of the prior covariances of the inducing variables.
        variance_share : float
            Fraction of the prior variance.
        jitter : array, shape (K, Q, M)
            Whitened means of the components.

        Returns
        -------
        array, shape (F,)
            Free parameters.
        """

    def unpack(self, parameters: Array, factor: Array) -> Mixture:
        """Convert free parameters to a mixture.

        Parameters
        ----------
        parameters : array, shape (F,)
            Free parameters.
        factor : array, shape (Q, M, M)
            Cholesky factors of the prior covariances of the inducing variables.

        Returns
        -------
        Mixture
        """

    def marginals(self, q: Mixture, geometry: Geometry) -> tuple[Array, Array]:
        """Compute means (minus the prior mean) and variances (K, B, Q) of the latents at some inputs.

        Parameters
        ----------
        q : Mixture
            The posterior.
        geometry : Geometry
            Interpolation from the inducing inputs to B inputs.

        Returns
        -------
        mean, variance : array, shape (K, B, Q)
        """

    def covariance(self, q: Mixture, geometry: Geometry, component: int) -> Array:
        """Compute the part (Q, B, B) of the covariance between inputs that comes from the inducing variables.

        Parameters
        ----------
        q : Mixture
            The posterior.
        geometry : Geometry
            Interpolation from the inducing inputs to B inputs.
        component : int
            Number of the component, from 0.

        Returns
        -------
        array, shape (Q, B, B)
        """

    def negative_kl(self, q: Mixture, factor: Array) -> Array:
        """Compute entropy (for K > 1 its lower bound, eq. (18)) plus negative cross-entropy, eq. (19).

        Parameters
        ----------
        q : Mixture
            The posterior.
        factor : array, shape (Q, M, M)
            Cholesky factors of the prior covariances of the inducing variables.

        Returns
        -------
        array, shape (), in nats
        """

    def negative_kl_gradient(self, q: Mixture, factor: Array) -> MixtureGradient:
        """Compute the gradient of `negative_kl`; within the geometry, only that of the factor is not zero.

        Parameters
        ----------
        q : Mixture
            The posterior.
        factor : array, shape (Q, M, M)
            Cholesky factors of the prior covariances of the inducing variables.

        Returns
        -------
        MixtureGradient
        """

    def pull_back(
        self, q: Mixture, geometry: Geometry, mean_gradient: Array, variance_gradient: Array
    ) -> MixtureGradient:
        """Convert gradients (K, B, Q) with respect to the marginals to that of the mixture; 0 for the weights.

        Parameters
        ----------
        q : Mixture
            The posterior.
        geometry : Geometry
            Interpolation from the inducing inputs to B inputs.
        mean_gradient, variance_gradient : array, shape (K, B, Q)
            Gradient with respect to the marginals.

        Returns
        -------
        MixtureGradient
        """

    def parameter_gradient(self, q: Mixture, gradient: MixtureGradient, parameters: Array) -> Array:
        """Convert the gradient of a mixture to that of the free parameters.

        Parameters
        ----------
        q : Mixture
            The posterior.
        gradient : MixtureGradient
            Gradient with respect to the mixture.
        parameters : array, shape (F,)
            Free parameters of the posterior.

        Returns
        -------
        array, shape (F,)
        """


def site_gradients(mean_gradient: Array, variance_gradient: Array) -> tuple[Array, Array]:
    """Rearrange gradients (K, B, Q) to (K, Q, B, 1) for matrix products."""
    xp = array_namespace(mean_gradient)
    by_mean, by_variance = (xp.permute_dims(g, (0, 2, 1))[..., None] for g in (mean_gradient, variance_gradient))
    return by_mean, by_variance


def weights_of(logits: Array | None, like: Array) -> Array:
    """Compute the weights, the softmax of the logits; a single component has no logits."""
    xp = array_namespace(like)
    if logits is None:
        return xp.ones_like(like[:1])
    shifted = xp.exp(logits - xp.max(logits))
    return shifted / xp.sum(shifted)


def logit_gradient(weights: Array, gradient: Array) -> Array:
    """Convert the gradient with respect to the weights to that with respect to the logits."""
    xp = array_namespace(weights)
    return weights * (gradient - xp.sum(weights * gradient))


def mixture_entropy(weights: Array, log_overlaps: Array) -> tuple[Array, Array, Array]:
    """Compute the lower bound of the entropy of a mixture by Jensen's inequality.

    Parameters
    ----------
    weights : array, shape (K,)
        pi.
    log_overlaps : array, shape (K, K)
        log N_kl = log N(m_k; m_l, S_k + S_l).

    Returns
    -------
    bound : array, shape ()
    gradient : array, shape (K,)
        With respect to the weights.
    coupling : array, shape (K, K)
        pi_k pi_l N_kl (1 / z_k + 1 / z_l) with z_k = sum_l pi_l N_kl: the gradient with respect to -log N_kl, counted
        once per ordered pair.

    References
    ----------
    Bonilla, Krauth and Dezfouli (2019), eq. (18).
    """
    xp = array_namespace(weights, log_overlaps)
    largest = xp.max(log_overlaps, axis=1, keepdims=True)
    scaled = weights[None, :] * xp.exp(log_overlaps - largest)
    totals = xp.sum(scaled, axis=1, keepdims=True)
    log_z = (xp.log(totals) + largest)[:, 0]
    share = scaled / totals  # pi_l N_kl / z_k
    flow = weights[:, None] * share
    by_weight = xp.sum(weights[:, None] * xp.exp(log_overlaps - log_z[:, None]), axis=0)
    return -xp.sum(weights * log_z), -log_z - by_weight, flow + flow.T
