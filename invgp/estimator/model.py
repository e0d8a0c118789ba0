"""The estimator `SAVIGP`: latent Gaussian process models with any likelihood, with `fit`, `predict` and `score`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.validation import validate_data
from threadpoolctl import threadpool_limits

from invgp.core.backend import Backend
from invgp.core.bound import Bound
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import Parameters
from invgp.core.posteriors import Sites
from invgp.core.training import Blocks, Progress
from invgp.core.training.mini_batches import NATURAL_BATCH
from invgp.core.training.restarts import Starts, draw_starts
from invgp.estimator import serialisation
from invgp.estimator.arguments import Floats, check_inputs, check_likelihood, check_weights
from invgp.estimator.checkpoints import FitState, describe_fit
from invgp.estimator.fit_status import describe_end_of_batches, describe_end_of_blocks
from invgp.estimator.fitted_model import FittedModel
from invgp.estimator.fitting import FittedParameters, convert_to_full, describe_posterior, fit_batches, fit_blocks
from invgp.estimator.initialisation import continue_from, initialise
from invgp.estimator.labels import class_count, find_classes, is_classifier
from invgp.estimator.nested_settings import NESTED, settings_of, with_settings
from invgp.estimator.predictive import check_sites
from invgp.likelihoods import Likelihood

MIN_THREADED_SIZE = 500  # rows and columns: BLAS threads slow down smaller matrix products
KERNEL_SETTINGS = ("length_scale", "variance")  # of the model, for kernels that are given by name
MIN_WEIGHT = 1e-2  # of a component: smaller weights give a warning


@dataclass(eq=False, repr=False)
class SAVIGP(FittedModel, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A latent Gaussian process model fitted by scalable automated variational inference.

    Parameters
    ----------
    likelihood : Likelihood
        One of `invgp.likelihoods`, or an object with the same members. It determines the number of latents (Q) and of
        outputs (P).
    kernel : str, Kernel, or tuple of them, length Q
        ``"squared exponential"``, ``"exponential"``, ``"matern 3/2"``, ``"matern 5/2"`` or ``"rational quadratic"``,
        with the settings `length_scale`, `ard` and `variance`; or a kernel of `invgp.kernels` with its own initial
        parameters, such as ``Matern52() + White(0.1)``. For all latents or for each latent.
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
        by kind and name (``"white.variance"``); ``{}`` for flat priors. By default, variances and length-scales have
        ``Hyperprior(factor=10)`` if the likelihood is one of labels, and flat priors otherwise. The log density of the
        priors is added to `trace_`, not to `bound_`.
    prior_mean : float or array, shape (Q,)
        Prior mean of the latents. It is learnt if `learn` of `Blocks` contains ``"prior_mean"``.
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
    prior_mean_ : array, shape (Q,)
        The prior mean of the latents.
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
            `Blocks` has not converged, the bound falls or still increases with `MiniBatches`, the fit seems to have
            ended at a saddle point, components of a mixture have vanished, or the fit is adapted to its samples.
        """
        X, Y, weights = self._check_data(X, y, sample_weight)
        self._check_samples()
        if not (report is None or callable(report)):
            raise ValueError(f"report must be a function, was {report!r}")
        backend = self._backend()
        check_sites(self.likelihood, len(X), backend)
        self._seed = self._draw_seed()
        streams = np.random.default_rng(self._seed).spawn(5)
        bound, parameters = initialise(self, X, backend, streams[1], streams[2])
        if self.warm_start and hasattr(self, "_bound_state"):
            parameters = continue_from(self._bound_state, bound, parameters)
        data = Data(self.likelihood, backend.asarray(Y), None if weights is None else backend.asarray(weights))
        checkpoint = describe_fit(self, X, Y, weights)
        earlier = None
        if checkpoint is not None:
            earlier = checkpoint.read(backend, parameters.prior_mean, self._optimiser_state(backend))
        self.trace_ = [] if earlier is None else earlier.trace
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
        self._record_status(last, bound, found.gain)
        return self

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
            Whether functions and classes in the likelihood, such as the function of `BlackBox`, may have other names,
            other code or other values that the code uses than those of the saved model. Use it if a function was
            renamed or rewritten, but computes the same.

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
            tags.target_tags.positive_only = bool(getattr(self.likelihood, "positive", False))
        return tags

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name; with `deep`, also those of their parts, such as ``method__epochs``.

        Parameters
        ----------
        deep : bool
            Whether to include the settings of `method`, `kernel` and `likelihood`, and of their parts: the kernels of a
            sum, a product or a tuple are called ``k1``, ``k2``, ..., as in ``kernel__k1__length_scale``. With a kernel
            that is given by its name, ``kernel__length_scale`` is `length_scale`, and likewise `variance`.

        Returns
        -------
        dict of str to any
        """
        settings: dict[str, Any] = super().get_params(deep=deep)
        if deep:
            settings |= {f"{part}__{name}": one for part in NESTED for name, one in self._settings_of(part).items()}
        return settings

    def set_params(self, **params: Any) -> SAVIGP:
        """Change settings by name; ``method__epochs``, ``kernel__length_scale`` or ``likelihood__std`` change parts.

        Parameters
        ----------
        **params : Any
            New values by the names of `get_params`.

        Returns
        -------
        SAVIGP
            The model itself.
        """
        nested = {name: value for name, value in params.items() if name.partition("__")[0] in NESTED and "__" in name}
        super().set_params(**{name: value for name, value in params.items() if name not in nested})
        for part in NESTED:
            changes = {
                name.partition("__")[2]: value for name, value in nested.items() if name.partition("__")[0] == part
            }
            if part == "kernel" and isinstance(self.kernel, str):
                self._set_named_kernel(changes)
            elif changes:
                setattr(self, part, with_settings(part, self._part(part), changes))
        return self

    def _set_named_kernel(self, changes: dict[str, Any]) -> None:
        """Change the settings of the model that are those of a kernel that is given by its name."""
        for name in changes:
            if name not in KERNEL_SETTINGS:
                choices = ", ".join(KERNEL_SETTINGS)
                raise ValueError(f"kernel__{name} must be a setting of the kernel {self.kernel!r}: {choices}")
        super().set_params(**changes)

    def _settings_of(self, part: str) -> dict[str, Any]:
        if part == "kernel" and isinstance(self.kernel, str):
            return {name: getattr(self, name) for name in KERNEL_SETTINGS}
        return settings_of(self._part(part))

    def _part(self, name: str) -> Any:
        return self._method if name == "method" else getattr(self, name)

    def _check_data(
        self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[Floats, Floats, Floats | None]:
        """Check the settings and the data of a fit; return inputs, observations and weights as arrays."""
        self._check_settings()
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
        column = np.asarray(y).shape[1:] == (1,)
        if column and (self.likelihood.outputs == 1 or is_classifier(self.likelihood)):
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected: y must have the shape (N,) for one output; "
                "its column is used",
                DataConversionWarning,
                stacklevel=3,
            )
        if not len(inputs) == len(Y) > 0:
            raise ValueError(f"X and y must have a row for each site, had {len(inputs)} and {len(Y)}")
        if np.all(np.isnan(Y)):
            raise ValueError("y must have at least one observation, was all NaN")
        weights = None if sample_weight is None else check_weights(sample_weight, len(inputs))
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
            warm = self.warm_start and hasattr(self, "_bound_state")
            starts = draw_starts(streams[4], getattr(method, "restarts", Blocks.restarts), parameters.inducing)
            if (warm or self.initial_mean is not None) and self.components == 1:
                starts = Starts(bound.bound_state(parameters).q.mean, chosen=True)
            if isinstance(method, Blocks):
                found = fit_blocks(method, bound, parameters, data, self.samples, streams[0], record, after, starts)
            else:
                method = replace(method, start_sites=0) if warm else method
                found = fit_batches(method, bound, parameters, data, streams[3], streams[0], record, after, starts)
            bound_state = bound.bound_state(found.parameters)
            self.dense_, self.posterior_ = bound.dense, describe_posterior(bound_state)
            self._store(convert_to_full(bound_state) if isinstance(bound_state.family, Sites) else bound_state)
        return found

    def _optimiser_state(self, backend: Backend) -> type | None:
        if isinstance(self._method, Blocks):
            return None
        return type(self._method.optimiser.init(backend.asarray(np.zeros(1))))

    def _profits_from_threads(self, M: int, N: int) -> bool:
        sites = N if isinstance(self._method, Blocks) else min(N, self._method.batch or NATURAL_BATCH)
        return M * M * sites >= MIN_THREADED_SIZE**3

    def _record_status(self, last: Progress | None, bound: Bound, gain: float) -> None:
        if isinstance(self._method, Blocks):
            end = describe_end_of_blocks(self._method, last)
        else:
            batch = self._method.resolve(bound).batch or 0
            end = describe_end_of_batches(self._method, self.trace_, whole=batch >= bound.X.shape[0], gain=gain)
        self.converged_, self.status_ = end.converged, end.status
        if end.warning:
            warnings.warn(end.warning, ConvergenceWarning, stacklevel=3)

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
        if found.at_saddle:
            warnings.warn(
                "the log density of many sites is convex at the posterior mean, which indicates a saddle point or a "
                "poor optimum: start elsewhere with initial_mean, a shorter length_scale or a lower noise"
                + ("" if isinstance(self._method, Blocks) else ", or use Blocks"),
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
