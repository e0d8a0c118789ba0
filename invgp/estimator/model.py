"""Latent Gaussian process models with any likelihood, in the manner of scikit-learn: fit, predict, score."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from threadpoolctl import threadpool_limits

from invgp.core import prediction
from invgp.core.backend import Array, Backend, array_namespace, cholesky, select_backend, to_numpy
from invgp.core.bound import BoundState
from invgp.core.estimators import fewest_samples
from invgp.core.memory import BATCH_BUDGET
from invgp.core.observed_likelihood import Data
from invgp.core.parameters import Parameters
from invgp.core.point_sets import Points
from invgp.core.posteriors import Diagonal, Full, Mixture, Sites
from invgp.core.training import Blocks, MiniBatches, Progress
from invgp.estimator import serialisation
from invgp.estimator.arguments import (
    Floats,
    check_choice,
    check_inputs,
    check_instance,
    check_integer,
    check_likelihood,
    check_outputs,
)
from invgp.estimator.checkpoints import Checkpoint, FitState, describe_value
from invgp.estimator.initialisation import JITTER, initialise
from invgp.estimator.predictive import PredictiveDistribution, check_sites
from invgp.likelihoods import Likelihood

MAX_CHUNK = 4096  # inputs predicted at once, at the most
MIN_THREADED_SIZE = 500  # rows and columns: smaller products are slowed down by BLAS threads that wait for each other
FIT_LENGTHS = ("rounds", "epochs", "settle")  # of a fit: a checkpoint goes on if they are others
MAX_FALL_OF_BOUND, MAX_FALL_OF_GAIN = (
    0.01,
    0.1,
)  # shares of the bound, and of what it had gained, that noise of batches does not take
PLACEMENTS = ("subset", "clusters", "grid")


@dataclass(eq=False, repr=False)
class SAVIGP(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A latent Gaussian process model fitted by scalable automated variational inference.

    Parameters
    ----------
    likelihood : of `invgp.likelihoods`, or your own; it says how many latents there are (Q) and outputs (P).
    kernel : a key of `invgp.core.kernels.CORRELATIONS`, or one for each latent.
    length_scale : a number, one for each input dimension (D,), or (Q, D); by default the spread of each dimension times
        the root of their number, so that distances between sites are about one length-scale.
    ard : whether each input dimension learns a length-scale of its own. Without, there is one for all of them, a number
        or (Q, 1): for images and other inputs with many dimensions of one kind.
    variance : prior variance, a number or one for each latent (Q,).
    prior_mean : of each latent, a number or (Q,).
    inducing : None for the dense model (every training input); a number of inducing inputs, chosen by `placement`;
        or the inducing inputs themselves, (M, D) for all latents or (Q, M, D).
    placement : ``"subset"`` (nested), ``"clusters"`` (k-means) or ``"grid"``, which has the same number along every
        dimension and so comes as near to the number asked for as it can.
    posterior : ``"full"`` or ``"diagonal"`` covariances.
    components : number of Gaussians in the mixture, K.
    method : `Blocks` (L-BFGS on all data) or `MiniBatches` (stochastic); it also says what is learnt.
    samples : a site, for `Blocks`.
    device : ``"cpu"``, ``"cuda"`` or ``"auto"``.
    dtype : ``"float64"`` or ``"float32"``.
    seed : of all random numbers: the same seed gives the same answer.
    checkpoint : file in which the fit is kept under way, after each round or epoch. A fit that was broken off goes on
        from there, with the same data and settings, to the same numbers as if it had not been; one that is over is
        not repeated, but goes on if `method` now allows for more rounds or epochs.

    Attributes
    ----------
    trace_ : the bound after each round, or epoch.
    converged_ : whether `Blocks` has converged; None for `MiniBatches`, which cannot determine it.
    status_ : why the fit ended.
    likelihood_ : with its learnt parameters.
    kernels_ : with their learnt parameters, one a latent.
    inducing_inputs_ : (Q, M, D); the training inputs in a dense model.
    dense_ : whether it is one.
    weights_ : of the components of the posterior, (K,).
    posterior_ : its family in words.
    n_features_in_ : D.
    """

    likelihood: Likelihood
    kernel: str | tuple[str, ...] = "squared exponential"
    length_scale: ArrayLike | None = None
    ard: bool = True
    variance: ArrayLike = 1.0
    prior_mean: ArrayLike = 0.0
    inducing: int | ArrayLike | None = None
    placement: str = "clusters"
    posterior: str = "full"
    components: int = 1
    method: Blocks | MiniBatches = field(default_factory=Blocks)
    samples: int = 128
    device: str = "cpu"
    dtype: str = "float64"
    seed: int = 0
    checkpoint: str | Path | None = None

    def fit(self, X: ArrayLike, y: ArrayLike, report: Callable[[Progress], None] | None = None) -> SAVIGP:
        """Learn from inputs X (N, D) and observations y, (N,) or (N, P).

        Parameters
        ----------
        report : called after each round, or epoch, with the bound and the parameters, once any checkpoint is written;
            it may raise to stop.
        """
        self._check()
        X, Y = check_inputs(X), check_outputs(y, self.likelihood.outputs)
        if not len(X) == len(Y) > 0:
            raise ValueError(f"X and y must have a row for each site, had {len(X)} and {len(Y)}")
        if np.all(np.isnan(Y)):
            raise ValueError("y must hold an observation, was NaN throughout")
        self._check_samples()
        if not (report is None or callable(report)):
            raise ValueError(f"report must be a function, was {report!r}")
        backend = self._backend()
        check_sites(self.likelihood, len(X), backend)
        if hasattr(self.likelihood, "check"):
            self.likelihood.check(Y)
        points_stream, choice_stream, jitter_stream, batch_stream = np.random.default_rng(self.seed).spawn(4)
        bound, parameters = initialise(self, X, backend, choice_stream, jitter_stream)
        data = Data(self.likelihood, backend.asarray(Y))
        checkpoint = self._checkpoint(X, Y)
        earlier = checkpoint.read(backend, self._optimiser_state(backend)) if checkpoint is not None else None
        self.trace_: list[float] = [] if earlier is None else earlier.trace
        after = last = None if earlier is None else earlier.progress

        def record(progress: Progress) -> None:
            nonlocal last
            last = progress
            self.trace_.append(progress.elbo)
            if checkpoint is not None:
                checkpoint.write(FitState(progress, self.trace_))
            if report is not None:
                report(progress)

        M = parameters.inducing.shape[1]
        # A trial that goes too far is stepped back from; NumPy need not tell of it as well.
        silent = np.errstate(over="ignore", invalid="ignore", divide="ignore")
        with silent, threadpool_limits(None if self._profits_from_threads(M, len(X)) else 1):
            if isinstance(self.method, Blocks):
                points = Points.draw(points_stream, self.samples, len(X), self.likelihood.latents, backend)
                parameters = self.method.fit(bound, parameters, data, points, record, after)
            else:
                parameters = self.method.fit(bound, parameters, data, batch_stream, record, after)
            bound_state = bound.bound_state(parameters)
            self.dense_, self.posterior_ = bound.dense, _describe_posterior(bound_state)
            self._store(_convert_to_full(bound_state) if isinstance(bound_state.family, Sites) else bound_state)
        self._record_status(last)
        return self

    def predict(
        self, X: ArrayLike, *, return_std: bool = False, likelihood: Likelihood | None = None
    ) -> Floats | tuple[Floats, Floats]:
        """Mean, and on request standard deviation, (B, P) of new observations at X; (B,) for one output.

        Parameters
        ----------
        likelihood : of the observations at X, where it is another there: a noise or an offset that is known for each
            site. It gets the learnt parameters, if it has as many.
        """
        predictive = self._predictive(X, likelihood)
        parts = [predictive.moments(self._fitted, x, rows) for x, rows in self._chunks(X, predictive)]
        mean, variance = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        shaped = [a[:, 0] if a.shape[1] == 1 else a for a in (mean, np.sqrt(variance))]
        return (shaped[0], shaped[1]) if return_std else shaped[0]

    def predict_latent(self, X: ArrayLike) -> tuple[Floats, Floats]:
        """Mean and variance (B, Q) of the latents at X."""
        means, variances = [], []
        for x, _ in self._chunks(X):
            mean, variance = prediction.latent_moments(self._fitted, x)
            mean, variance = prediction.mixture_moments(self._fitted.q.weights, mean, variance)
            means.append(to_numpy(mean))
            variances.append(to_numpy(variance))
        return np.concatenate(means), np.concatenate(variances)

    def latent_covariance(self, X: ArrayLike) -> Floats:
        """Joint covariance (Q, B, B) of each latent at X, for a posterior of one component."""
        if self.components > 1:
            raise ValueError("a mixture has no single covariance; draw from it with sample_latent")
        return to_numpy(prediction.latent_covariance(self._fitted, self._backend().asarray(self._new_inputs(X))))

    def sample_latent(self, X: ArrayLike, draws: int, rng: np.random.Generator) -> Floats:
        """Joint draws (R, B, Q) of the latents at X."""
        backend = self._backend()
        x = backend.asarray(self._new_inputs(X))
        check_integer("draws", draws, 1)
        check_instance("rng", rng, (np.random.Generator,), "a numpy.random.Generator")
        components = rng.choice(self.components, size=draws, p=self.weights_)
        normals = backend.asarray(rng.standard_normal((draws, x.shape[0], self.likelihood.latents)))
        return to_numpy(prediction.latent_draws(self._fitted, x, normals, components.tolist()))

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike, *, likelihood: Likelihood | None = None) -> Floats:
        """Log density (B,), or log probability, of observations y at X under the predictive distribution.

        NaN at a site where nothing was observed. `likelihood` as for `predict`.
        """
        x, Y = self._new_inputs(X), check_outputs(y, self.likelihood.outputs)
        if len(x) != len(Y):
            raise ValueError(f"X and y must have a row for each site, had {len(x)} and {len(Y)}")
        predictive = self._predictive(x, likelihood)
        parts = [predictive.log_density(self._fitted, x, Y, rows) for x, rows in self._chunks(x, predictive)]
        return np.concatenate(parts)

    def score(self, X: ArrayLike, y: ArrayLike, *, likelihood: Likelihood | None = None) -> float:
        """Mean log predictive density of what was observed, y at X: higher is better; minus the NLPD."""
        densities = self.log_predictive_density(X, y, likelihood=likelihood)
        if np.all(np.isnan(densities)):
            raise ValueError("y must hold an observation, was empty or NaN throughout")
        return float(np.nanmean(densities))

    def save(self, path: str | Path) -> None:
        """Write the fitted model as a NumPy archive without pickles; the likelihood is given again to `load`."""
        serialisation.write(self, self._fitted, Path(path))

    @classmethod
    def load(cls, path: str | Path, likelihood: Likelihood, *, device: str = "cpu") -> SAVIGP:
        """Read what `save` wrote, with all settings.

        Parameters
        ----------
        likelihood : of the same kind and settings as that of the model; it gets its learnt parameters back.
        """
        check_likelihood(likelihood)
        model, bound_state = serialisation.read(cls, Path(path), likelihood, device)
        model._store(bound_state)
        return model

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn may expect: several outputs, and NaN for those that are missing."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.multi_output = True
        return tags

    # ---- a fit ----

    def _check(self) -> None:
        check_likelihood(self.likelihood)
        check_instance("method", self.method, (Blocks, MiniBatches), "Blocks or MiniBatches")
        check_choice("placement", self.placement, PLACEMENTS)
        check_choice("posterior", self.posterior, ("full", "diagonal"))
        check_choice("dtype", self.dtype, tuple(JITTER))
        check_choice("device", self.device, ("cpu", "cuda", "auto"))
        check_instance("ard", self.ard, (bool,), "True or False")
        check_integer("components", self.components, 1)
        check_integer("seed", self.seed, 0)
        if self.checkpoint is not None:
            check_instance("checkpoint", self.checkpoint, (str, Path), "the name of a file")
            if Path(self.checkpoint).is_dir():
                raise ValueError(f"checkpoint must be the name of a file, was the folder {str(self.checkpoint)!r}")

    def _check_samples(self) -> None:
        owner = self if isinstance(self.method, Blocks) else self.method
        latents = self.likelihood.latents
        check_integer("samples", owner.samples, fewest_samples(latents), f" (Q = {latents})")

    def _checkpoint(self, X: Floats, Y: Floats) -> Checkpoint | None:
        """Where the fit is kept, and what it must be the same in; the device may be another."""
        if self.checkpoint is None:
            return None
        words = (
            describe_value("X", X)
            | describe_value("y", Y)
            | describe_value("method", self.method, leave_out=FIT_LENGTHS)
        )
        for setting in fields(self):
            if setting.name not in ("method", "device", "checkpoint"):
                words |= describe_value(setting.name, getattr(self, setting.name))
        return Checkpoint(Path(self.checkpoint), words)

    def _optimiser_state(self, backend: Backend) -> type | None:
        if isinstance(self.method, Blocks):
            return None
        return type(self.method.optimiser.init(backend.asarray(np.zeros(1))))

    def _profits_from_threads(self, M: int, N: int) -> bool:
        sites = N if isinstance(self.method, Blocks) else min(N, self.method.batch)
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
        if isinstance(self.method, Blocks):
            self.converged_ = last is not None and last.converged
            self.status_ = (last.status if last is not None else "") or f"all {self.method.rounds} rounds are used up"
            if not self.converged_:
                warnings.warn(f"the fit has not converged: {self.status_}", ConvergenceWarning, stacklevel=3)
        elif self._has_fallen():
            best, shorter = int(np.argmax(self.trace_)), "natural" if self.method.natural else "the optimiser's rate"
            self.status_ += (
                f", but the bound has fallen since epoch {best + 1}, from {self.trace_[best]:.6g} to "
                f"{self.trace_[-1]:.6g}: steps are too long for what a batch can tell; lower {shorter}, or raise batch"
            )
            warnings.warn(self.status_, ConvergenceWarning, stacklevel=3)

    def _has_fallen(self) -> bool:
        """Whether the bound ends further below its best than the noise of batches explains."""
        first, best, last = self.trace_[0], max(self.trace_), self.trace_[-1]
        return best - last > max(MAX_FALL_OF_BOUND * max(1.0, abs(best)), MAX_FALL_OF_GAIN * (best - first))

    # ---- a prediction ----

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
        if array.shape[1] != D:
            raise ValueError(f"X must have shape (N, {D}), as the inputs that were learnt from, had {array.shape}")
        return array

    def _chunks(self, X: ArrayLike, predictive: PredictiveDistribution | None = None) -> Iterator[tuple[Array, slice]]:
        """Inputs, and which they are, in pieces whose prediction fits in the memory budget."""
        backend, array = self._backend(), self._new_inputs(X)
        K, Q, M = self._fitted.q.mean.shape
        numbers = (K + 3) * Q * M + (0 if predictive is None else predictive.numbers)
        size = max(1, min(MAX_CHUNK, BATCH_BUDGET // (8 * numbers)))
        for first in range(0, max(len(array), 1), size):
            rows = slice(first, min(first + size, len(array)))
            yield backend.asarray(array[rows]), rows

    def _predictive(self, X: ArrayLike, likelihood: Likelihood | None) -> PredictiveDistribution:
        """How the latents at X are observed."""
        count, backend = len(self._new_inputs(X)), self._backend()
        used = self.likelihood_
        if likelihood is not None:
            check_likelihood(likelihood)
            for name in ("latents", "outputs"):
                given, must = getattr(likelihood, name), getattr(self.likelihood, name)
                if given != must:
                    raise ValueError(f"likelihood must have {must} {name}, as that of the fit, had {given}")
            free = self._fitted.parameters.likelihood
            used = (
                likelihood.with_parameters(free) if 0 < free.shape[0] == likelihood.parameters.shape[0] else likelihood
            )
        check_sites(used, count, backend)
        return PredictiveDistribution.of(used, self._fitted, self.samples, self.seed)


def _describe_posterior(bound_state: BoundState) -> str:
    family, K = bound_state.family, bound_state.q.weights.shape[0]
    kind = "diagonal" if isinstance(family, Diagonal) else "full"
    held = ", held by N numbers a latent (Theorem 2)" if isinstance(family, Sites) else ""
    return (f"one {kind} Gaussian" if K == 1 else f"a mixture of {K} {kind} Gaussians") + held


def _convert_to_full(bound_state: BoundState) -> BoundState:
    """The same posterior held as a covariance, so that prediction needs the inducing inputs only, not the sites."""
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
