"""Covariance functions of the latent processes, and their derivatives."""

from invgp.core.kernels.averages import Averaged, Averages, averages_of
from invgp.core.kernels.base import KINDS, Kernel, KernelGradient, Linearised, kernel_from_description
from invgp.core.kernels.composition import OnDimensions, Product, Sum
from invgp.core.kernels.coregionalised import Coregionalised
from invgp.core.kernels.mapped import Mapped, Trended, interpolate, scale_by_map
from invgp.core.kernels.periodic import Periodic
from invgp.core.kernels.rotated import Rotated, directions
from invgp.core.kernels.simple import Constant, Linear, Scalar, White
from invgp.core.kernels.stationary import (
    MAX_DIRECT_DIMENSIONS,
    STATIONARY,
    Exponential,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
    squared_distances,
)
from invgp.core.kernels.testing import check_kernel
from invgp.core.kernels.varying import VaryingLength, vary_length
from invgp.core.kernels.zones import Zones

__all__ = [
    "KINDS",
    "MAX_DIRECT_DIMENSIONS",
    "STATIONARY",
    "Averaged",
    "Averages",
    "Constant",
    "Coregionalised",
    "Exponential",
    "Kernel",
    "KernelGradient",
    "Linear",
    "Linearised",
    "Mapped",
    "Matern32",
    "Matern52",
    "OnDimensions",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Rotated",
    "Scalar",
    "SquaredExponential",
    "Stationary",
    "Sum",
    "Trended",
    "VaryingLength",
    "White",
    "Zones",
    "averages_of",
    "check_kernel",
    "directions",
    "interpolate",
    "kernel_from_description",
    "scale_by_map",
    "squared_distances",
    "vary_length",
]
