"""Latent Gaussian process models with any likelihood, with the interface of scikit-learn."""

from invgp.estimator.model import SAVIGP

__all__ = ["SAVIGP"]
