"""The model behind the server: two-way travel times of two reflectors. `serve.sh` serves it."""

import numpy as np
from pydantic import BaseModel
from tesseract_core.runtime import Array, Float64


class InputSchema(BaseModel):
    """Depths of the reflectors (m) and velocities of the layers above them (m/s)."""

    depth: Array[(2,), Float64]
    velocity: Array[(2,), Float64]


class OutputSchema(BaseModel):
    """Two-way times (s)."""

    time: Array[(2,), Float64]


def apply(inputs: InputSchema) -> OutputSchema:
    """Sum over the layers."""
    thickness = np.diff(np.asarray(inputs.depth), prepend=0.0)
    if np.any(thickness < 0.0):
        raise ValueError("the reflectors cross")
    return OutputSchema(time=np.cumsum(2.0 * thickness / np.asarray(inputs.velocity)))
