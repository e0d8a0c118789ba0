"""Evidence of the data for other hyperparameters, with the forward model linearised around the posterior.

The linearised model is data = outputs at the prior mean + slope (field - prior mean) + noise. For a Gaussian field, the
data are Gaussian, and their density is the evidence. The values of the field at a few nodes, the pivots of its basis,
determine it almost completely, so only the prior covariance of these nodes is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from invgp.core.backend import Array, array_namespace, cholesky, identity, solve_triangular, sum_of_squares
from invgp.core.field.grid_basis import Basis
from invgp.core.kernels import Kernel


@dataclass(frozen=True)
class LinearisedData:
    """Data as a linear function of the R variables, plus noise.

    Attributes
    ----------
    residual : Array, shape (D,), standard deviations of the noise
        Data minus outputs at the prior mean.
    directions : Array, shape (k, D)
        Directions in which the outputs vary.
    slope : Array, shape (k, R)
        Derivatives of the outputs in these directions with respect to the variables.
    weights : Array, shape (D,)
        Precisions of the noise.
    error : Array, shape (k,)
        Variance of the regression error in each direction.
    excess : Array, shape (D,)
        Variance in addition to the noise, due to missing outputs.
    """

    residual: Array
    directions: Array
    slope: Array
    weights: Array
    error: Array
    excess: Array

    def log_evidence(self, covariance: Array, log_scales: Array) -> float:
        """Compute the log evidence, in nats.

        Parameters
        ----------
        covariance : Array, shape (k, k)
            Prior covariance of the outputs in the k directions.
        log_scales : Array, shape (D,)
            Logarithms of the factors on the noise standard deviations.
        """
        xp = array_namespace(self.slope)
        weights = 1.0 / (xp.exp(2.0 * log_scales) / self.weights + self.excess)
        root = cholesky(covariance + self.error * identity(covariance))
        rotated = xp.matrix_transpose(root) @ self.directions
        inner_products = (rotated * weights) @ xp.matrix_transpose(rotated)
        factor = cholesky(identity(inner_products) + inner_products)
        explained = sum_of_squares(solve_triangular(factor, (rotated @ (weights * self.residual))[:, None]))
        misfit = xp.sum(weights * xp.square(self.residual)) - explained[0]
        log_det = 2.0 * xp.sum(xp.log(xp.linalg.diagonal(factor))) - xp.sum(xp.log(weights))
        constant = self.residual.shape[0] * math.log(2.0 * math.pi)
        return -0.5 * float(misfit + log_det + constant)


@dataclass(frozen=True)
class NodeSlopes:
    """Slopes with respect to the values of processes with the same kernel at the pivot nodes of their basis.

    Attributes
    ----------
    nodes : Array, shape (P, D)
        Coordinates of the pivot nodes.
    slopes : sequence of Array, shape (k, P)
        Slopes of each process, scaled to a process of variance 1.
    """

    nodes: Array
    slopes: Sequence[Array]

    @staticmethod
    def from_basis(kernel: Kernel, basis: Basis, nodes: Array, slopes: Sequence[Array]) -> NodeSlopes:
        """Convert slopes with respect to the variables of a basis to slopes with respect to the pivot nodes.

        Parameters
        ----------
        kernel : Kernel
            Kernel of the basis.
        basis : Basis
            Basis that all processes share.
        nodes : Array, shape (P, D)
            Coordinates of the pivot nodes of the basis.
        slopes : sequence of Array, shape (k, R)
            Slopes of each process with respect to its variables.
        """
        xp = array_namespace(nodes)
        factor = cholesky(kernel(nodes, nodes))
        rotation = basis.rotation[:, : basis.size]
        whitened = (rotation @ xp.matrix_transpose(slope) for slope in slopes)
        return NodeSlopes(
            nodes, [xp.matrix_transpose(solve_triangular(factor, part, transposed=True)) for part in whitened]
        )

    def covariance(self, kernel: Kernel) -> Array:
        """Compute the covariance (k, k) of the outputs for another kernel.

        Parameters
        ----------
        kernel : Kernel
            Kernel with other parameters.

        Returns
        -------
        Array, shape (k, k)
        """
        xp = array_namespace(self.nodes)
        node_covariance = kernel(self.nodes, self.nodes)
        return sum(slope @ node_covariance @ xp.matrix_transpose(slope) for slope in self.slopes)
