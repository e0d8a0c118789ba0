"""Inference where every datum feels the whole field: one run of the forward model returns all data."""

from invgp.core.field.algorithm import FieldInference, FieldState
from invgp.core.field.basis import Basis, leading_modes
from invgp.core.field.gaussian import Gaussian

__all__ = ["Basis", "FieldInference", "FieldState", "Gaussian", "leading_modes"]
