"""How likely the data are under other hyperparameters, as the forward model is near the posterior.

There it is a line: data = outputs at the prior's mean + slope (field - prior's mean) + noise. Of a Gaussian field all
that is Gaussian, and its density is the evidence. The field is known by its values at few nodes, which say nearly all
about it: so the prior's covariance is needed between these nodes alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from invgp.core.backend import Array, array_namespace, cholesky, identity, solve_triangular, sum_of_squares
from invgp.core.field.grid_basis import Basis
from invgp.core.kernels import Kernel


@dataclass(frozen=True)
class LinearData:
    """Data as a line in the variables.

    Attributes
    ----------
    residual : (D,), data less outputs at the prior's mean, in units of the noise.
    directions : (k, D), of what varies among the outputs.
    slope : (k, R), of these by the variables.
    weights : (D,), precisions of the noise.
    error : (k,), variance of what the regression does not know.
    excess : (D,), variance besides the noise.
    """

    residual: Array
    directions: Array
    slope: Array
    weights: Array
    error: Array
    excess: Array

    def log_evidence(self, covariance: Array, log_scales: Array) -> float:
        """With a covariance (k, k) that the prior gives the outputs, and noise scaled by exp(log_scales), (D,)."""
        xp = array_namespace(self.slope)
        weights = 1.0 / (xp.exp(2.0 * log_scales) / self.weights + self.excess)
        root = cholesky(covariance + self.error * identity(covariance))
        seen = xp.matrix_transpose(root) @ self.directions
        inner = (seen * weights) @ xp.matrix_transpose(seen)
        factor = cholesky(identity(inner) + inner)
        explained = sum_of_squares(solve_triangular(factor, (seen @ (weights * self.residual))[:, None]))
        misfit = xp.sum(weights * xp.square(self.residual)) - explained[0]
        log_det = 2.0 * xp.sum(xp.log(xp.linalg.diagonal(factor))) - xp.sum(xp.log(weights))
        constant = self.residual.shape[0] * math.log(2.0 * math.pi)
        return -0.5 * float(misfit + log_det + constant)


@dataclass(frozen=True)
class NodeSlopes:
    """Slopes by the values of some processes, which share a kernel, at the nodes that their basis rests on.

    Attributes
    ----------
    nodes : (P, D).
    slopes : of each process (k, P), for a process of variance 1.
    """

    nodes: Array
    slopes: Sequence[Array]

    @staticmethod
    def of(kernel: Kernel, basis: Basis, nodes: Array, slopes: Sequence[Array]) -> NodeSlopes:
        """From slopes (k, R) by the variables of a basis over nodes (G, D), which belongs to this kernel."""
        xp = array_namespace(nodes)
        factor = cholesky(kernel(nodes, nodes))
        rotation = basis.rotation[:, : basis.size]
        turned = (rotation @ xp.matrix_transpose(slope) for slope in slopes)
        return NodeSlopes(
            nodes, [xp.matrix_transpose(solve_triangular(factor, part, transposed=True)) for part in turned]
        )

    def covariance(self, kernel: Kernel) -> Array:
        """What a kernel gives the outputs, (k, k)."""
        xp = array_namespace(self.nodes)
        between = kernel(self.nodes, self.nodes)
        return sum(slope @ between @ xp.matrix_transpose(slope) for slope in self.slopes)
