"""Latent Gaussian process models with any likelihood, in the manner of scikit-learn: fit, predict, score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from invgp.archives import MODEL, read_archive, write_archive
from invgp.arguments import Floats, numbers, one_of, positive, spread, whole
from invgp.checkpoints import Checkpoint, Standing, described
from invgp.core import inducing as choices
from invgp.core import prediction
from invgp.core.backend import Array, Place, array_namespace, cholesky, place, to_numpy
from invgp.core.bound import BLOCKS, Bound, Frame, Parameters
from invgp.core.data import Data
from invgp.core.estimators import fewest_samples
from invgp.core.geometry import inducing_factor
from invgp.core.kernels import CORRELATIONS, Kernel
from invgp.core.posteriors import Diagonal, Family, Full, Mixture, Sites
from invgp.core.sampling import Points
from invgp.core.training import Blocks, MiniBatches, Progress
from invgp.likelihoods import Likelihood

CHUNK = 4096  # inputs predicted at once
WORTH_THREADS = 500  # rows and columns: smaller products are slowed down by BLAS threads that wait for each other
PLACEMENTS = ("subset", "clusters", "grid")
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
    checkpoint: str | Path | None = None

    def fit(self, X: ArrayLike, y: ArrayLike, report: Callable[[Progress], None] | None = None) -> SAVIGP:
        """Learn from inputs X (N, D) and observations y, (N,) or (N, P).

        Parameters
        ----------
        report : called after each round, or epoch, with the bound and the parameters, once any checkpoint is written;
            it may raise to stop.
        """
        self._check()
        X, Y = self._inputs(X), self._outputs(y)
        if not len(X) == len(Y) > 0:
            raise ValueError(f"X and y must have a row for each site, had {len(X)} and {len(Y)}")
        where = self._where()
        points_stream, choice_stream, jitter_stream, batch_stream = np.random.default_rng(self.seed).spawn(4)
        Z, dense = self._inducing_inputs(X, choice_stream)
        kernels = self._kernels(X, where)
        family = self._family(Z.shape[1], len(X), kernels, where)
        prior_mean = spread("prior_mean", self.prior_mean, (self._latents,), "a number or one for each latent")
        jitter = 0.0 if dense else JITTER[self.dtype]
        bound = Bound(family, kernels, where.asarray(prior_mean), where.asarray(X), dense, jitter=jitter)
        parameters = self._start(family, kernels, where.asarray(Z), jitter_stream, where)
        data = Data(self.likelihood, where.asarray(Y))
        checkpoint = self._checkpoint(X, Y)
        earlier = checkpoint.read(where) if checkpoint is not None else None
        self.trace_: list[float] = [] if earlier is None else earlier.trace
        after = None if earlier is None else earlier.progress

        def told(progress: Progress) -> None:
            self.trace_.append(progress.elbo)
            if checkpoint is not None:
                checkpoint.write(Standing(progress, self.trace_))
            if report is not None:
                report(progress)

        with threadpool_limits(None if self._is_worth_threads(Z.shape[1], len(X)) else 1):
            if isinstance(self.method, Blocks):
                points = Points.draw(points_stream, self.samples, len(X), self._latents, where)
                parameters = self.method.fit(bound, parameters, data, points, told, after)
            else:
                parameters = self.method.fit(bound, parameters, data, batch_stream, told, after)
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
        return to_numpy(prediction.latent_covariance(self._fitted, self._where().asarray(self._new_inputs(X))))

    def sample_latent(self, X: ArrayLike, draws: int, rng: np.random.Generator) -> Floats:
        """Joint draws (R, B, Q) of the latents at X."""
        where = self._where()
        x = where.asarray(self._new_inputs(X))
        components = rng.choice(self.components, size=draws, p=to_numpy(self._fitted.q.weights))
        normals = where.asarray(rng.standard_normal((draws, x.shape[0], self._latents)))
        return to_numpy(prediction.latent_draws(self._fitted, x, normals, components.tolist()))

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> Floats:
        """Log density (B,), or log probability, of observations y at X under the predictive distribution."""
        Y, start, parts = self._where().asarray(self._outputs(y)), 0, []
        if len(np.asarray(X)) != Y.shape[0]:
            raise ValueError(f"X and y must have a row for each site, had {len(np.asarray(X))} and {Y.shape[0]}")
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
            "kernel": list(self._kernel_names()),
            "posterior": "diagonal" if isinstance(frame.family, Diagonal) else "full",
            "components": self.components,
            "seed": self.seed,
            "dtype": self.dtype,
            "jitter": frame.bound.jitter,
        }
        arrays: dict[str, Any] = {name: to_numpy(getattr(frame.parameters, name)) for name in BLOCKS}
        arrays |= {"trace": self.trace_, "prior_mean": to_numpy(frame.bound.prior_mean)}
        write_archive(Path(path), MODEL, about, arrays)

    @classmethod
    def load(cls, path: str | Path, likelihood: Likelihood, *, device: str = "cpu") -> SAVIGP:
        """Read what `save` wrote; `likelihood` of the same kind gets its learnt parameters back."""
        about, arrays = read_archive(Path(path), MODEL)
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

    def _is_worth_threads(self, M: int, N: int) -> bool:
        sites = N if isinstance(self.method, Blocks) else min(N, self.method.batch)
        return M * M * sites >= WORTH_THREADS**3

    def _where(self) -> Place:
        found = place(self.device)
        return Place(found.namespace, found.device, self.dtype)

    def _check(self) -> None:
        if not isinstance(self.likelihood, Likelihood):
            raise ValueError(  # noqa: TRY004 - as every other wrong argument
                f"likelihood must have the members of invgp.likelihoods.Likelihood, was {self.likelihood!r}"
            )
        if not isinstance(self.method, Blocks | MiniBatches):
            raise ValueError(f"method must be Blocks or MiniBatches, was {self.method!r}")  # noqa: TRY004
        one_of("placement", self.placement, PLACEMENTS)
        one_of("posterior", self.posterior, ("full", "diagonal"))
        one_of("dtype", self.dtype, tuple(JITTER))
        one_of("device", self.device, ("cpu", "cuda", "auto"))
        whole("components", self.components, 1)
        whole("seed", self.seed, 0)
        owner = self if isinstance(self.method, Blocks) else self.method
        whole("samples", owner.samples, fewest_samples(self._latents), f" (Q = {self._latents})")

    def _checkpoint(self, X: Floats, Y: Floats) -> Checkpoint | None:
        """Where the fit is kept, and what it must be the same in; the device may be another."""
        if self.checkpoint is None:
            return None
        words = described("X", X) | described("y", Y) | described("method", self.method, leave_out=("rounds", "epochs"))
        for setting in fields(self):
            if setting.name not in ("method", "device", "checkpoint"):
                words |= described(setting.name, getattr(self, setting.name))
        return Checkpoint(Path(self.checkpoint), words)

    def _inputs(self, X: ArrayLike) -> Floats:
        must = "finite numbers of shape (N, D)"
        array = numbers("X", X, must)
        if array.ndim != 2:
            raise ValueError(f"X must be {must}, had shape {array.shape}")
        return array

    def _outputs(self, y: ArrayLike) -> Floats:
        array = np.asarray(y, dtype=np.float64)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2 or array.shape[1] != self.likelihood.outputs:
            raise ValueError(f"y must have shape (N, {self.likelihood.outputs}), had {array.shape}")
        if np.any(np.isinf(array)):
            raise ValueError("y must be finite, or NaN where nothing was observed, had numbers that are infinite")
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
        deviations = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
        must = f"a number, one for each of {D} input dimensions, or of shape ({Q}, {D})"
        scales = deviations if self.length_scale is None else self.length_scale
        scales = positive("length_scale", spread("length_scale", scales, (Q, D), must))
        variances = spread("variance", self.variance, (Q,), f"a number or one for each of {Q} latents")
        variances = positive("variance", variances)
        return tuple(
            Kernel(CORRELATIONS[name], where.asarray(variances[j]), where.asarray(scales[j]))
            for j, name in enumerate(self._kernel_names())
        )

    def _inducing_inputs(self, X: Floats, rng: np.random.Generator) -> tuple[Floats, bool]:
        """Z (Q, M, D), and whether it is X itself."""
        Q, D = self._latents, X.shape[1]
        if self.inducing is None:
            Z = X
        elif isinstance(self.inducing, Integral):
            Z = self._placed(X, int(self.inducing), rng)
        else:
            must = f"None, a number, or inputs of shape (M, {D}) or ({Q}, M, {D})"
            Z = numbers("inducing", self.inducing, must)
            if Z.ndim not in (2, 3) or Z.shape[-1] != D or Z.shape[:-2] not in ((), (Q,)) or not Z.size:
                raise ValueError(f"inducing must be {must}, had shape {Z.shape}")
        Z = np.ascontiguousarray(np.broadcast_to(Z, (Q, *Z.shape[-2:])))
        same = Z.shape[1:] == X.shape and bool(np.all(X == Z)) and isinstance(self.method, Blocks)
        return Z, same

    def _placed(self, X: Floats, count: int, rng: np.random.Generator) -> Floats:
        N, D = X.shape
        if not 1 <= count <= N:
            raise ValueError(f"inducing must be between 1 and the number of sites, {N}, was {count}")
        if self.placement == "subset":
            return choices.nested_subset(X, count, rng)
        if self.placement == "clusters":
            return choices.cluster_centres(X, count, rng)
        side = round(count ** (1.0 / D))
        if side < 2:
            raise ValueError(f"inducing must be at least {2**D} for a grid (D = {D}), was {count}")
        return choices.regular_grid(X, (side,) * D)

    def _family(self, M: int, N: int, kernels: tuple[Kernel, ...], where: Place) -> Family:
        Q, K = self._latents, self.components
        if self.posterior == "diagonal":
            return Diagonal(Q, M, K)
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

    def _new_inputs(self, X: ArrayLike) -> Floats:
        inputs, D = self._inputs(X), self._fitted.parameters.inducing.shape[-1]
        if inputs.shape[1] != D:
            raise ValueError(f"X must have shape (N, {D}), as the inputs that were learnt from, had {inputs.shape}")
        return inputs

    def _chunks(self, X: ArrayLike) -> Iterator[Array]:
        where, inputs = self._where(), self._new_inputs(X)
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
