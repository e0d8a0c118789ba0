"""The evidence lower bound of a latent Gaussian process model and its gradient, for any family, kernels and likelihood.

The Cholesky factor of K_zz is computed once for each set of kernel parameters and inducing inputs. Geometry, marginals,
site terms and gradients are computed per batch of sites. Batches are as large as the memory budget allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from invgp.core.backend import Array, array_namespace, lower_product, symmetrise, zeros_like
from invgp.core.expectations import Expected, LogDensity, estimate_expectations
from invgp.core.geometry import (
    Geometry,
    GeometryGradient,
    Gram,
    Sensitivity,
    dense_geometry,
    inducing_factor,
    pull_back_batch,
    pull_back_covariance,
    pull_back_factor,
    sparse_geometry,
    split_parameters,
)
from invgp.core.hyperpriors import Hyperpriors
from invgp.core.kernels import Kernel
from invgp.core.memory import BATCH_BUDGET, BATCH_SITES, MEMORY_BUDGET
from invgp.core.parameters import BLOCKS, Parameters, learns_kernels, learns_latents
from invgp.core.point_sets import Points
from invgp.core.posteriors import Family, Full, Mixture, MixtureGradient, Sites
from invgp.core.posteriors.full import (
    dense_factor_gradient,
    dense_marginals,
    dense_pull_back,
    projection_gradient,
    spread_gradient,
)


@dataclass(frozen=True)
class Terms:
    """The bound at some parameters, and its gradient.

    Attributes
    ----------
    elbo, expected_log_likelihood, kl : array, shape (), in nats
        The bound and its two terms: elbo = expected_log_likelihood - kl, plus the log prior of kernel parameters.
    gradient : Parameters
        Gradient of the bound, per block.
    expected : tuple of Expected
        Expected log densities of each batch of sites; empty if no samples were used.
    """

    elbo: Array
    expected_log_likelihood: Array
    kl: Array
    gradient: Parameters
    expected: tuple[Expected, ...] = ()


@dataclass(frozen=True)
class Bound:
    """The bound as a function of its parameters.

    Parameters
    ----------
    posterior : Full, Diagonal or Sites
        Family of the posterior.
    kernels : tuple of Kernel, length Q
        Only their type is used; their free parameters are in the parameters of the bound.
    X : array, shape (N, D)
        Inputs of the sites.
    dense : bool
        Whether the inducing inputs are X.
    weight : float
        Weight of each site: N / B for a mini-batch of B sites.
    jitter : float
        Added to the diagonal of K_zz, relative to the prior variance. It keeps the bound smooth where inducing inputs
        coincide.
    hyperpriors : Hyperpriors, optional
        Priors and bounds of the parameters of the kernels; the log density of the priors is added to the bound.

    References
    ----------
    Bonilla, Krauth and Dezfouli (2019), eq. (9); its terms are eqs. (18), (19) and (24).
    """

    posterior: Family
    kernels: tuple[Kernel, ...]
    X: Array
    dense: bool
    weight: float = 1.0
    jitter: float = 0.0
    hyperpriors: Hyperpriors | None = None

    def kernel_parameters(self, parameters: Parameters) -> Array:
        """Return the free parameters of the kernels (R,) within their bounds."""
        return parameters.kernels if self.hyperpriors is None else self.hyperpriors.constrain(parameters.kernels)

    def kernel_cache(self, parameters: Parameters) -> KernelCache:
        """Compute the quantities that depend on kernels and inducing inputs only, not on the posterior."""
        kernels = split_parameters(self.kernels, self.kernel_parameters(parameters))
        return KernelCache(kernels, parameters.inducing, inducing_factor(kernels, parameters.inducing, self.jitter))

    def bound_state(
        self, parameters: Parameters, *, kernel_cache: KernelCache | None = None, held: BoundState | None = None
    ) -> BoundState:
        """Compute everything that does not depend on samples.

        Parameters
        ----------
        parameters : Parameters
            Where the bound is evaluated.
        kernel_cache : KernelCache, optional
            For the same kernels and inducing inputs, if already computed.
        held : BoundState, optional
            Keep the distribution of u of this state instead of reading the posterior from the parameters.
        """
        kernel_cache = kernel_cache or self.kernel_cache(parameters)
        family = self.posterior
        if isinstance(family, Sites):
            family = family.with_projection(self.geometry(kernel_cache, 0, self.X.shape[0]).projection)
        if held is None or isinstance(family, Sites):
            q = family.unpack(parameters.posterior, kernel_cache.factor)
        else:
            q = family.rewhiten(held.q, held.kernel_cache.factor, kernel_cache.factor)
        return BoundState(self, family, parameters, kernel_cache, q, held is not None)

    def geometry(self, kernel_cache: KernelCache, start: int, stop: int, *, keep_covariances: bool = False) -> Geometry:
        """Compute the geometry of a range of sites; cache it if those of all sites fit the memory budget.

        With `keep_covariances`, a new geometry contains the covariances that gradients of the kernels need; a cached
        one never does.
        """
        if (start, stop) in kernel_cache.geometries:
            return kernel_cache.geometries[start, stop]
        if self.dense:
            found = dense_geometry(kernel_cache.factor)
        else:
            X = self.X[start:stop, :]
            found = sparse_geometry(
                kernel_cache.kernels, kernel_cache.inducing, kernel_cache.factor, X, keep=keep_covariances
            )
        if 8 * self.X.shape[0] * self.posterior.inducing * len(self.kernels) <= MEMORY_BUDGET:
            kernel_cache.geometries[start, stop] = replace(found, covariances=None)
        return found

    def batches(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of sites whose geometry fits in the memory budget; a dense model has only one range."""
        N = self.X.shape[0]
        width = self.posterior.inducing * len(self.kernels) * (self.posterior.components + 5)
        fitting = min(BATCH_BUDGET, MEMORY_BUDGET) // (8 * width)
        step = N if self.dense else max(1, min(fitting, BATCH_SITES))
        for start in range(0, N, step):
            yield start, min(start + step, N)


@dataclass(frozen=True)
class KernelCache:
    """Kernels, inducing inputs Z (Q, M, D), the factor (Q, M, M) of their covariance, and cached geometries."""

    kernels: tuple[Kernel, ...]
    inducing: Array
    factor: Array
    geometries: dict[tuple[int, int], Geometry] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchSum:
    """Sums over batches of sites, from which `BoundState.finish` computes the bound and its gradient.

    If the spreads of the posterior are factors, `spread` has the lower triangles that `spread_gradient` takes; for a
    dense `Full` posterior, the lower triangles of the gradient with respect to the factors. Adding to a sum, or
    finishing it, may overwrite its arrays.
    """

    value: Array
    weights: Array
    mean: Array
    spread: Array
    factor: Array
    kernels: Array
    inducing: Array
    likelihood: Array
    prior_mean: Array


@dataclass(frozen=True)
class BoundState:
    """A bound at given parameters, before samples are used.

    Attributes
    ----------
    bound : Bound
        The model.
    family : Full, Diagonal or Sites
        Family of the posterior.
    parameters : Parameters
        Where the bound is evaluated.
    kernel_cache : KernelCache
        Quantities that depend on kernels and inducing inputs only.
    q : Mixture
        The posterior.
    held : bool
        Whether the distribution of u is held fixed in gradients with respect to kernels and inducing inputs.
    """

    bound: Bound
    family: Family
    parameters: Parameters
    kernel_cache: KernelCache
    q: Mixture
    held: bool

    @property
    def factor(self) -> Array:
        """Cholesky factor L of K_zz, (Q, M, M)."""
        return self.kernel_cache.factor

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels at the current parameters."""
        return self.kernel_cache.kernels

    @property
    def factors(self) -> bool:
        """Whether the spreads are factors of covariances, not variances."""
        return bool(self.q.spread.ndim == 4)

    @property
    def triangular(self) -> bool:
        """Whether the model is dense and the covariances of u have lower triangular factors."""
        return self.bound.dense and isinstance(self.family, Full)

    @cached_property
    def unwhitened_factor(self) -> Array:
        """Lower factors L R of the covariances of u, (K, Q, M, M)."""
        return lower_product(self.factor, self.q.spread)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Derivatives of the marginals with respect to the covariances K_zx, if the spreads are factors."""
        return Sensitivity.of(self.factor, self.q.mean, self.q.spread)

    @property
    def log_hyperprior(self) -> Array | float:
        """Log prior density of the parameters of the kernels, shape (), without constants."""
        priors = self.bound.hyperpriors
        return 0.0 if priors is None else priors.log_density(self.parameters.kernels)

    def geometry(self, start: int, stop: int, *, keep_covariances: bool = False) -> Geometry:
        """Compute the geometry of a range of sites, or take it from the cache."""
        return self.bound.geometry(self.kernel_cache, start, stop, keep_covariances=keep_covariances)

    def marginals(self, geometry: Geometry) -> tuple[Array, Array]:
        """Compute means and variances (K, B, Q) of the latents, eqs. (22), (23) and (28) of the paper."""
        xp = array_namespace(self.factor)
        if geometry.dense and self.triangular:
            mean, variance = dense_marginals(self.q, self.factor, self.unwhitened_factor)
        else:
            mean, variance = self.family.marginals(self.q, geometry)
        # Rounding can make the variance of a sparse posterior zero or negative.
        smallest = xp.finfo(variance.dtype).smallest_normal
        return mean + self.parameters.prior_mean, xp.maximum(variance, smallest * xp.ones_like(variance))

    def expected_log_densities(
        self,
        log_density: LogDensity,
        points: Points,
        sites: tuple[int, int],
        geometry: Geometry,
        *,
        strict: bool = False,
    ) -> Expected:
        """Estimate the expected log densities of a range of sites; `strict` as in `estimate_expectations`."""
        mean, variance = self.marginals(geometry)
        scale = array_namespace(variance).sqrt(variance)
        return estimate_expectations(log_density, points.at(*sites), mean, scale, sites[0], strict=strict)

    def evaluate(
        self, log_density: LogDensity, points: Points, learn: Sequence[str] = BLOCKS, *, strict: bool = False
    ) -> Terms:
        """Evaluate the bound and its gradient.

        Parameters
        ----------
        log_density : LogDensity
            Log density of the observations at samples of the latents.
        points : Points
            Standard normal points of all sites.
        learn : sequence of str
            Blocks whose gradient is needed; the gradient of the others is 0.
        strict : bool
            Whether a log density that is not finite raises `NotFiniteError`.

        Returns
        -------
        Terms
        """
        total, all_found = self.zero_sum(), []
        for sites in self.bound.batches():
            geometry = self.geometry(*sites, keep_covariances=learns_kernels(learn))
            found = self.expected_log_densities(log_density, points, sites, geometry, strict=strict)
            total = self.add_batch(total, geometry, sites, found, learn)
            all_found.append(found)
        return replace(self.finish(total, learn), expected=tuple(all_found))

    def zero_sum(self) -> BatchSum:
        """Return the sum over no sites."""
        xp = array_namespace(self.factor)
        q, p = self.q, self.parameters
        like = (q.weights, q.mean, q.spread, self.factor, p.kernels, p.inducing, p.likelihood, p.prior_mean)
        return BatchSum(xp.sum(xp.zeros_like(q.weights)), *(zeros_like(a) for a in like))

    def add_batch(
        self, total: BatchSum, geometry: Geometry, sites: tuple[int, int], found: Expected, learn: Sequence[str]
    ) -> BatchSum:
        """Add a batch of sites with their expected log densities to a sum.

        Parameters
        ----------
        total : BatchSum
            Sum over the batches before.
        geometry : Geometry
            Geometry of the batch.
        sites : tuple of int
            First site of the batch, and the one after its last.
        found : Expected
            Expected log densities of the batch and their derivatives.
        learn : sequence of str
            Blocks whose gradient is needed.

        Returns
        -------
        BatchSum
        """
        xp = array_namespace(self.factor)
        q, weight = self.q, self.bound.weight
        by_weight = weight * xp.sum(found.value, axis=1)
        likelihood = total.likelihood
        if found.likelihood is not None:
            likelihood = likelihood + weight * xp.sum(q.weights[:, None] * found.likelihood, axis=0)
        value, weights = total.value + xp.sum(q.weights * by_weight), total.weights + by_weight
        share = weight * q.weights[:, None, None]
        by_mean = share * found.gradient
        prior_mean = total.prior_mean + xp.sum(by_mean, axis=(0, 1)) if "prior_mean" in learn else total.prior_mean
        after = replace(total, value=value, weights=weights, likelihood=likelihood, prior_mean=prior_mean)
        if not learns_latents(learn):
            return after
        pulled = self.pull_back(geometry, by_mean, 0.5 * share * found.curvature)
        gram = isinstance(pulled.spread, Gram)
        spread = pulled.spread.add_to(total.spread) if gram else total.spread + pulled.spread
        after = replace(after, mean=total.mean + pulled.mean, spread=spread)
        if not learns_kernels(learn):
            return after
        X = self.bound.X[slice(*sites), :]
        kernels, inducing, *factor = self.pull_back_batch(geometry, X, pulled.geometry)
        after = replace(after, kernels=total.kernels + kernels, inducing=total.inducing + inducing)
        return replace(after, factor=total.factor + factor[0]) if factor else after

    def finish(self, total: BatchSum, learn: Sequence[str]) -> Terms:
        """Add the KL term and the log prior of kernel parameters, and convert the gradient to the free parameters."""
        family, q = self.family, self.q
        negative_kl = family.negative_kl(q, self.factor)
        elbo = total.value + negative_kl + self.log_hyperprior
        zeros = Parameters(*(zeros_like(getattr(self.parameters, name)) for name in BLOCKS))
        gradient = replace(zeros, likelihood=total.likelihood, prior_mean=total.prior_mean)
        if not learns_latents(learn):
            return Terms(elbo, total.value, -negative_kl, gradient)
        kl_part = family.negative_kl_gradient(q, self.factor)
        by_spread = total.spread
        if self.factors and not self.triangular:
            second = symmetrise(total.spread)
            by_spread = spread_gradient(q, second, lower=isinstance(family, Full))
        by_spread += kl_part.spread
        mixture = MixtureGradient(
            total.weights + kl_part.weights, total.mean + kl_part.mean, by_spread, kl_part.geometry
        )
        if "posterior" in learn:
            gradient = replace(gradient, posterior=family.parameter_gradient(q, mixture, self.parameters.posterior))
        if learns_kernels(learn):
            by_factor, across = total.factor, (total.kernels, total.inducing)
            by_factor += kl_part.geometry.factor
            if self.factors and not self.bound.dense:
                by_factor += self.sensitivity.factor_gradient(total.mean, second)
            if isinstance(family, Sites):
                more = self._through_precision(family.projection_gradient(q, self.parameters.posterior, mixture))
                across, by_factor = (across[0] + more[0], across[1] + more[1]), by_factor + more[2]
            elif self.held:
                by_factor = by_factor + family.hold_distribution(q, self.factor, mixture)
            kernels, inducing = pull_back_factor(
                self.kernels, self.parameters.inducing, self.factor, by_factor, self.bound.jitter
            )
            by_kernels, priors = across[0] + kernels, self.bound.hyperpriors
            if priors is not None:
                by_kernels = priors.pull_back(self.parameters.kernels, by_kernels)
            gradient = replace(gradient, kernels=by_kernels)
            if not self.bound.dense:
                gradient = replace(gradient, inducing=across[1] + inducing)
        return Terms(elbo, total.value, -negative_kl, gradient)

    def pull_back(self, geometry: Geometry, mean_gradient: Array, variance_gradient: Array) -> MixtureGradient:
        """Convert gradients (K, B, Q) with respect to the marginals of a batch to the gradient of the mixture."""
        if self.triangular:
            return dense_pull_back(self.q, self.factor, self.unwhitened_factor, mean_gradient, variance_gradient)
        return self.family.pull_back(self.q, geometry, mean_gradient, variance_gradient)

    def pull_back_batch(self, geometry: Geometry, X: Array, gradient: GeometryGradient) -> tuple[Array, ...]:
        """Compute the gradient with respect to kernels, Z and the factor that passes through a batch of sites.

        The factor's gradient is omitted if `finish` can compute it from sums over all batches.
        """
        Z, marginals = self.parameters.inducing, gradient.marginals
        if marginals is None:
            return pull_back_batch(self.kernels, Z, X, geometry, gradient)
        if self.triangular:
            return (
                zeros_like(self.parameters.kernels),
                zeros_like(Z),
                dense_factor_gradient(self.q, self.unwhitened_factor, marginals),
            )
        by_residual = array_namespace(Z).sum(marginals.variance[..., 0], axis=0)
        if geometry.dense:
            by_projection = projection_gradient(self.q, geometry, marginals)
            worked_out = GeometryGradient(zeros_like(self.factor), by_projection, by_residual)
            return pull_back_batch(self.kernels, Z, X, geometry, worked_out)
        by_covariance = self.sensitivity.covariance_gradient(geometry.projection, marginals)
        return pull_back_covariance(self.kernels, Z, X, geometry, by_covariance, by_residual)

    def _through_precision(self, projection_gradient: Array) -> tuple[Array, Array, Array]:
        xp = array_namespace(self.factor)
        whole = self.geometry(0, self.bound.X.shape[0])
        gradient = GeometryGradient(xp.zeros_like(self.factor), projection_gradient, xp.zeros_like(whole.residual))
        return pull_back_batch(self.kernels, self.parameters.inducing, self.bound.X, whole, gradient)
