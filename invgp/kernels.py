"""Kernels of Gaussian processes, which can be added, multiplied and restricted to some input dimensions."""

from invgp.core.hyperpriors import Hyperprior
from invgp.core.kernels import (
    Constant,
    Coregionalised,
    Exponential,
    Kernel,
    KernelGradient,
    Linear,
    Linearised,
    Matern32,
    Matern52,
    Periodic,
    Product,
    RationalQuadratic,
    SquaredExponential,
    Sum,
    White,
    Zones,
    check_kernel,
)

__all__ = [
    "Constant",
    "Coregionalised",
    "Exponential",
    "Hyperprior",
    "Kernel",
    "KernelGradient",
    "Linear",
    "Linearised",
    "Matern32",
    "Matern52",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "SquaredExponential",
    "Sum",
    "White",
    "Zones",
    "check_kernel",
]
