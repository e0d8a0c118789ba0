"""A simulator whose runs lack some of their outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from invgp.adapters.protocol import Evaluations, ForwardModel, RunContext, Status

Mask = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Lacking:
    """A simulator whose runs (n,), by a number between 0 and 1 of each, lack what a mask (n, P) says."""

    whole: ForwardModel
    mask: Mask

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.whole, name)

    def evaluate(self, values: np.ndarray, context: RunContext) -> Evaluations:
        outputs = self.whole.evaluate(values, context).outputs
        gone = self.mask((1e3 * values[:, 0]) % 1.0)
        outputs[gone] = np.nan
        status = tuple(Status.PARTIAL if lacks else Status.OK for lacks in gone.any(axis=1))
        return Evaluations(outputs, status, ("",) * len(outputs))
