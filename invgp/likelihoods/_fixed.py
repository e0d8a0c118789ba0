"""Base class of the likelihoods without parameters."""

from __future__ import annotations

from typing import Self

import numpy as np

from invgp.core.backend import Array
from invgp.likelihoods._arrays import check_parameters, no_gradient


class WithoutParameters:
    """A likelihood without parameters."""

    @property
    def parameters(self) -> Array:
        """An empty array, shape (0,)."""
        return np.zeros(0)

    def with_parameters(self, parameters: Array) -> Self:
        """Return the same likelihood."""
        check_parameters(parameters, 0)
        return self

    def parameter_gradient(self, y: Array, f: Array) -> Array:  # noqa: ARG002 - arguments of the protocol
        """Return an empty gradient, (S, N, 0)."""
        return no_gradient(f)
