"""The Gaussian posterior coupled across latents, held in what each site says about its own latents.

The paper's posteriors factorise over the latents. Where the data tie latents together, as a travel time ties depth to
velocity, that reports conditional spreads as if they were marginal ones. Here the covariance is full across latents and
sites, and still needs O(N Q^2) numbers only: Theorem 2 of the paper, carried over to coupled latents.
"""

from invgp.core.coupled.estimators import GaussianNoise, SiteTerms
from invgp.core.coupled.posterior import Coupled, SiteFactors, posterior_of
from invgp.core.coupled.prior import Prior

__all__ = ["Coupled", "GaussianNoise", "Prior", "SiteFactors", "SiteTerms", "posterior_of"]
