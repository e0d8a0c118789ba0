"""The estimator `SAVIGP`: latent Gaussian process models with any likelihood, with `fit`, `predict` and `score`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data
from threadpoolctl import threadpool_limits

from invgp.core import prediction
from invgp.core.backend import Array, Backend, array_namespace, cholesky, select_backend, to_numpy
from invgp.core.bound import Bound, BoundState
from invgp.core.bound_estimates import estimate_bound, estimate_entropy_gain
from invgp.core.estimators import default_samples, fewest_samples
from invgp.core.hyperpriors import Hyperprior
from invgp.core.kernels import Kernel
from invgp.core.memory import BATCH_BUDGET
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import Parameters
from invgp.core.posteriors import Diagonal, Full, Mixture, Sites
from invgp.core.training import Blocks, MiniBatches, Progress
from invgp.core.training.restarts import Starts, draw_starts
from invgp.estimator import serialisation
from invgp.estimator.arguments import (
    Floats,
    broadcast_floats,
    check_choice,
    check_inputs,
    check_instance,
    check_integer,
    check_likelihood,
    check_outputs,
)
from invgp.estimator.checkpoints import Checkpoint, FitState, describe_value
from invgp.estimator.fitting import FittedParameters, fit_batches, fit_blocks
from invgp.estimator.initialisation import JITTER, continue_from, initialise
from invgp.estimator.labels import class_count, encode_labels, find_classes, is_classifier
from invgp.estimator.predictive import PredictiveDistribution, check_sites
from invgp.likelihoods import Likelihood

MAX_CHUNK = 4096  # largest number of inputs in one batch of predictions
MIN_THREADED_SIZE = 500  # rows and columns: BLAS threads slow down smaller matrix products
FIT_LENGTHS = ("rounds", "epochs", "settle")  # settings that may change when a fit continues from a checkpoint
MAX_FALL_OF_BOUND, MAX_FALL_OF_GAIN = (
    0.01,
    0.1,
)  # a larger fall, relative to the bound and to its gain, is not noise
MAX_CLIMB = 0.01  # increase of the bound between 70% and 90% of the epochs, relative to the bound and to its gain
MIN_WEIGHT = 1e-3  # of a component: smaller weights give a warning
ENTROPIES = ("lower bound", "monte carlo")
PLACEMENTS = ("subset", "clusters", "grid")


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


@dataclass(eq=False, repr=False)
class SAVIGP(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A latent Gaussian process model fitted by scalable automated variational inference.

    Parameters
    ----------
    likelihood : Likelihood
        One of `invgp.likelihoods`, or an object with the same members. It determines the number of latents (Q) and of
        outputs (P).
    kernel : str, Kernel, or tuple of them, length Q
        ``"squared exponential"``, ``"matern 3/2"``, ``"matern 5/2"`` or ``"rational quadratic"``, with the settings
        `length_scale`, `ard` and `variance`; or a kernel of `invgp.kernels` with its own initial parameters, such as
        ``Matern52() + White(0.1)``. For all latents or for each latent.
    length_scale : float or array, shape (D,) or (Q, D), in the units of X, optional
        Initial length-scales; with ``ard=False`` a number or shape (Q, 1). The default is the standard deviation of
        each dimension times the square root of the number of dimensions, so that typical distances between sites
        are about one length-scale.
    ard : bool
        Whether each input dimension has its own length-scale (automatic relevance determination). Use False for inputs
        with many dimensions of one type, such as the pixels of images.
    variance : float or array, shape (Q,)
        Initial prior variance of the latents.
    hyperpriors : dict of str to Hyperprior, optional
        Priors and bounds of the parameters of the kernels, by name, such as ``{"variance": Hyperprior(factor=3)}``, or
        by kind and name (``"white.variance"``). The log density of the priors is added to `trace_`, not to `bound_`.
    prior_mean : float or array, shape (Q,)
        Prior mean of the latents; it is not learnt.
    inducing : None, int or array, shape (M, D) or (Q, M, D)
        None for a dense model, in which every training input is an inducing input; the number of inducing inputs M;
        or the inducing inputs, for all latents or for each latent.
    placement : {"subset", "clusters", "grid"}
        Choice of the inducing inputs if `inducing` is a number: a random subset of X (nested for one seed), k-means
        centres, or a regular grid. The grid has the same number of points along each dimension, so their total number
        is only close to `inducing`.
    posterior : {"full", "diagonal"}
        Covariance of each Gaussian over the inducing variables of a latent.
    components : int
        Number of Gaussians in the mixture, K. Compare numbers of components by `mixture_bound_`.
    initial_mean : array, shape (M,) or (Q, M), optional
        Initial posterior mean of the latents at the inducing inputs, from which the search starts instead of the
        prior mean. Use it to choose between several modes of the posterior.
    warm_start : bool
        Whether `fit` starts from the parameters of the previous fit of this object, if there is one.
    method : Blocks or MiniBatches, optional
        Optimisation on all data (L-BFGS, the default), or on mini-batches (stochastic). It also determines which
        parameters are learnt.
    samples : int, optional
        Number of samples per site, S, for `Blocks`; `MiniBatches` has its own. By default it depends on the number of
        latents, and the fit continues with four times as many samples while the bound on new samples is lower than
        that on the samples of the fit.
    device : {"cpu", "cuda", "auto"}
        Device of the computation.
    dtype : {"float64", "float32"}
        Floating-point type.
    random_state : int, numpy.random.RandomState or None
        Random seed. The same number gives the same result.
    verbose : bool
        Whether to print the bound after each round or epoch.
    checkpoint : str or Path, optional
        File that stores the state of the fit after each round or epoch. If the file exists, `fit` continues from it
        and gives the same numbers as an uninterrupted fit; data and settings must be the same. A finished fit is not
        repeated, but continues if `method` now allows more rounds or epochs.

    Attributes
    ----------
    bound_ : float
        The bound, in nats, estimated on samples that the fit has not used.
    bound_std_error_ : float
        Its standard error.
    mixture_bound_, mixture_bound_std_error_ : float
        The same with a Monte Carlo estimate of the entropy of a mixture instead of its lower bound, eq. (18). Use it to
        compare numbers of components. For a single Gaussian it is the same as `bound_`.
    samples_ : int
        Number of samples per site with which the fit ended.
    trace_ : list of float
        The bound after each round or epoch, in nats, on the samples of the fit.
    converged_ : bool or None
        Whether `Blocks` has converged; None for `MiniBatches`, which cannot determine it.
    status_ : str
        Why the fit ended.
    likelihood_ : Likelihood
        The likelihood with its learnt parameters.
    kernels_ : tuple of Kernel, length Q
        The kernels with their learnt parameters.
    inducing_inputs_ : array, shape (Q, M, D)
        The inducing inputs; the training inputs in a dense model.
    dense_ : bool
        Whether the inducing inputs are the training inputs.
    weights_ : array, shape (K,)
        Weights of the mixture components.
    posterior_ : str
        Description of the posterior family.
    n_features_in_ : int
        Number of input dimensions, D.
    feature_names_in_ : array of str, shape (D,)
        Names of the columns, if X was a DataFrame. Prediction then needs the same columns in the same order.
    classes_ : array, shape (C,)
        Labels of the classes, for a likelihood of labels.

    References
    ----------
    Bonilla, Krauth and Dezfouli (2019), Generic inference in latent Gaussian process models, Journal of Machine
    Learning Research 20(117): model eqs. (2) and (3), bound eq. (9), predictive distribution eq. (36).

    Examples
    --------
    >>> import numpy as np
    >>> from invgp import SAVIGP
    >>> from invgp.likelihoods import Gaussian
    >>> X = np.linspace(0.0, 6.0, 25)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = SAVIGP(Gaussian(0.1, learn=False)).fit(X, y)
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.1)
    True
    >>> std.shape
    (1,)
    """

    likelihood: Likelihood
    kernel: str | Kernel | tuple[str | Kernel, ...] = "squared exponential"
    length_scale: ArrayLike | None = None
    ard: bool = True
    variance: ArrayLike = 1.0
    hyperpriors: dict[str, Hyperprior] | None = None
    prior_mean: ArrayLike = 0.0
    inducing: int | ArrayLike | None = None
    placement: str = "clusters"
    posterior: str = "full"
    components: int = 1
    initial_mean: ArrayLike | None = None
    warm_start: bool = False
    method: Blocks | MiniBatches | None = None
    samples: int | None = None
    device: str = "cpu"
    dtype: str = "float64"
    random_state: int | np.random.RandomState | None = 0
    verbose: bool = False
    checkpoint: str | Path | None = None

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        report: Callable[[Progress], None] | None = None,
    ) -> SAVIGP:
        """Fit the model to observations.

        Parameters
        ----------
        X : array, shape (N, D)
            Inputs of the sites.
        y : array, shape (N,) or (N, P)
            Observations; NaN marks a missing one. For a likelihood of classes, labels of any type, shape (N,), or
            one-hot rows.
        sample_weight : array, shape (N,), optional
            Weight of the log density of each site; 2 has the effect of the same observation twice.
        report : callable, optional
            Called with a `Progress` after each round or epoch, after the checkpoint is written. It may raise an
            exception to stop the fit.

        Returns
        -------
        SAVIGP
            The model itself.

        Raises
        ------
        ValueError
            A setting, X or y is invalid, or the checkpoint belongs to another fit.

        Warns
        -----
        ConvergenceWarning
            `Blocks` has not converged, or the bound falls with `MiniBatches`.
        """
        X, Y, weights = self._check_data(X, y, sample_weight)
        self._check_samples()
        if not (report is None or callable(report)):
            raise ValueError(f"report must be a function, was {report!r}")
        backend = self._backend()
        check_sites(self.likelihood, len(X), backend)
        if hasattr(self.likelihood, "check"):
            self.likelihood.check(Y)
        self._seed = self._draw_seed()
        streams = np.random.default_rng(self._seed).spawn(5)
        bound, parameters = initialise(self, X, backend, streams[1], streams[2])
        if self.warm_start and hasattr(self, "_bound_state"):
            parameters = continue_from(self._bound_state, bound, parameters)
        data = Data(self.likelihood, backend.asarray(Y), None if weights is None else backend.asarray(weights))
        checkpoint = self._checkpoint(X, Y, weights)
        earlier = checkpoint.read(backend, self._optimiser_state(backend)) if checkpoint is not None else None
        self.trace_: list[float] = [] if earlier is None else earlier.trace
        after = last = None if earlier is None else earlier.progress

        def record(progress: Progress) -> None:
            nonlocal last
            last = progress
            self.trace_.append(progress.elbo)
            if checkpoint is not None:
                checkpoint.write(FitState(progress, self.trace_))
            if self.verbose:
                kind = "round" if isinstance(self._method, Blocks) else "epoch"
                print(f"{kind} {progress.round}: bound {progress.elbo:.6g}")
            if report is not None:
                report(progress)

        found = self._optimise(bound, parameters, data, streams, record, after)
        self._record_bound(found)
        self._record_status(last)
        return self

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
        mean, _ = self._output_moments(X, likelihood)
        return np.concatenate([1.0 - mean, mean], axis=1) if mean.shape[1] == 1 else mean

    def _output_moments(self, X: ArrayLike, likelihood: Likelihood | None) -> tuple[Floats, Floats]:
        """Compute mean and variance (B, P) of new observations."""
        predictive = self._predictive(X, likelihood)
        parts = [predictive.moments(self._fitted, x, rows) for x, rows in self._chunks(X, predictive)]
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
        for x, _ in self._chunks(X):
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
        x, Y = self._new_inputs(X), self._outputs(y)
        if len(x) != len(Y):
            raise ValueError(f"X and y must have a row for each site, had {len(x)} and {len(Y)}")
        predictive = self._predictive(x, likelihood)
        parts = [predictive.log_density(self._fitted, x, Y, rows) for x, rows in self._chunks(x, predictive)]
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
        weights = np.where(np.isnan(densities), 0.0, _check_weights(sample_weight, len(densities)))
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
        mean = (state.factor @ state.q.mean[..., None])[..., 0] + state.bound.prior_mean[:, None]
        if state.factors:
            factor = state.factor @ state.q.spread
            covariance = to_numpy(factor @ xp.matrix_transpose(factor))
        else:
            covariance = to_numpy(state.q.spread)[..., None] * np.eye(mean.shape[-1])
        return InducingPosterior(self.weights_, to_numpy(mean), covariance)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file, a NumPy archive without pickles.

        The file does not contain the likelihood object: pass it to `load` again.

        Parameters
        ----------
        path : str or Path
            File to write.
        """
        serialisation.write(self, self._fitted, Path(path))

    @classmethod
    def load(
        cls, path: str | Path, likelihood: Likelihood, *, device: str = "cpu", other_functions: bool = False
    ) -> SAVIGP:
        """Read a model that `save` wrote, with all settings.

        Parameters
        ----------
        path : str or Path
            File to read.
        likelihood : Likelihood
            Of the same class and settings as that of the saved model; it gets the learnt parameters.
        device : {"cpu", "cuda", "auto"}
            Device of the computation.
        other_functions : bool
            Whether functions in the likelihood, such as that of `BlackBox`, may have other names or other code than
            those of the saved model. Use it if a function was renamed or rewritten, but computes the same.

        Returns
        -------
        SAVIGP
            The fitted model.

        Raises
        ------
        ValueError
            The file is not a saved model, or the likelihood differs from that of the model.
        """
        check_likelihood(likelihood)
        model, bound_state = serialisation.read(cls, Path(path), likelihood, device, other_functions=other_functions)
        model._store(bound_state)
        return model

    def __sklearn_tags__(self) -> Any:
        """Describe the estimator to scikit-learn: a regressor or, with labels of classes, a classifier."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if is_classifier(self.likelihood):
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=class_count(self.likelihood) > 2)
        else:
            tags.estimator_type = "regressor"
            # `score` is a log density, not R^2, and may be below any limit.
            tags.regressor_tags = RegressorTags(poor_score=True)
            tags.target_tags.multi_output = getattr(self.likelihood, "outputs", 1) > 1
        return tags

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name; with `deep`, also those of `method`, such as ``method__epochs``."""
        settings: dict[str, Any] = super().get_params(deep=deep)
        if deep and is_dataclass(self._method) and not isinstance(self._method, type):
            settings |= {f"method__{part.name}": getattr(self._method, part.name) for part in fields(self._method)}
        return settings

    def set_params(self, **params: Any) -> SAVIGP:
        """Change settings by name; ``method__epochs`` changes one setting of `method`."""
        own = {name: value for name, value in params.items() if not name.startswith("method__")}
        super().set_params(**own)
        nested = {name.removeprefix("method__"): value for name, value in params.items() if name not in own}
        if nested:
            known = [part.name for part in fields(self._method)]
            for name in nested:
                if name not in known:
                    raise ValueError(f"method__{name} must be a setting of {self._method!r}: {', '.join(known)}")
            self.method = replace(self._method, **nested)
        return self

    # ---- fit ----

    def _check_data(
        self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[Floats, Floats, Floats | None]:
        """Check the settings and the data of a fit; return inputs, observations and weights as arrays."""
        self._check()
        if y is None:
            raise ValueError(
                "y must be observations, was None: SAVIGP requires y to be passed, but the target y is None"
            )
        inputs = check_inputs(X)
        validate_data(self, X if hasattr(X, "columns") else inputs, reset=True, skip_check_array=True)
        self.n_features_in_ = inputs.shape[1]
        if is_classifier(self.likelihood):
            self.classes_ = find_classes(y, self.likelihood)
        Y = self._outputs(y)
        if not len(inputs) == len(Y) > 0:
            raise ValueError(f"X and y must have a row for each site, had {len(inputs)} and {len(Y)}")
        if np.all(np.isnan(Y)):
            raise ValueError("y must have at least one observation, was all NaN")
        weights = None if sample_weight is None else _check_weights(sample_weight, len(inputs))
        return inputs, Y, weights

    def _optimise(
        self,
        bound: Bound,
        parameters: Parameters,
        data: Data,
        streams: list[np.random.Generator],
        record: Callable[[Progress], None],
        after: Progress | None,
    ) -> FittedParameters:
        """Learn the parameters and store the result."""
        method = self._method
        M = parameters.inducing.shape[1]
        # The line search handles trials that overflow; NumPy need not warn of them.
        silent = np.errstate(over="ignore", invalid="ignore", divide="ignore")
        with silent, threadpool_limits(None if self._profits_from_threads(M, bound.X.shape[0]) else 1):
            if isinstance(method, Blocks):
                starts = draw_starts(streams[4], method.restarts, parameters.inducing)
                chosen = self.initial_mean is not None or (self.warm_start and hasattr(self, "_bound_state"))
                if chosen and self.components == 1:
                    starts = Starts(bound.bound_state(parameters).q.mean, chosen=True)
                found = fit_blocks(method, bound, parameters, data, self.samples, streams[0], record, after, starts)
            else:
                found = fit_batches(method, bound, parameters, data, streams[3], streams[0], record, after)
            bound_state = bound.bound_state(found.parameters)
            self.dense_, self.posterior_ = bound.dense, _describe_posterior(bound_state)
            self._store(_convert_to_full(bound_state) if isinstance(bound_state.family, Sites) else bound_state)
        return found

    def _check(self) -> None:
        check_likelihood(self.likelihood)
        check_instance("method", self._method, (Blocks, MiniBatches), "Blocks or MiniBatches")
        check_instance("verbose", self.verbose, (bool, int), "True or False")
        check_choice("placement", self.placement, PLACEMENTS)
        check_choice("posterior", self.posterior, ("full", "diagonal"))
        check_choice("dtype", self.dtype, tuple(JITTER))
        check_choice("device", self.device, ("cpu", "cuda", "auto"))
        check_instance("ard", self.ard, (bool,), "True or False")
        check_instance("warm_start", self.warm_start, (bool,), "True or False")
        check_integer("components", self.components, 1)
        check_instance("hyperpriors", self.hyperpriors, (dict, type(None)), "a dict of Hyperprior by parameter name")
        for name, prior in (self.hyperpriors or {}).items():
            check_instance(f"hyperpriors[{name!r}]", prior, (Hyperprior,), "a Hyperprior")
        if isinstance(self.random_state, np.random.RandomState | None):
            if self.checkpoint is not None:
                raise ValueError(f"random_state must be a whole number with a checkpoint, was {self.random_state!r}")
        else:
            check_integer("random_state", self.random_state, 0)
        if self.checkpoint is not None:
            check_instance("checkpoint", self.checkpoint, (str, Path), "the name of a file")
            if Path(self.checkpoint).is_dir():
                raise ValueError(f"checkpoint must be the name of a file, was the folder {str(self.checkpoint)!r}")

    @property
    def _method(self) -> Blocks | MiniBatches:
        return Blocks() if self.method is None else self.method

    def _draw_seed(self) -> int:
        """Return the seed of all random streams of a fit."""
        if isinstance(self.random_state, np.random.RandomState):
            return int(self.random_state.randint(2**31))
        return int(np.random.default_rng().integers(2**31)) if self.random_state is None else int(self.random_state)

    def _outputs(self, y: ArrayLike) -> Floats:
        """Convert observations or labels to an array (N, P); missing ones are NaN."""
        if is_classifier(self.likelihood):
            return encode_labels(y, self.classes_, self.likelihood)
        return check_outputs(y, self.likelihood.outputs)

    def _check_samples(self) -> None:
        owner = self if isinstance(self._method, Blocks) else self._method
        latents = self.likelihood.latents
        if owner.samples is not None:
            check_integer("samples", owner.samples, fewest_samples(latents), f" (Q = {latents})")

    def _checkpoint(self, X: Floats, Y: Floats, weights: Floats | None) -> Checkpoint | None:
        """Describe data and settings for the checkpoint; only the device and the length of the fit may change."""
        if self.checkpoint is None:
            return None
        words = (
            describe_value("X", X)
            | describe_value("y", Y)
            | ({} if weights is None else describe_value("sample_weight", weights))
            | describe_value("method", self._method, leave_out=FIT_LENGTHS)
        )
        for setting in fields(self):
            if setting.name not in ("method", "device", "checkpoint", "verbose"):
                words |= describe_value(setting.name, getattr(self, setting.name))
        return Checkpoint(Path(self.checkpoint), words)

    def _optimiser_state(self, backend: Backend) -> type | None:
        if isinstance(self._method, Blocks):
            return None
        return type(self._method.optimiser.init(backend.asarray(np.zeros(1))))

    def _profits_from_threads(self, M: int, N: int) -> bool:
        sites = N if isinstance(self._method, Blocks) else min(N, self._method.batch)
        return M * M * sites >= MIN_THREADED_SIZE**3

    def _store(self, bound_state: BoundState) -> None:
        self._bound_state = bound_state
        self.kernels_ = bound_state.kernels
        self.inducing_inputs_ = to_numpy(bound_state.parameters.inducing)
        self.n_features_in_ = self.inducing_inputs_.shape[-1]
        weights = np.asarray(to_numpy(bound_state.q.weights), dtype=np.float64)
        self.weights_ = weights / weights.sum()
        free = bound_state.parameters.likelihood
        self.likelihood_ = self.likelihood.with_parameters(free) if free.shape[0] else self.likelihood

    def _record_status(self, last: Progress | None) -> None:
        self.converged_: bool | None = None
        self.status_ = f"{len(self.trace_)} epochs are over"
        if isinstance(self._method, Blocks):
            self.converged_ = last is not None and last.converged
            self.status_ = (last.status if last is not None else "") or f"all {self._method.rounds} rounds are used up"
            if not self.converged_:
                warnings.warn(f"the fit has not converged: {self.status_}", ConvergenceWarning, stacklevel=3)
        elif self._has_fallen():
            best, shorter = (
                int(np.argmax(self.trace_)),
                "natural" if self._method.natural != 0 else "the optimiser's rate",
            )
            self.status_ += (
                f", but the bound has fallen since epoch {best + 1}, from {self.trace_[best]:.6g} to "
                f"{self.trace_[-1]:.6g}: the steps are too long for the noise of a batch; reduce {shorter}, or "
                "increase batch"
            )
            warnings.warn(self.status_, ConvergenceWarning, stacklevel=3)
        elif self._still_climbs():
            middle, end = self._late_bounds()
            self.status_ += (
                f", but the bound still increases, from {middle:.6g} to {end:.6g} between 70% and 90% of the epochs: "
                "increase epochs, or use Blocks"
            )
            warnings.warn(self.status_, ConvergenceWarning, stacklevel=3)

    def _record_bound(self, found: FittedParameters) -> None:
        estimate, self.samples_ = found.estimate, found.samples
        self.bound_, self.bound_std_error_ = estimate.elbo, estimate.standard_error
        self.mixture_bound_ = estimate.mixture_elbo
        self.mixture_bound_std_error_ = estimate.mixture_standard_error
        vanished = np.flatnonzero(self.weights_ < MIN_WEIGHT)
        if len(vanished):
            warnings.warn(
                f"{len(vanished)} of {self.components} components of the mixture have weights below {MIN_WEIGHT:g}: "
                "the posterior has fewer modes than components, or not all were found; reduce components",
                ConvergenceWarning,
                stacklevel=3,
            )
        if found.gap:
            warnings.warn(
                f"the bound is {estimate.elbo:.6g} on new samples, {found.gap:.2g} lower than on the {found.samples} "
                "samples per site of the fit: the posterior is adapted to its samples; increase samples",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _late_bounds(self) -> tuple[float, float]:
        """Return the median bounds of the epochs around 70% and 90% of those in which all parameters move."""
        count = self._moving_epochs
        middle, end = (
            float(np.median(self.trace_[int((share - 0.05) * count) : max(int((share + 0.05) * count), 1)] or [np.nan]))
            for share in (0.7, 0.9)
        )
        return middle, end

    def _still_climbs(self) -> bool:
        """Whether the bound has increased in the last epochs by more than the noise of mini-batches."""
        middle, end = self._late_bounds()
        return end - middle > MAX_CLIMB * max(1.0, abs(end), end - self.trace_[0])

    @property
    def _moving_epochs(self) -> int:
        settle = self._method.settle if isinstance(self._method, MiniBatches) else 0
        return len(self.trace_) - (len(self.trace_) // 20 if settle is None else settle)

    def _has_fallen(self) -> bool:
        """Whether the final bound is lower than the best one by more than the noise of mini-batches."""
        first, best, last = self.trace_[0], max(self.trace_), self.trace_[-1]
        return best - last > max(MAX_FALL_OF_BOUND * max(1.0, abs(best)), MAX_FALL_OF_GAIN * (best - first))

    # ---- prediction ----

    @property
    def _fitted(self) -> BoundState:
        if not hasattr(self, "_bound_state"):
            raise NotFittedError("this model is not fitted yet: call fit first")
        return self._bound_state

    def _backend(self) -> Backend:
        found = select_backend(self.device)
        return Backend(found.namespace, found.device, self.dtype)

    def _new_inputs(self, X: ArrayLike) -> Floats:
        D = self._fitted.parameters.inducing.shape[-1]
        array = check_inputs(X)
        validate_data(self, X if hasattr(X, "columns") else array, reset=False, skip_check_array=True)
        if array.shape[1] != D:
            raise ValueError(f"X must have shape (N, {D}), like the inputs of the fit, had {array.shape}")
        return array

    def _chunks(self, X: ArrayLike, predictive: PredictiveDistribution | None = None) -> Iterator[tuple[Array, slice]]:
        """Yield batches of inputs, with their rows, whose prediction fits in the memory budget."""
        backend, array = self._backend(), self._new_inputs(X)
        K, Q, M = self._fitted.q.mean.shape
        numbers = (K + 3) * Q * M + (0 if predictive is None else predictive.numbers)
        size = max(1, min(MAX_CHUNK, BATCH_BUDGET // (8 * numbers)))
        for first in range(0, max(len(array), 1), size):
            rows = slice(first, min(first + size, len(array)))
            yield backend.asarray(array[rows]), rows

    def _predictive(self, X: ArrayLike, likelihood: Likelihood | None) -> PredictiveDistribution:
        """Build the predictive distribution at X, with the learnt parameters."""
        return PredictiveDistribution.of(
            self._likelihood_at(self._new_inputs(X), likelihood), self._fitted, self.samples or 0, self._seed
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


def _check_weights(sample_weight: ArrayLike, count: int) -> Floats:
    must = f"a number of at least 0 for each of {count} sites"
    weights = broadcast_floats("sample_weight", sample_weight, (count,), must)
    if np.any(weights < 0) or not np.any(weights > 0):
        raise ValueError(f"sample_weight must be {must}, and not every weight zero, had a minimum of {weights.min():g}")
    return weights


def _describe_posterior(bound_state: BoundState) -> str:
    family, K = bound_state.family, bound_state.q.weights.shape[0]
    kind = "diagonal" if isinstance(family, Diagonal) else "full"
    held = ", stored as N numbers per latent (Theorem 2)" if isinstance(family, Sites) else ""
    return (f"one {kind} Gaussian" if K == 1 else f"a mixture of {K} {kind} Gaussians") + held


def _convert_to_full(bound_state: BoundState) -> BoundState:
    """Convert a posterior of Theorem 2 to a `Full` one, so that prediction does not need the training sites."""
    xp = array_namespace(bound_state.factor)
    R = bound_state.q.spread
    family = Full(bound_state.factor.shape[0], bound_state.factor.shape[-1])
    lower = cholesky(R @ xp.matrix_transpose(R))
    q = Mixture(bound_state.q.weights, bound_state.q.mean, lower)
    parameters = Parameters(
        family.pack(q),
        bound_state.parameters.kernels,
        bound_state.parameters.inducing,
        bound_state.parameters.likelihood,
    )
    return replace(bound_state.bound, posterior=family).bound_state(parameters)
