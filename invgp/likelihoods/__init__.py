"""Likelihoods: what the observations say about the outputs of the forward model. One module each."""

from invgp.likelihoods.gaussian import Gaussian

__all__ = ["Gaussian"]
