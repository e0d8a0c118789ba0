"""A linear field model with a known posterior."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from invgp.core.backend import Backend, to_numpy
from invgp.core.field.field_gaussian import mirrored_normals
from invgp.core.field.field_inference import FieldInference, FieldState
from invgp.core.field.grid_basis import leading_modes
from invgp.core.field.regression import Modes
from invgp.core.kernels import STATIONARY, Kernel

Given = Callable[[np.ndarray], np.ndarray]


def line(nodes: int) -> np.ndarray:
    return np.linspace(0.0, 1.0, nodes)[:, None]


def kernel_on(backend: Backend, length_scale: float, kind: str = "matern 5/2", variance: float = 1.0) -> Kernel:
    return STATIONARY[kind](backend.asarray(variance), backend.asarray([length_scale]))


class LinearProblem:
    """Weighted averages of a field on a line, with the exact posterior."""

    def __init__(self, backend: Backend, length_scale: float = 0.05, data: int = 40, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        X = line(100)
        basis = leading_modes(kernel_on(backend, length_scale), backend.asarray(X), 0.98)
        windows = np.exp(-0.5 * ((np.linspace(0.0, 1.0, data)[:, None] - X[:, 0]) / 0.04) ** 2)
        self.modes, self.size = to_numpy(basis.modes), basis.size
        self.A = windows / windows.sum(axis=1, keepdims=True) @ self.modes / 0.05
        self.offset = rng.standard_normal(data)
        self.truth = rng.standard_normal(basis.size)
        self.y = self.outputs(self.truth) + rng.standard_normal(data)
        self.covariance = np.linalg.inv(np.eye(basis.size) + self.A.T @ self.A)
        self.mean = self.covariance @ self.A.T @ (self.y - self.offset)
        self.inference = FieldInference(
            Modes(basis.variances, (basis.size,)),
            backend.asarray(self.y),
            backend.asarray(mirrored_normals(rng, 32, basis.size)),
        )

    def outputs(self, w: np.ndarray) -> np.ndarray:
        return np.asarray(self.offset + w @ self.A.T)

    def run_batches(
        self, backend: Backend, batches: list[int], seed: int = 1, given: Given | None = None
    ) -> FieldState:
        """Run the inference on batches of these numbers of runs; `given` may replace or remove outputs (n, D)."""
        rng = np.random.default_rng(seed)
        state = self.inference.init()
        for count in batches:
            w = self.inference.ask(state, count, rng)
            outputs = self.outputs(to_numpy(w))
            state, _ = self.inference.tell(state, w, backend.asarray(given(outputs) if given else outputs), rng)
        return state

    def spread(self, covariance: np.ndarray) -> np.ndarray:
        return np.sqrt(np.einsum("gi,ij,gj->g", self.modes, covariance, self.modes))
