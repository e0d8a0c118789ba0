"""Inference where every datum feels the whole field: one run of the forward model returns all data."""

from invgp.core.field.field_gaussian import Gaussian
from invgp.core.field.field_inference import FieldInference, FieldState
from invgp.core.field.grid_basis import Basis, leading_modes

__all__ = ["Basis", "FieldInference", "FieldState", "Gaussian", "leading_modes"]
