"""Everything that can be learnt, block by block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from invgp.core.backend import Array, array_namespace

BLOCKS = ("posterior", "kernels", "inducing", "likelihood")


@dataclass(frozen=True)
class Parameters:
    """Everything that can be learnt, as free numbers, by block.

    Attributes
    ----------
    posterior : flat, as the family holds it.
    kernels : (Q, 1 + D), log variance and log length-scales.
    inducing : Z, (Q, M, D).
    likelihood : (P,).
    """

    posterior: Array
    kernels: Array
    inducing: Array
    likelihood: Array

    def flat(self, blocks: Sequence[str]) -> Array:
        """The named blocks as one vector."""
        xp = array_namespace(self.posterior)
        return xp.concat([xp.reshape(getattr(self, name), (-1,)) for name in blocks])

    def updated(self, blocks: Sequence[str], vector: Array) -> Parameters:
        """A copy with the named blocks taken from one vector."""
        xp = array_namespace(vector)
        new, start = {}, 0
        for name in blocks:
            old = getattr(self, name)
            size = 1
            for length in old.shape:
                size *= length
            new[name] = xp.reshape(vector[start : start + size], old.shape)
            start += size
        return replace(self, **new)


def learns_latents(learn: Sequence[str]) -> bool:
    """Whether any of the blocks to learn acts through the latents."""
    return "posterior" in learn or learns_kernels(learn)


def learns_kernels(learn: Sequence[str]) -> bool:
    """Whether any of the blocks to learn acts through the covariances."""
    return "kernels" in learn or "inducing" in learn
