"""Learning of the hyperparameters of a field model, by the evidence of its linearisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from invgp.core.backend import Backend
from invgp.core.field import FieldInference, FieldState
from invgp.core.field.evidence import NodeSlopes
from invgp.core.kernels import CORRELATIONS, Kernel
from invgp.latent_model.grid_modes import Field
from invgp.latent_model.learned_problem import with_kernel
from invgp.problem import Floats, Problem

FARTHEST = 1.0  # largest change of a log hyperparameter per batch, since the linearisation is local
PROPOSALS, DEGREES = 1000, 5.0  # proposals of the importance sampling, and degrees of freedom of their distribution
CURVED = 0.05  # step of the finite differences of the curvature
MOST_DIFFERENT = 3.0  # largest difference of a log hyperparameter from the maximum of the evidence
EVALUATIONS = 60  # most iterations of L-BFGS-B
DIFFERENCE = 1e-4  # step of the finite differences of the log hyperparameters


class FieldLearning:
    """Learnt hyperparameters theta (H,): logarithms of factors on the configured values.

    It is true if any hyperparameter is learnt.

    Parameters
    ----------
    problem : Problem
        Problem with the configured values.

    Attributes
    ----------
    spreads : array, shape (H,)
        Prior standard deviations of theta.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        dimensions = 0 if problem.grid is None else problem.grid.X.shape[1]
        self.columns: dict[tuple[str, str], slice] = {}
        spreads: list[float] = []
        for latent in problem.latents:
            for name, factor in latent.learn.items():
                count = 1 if name == "std" else dimensions
                self.columns[latent.name, name] = slice(len(spreads), len(spreads) + count)
                spreads += [float(np.log(factor))] * count
        for name, factor in problem.noise.learn.items():
            self.columns["noise", name] = slice(len(spreads), len(spreads) + 1)
            spreads.append(float(np.log(factor)))
        self.spreads = np.asarray(spreads)

    def __bool__(self) -> bool:
        return bool(self.columns)

    def _of(self, theta: Floats, owner: str, name: str) -> Floats:
        columns = self.columns.get((owner, name))
        return np.zeros(1) if columns is None else theta[columns]

    def problem_at(self, theta: Floats) -> Problem:
        """Return the problem with hyperparameters theta (H,)."""
        latents = []
        for latent in self.problem.latents:
            _, std = latent.link.prior_to_process(latent.mean, latent.std)
            variance = (std * np.exp(self._of(theta, latent.name, "std"))) ** 2
            scales = latent.length_scale * np.exp(self._of(theta, latent.name, "length_scale"))
            latents.append(with_kernel(latent, variance, scales))
        noise = self.problem.noise
        noise_std = {name: value * np.exp(self._of(theta, "noise", name)) for name, value in noise.std.items()}
        return replace(self.problem, latents=tuple(latents), noise=replace(noise, std=noise_std))

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
                change = float(
                    np.exp(2.0 * (self._of(trial, latent.name, "std") - self._of(theta, latent.name, "std"))[0])
                )
                scales = latent.length_scale * np.exp(self._of(trial, latent.name, "length_scale"))
                kernel = Kernel(CORRELATIONS[latent.kernel], backend.asarray(change), backend.asarray(scales))
                covariance = covariance + slopes[latent.name].covariance(kernel)
            noise_std = groups @ (trial - theta)
            evidence = line.log_evidence(covariance, backend.asarray(noise_std))
            return 0.5 * float(np.sum((trial / self.spreads) ** 2)) - evidence

        return cost

    def fit(self, theta: Floats, cost: Callable[[Floats], float]) -> Floats:
        """Minimise `negative_log_density` over theta (H,), within `FARTHEST` of the theta of the state."""
        found = minimize(
            cost,
            theta,
            method="L-BFGS-B",
            bounds=[(t - FARTHEST, t + FARTHEST) for t in theta],
            options={"maxiter": EVALUATIONS, "eps": DIFFERENCE},
        )
        return np.asarray(found.x if found.fun <= cost(theta) else theta)

    def sample(self, theta: Floats, cost: Callable[[Floats], float], count: int, rng: np.random.Generator) -> Floats:
        """Draw hyperparameters (count, H) from their posterior, by importance sampling.

        Proposals are from a Student-t distribution with the curvature of the density at its maximum. They are resampled
        in the order of their largest principal component, so that few draws are spread evenly.

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
        values, vectors = np.linalg.eigh(_curvature(cost, theta))
        # The prior bounds the variance; a negative curvature at a maximum is a rounding error.
        values = np.maximum(values, self.spreads.max() ** -2.0)
        normals = rng.standard_normal((PROPOSALS, len(theta)))
        wide = np.sqrt(DEGREES / rng.chisquare(DEGREES, (PROPOSALS, 1)))
        scaled = normals * wide
        proposals = theta + (scaled / np.sqrt(values)) @ vectors.T
        log_proposal = -0.5 * (DEGREES + len(theta)) * np.log1p(np.sum(scaled**2, axis=1) / DEGREES)
        near = np.abs(proposals - theta).max(axis=1) < MOST_DIFFERENT
        costs = np.asarray([cost(proposal) if use else np.inf for proposal, use in zip(proposals, near, strict=True)])
        weights = -costs - log_proposal
        shares = np.exp(weights - logsumexp(weights))
        order = np.argsort((proposals - theta) @ vectors[:, 0])
        places = (rng.random() + np.arange(count)) / count
        chosen = np.minimum(np.searchsorted(np.cumsum(shares[order]), places), PROPOSALS - 1)
        return np.asarray(proposals[order[chosen]])

    def _node_slopes(self, theta: Floats, field: Field, slope: Floats, backend: Backend) -> dict[str, NodeSlopes]:
        if self.problem.grid is None:
            raise ValueError("the problem has no grid")
        found = {}
        for latent in self.problem.latents:
            processes = range(*self.problem.latent_slices[latent.name].indices(len(field.bases)))
            basis = field.bases[processes[0]]
            scales = latent.length_scale * np.exp(self._of(theta, latent.name, "length_scale"))
            kernel = Kernel(CORRELATIONS[latent.kernel], backend.asarray(1.0), backend.asarray(scales))
            nodes = backend.asarray(self.problem.grid.X[basis.pivots])
            found[latent.name] = NodeSlopes.from_basis(
                kernel, basis, nodes, [slope[:, field.slices[j]] for j in processes]
            )
        return found

    def _noise_groups(self) -> Floats:
        """Return a matrix (D, H): 1 where a hyperparameter scales the noise of a datum."""
        observed = ~np.isnan(self.problem.survey.Y)
        groups = np.zeros((*observed.shape, len(self.spreads)))
        for name in self.problem.noise.learn:
            groups[:, self.problem.observation_slices[name], self.columns["noise", name]] = 1.0
        return groups[observed]


def _curvature(cost: Callable[[Floats], float], theta: Floats) -> Floats:
    """Compute the matrix (H, H) of second derivatives by central differences."""
    steps = CURVED * np.eye(len(theta))
    found = [
        [cost(theta + a + b) - cost(theta + a - b) - cost(theta - a + b) + cost(theta - a - b) for b in steps]
        for a in steps
    ]
    return np.asarray(found) / (4.0 * CURVED**2)
