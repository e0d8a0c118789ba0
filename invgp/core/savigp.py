"""SAVIGP as init / ask / tell: the caller runs the forward model.

Computed once: the factors of the prior, the standard normals (common random numbers: with the same normals at every
evaluation the bound is a deterministic function, which L-BFGS needs). At every evaluation: the marginals, the sites'
terms, the gradient. Kernels, inducing inputs and noise are held fixed here; `invgp.core.training` learns them where
the likelihood runs in this process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from invgp.core.backend import Array, array_namespace
from invgp.core.bound import Bound, Frame, Ground, Parameters, Sum
from invgp.core.estimators import features_needed
from invgp.core.optimisers import LBFGS, LBFGSState
from invgp.core.sampling import Points

LEARNT = ("posterior",)


@dataclass(frozen=True)
class State:
    """Where the inference stands: immutable, all that is needed to go on.

    Attributes
    ----------
    optimiser : the optimiser's own state; its `point` is the best posterior so far.
    evaluations : how many times the bound has been evaluated.
    """

    optimiser: LBFGSState
    evaluations: int = 0

    @property
    def posterior(self) -> Array:
        """Free parameters of the best posterior so far."""
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
    bound : the model.
    parameters : where it starts; only the posterior moves.
    log_density : outputs of the forward model (S, N, P) -> log p(y_n | outputs), (S, N).
    points : standard normals, the same at every evaluation.
    """

    bound: Bound
    parameters: Parameters
    log_density: Callable[[Array], Array]
    points: Points
    optimiser: LBFGS = field(default_factory=LBFGS)
    ground: Ground = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ground", self.bound.ground(self.parameters))

    def init(self) -> State:
        """Start from the posterior of the parameters."""
        return State(self.optimiser.init(self.parameters.posterior))

    def frame(self, posterior: Array) -> Frame:
        """The bound at a posterior, ready for samples."""
        return self.bound.frame(self.parameters.updated(LEARNT, posterior), ground=self.ground)

    def ask(self, state: State) -> Array:
        """Latent values (K S, N, Q) at which the forward model is wanted next: S for each of K components."""
        xp = array_namespace(state.posterior)
        mean, scale, normals = self._marginals(self.frame(state.optimiser.trial))
        samples = mean[:, None, ...] + scale[:, None, ...] * normals
        return xp.reshape(samples, (-1, *samples.shape[2:]))

    def tell(self, state: State, outputs: Array, valid: Array) -> tuple[State, Info]:
        """Take in the forward model's outputs at the values last asked for.

        Parameters
        ----------
        outputs : (K S, N, P); whatever a failed run holds is ignored.
        valid : (K S, N), False where the run failed.
        """
        xp = array_namespace(outputs)
        frame = self.frame(state.optimiser.trial)
        _, scale, normals = self._marginals(frame)
        outputs = xp.where(valid[..., None], outputs, xp.zeros_like(outputs))
        densities = self.log_density(outputs)
        densities = xp.where(valid, densities, xp.nan * xp.ones_like(densities))
        S = normals.shape[0]
        found = [(densities[k * S : (k + 1) * S, :], None) for k in range(frame.family.components)]
        sites = (0, self.bound.X.shape[0])
        total = Sum.nothing(frame).plus(frame, frame.geometry(*sites), sites, normals, scale, found, LEARNT)
        terms = frame.finish(total, LEARNT)
        bound = float(terms.elbo) if all(self.enough(xp.isfinite(d)) for d, _ in found) else -math.inf
        optimiser = self.optimiser.tell(state.optimiser, -bound, -terms.gradient.posterior)
        info = Info(bound, float(terms.expected_log_likelihood), float(terms.kl), optimiser.accepted)
        return State(optimiser, state.evaluations + 1), info

    def marginals(self, state: State) -> tuple[Array, Array]:
        """Mean and variance (N, Q) of the latents under the best posterior so far, over all components."""
        xp = array_namespace(state.posterior)
        frame = self.frame(state.posterior)
        mean, scale, _ = self._marginals(frame)
        weights = frame.q.weights[:, None, None]
        centre = xp.sum(weights * mean, axis=0)
        return centre, xp.sum(weights * (xp.square(scale) + xp.square(mean - centre)), axis=0)

    def draws(self, state: State, normals: Array) -> Array:
        """Joint draws (R, N, Q) of the latents at all sites, from normals (R, N, Q), for a dense single Gaussian."""
        xp = array_namespace(normals)
        frame = self.frame(state.posterior)
        mean, _, _ = self._marginals(frame)
        factor = frame.factor @ frame.q.spread[0, ...]
        return mean[0, ...] + xp.permute_dims(factor @ xp.permute_dims(normals, (2, 1, 0)), (2, 1, 0))

    def enough(self, valid: Array) -> bool:
        """Whether every site has valid runs enough to be estimated."""
        xp = array_namespace(valid)
        S, Q = self.points.base.shape
        return float(xp.min(xp.sum(xp.astype(valid, self.points.base.dtype), axis=0))) >= features_needed(Q, S)

    def _marginals(self, frame: Frame) -> tuple[Array, Array, Array]:
        """Means and standard deviations (K, N, Q), normals (S, N, Q)."""
        xp = array_namespace(frame.factor)
        sites = (0, self.bound.X.shape[0])
        mean, variance = frame.marginals(frame.geometry(*sites), *sites)
        return mean, xp.sqrt(variance), self.points.at(*sites)
