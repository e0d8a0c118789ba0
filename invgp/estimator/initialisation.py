"""Initial kernels, inducing inputs, posterior and parameters of a fit, from the settings of a `SAVIGP`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from invgp.core import inducing as choices
from invgp.core.backend import Array, Backend, solve_triangular, to_numpy
from invgp.core.bound import Bound, BoundState
from invgp.core.geometry import inducing_factor, join_parameters
from invgp.core.hyperpriors import Hyperprior, Hyperpriors
from invgp.core.kernels import STATIONARY, Kernel
from invgp.core.parameters import Parameters
from invgp.core.posteriors import Diagonal, Family, Full, Sites
from invgp.core.training import Blocks
from invgp.estimator.arguments import (
    Floats,
    as_finite_floats,
    broadcast_floats,
    check_kernel_inputs,
    check_positive,
)
from invgp.estimator.labels import is_classifier
from invgp.estimator.settings import JITTER, ModelSettings

# Default for classifiers: if the classes can be separated, the variance that maximises the bound is so large that
# predictions are overconfident.
WEAK_PRIORS = {name: Hyperprior(factor=10.0) for name in ("variance", "length_scale")}


class InitialModel(NamedTuple):
    """A bound and its initial parameters."""

    bound: Bound
    parameters: Parameters


def initialise(
    settings: ModelSettings, X: Floats, backend: Backend, choice: np.random.Generator, jitter: np.random.Generator
) -> InitialModel:
    """Build the bound and the initial parameters of a fit.

    Parameters
    ----------
    settings : ModelSettings
        The model to fit.
    X : array, shape (N, D)
        Inputs.
    backend : Backend
        Where the arrays are created.
    choice, jitter : numpy.random.Generator
        Random streams for the choice of inducing inputs, and for the initial means of mixture components.

    Raises
    ------
    ValueError
        A setting does not fit the inputs or the likelihood.
    """
    Q = settings.likelihood.latents
    kernels = _kernels(settings, X, backend)
    Z, dense = _inducing_inputs(settings, X, kernels, choice)
    family = _family(settings, Z.shape[1], len(X), kernels, backend)
    prior_mean = broadcast_floats("prior_mean", settings.prior_mean, (Q,), f"a number or one for each of {Q} latents")
    bound = Bound(
        family,
        kernels,
        backend.asarray(X),
        dense,
        jitter=0.0 if dense else JITTER[settings.dtype],
        hyperpriors=_hyperpriors(settings, kernels, backend),
    )
    return InitialModel(bound, _parameters(settings, bound, prior_mean, backend.asarray(Z), jitter, backend))


def continue_from(fitted: BoundState, bound: Bound, parameters: Parameters) -> Parameters:
    """Return initial parameters at the result of an earlier fit.

    Raises
    ------
    ValueError
        The earlier fit had other numbers of latents, inducing inputs or components.
    """
    earlier = fitted.parameters
    for name in ("kernels", "inducing", "likelihood"):
        was, now = tuple(getattr(earlier, name).shape), tuple(getattr(parameters, name).shape)
        if was != now:
            raise ValueError(f"warm_start must be False if {name} change from shape {was} to {now}, was True")
    if fitted.family.components != bound.posterior.components:
        raise ValueError(
            f"warm_start must be False if components change from {fitted.family.components} to "
            f"{bound.posterior.components}, was True"
        )
    inducing = parameters.inducing if bound.dense else earlier.inducing
    kernels = join_parameters(fitted.kernels)
    kernels = kernels if bound.hyperpriors is None else bound.hyperpriors.unconstrain(kernels)
    start = replace(
        parameters,
        kernels=kernels,
        inducing=inducing,
        likelihood=earlier.likelihood,
        prior_mean=earlier.prior_mean,
    )
    if isinstance(bound.posterior, Sites):
        blank = bound.posterior.initial_parameters(fitted.factor, 1.0, fitted.q.mean)
        return replace(start, posterior=blank)
    if type(fitted.family) is not type(bound.posterior):
        return replace(start, posterior=bound.posterior.initial_parameters(fitted.factor, 0.5, fitted.q.mean))
    return replace(start, posterior=bound.posterior.pack(fitted.q))


def list_kernels(kernel: object, latents: int) -> tuple[str | Kernel, ...]:
    """List the kernel of each latent, by the name of a stationary kind or as a `Kernel`."""
    kernels: Any = (kernel,) * latents if isinstance(kernel, str | Kernel) else kernel
    for one in kernels if isinstance(kernels, list | tuple) else (kernel,):
        if isinstance(one, type):
            raise ValueError(f"kernel must be a kernel, was the class {one.__name__}: write {one.__name__}(...)")  # noqa: TRY004
    fine = isinstance(kernels, Sequence) and len(kernels) == latents
    if not fine or any(not isinstance(one, Kernel) and one not in STATIONARY for one in kernels):
        raise ValueError(
            f"kernel must be one of {', '.join(STATIONARY)}, a kernel of invgp.kernels, or one for each of {latents} "
            f"latents, was {kernel!r}"
        )
    return tuple(kernels)


def _kernels(settings: ModelSettings, X: Floats, backend: Backend) -> tuple[Kernel, ...]:
    Q, D = settings.likelihood.latents, X.shape[1]
    chosen = list_kernels(settings.kernel, Q)
    # Initially, typical distances between sites are about one length-scale. With much shorter length-scales (distances
    # grow with the number of dimensions), sites would be independent of the inducing inputs and gradients would vanish.
    if settings.ard:
        shape, must = (Q, D), f"a number, one for each of {D} input dimensions, or of shape ({Q}, {D})"
        varies = X.std(axis=0) > 0
        start: ArrayLike = np.where(varies, np.sqrt(varies.sum()) * X.std(axis=0), 1.0)
    else:
        shape, must = (Q, 1), f"a number, or of shape ({Q}, 1), without ard"
        start = float(np.sqrt(X.var(axis=0).sum())) or 1.0
    scales = start if settings.length_scale is None else settings.length_scale
    scales = check_positive("length_scale", broadcast_floats("length_scale", scales, shape, must))
    variances = broadcast_floats("variance", settings.variance, (Q,), f"a number or one for each of {Q} latents")
    variances = check_positive("variance", variances)
    return tuple(
        _check_kernel(one, X, settings).on_backend(backend)
        if isinstance(one, Kernel)
        else STATIONARY[one](backend.asarray(variances[j]), backend.asarray(scales[j]))
        for j, one in enumerate(chosen)
    )


def _hyperpriors(settings: ModelSettings, kernels: tuple[Kernel, ...], backend: Backend) -> Hyperpriors | None:
    chosen = settings.hyperpriors
    if chosen is None and is_classifier(settings.likelihood):
        names = {name.rpartition(".")[2] for kernel in kernels for name in kernel.qualified_names}
        chosen = {name: prior for name, prior in WEAK_PRIORS.items() if name in names}
    return Hyperpriors.build(kernels, chosen, backend) if chosen else None


def _check_kernel(kernel: Kernel, X: Floats, settings: ModelSettings) -> Kernel:
    """Raise `ValueError` if a kernel cannot be used with inputs X (N, D)."""
    if settings.length_scale is not None:
        raise ValueError(
            f"length_scale must be None if kernel is a Kernel, which has its own, was {settings.length_scale!r}"
        )
    if np.ndim(settings.variance) or settings.variance != 1.0:
        raise ValueError(f"variance must be 1 if kernel is a Kernel, which has its own, was {settings.variance!r}")
    try:
        with np.errstate(all="ignore"):
            finite = np.isfinite(kernel.parameters).all() and np.isfinite(kernel.linearise(X[:2], X[:2]).value).all()
    except (IndexError, ValueError) as error:
        raise ValueError(f"kernel must accept inputs of shape (N, {X.shape[1]}), was {kernel}: {error}") from error
    if not finite:
        raise ValueError(f"kernel must have parameters that give finite covariances, was {kernel}")
    check_kernel_inputs("X", X, (kernel,))
    return kernel


def _inducing_inputs(
    settings: ModelSettings, X: Floats, kernels: tuple[Kernel, ...], rng: np.random.Generator
) -> tuple[Floats, bool]:
    """Choose Z (Q, M, D); also return whether Z equals X in a dense model."""
    Q, D = settings.likelihood.latents, X.shape[1]
    if settings.inducing is None:
        Z = X
    elif isinstance(settings.inducing, Integral) and not isinstance(settings.inducing, bool):
        placed = _place_inducing_inputs(X, int(settings.inducing), settings.placement, rng)
        Z = np.stack([kernel.nearest_inputs(placed) for kernel in kernels])
    else:
        must = f"None, a number, or inputs of shape (M, {D}) or ({Q}, M, {D})"
        Z = as_finite_floats("inducing", settings.inducing, must)
        if Z.ndim not in (2, 3) or Z.shape[-1] != D or Z.shape[:-2] not in ((), (Q,)) or not Z.size:
            raise ValueError(f"inducing must be {must}, had shape {Z.shape}")
        for kernel, own in zip(kernels, np.broadcast_to(Z, (Q, *Z.shape[-2:])), strict=True):
            check_kernel_inputs("inducing", own, (kernel,))
    Z = np.ascontiguousarray(np.broadcast_to(Z, (Q, *Z.shape[-2:])))
    same = Z.shape[1:] == X.shape and bool(np.all(X == Z)) and isinstance(settings._method, Blocks)
    return Z, same


def _place_inducing_inputs(X: Floats, count: int, placement: str, rng: np.random.Generator) -> Floats:
    if not 1 <= count <= len(X):
        raise ValueError(f"inducing must be between 1 and the number of sites, {len(X)}, was {count}")
    if placement == "subset":
        return choices.nested_subset(X, count, rng)
    if placement == "clusters":
        return choices.cluster_centres(X, count, rng)
    varies = np.ptp(X, axis=0) > 0  # a constant dimension needs one point only
    dimensions = int(varies.sum())
    side = round(count ** (1.0 / max(dimensions, 1)))
    if side < 2 and dimensions:
        raise ValueError(f"inducing must be at least {2**dimensions} for a grid (D = {dimensions}), was {count}")
    return choices.regular_grid(X, tuple(np.where(varies, side, 1).tolist()))


def _family(settings: ModelSettings, M: int, N: int, kernels: tuple[Kernel, ...], backend: Backend) -> Family:
    Q, K = len(kernels), settings.components
    if settings.posterior == "diagonal":
        return Diagonal(Q, M, K)
    # Theorem 2: N numbers per latent instead of M (M + 1) / 2, if that is fewer. It needs all sites in each evaluation,
    # and it does not keep the distribution of u fixed while kernels are learnt without the posterior.
    if K == 1 and isinstance(settings._method, Blocks) and 2 * N < M * (M + 1) and not _learns_kernels_alone(settings):
        variances = np.asarray([[float(kernel.variance)] for kernel in kernels])
        return Sites(Q, M, N, backend.asarray(1.0 / variances))
    return Full(Q, M, K)


def _learns_kernels_alone(settings: ModelSettings) -> bool:
    method = settings._method
    if not isinstance(method, Blocks) or method.profile_posterior:
        return False
    return any("kernels" in group and "posterior" not in group for group in method.order)


def _parameters(
    settings: ModelSettings, bound: Bound, prior_mean: Floats, Z: Array, rng: np.random.Generator, backend: Backend
) -> Parameters:
    family, kernels, priors = bound.posterior, bound.kernels, bound.hyperpriors
    free = join_parameters(kernels)
    Q, M, K = len(kernels), Z.shape[1], settings.components
    # Equal components would have equal gradients and stay equal.
    jitter = backend.asarray(np.zeros((K, Q, M)) if K == 1 else 0.1 * rng.standard_normal((K, Q, M)))
    relative_jitter = JITTER[settings.dtype] if settings.inducing is not None else 0.0
    factor = inducing_factor(kernels, Z, relative_jitter)
    if settings.initial_mean is not None:
        must = f"one number for each of {M} inducing inputs, or of shape ({Q}, {M})"
        mean = broadcast_floats("initial_mean", settings.initial_mean, (Q, M), must, repeat=False)
        centred = backend.asarray(mean - prior_mean[:, None])
        jitter = jitter + solve_triangular(factor, centred[..., None])[..., 0]
    return Parameters(
        posterior=family.initial_parameters(factor, 0.5, jitter),
        kernels=free if priors is None else priors.unconstrain(free),
        inducing=Z,
        likelihood=backend.asarray(to_numpy(settings.likelihood.parameters)),
        prior_mean=backend.asarray(prior_mean),
    )
