"""Inference for field models: one run takes the latents on the whole grid and returns the data of all sites."""

from invgp.core.field.field_gaussian import Gaussian
from invgp.core.field.field_inference import FieldInference, FieldState
from invgp.core.field.grid_basis import Basis, leading_modes

__all__ = ["Basis", "FieldInference", "FieldState", "Gaussian", "leading_modes"]
