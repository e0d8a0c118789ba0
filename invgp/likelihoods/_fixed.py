"""What the likelihoods that have nothing to learn have in common."""

from __future__ import annotations

from typing import Self

import numpy as np

from invgp.core.backend import Array
from invgp.likelihoods._arrays import check_parameters, no_gradient


class WithoutParameters:
    """No parameters."""

    @property
    def parameters(self) -> Array:
        """None, (0,)."""
        return np.zeros(0)

    def with_parameters(self, parameters: Array) -> Self:
        """The same likelihood."""
        check_parameters(parameters, 0)
        return self

    def parameter_gradient(self, y: Array, f: Array) -> Array:  # noqa: ARG002 - the protocol's arguments
        """(S, N, 0)."""
        return no_gradient(f)
