"""The Gaussian posterior coupled across latents, held in what each site says about its own latents.

The paper's posteriors factorise over the latents. Where the data tie latents together, as a travel time ties depth to
velocity, that reports conditional spreads as if they were marginal ones. Here the covariance is full across latents and
sites, and still needs O(N Q^2) numbers only: Theorem 2 of the paper, carried over to coupled latents.
"""

from invgp.core.coupled.coupled_gaussian import Coupled, SiteFactors, gaussian_from_natural
from invgp.core.coupled.prior import Prior
from invgp.core.coupled.site_estimators import GaussianNoise, SiteTerms

__all__ = ["Coupled", "GaussianNoise", "Prior", "SiteFactors", "SiteTerms", "gaussian_from_natural"]
