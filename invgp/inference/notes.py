"""What may be wrong with a posterior for what was learnt or chosen, in words."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import to_numpy
from invgp.core.coupled import Prior
from invgp.problem import Floats, Problem
from invgp.wording import counted

FARTHEST_NOISE = 30.0  # times what was given
NAMED = 5  # sites
MOST_LEFT_OPEN = 0.1  # of the prior's variance, by inducing points


def noise_notes(problem: Problem, log_scales: Floats) -> list[str]:
    """Of noise that was learnt to be far from what was given: with few data, or data without noise, it runs away."""
    return [
        f"The noise of {name} was learnt to be {math.exp(log_scale):.2g} times what was given: unless that is so, give "
        "it a prior, or hold it fixed."
        for name, log_scale in zip(problem.noise.learn, log_scales, strict=True)
        if abs(log_scale) > math.log(FARTHEST_NOISE)
    ]


def undetermined_shape_notes(unknown: NDArray[np.intp], looked_at: int, samples: int) -> list[str]:
    """Of sites, by their numbers from 0, whose shape could not be told."""
    if not len(unknown):
        return []
    named = ", ".join(str(n + 1) for n in unknown[:NAMED]) + (" and others" if len(unknown) > NAMED else "")
    return [
        f"At {len(unknown)} of {counted(looked_at, 'site')} the shape of the posterior could not be told from "
        f"{samples} samples: site {named}."
    ]


def inducing_notes(prior: Prior) -> list[str]:
    """Of inducing points that are too few."""
    if prior.dense:
        return []
    variance = np.asarray([float(kernel.variance) for kernel in prior.kernels])
    open_share = [to_numpy(prior.geometry(*batch).residual).T / variance for batch in prior.batches()]
    share = float(np.mean(np.concatenate(open_share)))
    if share < MOST_LEFT_OPEN:
        return []
    return [
        f"The inducing points leave {share:.0%} of the prior's variance open: there are too few of them for the "
        "length-scales, and neither means nor spreads are to be trusted."
    ]
