"""Priors of the parameters of a PEST case, as PEST++ and pyEMU understand its control file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from invgp.adapters.pest.control import Control, ControlParameter

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
