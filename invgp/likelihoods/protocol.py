"""The protocol between the inference and a likelihood."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

from invgp.core.backend import Array


@runtime_checkable
class Likelihood(Protocol):
    """The density p(y_n | f_n) of the observations at a site given the latents at this site.

    Sites are independent given their latents. A likelihood is immutable: `with_parameters` returns a new one.
    `y` and `f` are floating-point arrays of one array-API library on one device. Every result is an array of that
    library, on that device and of the type of `f`. The parameters may be on another device, for example on the host.

    A likelihood that holds numbers per site, such as known noise levels, must also have ``at_sites(rows)``. It returns
    the likelihood of some sites, given by a slice or by an array of row numbers, because data are used in batches.

    Optional members, which are used if they exist:

    - ``check(y)`` raises `ValueError` if y, a NumPy array (N, P), has values that cannot be observed;
    - ``expected_log_density(y, mean, variance)`` returns E[log p(y_n | f_n)] in closed form for independent normal
      latents with mean and variance (N, Q): the value (N,), its derivative with respect to the mean (N, Q), twice that
      with respect to the variance (N, Q), and that with respect to the parameters (N, K). A fit then needs no samples;
    - ``predictive_log_density(y, mean, variance)`` returns log E[p(y_n | f_n)] (N,) in closed form for independent
      normal latents with mean and variance (N, Q);
    - ``predictive_moments(mean, variance)`` returns mean and variance of y (..., P) for such latents (..., Q);
    - ``classifier`` is True if y are labels of classes: 0 and 1 for one output, otherwise one-hot rows. Then `moments`
      returns the probability of class 1, or of each class;
    - ``class_probabilities(f)`` returns the probabilities (S, N, C) of a classifier with one output and C = ``classes``
      classes, numbered from 0; ``ordered`` is True if their order matters;
    - ``positive`` is True if y cannot be negative, which scikit-learn's tools can ask for;
    - ``whole_rows`` is True if a site with any NaN in y counts as missing;
    - ``separable`` is True if output p depends on latent p only (P = Q), so that predictive densities are computed
      output by output.

    The symbols are N sites, P outputs per site, Q latents, S samples and K parameters.
    `invgp.likelihoods.testing.check_likelihood` checks an implementation against this protocol.

    References
    ----------
    Bonilla, Krauth and Dezfouli (2019), eq. (3).
    """

    @property
    def latents(self) -> int:
        """Number of latents per site, Q."""

    @property
    def outputs(self) -> int:
        """Number of observed values per site, P."""

    @property
    def parameters(self) -> Array:
        """Unconstrained parameters that can be learnt, shape (K,), for example logarithms of scales. K may be 0."""

    def with_parameters(self, parameters: Array) -> Self:
        """Return the same likelihood with other parameters.

        Parameters
        ----------
        parameters : array, shape (K,)
            Any real numbers. Extreme values from a line search may make the log density infinite, but must not raise.

        Returns
        -------
        Likelihood
        """

    def log_density(self, y: Array, f: Array) -> Array:
        """Compute log p(y_n | f_sn), including all constants.

        Parameters
        ----------
        y : array, shape (N, P)
            Observations. NaN marks a missing one, which contributes 0.
        f : array, shape (S, N, Q)
            Samples of the latents.

        Returns
        -------
        array, shape (S, N)
            0 at sites without observations.
        """

    def parameter_gradient(self, y: Array, f: Array) -> Array | None:
        """Compute the derivative of `log_density` with respect to each parameter.

        Parameters
        ----------
        y : array, shape (N, P)
            Observations.
        f : array, shape (S, N, Q)
            Samples of the latents.

        Returns
        -------
        array, shape (S, N, K), or None
            None if the derivatives are unknown, as for a black box; they are then found by finite differences.
        """

    def moments(self, f: Array) -> tuple[Array, Array] | None:
        """Compute mean and variance of y given f.

        Parameters
        ----------
        f : array, shape (S, N, Q)
            Samples of the latents.

        Returns
        -------
        mean, variance : array, shape (S, N, P), or None
            For labels, the moments of their indicators (0 or 1), so that the mean is a probability. None if the
            moments are unknown.
        """
