"""Runs with Jacobians in the regression of a field model: a linear trend, and virtual runs next to the runs.

The trend is the mean Jacobian of the latest runs, which come from the posterior. The Gaussian process is fitted to what
the trend leaves. How the Jacobian of each run differs from the trend is added as virtual runs: points next to the run,
with the outputs that its Jacobian predicts there (gradient-enhanced kriging, the indirect form).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invgp.core.backend import Array, array_namespace, backend_of, to_numpy
from invgp.core.field.grid_basis import index_array


@dataclass(frozen=True)
class JacobianOptions:
    """Tuning of the use of Jacobians.

    Attributes
    ----------
    step : float, prior standard deviations
        Distance of virtual runs from their runs: short, so that the Jacobian predicts them, and long enough for the
        rounding of the regression.
    most_points : int
        Most runs and virtual runs of a regression.
    smallest : float, noise standard deviations per prior standard deviation
        Difference from the trend below which there is no virtual run.
    """

    step: float = 0.05
    most_points: int = 1000
    smallest: float = 0.02


@dataclass(frozen=True)
class VirtualRuns:
    """Points next to runs.

    Attributes
    ----------
    runs : Array of int, shape (m,)
        Index of the run of each point, among the n runs of the regression.
    steps : Array, shape (m, R)
        Distance of each point from its run.
    latest : Array of int
        Indices of the runs whose mean Jacobian is the trend.
    """

    runs: Array
    steps: Array
    latest: Array

    def extend(self, w: Array, outputs: Array, slopes: Array) -> tuple[Array, Array, Array]:
        """Return the points of a regression: the runs, followed by the virtual runs.

        Parameters
        ----------
        w : Array, shape (n, R)
            Variables of the runs.
        outputs : Array, shape (n, D)
            Their outputs.
        slopes : Array, shape (n, D, R)
            Their Jacobians.

        Returns
        -------
        points : Array, shape (n + m, R)
        left : Array, shape (n + m, D)
            Outputs minus the trend.
        trend : Array, shape (D, R)
            Slope of the trend.
        """
        xp = array_namespace(w, outputs)
        trend = xp.mean(xp.take(slopes, self.latest, axis=0), axis=0)
        change = (xp.take(slopes, self.runs, axis=0) @ self.steps[..., None])[..., 0]
        points = xp.concat([w, xp.take(w, self.runs, axis=0) + self.steps])
        values = xp.concat([outputs, xp.take(outputs, self.runs, axis=0) + change])
        return points, values - points @ xp.matrix_transpose(trend), trend


def place_virtual_runs(w: Array, slopes: Array, latest: Array, options: JacobianOptions) -> VirtualRuns:
    """Place virtual runs in the directions in which the Jacobians differ from the trend.

    If there are too many, those of the runs nearest to the latest ones are kept.

    Parameters
    ----------
    w : Array, shape (n, R)
        Variables of the runs.
    slopes : Array, shape (n, D, R), noise standard deviations per prior standard deviation
        Jacobians of the runs.
    latest : Array of int
        Indices of the runs whose mean Jacobian is the trend.
    options : JacobianOptions
    """
    xp = array_namespace(slopes)
    off = slopes - xp.mean(xp.take(slopes, latest, axis=0), axis=0)
    _, sizes, directions = xp.linalg.svd(off, full_matrices=False)
    host = to_numpy(sizes)
    far = to_numpy(xp.sum(xp.square(w - xp.mean(xp.take(w, latest, axis=0), axis=0)), axis=1))
    order = np.lexsort((-host.ravel(), np.repeat(far, host.shape[1])))
    order = order[host.ravel()[order] > options.smallest]
    order = np.sort(order[: max(options.most_points - host.shape[0], 0)])
    steps = to_numpy(directions).reshape(-1, slopes.shape[2])[order]
    backend = backend_of(slopes)
    return VirtualRuns(index_array(order // host.shape[1], slopes), backend.asarray(options.step * steps), latest)
