"""The one contract between the inference and a likelihood, whatever the likelihood is."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

from invgp.core.backend import Array


@runtime_checkable
class Likelihood(Protocol):
    """p(y_n | f_n): what the observations at a site say about the latents there.

    Sites are independent given their latents, and a likelihood never changes: `with_parameters` returns another one.
    `y` and `f` are floating-point arrays of one array-API library on one device, and every result is an array of that
    library, on that device, of the type of `f`. The parameters may live elsewhere (on the host, say).

    A likelihood that holds numbers for each site, such as a known noise, also has `at_sites(rows)`, which returns that
    of some sites, given by a slice or by an array of their numbers: data may come in parts.

    It may have more, which is used where it is there:

    - ``check(y)`` raises `ValueError`, with a sentence, if y, a NumPy array (N, P), holds what cannot be observed;
    - ``predictive_log_density(y, mean, variance)`` is log E[p(y_n | f_n)] (N,) in closed form for independent normal
      latents with mean and variance (N, Q);
    - ``predictive_moments(mean, variance)`` are mean and variance of y, (..., P), for such latents, (..., Q);
    - ``whole_rows``, True if a site with any NaN in y is missing, not only one with nothing else;
    - ``separable``, True if output p depends on latent p only (P = Q): then that is found output by output.

    N sites, P outputs a site, Q latents, S samples, K parameters. `invgp.likelihoods.testing.check_likelihood` holds
    an implementation to all of this.
    """

    @property
    def latents(self) -> int:
        """Q, the number of latents that it takes at a site."""

    @property
    def outputs(self) -> int:
        """P, the number of numbers observed at a site."""

    @property
    def parameters(self) -> Array:
        """What may be learnt, (K,), free to take any real value: logarithms of scales, say. K may be 0."""

    def with_parameters(self, parameters: Array) -> Self:
        """The same likelihood with other parameters, (K,).

        It takes any real numbers, also those of a line search gone too far: there the log density may be infinite,
        but nothing is raised.
        """

    def log_density(self, y: Array, f: Array) -> Array:
        """Log p(y_n | f_sn), (S, N), for y (N, P) and f (S, N, Q).

        A NaN in y is a missing observation and adds nothing: a site with nothing observed has log density 0.
        Normalised: all the constants are there, so that bounds of different likelihoods compare.
        """

    def parameter_gradient(self, y: Array, f: Array) -> Array | None:
        """Derivative of `log_density` with respect to each parameter, (S, N, K).

        None if there is no way to tell, as with a black box. With K = 0 either will do.
        """

    def moments(self, f: Array) -> tuple[Array, Array] | None:
        """Mean and variance of y given f, (S, N, P) each; for labels, of their indicators, 0 or 1.

        The mean is then the probability of the label. None if there is no way to tell.
        """
