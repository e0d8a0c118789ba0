"""Stage of the inference: an estimator with its sample points and its limits on a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from invgp.core.point_sets import Points

BOUND_SLACK = 1e-4  # nats per latent and site: largest accepted decrease of the bound, below the error of its estimate
LINEAR_STAGE_SLACK = 0.1  # the same limit for statistical linearisation, whose fixed point is not the optimum


@dataclass(frozen=True)
class Stage:
    """Estimator with its sample points and its limits on a step.

    Parameters
    ----------
    kind : str
        ``"linear"`` (statistical linearisation) or ``"hermite"``, both for Gaussian noise, or ``"log density"``.
    points : Points
        Standard normal sample points, the same in all steps of the stage.
    tolerance : float, standard deviations
        The stage has converged when the next step would move the posterior of no site by more.
    max_movement : float, standard deviations
        Largest movement of the posterior of a site in one step.
    """

    kind: str
    points: Points
    tolerance: float
    max_movement: float = math.inf

    @property
    def slack(self) -> float:
        """Largest accepted decrease of the bound, in nats per latent and site.

        It is larger for statistical linearisation, because that estimator does not converge to the optimum of the
        bound.
        """
        return LINEAR_STAGE_SLACK if self.kind == "linear" else BOUND_SLACK

    @property
    def quadratic(self) -> bool:
        """Whether the estimator fits second-order terms."""
        return self.kind != "linear"
