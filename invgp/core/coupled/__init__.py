"""Gaussian posterior that is coupled across latents, represented by site factors.

The posteriors of the paper factorise over the latents. If the data depend on a combination of latents, as a travel time
depends on depth and velocity, a factorised posterior underestimates the spread of each of them. Here the covariance is
full across latents and sites. It still needs only O(N Q^2) parameters: this is Theorem 2 of the paper, extended to
coupled latents.

References
----------
Bonilla, Krauth and Dezfouli (2019), Theorem 2; Opper and Archambeau (2009).
"""

from invgp.core.coupled.coupled_gaussian import CoupledGaussian, SiteFactors, gaussian_from_natural
from invgp.core.coupled.prior import Prior
from invgp.core.coupled.site_estimators import GaussianNoise, SiteTerms

__all__ = ["CoupledGaussian", "GaussianNoise", "Prior", "SiteFactors", "SiteTerms", "gaussian_from_natural"]
