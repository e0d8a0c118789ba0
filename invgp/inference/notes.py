"""Notes for users on possible problems of a posterior."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import to_numpy
from invgp.core.coupled import Prior
from invgp.formatting import count_noun
from invgp.problem import Floats, Problem

FARTHEST_NOISE = 30.0  # factor between learnt and given noise above which a note is added
NAMED = 5  # most sites that a note lists
MOST_OMITTED = 0.1  # part of the prior variance that inducing points do not represent, above which a note is added


def noise_notes(problem: Problem, log_scales: Floats) -> list[str]:
    """Describe learnt noise that is far from the given value, as with few data or data without noise."""
    return [
        f"The learnt noise of {name} is {math.exp(log_scale):.2g} times the given value: unless that is plausible, "
        "give it a prior, or fix it."
        for name, log_scale in zip(problem.noise.learn, log_scales, strict=True)
        if abs(log_scale) > math.log(FARTHEST_NOISE)
    ]


def undetermined_shape_notes(unknown: NDArray[np.intp], looked_at: int, samples: int) -> list[str]:
    """Describe the sites, by their numbers from 0, whose shape error could not be determined."""
    if not len(unknown):
        return []
    named = ", ".join(str(n + 1) for n in unknown[:NAMED]) + (" and others" if len(unknown) > NAMED else "")
    return [
        f"At {len(unknown)} of {count_noun(looked_at, 'site')} the shape of the posterior could not be determined from "
        f"{samples} samples: site {named}."
    ]


def inducing_notes(prior: Prior) -> list[str]:
    """Describe inducing points that are too few for the prior."""
    if prior.dense:
        return []
    variance = np.asarray([float(kernel.variance) for kernel in prior.kernels])
    omitted = [to_numpy(prior.geometry(*batch).residual).T / variance for batch in prior.batches()]
    share = float(np.mean(np.concatenate(omitted)))
    if share < MOST_OMITTED:
        return []
    return [
        f"The inducing points do not represent {share:.0%} of the prior variance: there are too few of them for the "
        "length-scales, and neither means nor spreads are reliable."
    ]
