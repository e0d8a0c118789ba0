"""Priors of the parameters of a PEST case, as PEST++ and pyEMU understand its control file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from invgp.adapters.pest.control import Control, ControlParameter
from invgp.adapters.pest.matrices import NamedCovariance
from invgp.adapters.protocol import Floats

SIGMA_RANGE = 4.0  # distance of the bounds in standard deviations, unless the option par_sigma_range gives another one
UNKNOWN_FACTOR = 10.0  # one standard deviation of a log-normal prior without bounds


@dataclass(frozen=True)
class ParameterPrior:
    """A normal prior of a parameter, or of its natural logarithm.

    Attributes
    ----------
    log : bool
        Whether the logarithm is normal.
    centre, spread : float
        Mean and standard deviation of the parameter or of its natural logarithm.
    lower, upper : float
        Bounds; infinite for none.
    source : str
        Where the standard deviation comes from.
    remarks : tuple of str
        What is unusual about it.
    """

    log: bool
    centre: float
    spread: float
    lower: float
    upper: float
    source: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def is_bounded(self) -> bool:
        """Whether it has two bounds."""
        return -math.inf < self.lower < self.upper < math.inf

    @property
    def mean(self) -> float:
        """Mean of the parameter itself."""
        return math.exp(self.centre + 0.5 * self.spread**2) if self.log else self.centre

    @property
    def std(self) -> float:
        """Standard deviation of the parameter itself."""
        return self.mean * math.sqrt(math.expm1(self.spread**2)) if self.log else self.spread

    def condition(self, factor: float, value: float, std: float) -> ParameterPrior:
        """Return the prior given that `factor` times the parameter (or its natural logarithm) is `value` plus noise."""
        precision = self.spread**-2 + (factor / std) ** 2
        centre = (self.centre / self.spread**2 + factor * value / std**2) / precision
        return replace(self, centre=centre, spread=precision**-0.5)


def parameter_priors(case: Control, variances: Mapping[str, float]) -> dict[str, ParameterPrior]:
    """Return the prior of each adjustable parameter, by name.

    Parameters
    ----------
    case : Control
    variances : mapping of str to float
        Variances from a covariance file: of the logarithm to base 10 for a log-transformed parameter.
    """
    try:
        sigmas = float(case.options.get("par_sigma_range", SIGMA_RANGE))
    except ValueError:
        sigmas = SIGMA_RANGE
    return {
        name: _prior(name, parameter, variances.get(name), sigmas if sigmas > 0 else SIGMA_RANGE)
        for name, parameter in case.parameters.items()
        if parameter.transform in ("none", "log")
    }


def _prior(name: str, parameter: ControlParameter, variance: float | None, sigmas: float) -> ParameterPrior:
    remarks: list[str] = []
    lower, upper = parameter.lower, parameter.upper
    value, mean = parameter.value, _number(parameter.columns.get("mean"))
    if mean is not None and lower <= mean <= upper:
        value = mean
    elif mean is not None:
        remarks.append(f"the mean {mean:g} of {name} is outside its bounds; its initial value is used, as by PEST++")
    log = parameter.transform == "log"
    if log and value <= 0.0:
        remarks.append(f"{name} is log-transformed but its value is {value:g}; its prior is normal")
        log = False
    own = _number(parameter.columns.get("standard_deviation"))
    if own is not None and own <= 0.0:
        remarks.append(f"the standard_deviation {own:g} of {name} is not positive and is not used")
        own = None
    unit = math.log(10.0) if log else 1.0  # PEST means logarithms to base 10
    if variance is not None and variance <= 0.0:
        remarks.append(f"the variance {variance:g} of {name} in parcov is not positive and is not used")
    if variance is not None and variance > 0.0:
        spread, source = unit * math.sqrt(variance), "parcov"
    elif own is not None:
        spread, source = unit * own, "the column standard_deviation"
    elif log and 0.0 < lower < upper < math.inf:
        spread, source = math.log(upper / lower) / sigmas, "bounds"
    elif not log and -math.inf < lower < upper < math.inf:
        spread, source = (upper - lower) / sigmas, "bounds"
    else:
        spread, source = math.log(UNKNOWN_FACTOR) if log else max(abs(value), 1.0), "a guess"
        remarks.append(f"{name} has no usable bounds; its prior standard deviation is a guess")
    if not lower <= value <= upper:
        remarks.append(f"the value {value:g} of {name} is outside its bounds")
    return ParameterPrior(log, math.log(value) if log else value, spread, lower, upper, source, tuple(remarks))


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


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
