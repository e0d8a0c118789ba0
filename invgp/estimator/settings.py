"""The settings of a `SAVIGP` and their checks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from invgp.core.backend import Backend, select_backend
from invgp.core.estimators import fewest_samples
from invgp.core.hyperpriors import Hyperprior
from invgp.core.kernels import Kernel
from invgp.core.training import Blocks, MiniBatches
from invgp.estimator.arguments import check_choice, check_instance, check_integer, check_likelihood
from invgp.likelihoods import Likelihood

JITTER = {
    "float64": 1e-8,
    "float32": 1e-4,
}  # added to the diagonal of K_zz in a sparse model, relative to the prior variance
PLACEMENTS = ("subset", "clusters", "grid")


@dataclass(eq=False, repr=False)
class ModelSettings:
    """The settings of a model; `SAVIGP` documents them."""

    likelihood: Likelihood
    kernel: str | Kernel | tuple[str | Kernel, ...] = "squared exponential"
    length_scale: ArrayLike | None = None
    ard: bool = True
    variance: ArrayLike = 1.0
    hyperpriors: dict[str, Hyperprior] | None = None
    prior_mean: ArrayLike = 0.0
    inducing: int | ArrayLike | None = None
    placement: str = "clusters"
    posterior: str = "full"
    components: int = 1
    initial_mean: ArrayLike | None = None
    warm_start: bool = False
    method: Blocks | MiniBatches | None = None
    samples: int | None = None
    device: str = "cpu"
    dtype: str = "float64"
    random_state: int | np.random.RandomState | None = 0
    verbose: bool = False
    checkpoint: str | Path | None = None

    def _check_settings(self) -> None:
        """Raise `ValueError` if a setting is invalid whatever the data are."""
        check_likelihood(self.likelihood)
        check_instance("method", self._method, (Blocks, MiniBatches), "Blocks or MiniBatches")
        check_instance("verbose", self.verbose, (bool, int), "True or False")
        check_choice("placement", self.placement, PLACEMENTS)
        check_choice("posterior", self.posterior, ("full", "diagonal"))
        check_choice("dtype", self.dtype, tuple(JITTER))
        check_choice("device", self.device, ("cpu", "cuda", "auto"))
        check_instance("ard", self.ard, (bool,), "True or False")
        check_instance("warm_start", self.warm_start, (bool,), "True or False")
        check_integer("components", self.components, 1)
        check_instance("hyperpriors", self.hyperpriors, (dict, type(None)), "a dict of Hyperprior by parameter name")
        for name, prior in (self.hyperpriors or {}).items():
            check_instance(f"hyperpriors[{name!r}]", prior, (Hyperprior,), "a Hyperprior")
        if isinstance(self.random_state, np.random.RandomState | None):
            if self.checkpoint is not None:
                raise ValueError(f"random_state must be a whole number with a checkpoint, was {self.random_state!r}")
        else:
            check_integer("random_state", self.random_state, 0)
        if self.checkpoint is not None:
            check_instance("checkpoint", self.checkpoint, (str, Path), "the name of a file")
            if Path(self.checkpoint).is_dir():
                raise ValueError(f"checkpoint must be the name of a file, was the folder {str(self.checkpoint)!r}")

    def _check_samples(self) -> None:
        """Raise `ValueError` if there are too few samples for the number of latents."""
        owner = self if isinstance(self._method, Blocks) else self._method
        latents = self.likelihood.latents
        if owner.samples is not None:
            check_integer("samples", owner.samples, fewest_samples(latents), f" (Q = {latents})")

    @property
    def _method(self) -> Blocks | MiniBatches:
        """The optimisation, also if it is left to the default."""
        return Blocks() if self.method is None else self.method

    def _draw_seed(self) -> int:
        """Return the seed of all random streams of a fit."""
        if isinstance(self.random_state, np.random.RandomState):
            return int(self.random_state.randint(2**31))
        return int(np.random.default_rng().integers(2**31)) if self.random_state is None else int(self.random_state)

    def _backend(self) -> Backend:
        """Return the device and the type of the arrays."""
        found = select_backend(self.device)
        return Backend(found.namespace, found.device, self.dtype)
