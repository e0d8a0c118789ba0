"""SAVIGP as init / ask / tell: the caller runs the forward model.

Computed once: the prior's Cholesky factors, the standard normals (common random numbers: with the same normals
at every evaluation the bound is a deterministic function, which L-BFGS needs). At every evaluation: the
marginals, the sites' terms, the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from invgp.core import elbo
from invgp.core.backend import Array, array_namespace, cholesky
from invgp.core.estimators import features_needed, score
from invgp.core.families import Family, FullGaussian
from invgp.core.kernels import Kernel
from invgp.core.optimisers import LBFGS, LBFGSState


@dataclass(frozen=True)
class State:
    """Where the inference stands: immutable, small, all that is needed to go on.

    Attributes
    ----------
    optimiser : the optimiser's own state; its `point` is the best posterior so far.
    evaluations : how many times the bound has been evaluated.
    """

    optimiser: LBFGSState
    evaluations: int = 0

    @property
    def parameters(self) -> Array:
        """Parameters of the best posterior so far."""
        return self.optimiser.point

    @property
    def finished(self) -> str:
        """Why the inference is over; empty while it goes on."""
        return self.optimiser.finished


@dataclass(frozen=True)
class Info:
    """What one evaluation found.

    Attributes
    ----------
    elbo, expected_log_likelihood, kl : at the posterior that was asked about, in nats.
    accepted : whether that posterior is now the best one.
    """

    elbo: float
    expected_log_likelihood: float
    kl: float
    accepted: bool


@dataclass(frozen=True)
class Savigp:
    """The algorithm with everything that stays fixed while it runs.

    Parameters
    ----------
    family : the posterior family.
    log_density : outputs of the forward model (S, N, P) -> log p(y_n | outputs), (S, N).
    normals : standard normals (S, N, Q).
    """

    family: Family
    log_density: Callable[[Array], Array]
    normals: Array
    optimiser: LBFGS = field(default_factory=LBFGS)

    def init(self, variance_share: float = 0.1) -> State:
        """Start from the prior's mean, with this share of the prior's variance."""
        return State(self.optimiser.init(self.family.initial(variance_share)))

    def ask(self, state: State) -> Array:
        """Latent values (S, N, Q) at which the forward model is wanted next."""
        return self._samples(state.optimiser.trial)

    def tell(self, state: State, outputs: Array, valid: Array) -> tuple[State, Info]:
        """Take in the forward model's outputs at the values last asked for.

        Parameters
        ----------
        outputs : (S, N, P); whatever a failed run holds is ignored.
        valid : (S, N), False where the run failed.
        """
        xp = array_namespace(outputs)
        trial = state.optimiser.trial
        _, variance = self.family.marginals(trial)
        outputs = xp.where(valid[..., None], outputs, xp.zeros_like(outputs))
        terms = score(self.normals, xp.sqrt(variance), self.log_density(outputs), valid)
        expected = float(elbo.expected_log_likelihood(terms.value))
        kl = float(self.family.kl(trial))
        bound = expected - kl if self.enough(valid) else -math.inf
        gradient = self.family.gradient(trial, terms.gradient, terms.curvature)
        optimiser = self.optimiser.tell(state.optimiser, -bound, -gradient)
        info = Info(bound, expected, kl, optimiser.accepted)
        return State(optimiser, state.evaluations + 1), info

    def enough(self, valid: Array) -> bool:
        """Whether every site has valid runs enough to be estimated."""
        xp = array_namespace(valid)
        S, _, Q = self.normals.shape
        return float(xp.min(xp.sum(xp.astype(valid, self.normals.dtype), axis=0))) >= features_needed(Q, S)

    def _samples(self, parameters: Array) -> Array:
        mean, variance = self.family.marginals(parameters)
        return mean + array_namespace(mean).sqrt(variance) * self.normals


def dense_full_gaussian(X: Array, prior_mean: Array, kernels: Sequence[Kernel]) -> FullGaussian:
    """The dense full Gaussian over latents with these priors.

    Parameters
    ----------
    X : site coordinates (N, D).
    prior_mean : (Q, N).
    kernels : Q of them.
    """
    xp = array_namespace(X, prior_mean)
    return FullGaussian(prior_mean, xp.stack([cholesky(kernel(X, X)) for kernel in kernels]))
