"""The inverse problem: survey, latents with their priors, noise, simulator and settings.

Units: every array is in the unit of the object that it belongs to. Order: the Q latent processes are the latents in
order, each with its labels in order; the P outputs of a site are the observations in order, each with its labels.
"""

from invgp.problem.direct_data import SITE_COLUMN, DirectModel, EarlierField, EarlierSites
from invgp.problem.prior_and_noise import SMALLEST_EIGENVALUE, WEAK_FACTOR, Latent, Noise, PriorMap
from invgp.problem.problem import Part, Problem
from invgp.problem.processes_and_rows import SimulatorVariable
from invgp.problem.sources import Integers, Source
from invgp.problem.survey import Column, Floats, Grid, Labels, Observation, Survey
from invgp.settings import FEWEST_FIELD_RUNS, InferenceSettings, OutputSettings, fewest_samples

__all__ = [
    "FEWEST_FIELD_RUNS",
    "SITE_COLUMN",
    "SMALLEST_EIGENVALUE",
    "WEAK_FACTOR",
    "Column",
    "DirectModel",
    "EarlierField",
    "EarlierSites",
    "Floats",
    "Grid",
    "InferenceSettings",
    "Integers",
    "Labels",
    "Latent",
    "Noise",
    "Observation",
    "OutputSettings",
    "Part",
    "PriorMap",
    "Problem",
    "SimulatorVariable",
    "Source",
    "Survey",
    "fewest_samples",
]
