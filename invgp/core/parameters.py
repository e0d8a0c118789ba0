"""Parameters that can be learnt, in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from invgp.core.backend import Array, array_namespace

BLOCKS = ("posterior", "kernels", "inducing", "likelihood", "prior_mean")


@dataclass(frozen=True)
class Parameters:
    """Unconstrained parameters that can be learnt, in blocks.

    Attributes
    ----------
    posterior : array, flat
        Free parameters of the posterior family.
    kernels : array, shape (R,)
        Free parameters of the kernels of all latents.
    inducing : array, shape (Q, M, D)
        Inducing inputs Z.
    likelihood : array, shape (P,)
        Parameters of the likelihood.
    prior_mean : array, shape (Q,)
        Prior mean of each latent.
    """

    posterior: Array
    kernels: Array
    inducing: Array
    likelihood: Array
    prior_mean: Array

    def flatten(self, blocks: Sequence[str]) -> Array:
        """Concatenate the named blocks to one vector."""
        xp = array_namespace(self.posterior)
        return xp.concat([xp.reshape(getattr(self, name), (-1,)) for name in blocks])

    def with_blocks(self, blocks: Sequence[str], vector: Array) -> Parameters:
        """Return a copy with the named blocks replaced by the elements of one vector."""
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
    """Whether a block to learn changes the distribution of the latents."""
    return "posterior" in learn or learns_kernels(learn)


def learns_kernels(learn: Sequence[str]) -> bool:
    """Whether a block to learn changes the prior covariances."""
    return "kernels" in learn or "inducing" in learn
