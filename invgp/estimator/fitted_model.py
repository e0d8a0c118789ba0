"""What a fitted model computes: predictions, densities, the bound and the posterior of the inducing variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from invgp.core import prediction
from invgp.core.backend import Array, array_namespace, to_numpy
from invgp.core.bound import BoundState
from invgp.core.bound_estimates import estimate_bound, estimate_entropy_gain
from invgp.core.estimators import default_samples
from invgp.core.memory import BATCH_BUDGET
from invgp.core.observed_likelihood import Data
from invgp.estimator.arguments import (
    Floats,
    check_choice,
    check_inputs,
    check_instance,
    check_integer,
    check_kernel_inputs,
    check_likelihood,
    check_outputs,
    check_weights,
)
from invgp.estimator.labels import Labels, encode_labels, is_classifier
from invgp.estimator.predictive import PredictiveDistribution, check_sites
from invgp.estimator.settings import ModelSettings
from invgp.likelihoods import Likelihood

MAX_CHUNK = 4096  # largest number of inputs in one batch of predictions
ENTROPIES = ("lower bound", "monte carlo")


class InducingPosterior(NamedTuple):
    """A mixture of Gaussians over the values of the latents at the inducing inputs; the latents are independent.

    Attributes
    ----------
    weights : array, shape (K,)
    mean : array, shape (K, Q, M)
    covariance : array, shape (K, Q, M, M)
    """

    weights: Floats
    mean: Floats
    covariance: Floats


class FittedModel(ModelSettings):
    """The settings of a model with its fitted state, and the methods that need this state."""

    # Set by `fit` and `load`; `SAVIGP` documents them. `hasattr` is False before.
    trace_: list[float]
    samples_: int
    classes_: Labels  # only for a likelihood of classes
    _bound_state: BoundState
    _seed: int

    def predict(
        self, X: ArrayLike, *, return_std: bool = False, likelihood: Likelihood | None = None
    ) -> Floats | tuple[Floats, Floats]:
        """Predict new observations: their mean, or the most probable label for a likelihood of classes.

        Parameters
        ----------
        X : array, shape (B, D)
            New inputs.
        return_std : bool
            Whether to return the standard deviation too.
        likelihood : Likelihood, optional
            Likelihood of the observations at X, if it differs from that of the fit, for example because the noise or
            offset is known for each site. It gets the learnt parameters if it has the same number of parameters.

        Returns
        -------
        mean : array, shape (B,) for one output, otherwise (B, P)
            Mean of the predictive distribution, eq. (36) of Bonilla, Krauth and Dezfouli (2019). For classes, the
            labels (B,); `predict_proba` returns their probabilities.
        std : array, same shape
            Standard deviation, noise included; only if `return_std`.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            The model is not fitted.
        ValueError
            X or the likelihood is invalid, or the likelihood has no moments.
        """
        _ = self._fitted
        if is_classifier(self.likelihood):
            if return_std:
                raise ValueError("return_std must be False for labels of classes, was True: use predict_proba")
            shares: Floats = self.predict_proba(X, likelihood=likelihood)
            return np.asarray(self.classes_[np.argmax(shares, axis=1)])
        mean, variance = self._output_moments(X, likelihood)
        shaped = [a[:, 0] if a.shape[1] == 1 else a for a in (mean, np.sqrt(variance))]
        return (shaped[0], shaped[1]) if return_std else shaped[0]

    @available_if(lambda self: is_classifier(self.likelihood))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike, *, likelihood: Likelihood | None = None) -> Floats:
        """Compute the probabilities of the classes; only for likelihoods of classes, such as Logistic and Softmax.

        Parameters
        ----------
        X : array, shape (B, D)
            New inputs.
        likelihood : Likelihood, optional
            As in `predict`.

        Returns
        -------
        array, shape (B, C)
            In the order of `classes_`.
        """
        if hasattr(self.likelihood, "class_probabilities"):
            inputs = self._new_inputs(X)
            predictive = self._predictive(inputs, likelihood)
            batches = self._chunks(inputs, predictive)
            parts = [predictive.class_probabilities(self._fitted, x, rows) for x, rows in batches]
            return np.concatenate(parts)
        mean, _ = self._output_moments(X, likelihood)
        return np.concatenate([1.0 - mean, mean], axis=1) if mean.shape[1] == 1 else mean

    def _output_moments(self, X: ArrayLike, likelihood: Likelihood | None) -> tuple[Floats, Floats]:
        """Compute mean and variance (B, P) of new observations."""
        inputs = self._new_inputs(X)
        predictive = self._predictive(inputs, likelihood)
        parts = [predictive.moments(self._fitted, x, rows) for x, rows in self._chunks(inputs, predictive)]
        mean, variance = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        return mean, variance

    def predict_latent(self, X: ArrayLike) -> tuple[Floats, Floats]:
        """Compute the posterior moments of the latents.

        Parameters
        ----------
        X : array, shape (B, D)
            Inputs.

        Returns
        -------
        mean, variance : array, shape (B, Q)
            Of the mixture over all components.
        """
        means, variances = [], []
        for x, _ in self._chunks(self._new_inputs(X)):
            mean, variance = prediction.latent_moments(self._fitted, x)
            mean, variance = prediction.mixture_moments(self._fitted.q.weights, mean, variance)
            means.append(to_numpy(mean))
            variances.append(to_numpy(variance))
        return np.concatenate(means), np.concatenate(variances)

    def latent_covariance(self, X: ArrayLike) -> Floats:
        """Compute the joint posterior covariance of each latent.

        Parameters
        ----------
        X : array, shape (B, D)
            Inputs.

        Returns
        -------
        array, shape (Q, B, B)

        Raises
        ------
        ValueError
            The posterior is a mixture of several components.
        """
        if self.components > 1:
            raise ValueError("a mixture has no single covariance; draw from it with sample_latent")
        return to_numpy(prediction.latent_covariance(self._fitted, self._backend().asarray(self._new_inputs(X))))

    def sample_latent(self, X: ArrayLike, draws: int, rng: np.random.Generator) -> Floats:
        """Draw joint samples of the latents from the posterior.

        Parameters
        ----------
        X : array, shape (B, D)
            Inputs.
        draws : int
            Number of samples, R.
        rng : numpy.random.Generator
            Random generator.

        Returns
        -------
        array, shape (R, B, Q)
        """
        backend = self._backend()
        x = backend.asarray(self._new_inputs(X))
        check_integer("draws", draws, 1)
        check_instance("rng", rng, (np.random.Generator,), "a numpy.random.Generator")
        components = rng.choice(self.components, size=draws, p=self.weights_)
        normals = backend.asarray(rng.standard_normal((draws, x.shape[0], self.likelihood.latents)))
        return to_numpy(prediction.latent_draws(self._fitted, x, normals, components.tolist()))

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike, *, likelihood: Likelihood | None = None) -> Floats:
        """Compute the log predictive density (or log probability) of observations.

        Parameters
        ----------
        X : array, shape (B, D)
            Inputs.
        y : array, shape (B,) or (B, P)
            Observations at X; NaN marks a missing one.
        likelihood : Likelihood, optional
            As in `predict`.

        Returns
        -------
        array, shape (B,)
            NaN at sites without observations.
        """
        inputs, Y = self._new_inputs(X), self._outputs(y)
        if len(inputs) != len(Y):
            raise ValueError(f"X and y must have a row for each site, had {len(inputs)} and {len(Y)}")
        predictive = self._predictive(inputs, likelihood)
        parts = [predictive.log_density(self._fitted, x, Y, rows) for x, rows in self._chunks(inputs, predictive)]
        return np.concatenate(parts)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        likelihood: Likelihood | None = None,
    ) -> float:
        """Compute the mean log predictive density over all sites with observations; higher is better.

        This is minus the NLPD of the paper. Parameters as in `log_predictive_density`; `sample_weight` (N,) are the
        weights of the sites in the mean.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            y has no observation.
        """
        densities = self.log_predictive_density(X, y, likelihood=likelihood)
        if np.all(np.isnan(densities)):
            raise ValueError("y must have at least one observation, was empty or all NaN")
        if sample_weight is None:
            return float(np.nanmean(densities))
        weights = np.where(np.isnan(densities), 0.0, check_weights(sample_weight, len(densities)))
        return float(np.sum(weights * np.where(np.isnan(densities), 0.0, densities)) / np.sum(weights))

    def bound(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        entropy: str = "lower bound",
        return_std_error: bool = False,
        likelihood: Likelihood | None = None,
    ) -> float | tuple[float, float]:
        """Estimate the evidence lower bound of observations under the fitted posterior, on new samples.

        For the data of the fit, this is `bound_` up to the standard error.

        Parameters
        ----------
        X : array, shape (N, D)
            Inputs.
        y : array, shape (N,) or (N, P)
            Observations at X; NaN marks a missing one.
        entropy : {"lower bound", "monte carlo"}
            How the entropy of a mixture is computed: the lower bound of eq. (18), or an estimate. Compare numbers of
            components with the estimate. It makes no difference for a single Gaussian.
        return_std_error : bool
            Whether to return the standard error of the estimate too.
        likelihood : Likelihood, optional
            As in `predict`.

        Returns
        -------
        bound : float, in nats
            Expected log likelihood minus `kl`, eq. (9) of Bonilla, Krauth and Dezfouli (2019).
        std_error : float, in nats
            Only if `return_std_error`.
        """
        check_choice("entropy", entropy, ENTROPIES)
        x, Y = self._new_inputs(X), self._outputs(y)
        if len(x) != len(Y):
            raise ValueError(f"X and y must have a row for each site, had {len(x)} and {len(Y)}")
        used, backend, state = self._likelihood_at(x, likelihood), self._backend(), self._fitted
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            bound_state = replace(state.bound, X=backend.asarray(x), dense=False).bound_state(state.parameters)
            density = Data(used, backend.asarray(Y)).log_density(backend.asarray(np.zeros(0)), derivatives=False)
            samples = max(self.samples_, default_samples(self.likelihood.latents))
            found = estimate_bound(bound_state, density, samples, np.random.default_rng([self._seed, 1]))
        if entropy == "monte carlo":
            value, error = found.mixture_elbo, found.mixture_standard_error
        else:
            value, error = found.elbo, found.standard_error
        return (value, error) if return_std_error else value

    def kl(self, *, entropy: str = "lower bound") -> float:
        """Compute the KL divergence of the posterior over the inducing variables from their prior, in nats.

        Parameters
        ----------
        entropy : {"lower bound", "monte carlo"}
            As in `bound`. With the lower bound of the entropy of a mixture, the result is an upper bound.

        Returns
        -------
        float
        """
        check_choice("entropy", entropy, ENTROPIES)
        state = self._fitted
        upper = -float(state.family.negative_kl(state.q, state.factor))
        if entropy == "lower bound":
            return upper
        return upper - estimate_entropy_gain(state, np.random.default_rng([self._seed, 1])).value

    def inducing_posterior(self) -> InducingPosterior:
        """Return the posterior over the inducing variables: the values of the latents at `inducing_inputs_`.

        Returns
        -------
        InducingPosterior
            weights (K,), mean (K, Q, M) and covariance (K, Q, M, M) of the K components.
        """
        state = self._fitted
        xp = array_namespace(state.factor)
        mean = (state.factor @ state.q.mean[..., None])[..., 0] + state.parameters.prior_mean[:, None]
        if state.factors:
            factor = state.factor @ state.q.spread
            covariance = to_numpy(factor @ xp.matrix_transpose(factor))
        else:
            covariance = to_numpy(state.q.spread)[..., None] * np.eye(mean.shape[-1])
        return InducingPosterior(self.weights_, to_numpy(mean), covariance)

    @property
    def _fitted(self) -> BoundState:
        if not hasattr(self, "_bound_state"):
            raise NotFittedError("this model is not fitted yet: call fit first")
        return self._bound_state

    def _store(self, bound_state: BoundState) -> None:
        self._bound_state = bound_state
        self.kernels_ = bound_state.kernels
        self.inducing_inputs_ = to_numpy(bound_state.parameters.inducing)
        self.prior_mean_ = to_numpy(bound_state.parameters.prior_mean)
        self.n_features_in_ = self.inducing_inputs_.shape[-1]
        weights = np.asarray(to_numpy(bound_state.q.weights), dtype=np.float64)
        self.weights_ = weights / weights.sum()
        free = bound_state.parameters.likelihood
        self.likelihood_ = self.likelihood.with_parameters(free) if free.shape[0] else self.likelihood

    def _outputs(self, y: ArrayLike) -> Floats:
        """Convert observations or labels to an array (N, P); missing ones are NaN."""
        if is_classifier(self.likelihood):
            Y = encode_labels(y, self.classes_, self.likelihood)
        else:
            Y = check_outputs(y, self.likelihood.outputs)
        if hasattr(self.likelihood, "check"):
            self.likelihood.check(Y)
        return Y

    def _new_inputs(self, X: ArrayLike) -> Floats:
        D = self._fitted.parameters.inducing.shape[-1]
        array = check_inputs(X)
        validate_data(self, X if hasattr(X, "columns") else array, reset=False, skip_check_array=True)
        if array.shape[1] != D:
            raise ValueError(f"X must have shape (N, {D}), like the inputs of the fit, had {array.shape}")
        check_kernel_inputs("X", array, self.kernels_)
        return array

    def _chunks(
        self, inputs: Floats, predictive: PredictiveDistribution | None = None
    ) -> Iterator[tuple[Array, slice]]:
        """Yield batches of checked inputs, with their rows, whose prediction fits in the memory budget."""
        backend = self._backend()
        K, Q, M = self._fitted.q.mean.shape
        numbers = (K + 3) * Q * M + (0 if predictive is None else predictive.numbers)
        size = max(1, min(MAX_CHUNK, BATCH_BUDGET // (8 * numbers)))
        for first in range(0, len(inputs), size):
            rows = slice(first, min(first + size, len(inputs)))
            yield backend.asarray(inputs[rows]), rows

    def _predictive(self, inputs: Floats, likelihood: Likelihood | None) -> PredictiveDistribution:
        """Build the predictive distribution at checked inputs, with the learnt parameters."""
        return PredictiveDistribution.of(
            self._likelihood_at(inputs, likelihood), self._fitted, self.samples or 0, self._seed
        )

    def _likelihood_at(self, x: Floats, likelihood: Likelihood | None) -> Likelihood:
        """Return the likelihood of observations at inputs x, with the learnt parameters."""
        count, backend = len(x), self._backend()
        used = self.likelihood_
        if likelihood is not None:
            check_likelihood(likelihood)
            for name in ("latents", "outputs"):
                given, must = getattr(likelihood, name), getattr(self.likelihood, name)
                if given != must:
                    raise ValueError(f"likelihood must have {must} {name}, like that of the fit, had {given}")
            free = self._fitted.parameters.likelihood
            used = (
                likelihood.with_parameters(free) if 0 < free.shape[0] == likelihood.parameters.shape[0] else likelihood
            )
        check_sites(used, count, backend)
        return used
