"""Reflection times of a layered earth: the physics of `invgp.forward_models.seismic`, on any device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from invgp.core.backend import Array, array_namespace
from invgp.likelihoods._additive import GaussianNoise
from invgp.likelihoods._arrays import set_fields
from invgp.likelihoods._per_output import log_per_output


@dataclass(frozen=True, eq=False, init=False)
class Seismic(GaussianNoise):
    """Two-way times t_p = t_{p-1} + 2 (d_p - d_{p-1}) / v_p at vertical incidence, with Gaussian noise on each.

    The latents are first the P depths (m, positive downwards, the shallowest reflector first), then the P interval
    velocities (m s-1), so Q = 2 P. They arrive in these units; prior means and links are not the likelihood's business.
    The formula is applied as it stands: crossing reflectors give negative times, smoothly.

    Parameters
    ----------
    std : standard deviation of the times in s: a number shared by all layers, (P,), or (N, P), which is known.
    layers : P; by default what `std` says, or 1.
    learn : whether the logarithm of the standard deviation is a parameter; by default it is known.
    """

    separable: ClassVar[bool] = False

    def __init__(self, std: Array, layers: int | None = None, *, learn: bool = False) -> None:
        set_fields(self, log_scale=log_per_output("std", std, layers, learn=learn))

    @property
    def latents(self) -> int:
        """Q = 2 P."""
        return 2 * self.outputs

    def location(self, f: Array) -> Array:
        """Two-way times in s, (S, N, P)."""
        xp = array_namespace(f)
        depth, velocity = f[..., : self.outputs], f[..., self.outputs :]
        above = xp.concat([xp.zeros_like(depth[..., :1]), depth[..., :-1]], axis=-1)
        return xp.cumulative_sum(2.0 * (depth - above) / velocity, axis=-1)
