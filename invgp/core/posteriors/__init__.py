"""Posterior families over the inducing variables, which convert free parameters to mixtures of Gaussians and back."""

from invgp.core.posteriors.diagonal import Diagonal
from invgp.core.posteriors.full import Full
from invgp.core.posteriors.mixture import Mixture, MixtureGradient
from invgp.core.posteriors.sites import Sites

Family = Full | Diagonal | Sites

__all__ = ["Diagonal", "Family", "Full", "Mixture", "MixtureGradient", "Sites"]
