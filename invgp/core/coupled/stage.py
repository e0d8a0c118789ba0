"""Stage of the inference: an estimator with its sample points and its limits on a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from invgp.core.point_sets import Points


@dataclass(frozen=True)
class StepOptions:
    """Tuning of the natural-gradient steps.

    Attributes
    ----------
    smallest_step : float
        A search along a step ends below this: relative to its first trial, and absolute while the precision is not
        positive definite.
    smallest_limited_step : float
        Smallest step that is shortened only to limit the movement: the data may be this much more precise than the
        prior.
    limited_step_growth : float
        Largest growth from one step to the next in a stage that limits the movement.
    max_idle_steps : int
        Accepted steps of a stage that do not improve the bound.
    bound_slack : float, nats per latent and site
        Largest accepted decrease of the bound, below the error of its estimate.
    linear_slack : float, nats per latent and site
        The same for statistical linearisation, which does not converge to the optimum of the bound.
    learning_threshold : float, standard deviations
        Hyperparameters are learnt when a step moves the posterior by less.
    pass_step_growth : float
        Growth of the step after an accepted pass over mini-batches; with a faster one, the next pass is often rejected.
    pass_slack : float, nats per latent and site
        Largest accepted decrease of the bound of a pass, whose terms are extrapolated to its start.
    """

    smallest_step: float = 1.0 / 64.0
    smallest_limited_step: float = 2.0**-30
    limited_step_growth: float = 8.0
    max_idle_steps: int = 10
    bound_slack: float = 1e-4
    linear_slack: float = 0.1
    learning_threshold: float = 1.0
    pass_step_growth: float = 1.2
    pass_slack: float = 1e-3

    def slack(self, stage: Stage) -> float:
        """Return the largest accepted decrease of the bound in a stage, in nats per latent and site.

        Parameters
        ----------
        stage : Stage

        Returns
        -------
        float, in nats
        """
        return self.bound_slack if stage.quadratic else self.linear_slack


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
    def quadratic(self) -> bool:
        """Whether the estimator fits second-order terms."""
        return self.kind != "linear"
