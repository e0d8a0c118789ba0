"""Links between a latent Gaussian process f and the physical quantity that it stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Link(Protocol):
    """A monotone map from the latent to the physical scale."""

    @property
    def name(self) -> str:
        """As the config calls it."""

    def __call__(self, f: Floats) -> Floats:
        """The physical value of f."""

    def gaussian(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of f whose physical value has the mean and standard deviation given."""

    def moments(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the physical value of a Gaussian f."""


@dataclass(frozen=True)
class Identity:
    """The physical quantity is the latent itself."""

    name: str = "identity"

    def __call__(self, f: Floats) -> Floats:
        """The physical value of f."""
        return f

    def gaussian(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of f."""
        return mean, std

    def moments(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the physical value."""
        return mean, std


@dataclass(frozen=True)
class Log:
    """The latent is the logarithm of the physical quantity, which is therefore positive and log-normal."""

    name: str = "log"

    def __call__(self, f: Floats) -> Floats:
        """The physical value of f."""
        return np.asarray(np.exp(f))

    def gaussian(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of f whose exponential has the mean and standard deviation given."""
        variance = np.log1p((std / mean) ** 2)
        return np.log(mean) - 0.5 * variance, np.sqrt(variance)

    def moments(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of exp(f)."""
        physical = np.exp(mean + 0.5 * std**2)
        return physical, physical * np.sqrt(np.expm1(std**2))


LINKS: dict[str, Link] = {"identity": Identity(), "log": Log()}
