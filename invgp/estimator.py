"""Latent Gaussian process models with any likelihood, in the manner of scikit-learn: fit, predict, score."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from invgp.core import inducing as choices
from invgp.core import prediction
from invgp.core.backend import Array, Place, array_namespace, cholesky, place, to_numpy
from invgp.core.bound import BLOCKS, Bound, Frame, Parameters
from invgp.core.geometry import inducing_factor
from invgp.core.kernels import CORRELATIONS, Kernel
from invgp.core.posteriors import Diagonal, Family, Full, Mixture, Sites
from invgp.core.sampling import Points
from invgp.core.training import Blocks, Data, MiniBatches, Progress
from invgp.likelihoods import Likelihood

Floats = NDArray[np.float64]
CHUNK = 4096  # inputs predicted at once
FORMAT = 1
JITTER = {"float64": 1e-6, "float32": 1e-4}  # of the inducing inputs' covariance, in a sparse model


@dataclass
class SAVIGP:
    """A latent Gaussian process model fitted by scalable automated variational inference.

    Parameters
    ----------
    likelihood : of `invgp.likelihoods`, or your own; it says how many latents there are (Q) and outputs (P).
    kernel : a key of `invgp.core.kernels.CORRELATIONS`, or one for each latent.
    length_scale : a number, one for each input dimension (D,), or (Q, D); by default the spread of each dimension.
    variance : prior variance, a number or one for each latent (Q,).
    prior_mean : of each latent, a number or (Q,).
    inducing : None for the dense model (every training input); a number of inducing inputs, chosen by `placement`;
        or the inducing inputs themselves, (M, D) for all latents or (Q, M, D).
    placement : ``"subset"`` (nested), ``"clusters"`` (k-means) or ``"grid"``.
    posterior : ``"full"`` or ``"diagonal"`` covariances.
    components : number of Gaussians in the mixture, K.
    method : `Blocks` (L-BFGS on all data) or `MiniBatches` (stochastic); it also says what is learnt.
    samples : a site, for `Blocks`.
    device : ``"cpu"``, ``"cuda"`` or ``"auto"``.
    dtype : ``"float64"`` or ``"float32"``.
    seed : of all random numbers: the same seed gives the same answer.

    Attributes
    ----------
    trace_ : the bound after each round, or epoch.
    likelihood_ : with its learnt parameters.
    kernels_ : with their learnt parameters.
    """

    likelihood: Likelihood
    kernel: str | tuple[str, ...] = "squared exponential"
    length_scale: ArrayLike | None = None
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

    def fit(self, X: ArrayLike, y: ArrayLike, report: Callable[[Progress], None] | None = None) -> SAVIGP:
        """Learn from inputs X (N, D) and observations y, (N,) or (N, P).

        Parameters
        ----------
        report : called after each round, or epoch, with the bound and the parameters; it may save them, or raise.
        """
        X, Y = self._inputs(X), self._outputs(y)
        if len(X) != len(Y):
            raise ValueError(f"X and y must have a row for each site, had {len(X)} and {len(Y)}")
        where = self._where()
        points_stream, choice_stream, jitter_stream, batch_stream = np.random.default_rng(self.seed).spawn(4)
        Z, dense = self._inducing_inputs(X, choice_stream)
        kernels = self._kernels(X, where)
        family = self._family(Z.shape[1], len(X), kernels, where)
        prior_mean = where.asarray(np.broadcast_to(np.asarray(self.prior_mean, dtype=np.float64), (self._latents,)))
        jitter = 0.0 if dense else JITTER[self.dtype]
        bound = Bound(family, kernels, prior_mean, where.asarray(X), dense, jitter=jitter)
        parameters = self._start(family, kernels, where.asarray(Z), jitter_stream, where)
        data = Data(self.likelihood, where.asarray(Y))
        self.trace_: list[float] = []

        def told(progress: Progress) -> None:
            self.trace_.append(progress.elbo)
            if report is not None:
                report(progress)

        if isinstance(self.method, Blocks):
            points = Points.draw(points_stream, self.samples, len(X), self._latents, where)
            parameters = self.method.fit(bound, parameters, data, points, told)
        else:
            parameters = self.method.fit(bound, parameters, data, batch_stream, told)
        self._keep(bound.frame(parameters))
        return self

    def predict(self, X: ArrayLike, *, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """Mean, and on request standard deviation, (B, P) of new observations at X; (B,) for one output."""
        parts = [self._output_moments(x) for x in self._chunks(X)]
        mean, variance = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        shaped = [a[:, 0] if a.shape[1] == 1 else a for a in (mean, np.sqrt(variance))]
        return (shaped[0], shaped[1]) if return_std else shaped[0]

    def predict_latent(self, X: ArrayLike) -> tuple[Floats, Floats]:
        """Mean and variance (B, Q) of the latents at X."""
        means, variances = [], []
        for x in self._chunks(X):
            mean, variance = prediction.latent_moments(self._fitted, x)
            mean, variance = prediction.mixture_moments(self._fitted.q.weights, mean, variance)
            means.append(to_numpy(mean))
            variances.append(to_numpy(variance))
        return np.concatenate(means), np.concatenate(variances)

    def latent_covariance(self, X: ArrayLike) -> Floats:
        """Joint covariance (Q, B, B) of each latent at X, for a posterior of one component."""
        if self.components > 1:
            raise ValueError("a mixture has no single covariance; draw from it with sample_latent")
        return to_numpy(prediction.latent_covariance(self._fitted, self._where().asarray(self._inputs(X))))

    def sample_latent(self, X: ArrayLike, draws: int, rng: np.random.Generator) -> Floats:
        """Joint draws (R, B, Q) of the latents at X."""
        where = self._where()
        x = where.asarray(self._inputs(X))
        components = rng.choice(self.components, size=draws, p=to_numpy(self._fitted.q.weights))
        normals = where.asarray(rng.standard_normal((draws, x.shape[0], self._latents)))
        return to_numpy(prediction.latent_draws(self._fitted, x, normals, components.tolist()))

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> Floats:
        """Log density (B,), or log probability, of observations y at X under the predictive distribution."""
        Y, start, parts = self._where().asarray(self._outputs(y)), 0, []
        for x in self._chunks(X):
            rows = Y[start : start + x.shape[0], ...]
            start += x.shape[0]
            density = partial(self.likelihood_.log_density, rows)
            parts.append(to_numpy(prediction.log_predictive_density(self._fitted, x, density, self._nodes())))
        return np.concatenate(parts)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Mean log predictive density of y at X: higher is better; minus the NLPD."""
        return float(np.mean(self.log_predictive_density(X, y)))

    def save(self, path: str | Path) -> None:
        """Write the fitted model as a NumPy archive without pickles; the likelihood is given again to `load`."""
        frame = self._fitted
        about = {
            "format": FORMAT,
            "kernel": list(self._kernel_names()),
            "posterior": "diagonal" if isinstance(frame.family, Diagonal) else "full",
            "components": self.components,
            "seed": self.seed,
            "dtype": self.dtype,
            "jitter": frame.bound.jitter,
        }
        arrays: dict[str, Any] = {name: to_numpy(getattr(frame.parameters, name)) for name in BLOCKS}
        arrays |= {"about": json.dumps(about), "trace": self.trace_, "prior_mean": to_numpy(frame.bound.prior_mean)}
        with Path(path).open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: str | Path, likelihood: Likelihood, *, device: str = "cpu") -> SAVIGP:
        """Read what `save` wrote; `likelihood` of the same kind gets its learnt parameters back."""
        with np.load(Path(path), allow_pickle=False) as archive:
            about: dict[str, Any] = json.loads(str(archive["about"]))
            arrays = {name: archive[name] for name in (*BLOCKS, "prior_mean", "trace")}
        if about["format"] > FORMAT:
            raise ValueError(f"{path} was written by a newer invgp (format {about['format']}, this one reads {FORMAT})")
        model = cls(
            likelihood,
            kernel=tuple(about["kernel"]),
            prior_mean=arrays["prior_mean"],
            inducing=arrays["inducing"],
            posterior=about["posterior"],
            components=about["components"],
            device=device,
            dtype=about["dtype"],
            seed=about["seed"],
        )
        where = model._where()
        parameters = Parameters(*(where.asarray(arrays[name]) for name in BLOCKS))
        Q, M, D = arrays["inducing"].shape
        blank = [Kernel(CORRELATIONS[k], where.asarray(1.0), where.asarray(np.ones(D))) for k in about["kernel"]]
        family = (Diagonal if about["posterior"] == "diagonal" else Full)(Q, M, about["components"])
        nowhere = where.asarray(np.zeros((0, D)))
        prior_mean = where.asarray(arrays["prior_mean"])
        bound = Bound(family, tuple(blank), prior_mean, nowhere, dense=False, jitter=about["jitter"])
        model.trace_ = arrays["trace"].tolist()
        model._keep(bound.frame(parameters))
        return model

    # ---- what a fit needs ----

    @property
    def _latents(self) -> int:
        return self.likelihood.latents

    @property
    def _fitted(self) -> Frame:
        if not hasattr(self, "_frame"):
            raise ValueError("this model is not fitted yet: call fit first")
        return self._frame

    def _keep(self, frame: Frame) -> None:
        if isinstance(frame.family, Sites):
            frame = _as_full(frame)
        self._frame = frame
        self.kernels_ = frame.kernels
        free = frame.parameters.likelihood
        self.likelihood_ = self.likelihood.with_parameters(free) if free.shape[0] else self.likelihood

    def _where(self) -> Place:
        found = place(self.device)
        return Place(found.namespace, found.device, self.dtype)

    def _inputs(self, X: ArrayLike) -> Floats:
        array = np.asarray(X, dtype=np.float64)
        if array.ndim != 2 or not np.all(np.isfinite(array)):
            raise ValueError(f"X must be finite numbers of shape (N, D), had shape {array.shape}")
        return array

    def _outputs(self, y: ArrayLike) -> Floats:
        array = np.asarray(y, dtype=np.float64)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2 or array.shape[1] != self.likelihood.outputs:
            raise ValueError(f"y must have shape (N, {self.likelihood.outputs}), had {array.shape}")
        return array

    def _kernel_names(self) -> tuple[str, ...]:
        names = (self.kernel,) * self._latents if isinstance(self.kernel, str) else tuple(self.kernel)
        unknown = [name for name in names if name not in CORRELATIONS]
        if len(names) != self._latents or unknown:
            raise ValueError(
                f"kernel must be one of {', '.join(CORRELATIONS)}, or one for each of {self._latents} latents, "
                f"was {self.kernel!r}"
            )
        return names

    def _kernels(self, X: Floats, where: Place) -> tuple[Kernel, ...]:
        Q, D = self._latents, X.shape[1]
        spread = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
        scales = spread if self.length_scale is None else np.asarray(self.length_scale, dtype=np.float64)
        scales = np.broadcast_to(scales, (Q, D))
        variances = np.broadcast_to(np.asarray(self.variance, dtype=np.float64), (Q,))
        if not (np.all(scales > 0) and np.all(variances > 0)):
            raise ValueError("length_scale and variance must be positive")
        return tuple(
            Kernel(CORRELATIONS[name], where.asarray(variances[j]), where.asarray(scales[j]))
            for j, name in enumerate(self._kernel_names())
        )

    def _inducing_inputs(self, X: Floats, rng: np.random.Generator) -> tuple[Floats, bool]:
        """Z (Q, M, D), and whether it is X itself."""
        Q = self._latents
        if self.inducing is None:
            return np.broadcast_to(X, (Q, *X.shape)), isinstance(self.method, Blocks)
        if isinstance(self.inducing, int):
            Z = self._placed(X, self.inducing, rng)
        else:
            Z = np.asarray(self.inducing, dtype=np.float64)
        Z = np.broadcast_to(Z, (Q, *Z.shape[-2:]))
        same = Z.shape[1:] == X.shape and bool(np.all(X == Z)) and isinstance(self.method, Blocks)
        return Z, same

    def _placed(self, X: Floats, count: int, rng: np.random.Generator) -> Floats:
        if not 1 <= count <= len(X):
            raise ValueError(f"inducing must be between 1 and the number of sites, {len(X)}, was {count}")
        if self.placement == "subset":
            return choices.nested_subset(X, count, rng)
        if self.placement == "clusters":
            return choices.cluster_centres(X, count, rng)
        if self.placement == "grid":
            side = round(count ** (1.0 / X.shape[1]))
            return choices.regular_grid(X, (side,) * X.shape[1])
        raise ValueError(f"placement must be 'subset', 'clusters' or 'grid', was {self.placement!r}")

    def _family(self, M: int, N: int, kernels: tuple[Kernel, ...], where: Place) -> Family:
        Q, K = self._latents, self.components
        if self.posterior == "diagonal":
            return Diagonal(Q, M, K)
        if self.posterior != "full":
            raise ValueError(f"posterior must be 'full' or 'diagonal', was {self.posterior!r}")
        # Theorem 2: N numbers instead of M (M + 1) / 2, where that is fewer. It needs all sites at once.
        if K == 1 and isinstance(self.method, Blocks) and 2 * N < M * (M + 1):
            variances = np.asarray([[float(kernel.variance)] for kernel in kernels])
            return Sites(Q, M, N, where.asarray(1.0 / variances))
        return Full(Q, M, K)

    def _start(
        self, family: Family, kernels: tuple[Kernel, ...], Z: Array, rng: np.random.Generator, where: Place
    ) -> Parameters:
        Q, M, K = self._latents, Z.shape[1], self.components
        # Components that start alike would stay alike.
        jitter = where.asarray(np.zeros((K, Q, M)) if K == 1 else 0.1 * rng.standard_normal((K, Q, M)))
        return Parameters(
            posterior=family.initial(inducing_factor(kernels, Z), 0.5, jitter),
            kernels=where.namespace.stack([kernel.parameters for kernel in kernels]),
            inducing=Z,
            likelihood=where.asarray(to_numpy(self.likelihood.parameters)),
        )

    # ---- what a prediction needs ----

    def _chunks(self, X: ArrayLike) -> Iterator[Array]:
        where, inputs = self._where(), self._inputs(X)
        for start in range(0, max(len(inputs), 1), CHUNK):
            yield where.asarray(inputs[start : start + CHUNK])

    def _nodes(self) -> prediction.Nodes:
        return prediction.nodes(self._fitted, max(self.samples, 512), np.random.default_rng(self.seed))

    def _output_moments(self, x: Array) -> tuple[Floats, Floats]:
        def moments(f: Array) -> tuple[Array, Array]:
            found = self.likelihood_.moments(f)
            if found is None:
                raise ValueError(
                    "this likelihood has no moments: give BlackBox a `moments` function to predict with it"
                )
            return found

        mean, variance = prediction.output_moments(self._fitted, x, moments, self._nodes())
        return to_numpy(mean), to_numpy(variance)


def _as_full(frame: Frame) -> Frame:
    """The same posterior held as a covariance, so that prediction needs the inducing inputs only, not the sites."""
    xp = array_namespace(frame.factor)
    R = frame.q.spread
    family = Full(frame.factor.shape[0], frame.factor.shape[-1])
    lower = cholesky(R @ xp.matrix_transpose(R))
    q = Mixture(frame.q.weights, frame.q.mean, lower)
    parameters = Parameters(
        family.pack(q), frame.parameters.kernels, frame.parameters.inducing, frame.parameters.likelihood
    )
    return replace(frame.bound, posterior=family).frame(parameters)
