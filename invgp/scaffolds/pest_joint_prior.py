"""Joint normal prior of the parameters of a PEST case whose covariances are known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from invgp.adapters.pest.matrices import NamedCovariance
from invgp.adapters.protocol import Floats
from invgp.scaffolds.pest_priors import ParameterPrior

MOST_CORRELATED = 200
"""Largest number of parameters with a correlation matrix in a configuration."""
_SMALLEST_EIGENVALUE = 1e-9  # of a correlation matrix


@dataclass(frozen=True)
class JointPrior:
    """Priors of all parameters, and covariances of some.

    Attributes
    ----------
    priors : dict of str to ParameterPrior
    names : tuple of str
        Parameters with covariances.
    covariance : array, shape (n, n)
        Of these parameters, or of their natural logarithms.
    """

    priors: dict[str, ParameterPrior]
    names: tuple[str, ...]
    covariance: Floats

    def condition(self, factors: Mapping[str, float], value: float, std: float) -> JointPrior:
        """Return the prior given that a sum of parameters (or of their natural logarithms) is `value` plus noise.

        Parameters
        ----------
        factors : mapping of str to float
            Factor of each parameter of the sum; either all parameters are logarithms or none is.
        value, std : float
            Value of the sum, and the standard deviation of its noise.
        """
        if len(factors) == 1:
            ((name, factor),) = factors.items()
            if name not in self.names:
                return replace(self, priors=self.priors | {name: self.priors[name].condition(factor, value, std)})
        joint = self._add(name for name in factors if name not in self.names)
        row = np.array([factors.get(name, 0.0) for name in joint.names])
        column = joint.covariance @ row
        gain = column / (row @ column + std**2)
        residual = value - row @ np.array([self.priors[name].centre for name in joint.names])
        covariance = joint.covariance - np.outer(gain, column)
        changed = {
            name: replace(
                self.priors[name],
                centre=self.priors[name].centre + float(gain[i] * residual),
                spread=math.sqrt(covariance[i, i]),
            )
            for i, name in enumerate(joint.names)
        }
        return JointPrior(self.priors | changed, joint.names, covariance)

    def _add(self, others: Iterable[str]) -> JointPrior:
        """Return the same prior with the variances of other, independent parameters in its covariance matrix."""
        added = tuple(others)
        size = len(self.names)
        covariance = np.diag([0.0] * size + [self.priors[name].spread ** 2 for name in added])
        covariance[:size, :size] = self.covariance
        return JointPrior(self.priors, self.names + added, covariance)

    def correlation(self, names: Sequence[str]) -> Floats:
        """Return the correlation matrix of some parameters, shape (n, n)."""
        matrix = np.eye(len(names))
        inside = [i for i, name in enumerate(names) if name in self.names]
        order = [self.names.index(names[i]) for i in inside]
        std = np.sqrt(np.diag(self.covariance))[order]
        matrix[np.ix_(inside, inside)] = self.covariance[np.ix_(order, order)] / np.outer(std, std)
        np.fill_diagonal(matrix, 1.0)
        return matrix


def join_priors(priors: Mapping[str, ParameterPrior], covariance: NamedCovariance | None) -> JointPrior:
    """Return the joint prior of parameters.

    Parameters
    ----------
    priors : mapping of str to ParameterPrior
        Their standard deviations are those of the covariance matrix where it has the parameter.
    covariance : NamedCovariance, optional
        Of the parameters, or of their logarithms to base 10.
    """
    if covariance is None or covariance.is_diagonal:
        return JointPrior(dict(priors), (), np.zeros((0, 0)))
    known = {name: i for i, name in enumerate(covariance.names)}
    names = [n for n in priors if n in known and covariance.matrix[known[n], known[n]] > 0.0]
    order = [known[name] for name in names]
    block = covariance.matrix[np.ix_(order, order)]
    std = np.sqrt(np.diag(block))
    correlation = block / np.outer(std, std)
    correlated = np.flatnonzero(np.count_nonzero(correlation, axis=1) > 1)
    spreads = np.array([priors[names[i]].spread for i in correlated])
    return JointPrior(
        dict(priors),
        tuple(names[i] for i in correlated),
        correlation[np.ix_(correlated, correlated)] * np.outer(spreads, spreads),
    )


def find_fault(correlation: Floats) -> str:
    """Return why a correlation matrix cannot be used, as part of a sentence; empty if it can."""
    if len(correlation) > MOST_CORRELATED:
        return f"there are more than {MOST_CORRELATED}; give them coordinates"
    if not np.allclose(correlation, correlation.T, atol=1e-6):
        return "the matrix is not symmetric"
    if np.linalg.eigvalsh(correlation)[0] < _SMALLEST_EIGENVALUE:
        return "the matrix is not positive definite"
    return ""
