"""Likelihood of reflection times of a layered earth: the physics of `invgp.forward_models.seismic`, on any device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._additive import GaussianNoise
from invgp.likelihoods._arrays import set_fields
from invgp.likelihoods._per_output import log_per_output


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Seismic(GaussianNoise):
    """Two-way times t_p = t_{p-1} + 2 (d_p - d_{p-1}) / v_p at vertical incidence, with Gaussian noise.

    The latents are first the P depths (m, positive downwards, the shallowest reflector first), then the P interval
    velocities (m s-1), so Q = 2 P. They are physical values: prior means and links must be applied before. Reflectors
    that cross are not an error; they give negative interval times.

    Parameters
    ----------
    std : float or array, shape (P,) or (N, P), in s
        Standard deviation of the times, for all layers, per layer, or per datum. With shape (N, P) it is known and not
        learnt.
    layers : int, optional
        P; by default the last dimension of `std`, or 1.
    learn : bool
        Whether the logarithm of the standard deviation is a parameter.

    References
    ----------
    Bonilla, Krauth and Dezfouli (2019), eq. (43); here the noise of each time is independent of the other layers.

    Examples
    --------
    >>> import numpy as np
    >>> from invgp.likelihoods import Seismic
    >>> times, variance = Seismic(0.01, layers=2).moments(np.array([[[1000.0, 2000.0, 2000.0, 2500.0]]]))
    >>> times
    array([[[1. , 1.8]]])
    """

    separable: ClassVar[bool] = False

    def __init__(self, std: Array, layers: int | None = None, *, learn: bool = False) -> None:
        set_fields(self, log_scale=log_per_output("std", std, layers, learn=learn))

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor by name; None for a default."""
        (name, scale), *rest = super().arguments().items()
        return {
            name: scale,
            "layers": self.outputs,
            **dict(rest),
            "outputs": None,
            "learn": True if self.log_scale.learn else None,
        }

    @property
    def latents(self) -> int:
        """Number of latents, Q = 2 P."""
        return 2 * self.outputs

    def location(self, f: Array) -> Array:
        """Compute two-way times in s, (S, N, P).

        Parameters
        ----------
        f : array, shape (S, N, Q)
            Samples of the depths of the layers in m, followed by their velocities in m s-1.

        Returns
        -------
        array, shape (S, N, P), in s
        """
        xp = array_namespace(f)
        depth, velocity = f[..., : self.outputs], f[..., self.outputs :]
        above = xp.concat([xp.zeros_like(depth[..., :1]), depth[..., :-1]], axis=-1)
        return xp.cumulative_sum(2.0 * (depth - above) / velocity, axis=-1)
