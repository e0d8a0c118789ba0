"""Likelihoods: the density of the observations given the latents, or given the outputs of the simulator.

There is one module per likelihood. All implement the protocol `Likelihood`; `invgp.likelihoods.testing` checks an
implementation against it.
"""

from invgp.likelihoods.beta import Beta
from invgp.likelihoods.black_box import BlackBox
from invgp.likelihoods.gamma import Gamma
from invgp.likelihoods.gaussian import Gaussian
from invgp.likelihoods.gprn import GPRN
from invgp.likelihoods.heteroscedastic import HeteroscedasticGaussian
from invgp.likelihoods.laplace import Laplace
from invgp.likelihoods.logistic import Logistic
from invgp.likelihoods.negative_binomial import NegativeBinomial
from invgp.likelihoods.ordinal import Ordinal
from invgp.likelihoods.poisson import Poisson
from invgp.likelihoods.probit import Probit
from invgp.likelihoods.protocol import Likelihood
from invgp.likelihoods.seismic import Seismic
from invgp.likelihoods.softmax import Softmax
from invgp.likelihoods.student_t import StudentT
from invgp.likelihoods.warped import Warped

__all__ = [
    "GPRN",
    "Beta",
    "BlackBox",
    "Gamma",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Laplace",
    "Likelihood",
    "Logistic",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "Probit",
    "Seismic",
    "Softmax",
    "StudentT",
    "Warped",
]
