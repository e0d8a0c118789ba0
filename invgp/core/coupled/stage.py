"""An estimator with its points, and what it may do in a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from invgp.core.point_sets import Points

SLACK = 1e-4  # nats a latent and site that the bound may fall: below what its estimate can tell
ROUGH_SLACK = 0.1  # the same of a stage that leads beside its optimum


@dataclass(frozen=True)
class Stage:
    """An estimator with the points it uses.

    Parameters
    ----------
    kind : ``"linear"`` (statistical linearisation) or ``"hermite"``, both for Gaussian noise, or ``"log density"``.
    tolerance : settled when a step moves no site's posterior by more, in standard deviations.
    reach : no step moves a site's posterior by more, in standard deviations.
    """

    kind: str
    points: Points
    tolerance: float
    reach: float = math.inf

    @property
    def slack(self) -> float:
        """Nats a latent and site that the bound may fall: linearisation leads beside its optimum, not to it."""
        return ROUGH_SLACK if self.kind == "linear" else SLACK

    @property
    def quadratic(self) -> bool:
        """Whether it fits second-order terms."""
        return self.kind != "linear"
