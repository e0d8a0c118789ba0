"""What every posterior family shares.

A posterior over the inducing variables u of Q latents is a mixture of K Gaussians, each of which factorises over the
latents (equation var-posterior of the paper). Means are held whitened, v = L^-1 (u - prior mean) with L L^T = K_zz.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, runtime_checkable

from invgp.core.backend import Array, array_namespace
from invgp.core.geometry import Geometry, GeometryGradient

LOG_2PI = math.log(2.0 * math.pi)


class Mixture(NamedTuple):
    """A posterior with its parameters in their natural form.

    Attributes
    ----------
    weights : pi, (K,).
    mean : v, (K, Q, M), whitened.
    spread : what the family makes of its covariances: a whitened factor R (K, Q, M, M) with covariance R R^T, or
        variances s (K, Q, M) of u itself.
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
    """A posterior family. `parameters` is one flat array of free numbers; `geometry` that of all sites."""

    @property
    def components(self) -> int:
        """Number of Gaussians, K."""

    @property
    def inducing(self) -> int:
        """Number of inducing variables a latent, M."""

    def initial(self, factor: Array, variance_share: float, jitter: Array) -> Array:
        """Parameters at the prior's mean, moved by `jitter` (K, Q, M), with a share of the prior's variance."""

    def unpack(self, parameters: Array, factor: Array) -> Mixture:
        """Free parameters -> mixture."""

    def marginals(self, q: Mixture, geometry: Geometry) -> tuple[Array, Array]:
        """Means (without the prior's) and variances (K, B, Q) of the latents at the geometry's inputs."""

    def covariance(self, q: Mixture, geometry: Geometry, component: int) -> Array:
        """What the inducing variables add to the covariance between the geometry's inputs, (Q, B, B)."""

    def negative_kl(self, q: Mixture, factor: Array) -> Array:
        """Entropy (for K > 1 its lower bound by Jensen's inequality) plus negative cross-entropy."""

    def negative_kl_gradient(self, q: Mixture, factor: Array) -> MixtureGradient:
        """Gradient of `negative_kl`; of the geometry only the factor's is not zero."""

    def pull_back(
        self, q: Mixture, geometry: Geometry, mean_gradient: Array, variance_gradient: Array
    ) -> MixtureGradient:
        """From gradients (K, B, Q) with respect to the marginals to the mixture's; the weights' is zero."""

    def parameter_gradient(self, q: Mixture, gradient: MixtureGradient, parameters: Array) -> Array:
        """From a mixture's gradient to that of the free parameters, where they stand."""


def site_gradients(mean_gradient: Array, variance_gradient: Array) -> tuple[Array, Array]:
    """(K, B, Q) -> (K, Q, B, 1), ready for products."""
    xp = array_namespace(mean_gradient)
    by_mean, by_variance = (xp.permute_dims(g, (0, 2, 1))[..., None] for g in (mean_gradient, variance_gradient))
    return by_mean, by_variance


def weights_of(logits: Array | None, like: Array) -> Array:
    """Softmax of the logits; a single component has no logits."""
    xp = array_namespace(like)
    if logits is None:
        return xp.ones_like(like[:1])
    shifted = xp.exp(logits - xp.max(logits))
    return shifted / xp.sum(shifted)


def logit_gradient(weights: Array, gradient: Array) -> Array:
    """Gradient with respect to the logits of a softmax."""
    xp = array_namespace(weights)
    return weights * (gradient - xp.sum(weights * gradient))


def mixture_entropy(weights: Array, log_overlaps: Array) -> tuple[Array, Array, Array]:
    """Jensen's lower bound of a mixture's entropy (equation entropyhat), from log N(m_k; m_l, S_k + S_l), (K, K).

    Returns
    -------
    the bound, its gradient with respect to the weights (K,), and the coupling (K, K) of each pair: the gradient with
    respect to -log N_kl counted once for each ordered pair, pi_k pi_l N_kl (1 / z_k + 1 / z_l) in the paper's terms.
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
