"""What is believed beforehand: of the fields below the survey, and of the noise in the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from invgp.errors import ConfigError
from invgp.links import LINKS, Link
from invgp.problem.survey import Floats, Labels

SMALLEST_EIGENVALUE = 1e-12  # of a correlation matrix: below it, rounding may have made a singular one regular


@dataclass(frozen=True)
class Latent:
    """A field below the survey, with its Gaussian process prior: one process, or one for each label.

    Parameters
    ----------
    mean, std : (L,), prior mean and standard deviation of the physical quantity, in `unit`.
    kernel : a key of `invgp.core.kernels.CORRELATIONS`.
    length_scale : (D,), in the units of the coordinates.
    link : how the process and the physical quantity hang together.
    positive : ``"down"`` or ``"up"`` for a vertical position, for plots and CF.
    learn : of ``"std"`` and ``"length_scale"``, those that are learnt, with a factor: a log-normal prior has what is
        given here as its median, and a change by that factor as one standard deviation; infinite for no prior.
    """

    name: str
    unit: str
    mean: Floats
    std: Floats
    kernel: str
    length_scale: Floats
    link: Link = LINKS["identity"]
    dimension: str | None = None
    labels: Labels | None = None
    long_name: str = ""
    standard_name: str = ""
    positive: str = ""
    learn: Mapping[str, float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of processes."""
        return len(self.mean)


@dataclass(frozen=True)
class Noise:
    """What separates an observation from the simulator's output.

    Parameters
    ----------
    kind : ``"gaussian"``, ``"student-t"`` or ``"laplace"``.
    std : for each observation (N, p), in its unit.
    correlation : for observations whose noise is correlated (Gaussian only), (p, p).
    degrees : of freedom of a Student-t.
    learn : for observations whose noise is scaled by a number that is learnt, a factor as in `Latent.learn`.
    correlation_length : for observations whose noise is correlated between sites (Gaussian only), (D,): correlations
        fall off as exp(-distance), with the coordinates divided by these.
    covariance : (N P, N P), of all data, site by site, instead of all else (Gaussian only); None for none.
    """

    kind: str
    std: Mapping[str, Floats]
    correlation: Mapping[str, Floats] = field(default_factory=dict)
    degrees: float = 4.0
    learn: Mapping[str, float] = field(default_factory=dict)
    correlation_length: Mapping[str, Floats] = field(default_factory=dict)
    covariance: Floats | None = None

    @property
    def joins_sites(self) -> bool:
        """Whether the noise of one site says something of that of another."""
        return bool(self.correlation_length) or self.covariance is not None

    def __post_init__(self) -> None:
        for name, matrix in self.correlation.items():
            if np.linalg.eigvalsh(matrix)[0] <= SMALLEST_EIGENVALUE:
                raise ConfigError(
                    f"noise.correlation.{name}: must be positive definite, was not: some of its correlations "
                    "contradict others"
                )
