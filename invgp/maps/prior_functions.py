"""Draws from the prior as functions of position, for any number of points.

A stationary process is a sum of waves whose frequencies are Sobol points, each with a sine and a cosine. The prior
variance is then exact everywhere, and the error of correlations within ten length-scales is at most `WAVE_ERROR`. A sum
of kernels is the sum of independent functions, and the frequencies of a product of stationary kernels are sums of
frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Protocol

import numpy as np
from scipy.special import ive, ndtri
from scipy.stats import f as f_distribution
from scipy.stats import gamma, qmc

from invgp.core.kernels import (
    Averaged,
    Constant,
    Kernel,
    Linear,
    Mapped,
    OnDimensions,
    Periodic,
    Product,
    RationalQuadratic,
    Rotated,
    Stationary,
    Sum,
    Trended,
    White,
    Zones,
    interpolate,
)
from invgp.errors import ConfigError
from invgp.problem import Floats

WAVES = 2**13
WAVE_ERROR = 0.03  # largest error of a correlation by the waves within ten length-scales
POINTS_AT_ONCE = 512
DEGREES = {"exponential": 1.0, "matern 3/2": 3.0, "matern 5/2": 5.0}  # of freedom of the Student-t spectral density
SMALLEST_TAIL = 1e-8  # share of the spectral density beyond the highest frequency
HEAVY_TAIL = 1e-3  # the same for the exponential kernel, whose density decays slowly
FREQUENCY_STEPS = 4000  # of the table of the distribution of frequencies
MOST_HARMONICS = 200  # of a periodic kernel


class PriorFunction(Protocol):
    """K draws of a process as functions of position."""

    def __call__(self, X: Floats) -> Floats:
        """Return the draws (K, B) at points X (B, D)."""


@dataclass(frozen=True)
class WaveFunction:
    """Draws that are sums of waves.

    Attributes
    ----------
    origin : array, shape (D,)
        Point where the phases of the waves are zero.
    frequencies : array, shape (F, D)
        In radians per unit of the coordinates.
    cosines, sines : array, shape (K, F)
        Weights of the waves.
    """

    origin: Floats
    frequencies: Floats
    cosines: Floats
    sines: Floats

    def __call__(self, X: Floats) -> Floats:
        """Return the draws (K, B) at points X (B, D)."""
        parts = []
        for first in range(0, len(X), POINTS_AT_ONCE):
            phase = self.frequencies @ (X[first : first + POINTS_AT_ONCE] - self.origin).T
            parts.append(self.cosines @ np.cos(phase) + self.sines @ np.sin(phase))
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class LinearFunction:
    """The sum over dimensions of a linear function times draws of another process.

    Attributes
    ----------
    kernel : Linear
    dimensions : tuple of int
        Dimensions of the kernel.
    slopes : tuple of PriorFunction
        Factor of the linear function of each dimension.
    """

    kernel: Linear
    dimensions: tuple[int, ...]
    slopes: tuple[PriorFunction, ...]

    def __call__(self, X: Floats) -> Floats:
        """Return the draws (K, B) at points X (B, D)."""
        scaled = (X[:, self.dimensions] - self.kernel.centre) / self.kernel.length_scale
        scaled = scaled * math.sqrt(self.kernel.variance)
        return np.asarray(sum(scaled[:, i] * slope(X) for i, slope in enumerate(self.slopes)))


@dataclass(frozen=True)
class MappedFunction:
    """A map times draws of another process.

    Attributes
    ----------
    kernel : Mapped
    dimensions : tuple of int
        Dimensions of the kernel.
    factor : PriorFunction
    """

    kernel: Mapped
    dimensions: tuple[int, ...]
    factor: PriorFunction

    def __call__(self, X: Floats) -> Floats:
        """Return the draws (K, B) at points X (B, D)."""
        values, _ = interpolate(self.kernel.axes, self.kernel.values, X[:, self.dimensions])
        return np.asarray(math.sqrt(self.kernel.variance) * values * self.factor(X))


@dataclass(frozen=True)
class ZonedFunction:
    """Independent draws of another process in each zone.

    Attributes
    ----------
    kernel : Zones
    dimensions : tuple of int
        Dimensions of the kernel.
    factors : tuple of PriorFunction
        Draws of each zone.
    """

    kernel: Zones
    dimensions: tuple[int, ...]
    factors: tuple[PriorFunction, ...]

    def __call__(self, X: Floats) -> Floats:
        """Return the draws (K, B) at points X (B, D)."""
        numbers, parts = self.kernel.numbers(X[:, self.dimensions]), []
        order = np.argsort(numbers, kind="stable")
        for number in np.unique(numbers):
            parts.append(self.factors[number](X[order[numbers[order] == number]]))
        together = np.concatenate(parts, axis=1) if parts else np.zeros((0, 0))
        return np.asarray(math.sqrt(self.kernel.variance) * together[:, np.argsort(order, kind="stable")])


@dataclass(frozen=True)
class WhiteFunction:
    """Draws that are independent from point to point, except where points are equal to given points.

    Attributes
    ----------
    kernel : Kernel
        Its diagonal is the variance.
    known : dict of bytes to array, shape (K,)
        Standard normals at the given points.
    rng : Generator
    count : int
        Number of draws, K.
    """

    kernel: Kernel
    known: dict[bytes, Floats]
    rng: np.random.Generator
    count: int

    def __call__(self, X: Floats) -> Floats:
        """Return the draws (K, B) at points X (B, D)."""
        normals = self.rng.standard_normal((len(X), self.count))
        for i, x in enumerate(X):
            if (key := x.tobytes()) in self.known:
                normals[i] = self.known[key]
        return np.asarray(np.sqrt(self.kernel.diagonal(X)) * normals.T)


def draw_functions(kernel: Kernel, Z: Floats, count: int, rng: np.random.Generator) -> list[PriorFunction]:
    """Draw functions whose sum has a kernel as its covariance.

    Parameters
    ----------
    kernel : Kernel
    Z : array, shape (M, D)
        Points at which white noise is drawn once.
    count : int
        Number of draws, K.
    rng : Generator

    Raises
    ------
    ConfigError
        A part of the kernel has no representation by waves.
    """
    D = Z.shape[1]
    return [_draw_term(factors, Z, count, rng) for factors in _terms(kernel, tuple(range(D)))]


def is_stationary(kernel: Kernel) -> bool:
    """Return whether a kernel is a function of the distances along each coordinate."""
    if isinstance(kernel, Sum | Product):
        return all(is_stationary(part) for part in kernel.parts)
    if isinstance(kernel, OnDimensions | Averaged):
        return is_stationary(kernel.kernel)
    return isinstance(kernel, Stationary | Periodic | Constant | White)


_Factor = tuple[Kernel, tuple[int, ...]]  # a kernel without parts, and its dimensions


def _terms(kernel: Kernel, dimensions: tuple[int, ...]) -> list[list[_Factor]]:
    """Return a kernel as a sum of products of kernels without parts."""
    if isinstance(kernel, Sum):
        return [term for part in kernel.parts for term in _terms(part, dimensions)]
    if isinstance(kernel, Product):
        choices = product(*(_terms(part, dimensions) for part in kernel.parts))
        return [[factor for term in terms for factor in term] for terms in choices]
    if isinstance(kernel, Trended):
        unit = Constant(float(kernel.kernel.variance))
        trend = [[(unit, dimensions), *own] for term in kernel.terms for own in _terms(term, dimensions)]
        return [*_terms(kernel.kernel, dimensions), *trend]
    if isinstance(kernel, OnDimensions):
        return _terms(kernel.kernel, tuple(dimensions[d] for d in kernel.dimensions))
    return [[(kernel, dimensions)]]


def _draw_term(factors: Sequence[_Factor], Z: Floats, count: int, rng: np.random.Generator) -> PriorFunction:
    """Draw functions with a product of kernels as their covariance."""
    D = Z.shape[1]
    whole = Product(tuple(kernel.on(*columns) for kernel, columns in factors))
    if any(isinstance(kernel, White) and len(columns) == D for kernel, columns in factors):
        normals = rng.standard_normal((len(Z), count))
        return WhiteFunction(
            whole, {z.tobytes(): own for z, own in zip(Z, normals, strict=True)}, rng.spawn(1)[0], count
        )
    for i, (kernel, columns) in enumerate(factors):
        if isinstance(kernel, Linear):
            rest = [*factors[:i], *factors[i + 1 :]] or [(Constant(1.0), columns)]
            return LinearFunction(kernel, columns, tuple(_draw_term(rest, Z, count, rng) for _ in columns))
        if isinstance(kernel, Mapped):
            rest = [*factors[:i], *factors[i + 1 :]] or [(Constant(1.0), columns)]
            return MappedFunction(kernel, columns, _draw_term(rest, Z, count, rng))
        if isinstance(kernel, Zones):
            rest = [*factors[:i], *factors[i + 1 :]] or [(Constant(1.0), columns)]
            return ZonedFunction(kernel, columns, tuple(_draw_term(rest, Z, count, rng) for _ in range(kernel.count)))
        if not isinstance(kernel, Stationary | Periodic | Constant | Rotated):
            raise ConfigError(
                f"grid: must have fewer points for draws of a process with a kernel of kind {kernel.kind!r}, which "
                "cannot be drawn as a sum of waves"
            )
    frequencies, shares = product_frequencies(factors, D)
    cosines, sines = rng.standard_normal((2, count, len(shares))) * np.sqrt(float(whole.variance) * shares)
    return WaveFunction(Z[0], frequencies, cosines, sines)


def product_frequencies(factors: Sequence[_Factor], dimensions: int) -> tuple[Floats, Floats]:
    """Return frequencies (F, D) and their shares (F,) of the variance of a product of stationary kernels.

    The frequencies of a product are sums of independent frequencies of its factors.
    """
    total, shares = np.zeros((WAVES, dimensions)), np.full(WAVES, 1.0 / WAVES)
    for number, (kernel, columns) in enumerate(factors):
        own, weights = _factor_frequencies(kernel, len(columns))
        order = np.random.default_rng(number).permutation(WAVES) if number else np.arange(WAVES)
        total[:, columns] += own[order]
        shares = shares * weights[order]
    return total, shares / shares.sum()


def _factor_frequencies(kernel: Kernel, dimensions: int) -> tuple[Floats, Floats]:
    """Return frequencies (F, d) and shares (F,) of a kernel without parts."""
    equal = np.full(WAVES, 1.0 / WAVES)
    if isinstance(kernel, Constant):
        return np.zeros((WAVES, dimensions)), equal
    if isinstance(kernel, Periodic):
        return _harmonics(kernel, dimensions), equal
    if isinstance(kernel, Rotated):
        frequencies, shares = _factor_frequencies(kernel.kernel, dimensions)
        return frequencies @ kernel.axes, shares
    if isinstance(kernel, RationalQuadratic):
        uniforms, shape = _sobol(dimensions + 1), float(kernel.shape)
        mixed = np.sqrt(gamma.ppf(uniforms[:, dimensions:], shape) / shape)
        return ndtri(uniforms[:, :dimensions]) * mixed / kernel.length_scale, equal
    if not isinstance(kernel, Stationary):
        raise TypeError(f"a kernel of kind {kernel.kind!r} has no spectral density")
    frequencies, shares = spectral_frequencies(kernel.kind, dimensions, WAVES)
    return frequencies / kernel.length_scale, shares


def _harmonics(kernel: Periodic, dimensions: int) -> Floats:
    """Return frequencies of a periodic kernel: multiples of 2 pi / period with the weights of its Fourier series."""
    numbers, uniforms = np.arange(-MOST_HARMONICS, MOST_HARMONICS + 1), _sobol(dimensions)
    found = np.empty_like(uniforms)
    for d in range(dimensions):
        length_scale = float(kernel.length_scale[d % len(kernel.length_scale)])
        weights = np.cumsum(ive(np.abs(numbers), length_scale**-2.0))
        chosen = numbers[np.minimum(np.searchsorted(weights / weights[-1], uniforms[:, d]), len(numbers) - 1)]
        found[:, d] = 2.0 * math.pi * chosen / float(kernel.period[d % len(kernel.period)])
    return found


def _sobol(dimensions: int) -> Floats:
    return np.asarray(qmc.Sobol(dimensions, rng=np.random.default_rng(0)).random(WAVES))


@lru_cache(maxsize=16)
def spectral_frequencies(name: str, dimensions: int, count: int) -> tuple[Floats, Floats]:
    """Return frequencies (F, D) for coordinates in length-scales, and their shares (F,) of the variance.

    The frequencies are Sobol points. Those of a Matérn kernel are half of its spectral density and half uniform in the
    logarithm of the frequency: the few waves of the tails of the density alone would be visible as parallel ripples.

    Parameters
    ----------
    name : str
        Kind of a stationary kernel without other parameters than length-scales.
    dimensions, count : int
        D and F.
    """
    uniforms = qmc.Sobol(dimensions + 1, rng=np.random.default_rng(0)).random(count)
    normals = ndtri(uniforms[:, :dimensions])
    degrees = DEGREES.get(name)
    if degrees is None:
        return np.asarray(normals), np.full(count, 1.0 / count)
    # The squared length of a frequency over the number of dimensions has an F distribution.
    squared = f_distribution(dimensions, degrees)
    tail = HEAVY_TAIL if name == "exponential" else SMALLEST_TAIL
    low, high = math.sqrt(dimensions * squared.median()), math.sqrt(dimensions * squared.isf(tail))
    table = np.geomspace(1e-3 * low, high, FREQUENCY_STEPS)
    inside = squared.cdf(table**2 / dimensions) / squared.cdf(high**2 / dimensions)
    beyond = np.clip(np.log(table / low) / math.log(high / low), 0.0, 1.0)
    length = np.interp(uniforms[:, dimensions], 0.5 * (inside + beyond), table)
    density = squared.pdf(length**2 / dimensions) * 2.0 * length / dimensions
    extra = np.where(length >= low, 1.0 / (length * math.log(high / low)), 0.0)
    shares = density / (0.5 * density + 0.5 * extra)
    directions = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    return directions * length[:, None], shares / shares.sum()
