"""Likelihoods: the density of the observations given the latents, or given the outputs of the simulator.

There is one module per likelihood. All implement the protocol `Likelihood`; `invgp.likelihoods.testing` checks an
implementation against it.
"""

from invgp.likelihoods.black_box import BlackBox
from invgp.likelihoods.gaussian import Gaussian
from invgp.likelihoods.gprn import GPRN
from invgp.likelihoods.laplace import Laplace
from invgp.likelihoods.logistic import Logistic
from invgp.likelihoods.poisson import Poisson
from invgp.likelihoods.protocol import Likelihood
from invgp.likelihoods.seismic import Seismic
from invgp.likelihoods.softmax import Softmax
from invgp.likelihoods.student_t import StudentT
from invgp.likelihoods.warped import Warped

__all__ = [
    "GPRN",
    "BlackBox",
    "Gaussian",
    "Laplace",
    "Likelihood",
    "Logistic",
    "Poisson",
    "Seismic",
    "Softmax",
    "StudentT",
    "Warped",
]
