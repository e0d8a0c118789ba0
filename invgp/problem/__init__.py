"""What is unknown, what was measured, and the simulator between the two.

Units: every array is in the unit that its owner names. Order: the Q latent processes are the latents in order,
each with its labels in order; the P outputs of a site are the observations in order, each with its labels.
"""

from invgp.problem.beliefs import SMALLEST_EIGENVALUE, Latent, Noise
from invgp.problem.problem import Problem
from invgp.problem.settings import FEWEST_FIELD_RUNS, InferenceSettings, OutputSettings, fewest_samples
from invgp.problem.survey import Column, Floats, Grid, Labels, Observation, Survey
from invgp.problem.wiring import Wire

__all__ = [
    "FEWEST_FIELD_RUNS",
    "SMALLEST_EIGENVALUE",
    "Column",
    "Floats",
    "Grid",
    "InferenceSettings",
    "Labels",
    "Latent",
    "Noise",
    "Observation",
    "OutputSettings",
    "Problem",
    "Survey",
    "Wire",
    "fewest_samples",
]
