"""Learning of the hyperparameters of a field model, by the evidence of its linearisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

from invgp.core.backend import Backend
from invgp.core.field import FieldInference, FieldState
from invgp.core.field.field_evidence import NodeSlopes
from invgp.core.sampling.hyperparameter_draws import ProposalOptions, draw_hyperparameters
from invgp.latent_model.grid_modes import Field
from invgp.latent_model.learnt_parameters import LearntParameters
from invgp.problem import Floats, Problem


@dataclass(frozen=True)
class FieldLearningOptions:
    """Tuning of the learning of the hyperparameters of a field model. The linearisation of its data is local.

    Parameters
    ----------
    farthest : float
        Largest change of a log hyperparameter per batch of runs.
    evaluations : int
        Most iterations of L-BFGS-B.
    difference : float
        Step of the finite differences of the log hyperparameters.
    proposals : ProposalOptions
        Importance sampling of the hyperparameters.
    """

    farthest: float = 1.0
    evaluations: int = 60
    difference: float = 1e-4
    proposals: ProposalOptions = field(default=ProposalOptions(proposals=512, rounds=2, farthest=3.0))


LEARNING = FieldLearningOptions()


class FieldLearning:
    """Learnt hyperparameters theta (H,) of a field model; it is true if any hyperparameter is learnt.

    Parameters
    ----------
    problem : Problem
        Problem with the configured values.

    Attributes
    ----------
    parameters : LearntParameters
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.parameters = problem, LearntParameters(problem)

    def __bool__(self) -> bool:
        return bool(self.parameters)

    @property
    def spreads(self) -> Floats:
        """Prior standard deviations (H,) of theta."""
        return self.parameters.spreads

    def problem_at(self, theta: Floats) -> Problem:
        """Return the problem with hyperparameters theta (H,)."""
        return self.parameters.problem_at(theta)

    def negative_log_density(
        self, theta: Floats, field: Field, algorithm: FieldInference, state: FieldState, backend: Backend
    ) -> Callable[[Floats], float]:
        """Return the negative log posterior density of the hyperparameters, up to a constant.

        Parameters
        ----------
        theta : array, shape (H,)
            Hyperparameters of the state.
        field, algorithm, state, backend
            Model and state at these hyperparameters; the forward model is linearised there.
        """
        line = algorithm.linearised_data(state)
        slopes = self._node_slopes(theta, field, line.slope, backend)
        groups = self._noise_groups()

        def cost(trial: Floats) -> float:
            covariance = 0.0
            for latent in self.problem.latents:
                kernel = self.parameters.kernel(latent, trial)
                change = float(kernel.variance) / float(self.parameters.kernel(latent, theta).variance)
                kernel = kernel.with_variance(change).on_backend(backend)
                covariance = covariance + slopes[latent.name].covariance(kernel)
            noise_std = groups @ (trial - theta)
            evidence = line.log_evidence(covariance, backend.asarray(noise_std))
            return -self.parameters.log_prior(trial) - evidence

        return cost

    def fit(self, theta: Floats, cost: Callable[[Floats], float]) -> Floats:
        """Minimise `negative_log_density` over theta (H,), near the theta of the state."""
        found = minimize(
            cost,
            theta,
            method="L-BFGS-B",
            bounds=[(t - LEARNING.farthest, t + LEARNING.farthest) for t in theta],
            options={"maxiter": LEARNING.evaluations, "eps": LEARNING.difference},
        )
        return np.asarray(found.x if found.fun <= cost(theta) else theta)

    def sample(self, theta: Floats, cost: Callable[[Floats], float], count: int, rng: np.random.Generator) -> Floats:
        """Draw hyperparameters (count, H) from their posterior, by importance sampling.

        Parameters
        ----------
        theta : array, shape (H,)
            Maximum of the density.
        cost : callable
            `negative_log_density`.
        count : int
            Number of draws.
        rng : numpy.random.Generator
        """
        return draw_hyperparameters(cost, theta, self.spreads, count, rng, LEARNING.proposals).theta

    def _node_slopes(self, theta: Floats, field: Field, slope: Floats, backend: Backend) -> dict[str, NodeSlopes]:
        if self.problem.grid is None:
            raise ValueError("the problem has no grid")
        found = {}
        for latent in self.problem.latents:
            processes = range(*self.problem.latent_slices[latent.name].indices(len(field.bases)))
            basis = field.bases[processes[0]]
            kernel = self.parameters.kernel(latent, theta).with_variance(1.0).on_backend(backend)
            nodes = backend.asarray(self.problem.nodes[basis.pivots])
            found[latent.name] = NodeSlopes.from_basis(
                kernel, basis, nodes, [slope[:, field.slices[j]] for j in processes]
            )
        return found

    def _noise_groups(self) -> Floats:
        """Return a matrix (D, H): 1 where a hyperparameter scales the noise of a datum."""
        observed = ~np.isnan(self.problem.survey.Y)
        groups = np.zeros((*observed.shape, len(self.spreads)))
        for scale in self.problem.noise.scales:
            for name in scale.observations:
                groups[:, self.problem.observation_slices[name], self.parameters.columns["noise", scale.name]] = 1.0
        return groups[observed]
