"""References for `shapes.py`: two posteriors of each problem that agree, by methods that share no code with invgp.

Problems with independent sites of one or two unknowns: quadrature on a grid, and importance sampling with quasi-random
draws from the prior. Independent sites of more unknowns: importance sampling with a proposal that is adapted to each
site, and tempered sequential Monte Carlo of each site. Coupled sites: sequential Monte Carlo, and parallel tempering
from draws of the prior. The chains move by Hamiltonian Monte Carlo in whitened coordinates. The force may be
approximate, because a move is accepted with the exact density: for a costly simulator it is that of a polynomial.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.special import logsumexp, ndtri
from scipy.stats import qmc
from shape_problems import Case, Survey

KEPT = 20_000  # draws that are stored
REACH = 6.0  # prior standard deviations: half-width of the grids
WIDENED = 1.5  # standard deviation of the points of importance sampling, in those of the prior
FEWEST = 400  # effective draws of an importance sample; with fewer it is not used
ROUNDS = (4000, 4000, 4000, 4000, 8000, 40_000)  # draws of each site in adaptive importance sampling
KERNEL_WIDTHS = (0.3, 0.5, 1.0)  # of the kernels, in standard deviations of the draws; each is used equally often
PRIOR_SHARE = 0.1  # of draws from the prior among them
DEGREE = 4  # of the polynomial whose gradient is the force of a costly simulator
RECENT = 6000  # runs that it is fitted to
WALKS = 5  # steps of a random walk per move
SLICES = 8  # elliptical slices per move
EFFORT = 3  # factor of the lengths if two references do not agree
JUMPS = 5  # mirror images that are tried after each trajectory
MEAN_BAR, SPREAD_BAR, R_HAT_BAR = 0.05, 0.03, 1.01


@dataclass(frozen=True)
class Reference:
    """Draws (S, N, Q) of the physical values, of equal weight, with their exact mean and spread (N, Q)."""

    method: str
    mean: np.ndarray
    std: np.ndarray
    draws: np.ndarray
    seconds: float

    def mass(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Probability (N, Q) of intervals."""
        return np.mean((self.draws >= low) & (self.draws <= high), axis=0)


@dataclass(frozen=True)
class Agreement:
    """How far two references are apart: means in standard deviations, spreads as a ratio, R-hat of eight batches."""

    mean: float
    spread: float
    r_hat: float

    @property
    def good(self) -> bool:
        """Whether all bars are met."""
        return self.mean <= MEAN_BAR and self.spread <= SPREAD_BAR and self.r_hat <= R_HAT_BAR

    def __str__(self) -> str:
        words = "agree" if self.good else "DISAGREE"
        return f"{words} (means {self.mean:.3f} sd, spreads {100 * self.spread:.1f}%, R-hat {self.r_hat:.4f})"


def agreement(first: Reference, second: Reference) -> Agreement:
    """Largest differences over sites and unknowns."""
    std = np.sqrt((first.std**2 + second.std**2) / 2.0)
    batches = [part for one in (first, second) for part in np.array_split(one.draws.astype(float), 4)]
    between = np.var([batch.mean(axis=0) for batch in batches], axis=0, ddof=1)
    within = np.mean([batch.var(axis=0) for batch in batches], axis=0)
    return Agreement(
        float(np.max(np.abs(first.mean - second.mean) / std)),
        float(np.max(np.abs(np.log(first.std / second.std)))),
        float(np.max(np.sqrt(1.0 + between / within))),
    )


def pool_references(first: Reference, second: Reference) -> Reference:
    """Both at once, of equal weight."""
    mean = (first.mean + second.mean) / 2.0
    variance = (first.std**2 + second.std**2) / 2.0 + ((first.mean - second.mean) / 2.0) ** 2
    draws = np.concatenate([first.draws, second.draws])
    return Reference(
        f"{first.method} and {second.method}", mean, np.sqrt(variance), draws, first.seconds + second.seconds
    )


def references(survey: Survey, cache: Path) -> tuple[Reference, Reference]:
    """Two references, computed once and kept in a folder."""
    methods = METHODS[_kind(survey.case)]
    first, second = (_kept(survey, name, cache, 1) for name in methods)
    if _kind(survey.case) != "grid" and not agreement(first, second).good:
        first, second = (_kept(survey, name, cache, EFFORT) for name in methods)
    return first, second


def _kind(case: Case) -> str:
    if not case.separate:
        return "coupled"
    return "grid" if len(case.processes[0]) <= 2 else "separate"


def _kept(survey: Survey, method: str, cache: Path, effort: int) -> Reference:
    path = cache / f"{survey.case.name}.{survey.seed}.{method.replace(' ', '-')}.{effort}.npz"
    if path.exists():
        with np.load(path) as kept:
            if np.array_equal(kept["data"], survey.data) and np.array_equal(kept["noise"], survey.noise):
                return Reference(method, kept["mean"], kept["std"], kept["draws"], float(kept["seconds"]))
    started = time.perf_counter()
    rng = np.random.default_rng([survey.seed, len(method), effort])
    mean, std, draws = FUNCTIONS[method](survey, rng, effort)
    seconds = time.perf_counter() - started
    cache.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part.npz")
    np.savez_compressed(
        partial, mean=mean, std=std, draws=draws.astype(np.float32), seconds=seconds, data=survey.data,
        noise=survey.noise,
    )  # fmt: skip
    partial.replace(path)
    return Reference(method, mean, std, draws.astype(np.float32), seconds)


# Independent sites: weighted points.


def quadrature(survey: Survey, rng: np.random.Generator, effort: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The trapezoidal rule on a regular grid of one or two unknowns."""
    mean, _ = survey.case.processes
    count = {1: 400_001, 2: 1201}[len(mean)]
    axis = np.linspace(-REACH, REACH, count)
    grids = np.meshgrid(*[axis] * len(mean), indexing="ij")
    whitened = np.stack([grid.ravel() for grid in grids], axis=-1)
    return _resample_points(survey, whitened, -0.5 * np.sum(whitened**2, axis=-1), rng, 2.0 * REACH / (count - 1))


def importance_sampling(
    survey: Survey, rng: np.random.Generator, effort: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scrambled Sobol points of the prior, widened, weighted by the likelihood."""
    mean, _ = survey.case.processes
    points = WIDENED * ndtri(np.clip(qmc.Sobol(len(mean), rng=rng).random(2**20), 1e-12, 1.0 - 1e-12))
    return _resample_points(survey, points, -0.5 * np.sum(points**2, axis=-1) * (1.0 - WIDENED**-2.0), rng, 0.0)


def _resample_points(
    survey: Survey, whitened: np.ndarray, log_prior: np.ndarray, rng: np.random.Generator, cell: float
):
    """Moments, and draws by systematic resampling: each point once or more, moved within its cell."""
    case = survey.case
    center, scale = case.processes
    f = center + scale * whitened
    values, outputs = case.physical(f), None
    means, stds, kept = [], [], []
    for data, noise, x in zip(survey.data, survey.noise, case.x, strict=True):
        if outputs is None or case.local:
            outputs = np.concatenate([case.outputs(part, x) for part in np.array_split(f, max(1, len(f) // 2**18))])
        log_weight = log_prior + case.log_density((outputs - data) / noise)
        log_weight = np.where(np.isfinite(log_weight), log_weight, -np.inf)
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        if 1.0 / np.sum(weight**2) < FEWEST:
            raise SystemExit(f"{case.name}: the weights leave {1.0 / np.sum(weight**2):.0f} effective points")
        mean = weight @ values
        means.append(mean)
        stds.append(np.sqrt(weight @ (values - mean) ** 2))
        chosen = np.searchsorted(np.cumsum(weight), (rng.random() + np.arange(KEPT)) / KEPT).clip(0, len(weight) - 1)
        moved = f[chosen] + scale * cell * (rng.random((KEPT, len(scale))) - 0.5)
        kept.append(case.physical(rng.permutation(moved)))
    return np.array(means), np.array(stds), np.stack(kept, axis=1)


def adaptive_importance_sampling(survey: Survey, rng: np.random.Generator, effort: int):
    """Weighted draws of a mixture of Gaussians at earlier draws and the prior, adapted to each site in a few rounds."""
    case = survey.case
    center, scale = case.processes
    costly, dimension = bool(case.needs), len(center)
    first = ndtri(np.clip(qmc.Sobol(dimension, rng=rng).random(2**15 if costly else 2**21), 1e-12, 1.0 - 1e-12))
    first_outputs = case.outputs(center + scale * first)
    means, stds, kept = [], [], []
    for data, noise in zip(survey.data, survey.noise, strict=True):
        points, log_fit, log_ratio = first, _fit(first_outputs, data, noise), np.zeros(len(first))
        enough = 1.0 / np.sum(_normalise_weights(log_fit) ** 2) >= 5 * FEWEST
        for count in () if enough else ROUNDS:
            points, log_ratio = _kernel_draws(points, log_fit, log_ratio, count * effort, rng)
            log_fit = _fit(case.outputs(center + scale * points), data, noise)
        weight = _normalise_weights(log_fit + log_ratio)
        effective = 1.0 / np.sum(weight**2)
        if effective < 5 * FEWEST:
            raise SystemExit(f"{case.name}: the weights leave {effective:.0f} effective points")
        values = case.physical(center + scale * points)
        mean = weight @ values
        means.append(mean)
        stds.append(np.sqrt(weight @ (values - mean) ** 2))
        kept.append(rng.permutation(values[_resample_indices(weight, KEPT, rng)]))
    return np.array(means), np.array(stds), np.stack(kept, axis=1)


def _fit(outputs: np.ndarray, data: np.ndarray, noise: np.ndarray) -> np.ndarray:
    log_likelihood = -0.5 * np.sum(((outputs - data) / noise) ** 2, axis=-1)
    return np.where(np.isfinite(log_likelihood), log_likelihood, -1e300)


def _normalise_weights(log_weight: np.ndarray) -> np.ndarray:
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum())


def _resample_indices(weight: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Indices by systematic resampling."""
    places = (rng.random() + np.arange(count)) / count
    return np.searchsorted(np.cumsum(weight / weight.sum()), places).clip(0, len(weight) - 1)


def _kernel_draws(points, log_fit, log_ratio, count: int, rng: np.random.Generator):
    """Draws (S, D) of a mixture of Gaussians at weighted points, and log prior minus log proposal density.

    The likelihood is tempered until the weights have an effective size of at least 300.
    """
    power = 1.0
    while 1.0 / np.sum(_normalise_weights(power * log_fit + log_ratio) ** 2) < 300.0:
        power *= 0.8
    centers = points[_resample_indices(_normalise_weights(power * log_fit + log_ratio), 1000, rng)]
    dimension = points.shape[1]
    factor = np.linalg.cholesky(np.cov(centers, rowvar=False) + 1e-8 * np.eye(dimension))
    width = rng.choice(KERNEL_WIDTHS, size=(count, 1))
    steps = width * rng.standard_normal((count, dimension)) @ factor.T
    drawn = centers[rng.integers(len(centers), size=count)] + steps
    prior = rng.random(count) < PRIOR_SHARE
    drawn[prior] = rng.standard_normal((int(prior.sum()), dimension))
    inverse = np.linalg.inv(factor)
    log_prior = -0.5 * np.sum(drawn**2, axis=-1)
    log_kernels = np.empty(count)
    for part in np.array_split(np.arange(count), max(1, count // 500)):
        distance = np.sum(((drawn[part, None] - centers[None]) @ inverse.T) ** 2, axis=-1)
        terms = [-0.5 * distance / width**2 - dimension * np.log(width) for width in KERNEL_WIDTHS]
        log_kernels[part] = logsumexp(terms, axis=(0, 2)) - np.log(len(centers) * len(KERNEL_WIDTHS))
    log_kernels -= np.sum(np.log(np.diag(factor)))
    log_proposal = np.logaddexp(np.log(PRIOR_SHARE) + log_prior, np.log(1.0 - PRIOR_SHARE) + log_kernels)
    return drawn, log_prior - log_proposal


# Tempered chains.


class Target:
    """Log likelihood of whitened variables z (C, D), and its gradient by central differences.

    D = Q N: the variables of process j at all sites, one process after another.
    """

    def __init__(self, survey: Survey) -> None:
        self.survey, self.case = survey, survey.case
        self.mean, self.std = self.case.processes
        self.factor = np.linalg.cholesky(self.case.correlation() + 1e-10 * np.eye(self.case.sites))
        self.dimension = len(self.mean) * self.case.sites

    def processes(self, z: np.ndarray) -> np.ndarray:
        """Processes (C, N, Q)."""
        whitened = z.reshape(len(z), len(self.mean), self.case.sites)
        return self.mean + self.std * np.moveaxis(whitened @ self.factor.T, 1, 2)

    def site_terms(self, f: np.ndarray) -> np.ndarray:
        """Log likelihood (C, N) of each site."""
        chains, sites, processes = f.shape
        outputs = self.case.outputs(f.reshape(-1, processes)).reshape(chains, sites, -1)
        with np.errstate(over="ignore", invalid="ignore"):
            terms = -0.5 * np.sum(((outputs - self.survey.data) / self.survey.noise) ** 2, axis=-1)
        return np.where(np.isfinite(terms), terms, -np.inf)

    def __call__(self, z: np.ndarray) -> np.ndarray:
        """Log likelihood (C,)."""
        with np.errstate(all="ignore"):
            return self.site_terms(self.processes(z)).sum(axis=-1)

    def force(self, z: np.ndarray) -> np.ndarray:
        """Gradient (C, D)."""
        f = self.processes(z)
        slopes = np.empty_like(f)
        with np.errstate(all="ignore"):
            for j, std in enumerate(self.std):
                moved = f.copy()
                moved[..., j] += self.case.step * std
                up = self.site_terms(moved)
                moved[..., j] -= 2.0 * self.case.step * std
                slopes[..., j] = (up - self.site_terms(moved)) / (2.0 * self.case.step)
        slopes = np.nan_to_num(slopes, nan=0.0, posinf=0.0, neginf=0.0)
        return (np.moveaxis(slopes, 2, 1) @ self.factor).reshape(len(z), -1)

    def precision(self, z: np.ndarray, beta: float) -> np.ndarray:
        """Prior and mean Fisher information (D, D) over an ensemble, for one unknown."""
        f = self.processes(z)
        with np.errstate(all="ignore"):
            width = self.case.step * self.std
            up, down = (self.case.outputs((f + s * width).reshape(-1, 1)) for s in (1.0, -1.0))
            slopes = ((up - down) / (2.0 * self.case.step)).reshape(*f.shape[:2], -1) / self.survey.noise
        information = np.nanmean(np.sum(slopes**2, axis=-1), axis=0)
        return np.eye(self.dimension) + beta * (self.factor.T * information) @ self.factor

    def mirror_sites(self, z: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Images (C, D) of z where some neighbouring sites are replaced by their mirror images, and log derivatives."""
        f = self.processes(z)[..., 0]
        ends = np.sort(rng.integers(0, self.case.sites + 1, (len(z), 2)), axis=1)
        inside = (np.arange(self.case.sites) >= ends[:, :1]) & (np.arange(self.case.sites) < ends[:, 1:])
        image, logs = np.empty_like(f), np.empty_like(f)
        choice = rng.integers(len(self.case.mirrors), size=len(z))
        for index, mirror in enumerate(self.case.mirrors):
            here = choice == index
            image[here], logs[here] = mirror(f[here])
        moved = (np.where(inside, image, f) - self.mean) / self.std
        z = np.linalg.solve(self.factor, np.nan_to_num(moved, nan=1e6).T).T
        return z, np.where(inside, logs, 0.0).sum(axis=-1)

    def values(self, z: np.ndarray) -> np.ndarray:
        """Physical values (C, N, Q)."""
        return self.case.physical(self.processes(z))


class CostlyTarget(Target):
    """A target whose force is that of a polynomial fitted to the latest runs."""

    def __init__(self, survey: Survey) -> None:
        super().__init__(survey)
        exponents = itertools.product(range(DEGREE + 1), repeat=len(self.mean))
        self.exponents = np.array([one for one in exponents if sum(one) <= DEGREE])
        self.inputs, self.results, self.coefficients = np.empty((0, len(self.mean))), np.empty((0, 0)), None

    def site_terms(self, f: np.ndarray) -> np.ndarray:
        """Log likelihood (C, N) of each site; the runs are kept."""
        chains, sites, processes = f.shape
        flat = f.reshape(-1, processes)
        outputs = self.case.outputs(flat)
        good = np.all(np.isfinite(outputs), axis=1)
        self.inputs = np.concatenate([self.inputs, flat[good]])[-RECENT:]
        self.results = np.concatenate([self.results.reshape(-1, outputs.shape[1]), outputs[good]])[-RECENT:]
        outputs = outputs.reshape(chains, sites, -1)
        with np.errstate(over="ignore", invalid="ignore"):
            terms = -0.5 * np.sum(((outputs - self.survey.data) / self.survey.noise) ** 2, axis=-1)
        return np.where(np.isfinite(terms), terms, -np.inf)

    def learn(self) -> None:
        """Fit the polynomial."""
        self.middle, self.width = self.inputs.mean(axis=0), self.inputs.std(axis=0)
        features, _ = self._features(self.inputs, slopes=False)
        self.coefficients = np.linalg.lstsq(features, self.results, rcond=1e-10)[0]

    def _features(self, f: np.ndarray, slopes: bool) -> tuple[np.ndarray, list[np.ndarray]]:
        """Monomials (B, F) of the standardised processes, and their derivatives with respect to each process."""
        x = np.clip((f - self.middle) / self.width, -4.0, 4.0)
        powers = x[:, :, None] ** np.arange(DEGREE + 1)
        columns = [powers[:, j, self.exponents[:, j]] for j in range(x.shape[1])]
        if not slopes:
            return np.prod(columns, axis=0), []
        derived = []
        for j, exponent in enumerate(self.exponents.T):
            slope = exponent * powers[:, j, np.maximum(exponent - 1, 0)] / self.width[j]
            derived.append(np.prod([slope, *columns[:j], *columns[j + 1 :]], axis=0))
        return np.prod(columns, axis=0), derived

    def force(self, z: np.ndarray) -> np.ndarray:
        """Gradient (C, D) of the log likelihood of the polynomial."""
        if self.coefficients is None:
            return np.zeros_like(z)
        f = self.processes(z)
        features, derived = self._features(f.reshape(-1, f.shape[-1]), slopes=True)
        shape = (*f.shape[:2], -1)
        misfit = (self.survey.data - (features @ self.coefficients).reshape(shape)) / self.survey.noise**2
        slopes = [np.sum(misfit * (part @ self.coefficients).reshape(shape), axis=-1) for part in derived]
        scaled = np.stack(slopes, axis=1) * self.std[:, None]
        return (scaled @ self.factor).reshape(len(z), -1)


def target_of(survey: Survey) -> Target:
    """The posterior that is sampled."""
    if hasattr(survey, "target"):
        return survey.target()  # of a field
    return CostlyTarget(survey) if survey.case.needs else Target(survey)


@dataclass
class Ensemble:
    """Chains z (T, C, D) at T temperatures, with their log likelihood (T, C)."""

    z: np.ndarray
    log_likelihood: np.ndarray


def metric(z: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Cholesky factor (D, D) of the covariance of an ensemble (S, D), shrunk towards its variances."""
    covariance = np.cov(z, rowvar=False, aweights=weight).reshape(z.shape[1], -1)
    effective = len(z) if weight is None else weight.sum() ** 2 / np.sum(weight**2)
    share = z.shape[1] / (z.shape[1] + effective)
    covariance = (1.0 - share) * covariance + share * np.diag(np.diag(covariance))
    return np.linalg.cholesky(covariance + 1e-10 * np.eye(len(covariance)))


class Mover:
    """Hamiltonian Monte Carlo at T temperatures at once, each with its metric and its step."""

    def __init__(self, target, beta: np.ndarray, rng: np.random.Generator, longest: int = 40) -> None:
        self.target, self.beta, self.rng, self.longest = target, beta, rng, longest
        self.step = np.full(len(beta), 0.3)
        self.factor = np.tile(np.eye(target.dimension), (len(beta), 1, 1))

    def __call__(self, state: Ensemble, adapt: bool) -> tuple[Ensemble, np.ndarray]:
        """One move of each chain, and the share of acceptances (T,)."""
        if self.target.case.rough:
            for _ in range(SLICES):
                state = self.slice(state)
            return state, np.ones(len(self.beta))
        if self.target.case.needs and self.target.case.sites == 1:
            for _ in range(WALKS):
                state, rate = self.walk(state, adapt)
            return state, rate
        temperatures, chains, dimension = state.z.shape
        leaps = int(np.clip(np.ceil(1.4 / np.median(self.step)), 3, self.longest))
        step = self.step[:, None, None] * self.rng.uniform(0.6, 1.2, (temperatures, chains, 1))
        momentum = self.rng.standard_normal(state.z.shape)
        z, before = state.z, 0.5 * np.sum(momentum**2, axis=-1)
        p = momentum + 0.5 * step * self._pull(z)
        with np.errstate(invalid="ignore", over="ignore"):
            for leap in range(leaps):
                z = z + step * (p @ self.factor.swapaxes(-1, -2))
                p = p + (step if leap < leaps - 1 else 0.5 * step) * self._pull(z)
        log_likelihood = self.target(z.reshape(-1, dimension)).reshape(temperatures, chains)
        with np.errstate(invalid="ignore", over="ignore"):
            change = self._energy(state.z, state.log_likelihood) - self._energy(z, log_likelihood)
            change = change + before - 0.5 * np.sum(p**2, axis=-1)
        accepted = np.log(self.rng.random(change.shape)) < np.where(np.isnan(change), -np.inf, change)
        rate = accepted.mean(axis=1)
        if adapt:
            self.step = np.clip(self.step * np.exp(0.5 * (rate - 0.75)), 1e-3, 1.0)
        moved = np.where(accepted[..., None], z, state.z)
        return self.jump(Ensemble(moved, np.where(accepted, log_likelihood, state.log_likelihood))), rate

    def walk(self, state: Ensemble, adapt: bool) -> tuple[Ensemble, np.ndarray]:
        """A step of a random walk in the metric: for few unknowns and a costly simulator."""
        shape = state.z.shape
        z = state.z + self.step[:, None, None] * (self.rng.standard_normal(shape) @ self.factor.swapaxes(-1, -2))
        log_likelihood = self.target(z.reshape(-1, shape[-1])).reshape(shape[:2])
        change = self._energy(state.z, state.log_likelihood) - self._energy(z, log_likelihood)
        accepted = np.log(self.rng.random(change.shape)) < change
        rate = accepted.mean(axis=1)
        if adapt:
            self.step = np.clip(self.step * np.exp(0.5 * (rate - 0.25)), 1e-3, 2.0)
        moved = np.where(accepted[..., None], z, state.z)
        return Ensemble(moved, np.where(accepted, log_likelihood, state.log_likelihood)), rate

    def slice(self, state: Ensemble) -> Ensemble:
        """Elliptical slice sampling: the ellipse through z and a draw of the prior, its bracket shrunk to z."""
        shape, beta = state.z.shape, np.repeat(self.beta, state.z.shape[1])
        z, log_likelihood = state.z.reshape(-1, shape[-1]).copy(), state.log_likelihood.ravel().copy()
        other, angle = self.rng.standard_normal(z.shape), 2.0 * np.pi * self.rng.random(len(z))
        low, high = angle - 2.0 * np.pi, angle.copy()
        level = beta * log_likelihood + np.log(self.rng.random(len(z)))
        start, open_ = z.copy(), np.arange(len(z))
        while len(open_):
            trial = start[open_] * np.cos(angle[open_])[:, None] + other[open_] * np.sin(angle[open_])[:, None]
            found = self.target(trial)
            inside = beta[open_] * found > level[open_]
            z[open_[inside]], log_likelihood[open_[inside]] = trial[inside], found[inside]
            open_ = open_[~inside]
            low[open_] = np.where(angle[open_] < 0.0, angle[open_], low[open_])
            high[open_] = np.where(angle[open_] >= 0.0, angle[open_], high[open_])
            angle[open_] = self.rng.uniform(low[open_], high[open_])
        return Ensemble(z.reshape(shape), log_likelihood.reshape(shape[:2]))

    def jump(self, state: Ensemble) -> Ensemble:
        """Try mirror images."""
        if not self.target.case.mirrors:
            return state
        for _ in range(JUMPS):
            flat = state.z.reshape(-1, state.z.shape[-1])
            z, logs = self.target.mirrored(flat, self.rng)
            log_likelihood = self.target(z).reshape(state.log_likelihood.shape)
            z = z.reshape(state.z.shape)
            with np.errstate(invalid="ignore"):
                change = self._energy(state.z, state.log_likelihood) - self._energy(z, log_likelihood)
                change = change + logs.reshape(change.shape)
            accepted = np.log(self.rng.random(change.shape)) < np.where(np.isnan(change), -np.inf, change)
            moved = np.where(accepted[..., None], z, state.z)
            state = Ensemble(moved, np.where(accepted, log_likelihood, state.log_likelihood))
        return state

    def fit(self, draws: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Set the metric of each temperature from draws (T, S, D), and the force of a costly simulator."""
        if isinstance(self.target, CostlyTarget) and self.target.case.sites > 1:
            self.target.learn()
        if self.target.case.mirrors:
            pairs = zip(draws, self.beta, strict=True)
            factors = [np.linalg.cholesky(np.linalg.inv(self.target.precision(z, beta))) for z, beta in pairs]
        else:
            factors = [metric(z, weights) for z in draws]
        self.factor = np.stack(factors)

    def _energy(self, z: np.ndarray, log_likelihood: np.ndarray) -> np.ndarray:
        tempered = np.where(self.beta[:, None] > 0.0, self.beta[:, None] * log_likelihood, 0.0)
        return 0.5 * np.sum(z**2, axis=-1) - tempered

    def _pull(self, z: np.ndarray) -> np.ndarray:
        """Minus the gradient of the energy in the coordinates of the metric."""
        force = self.target.force(z.reshape(-1, z.shape[-1])).reshape(z.shape)
        return np.asarray((self.beta[:, None, None] * force - z) @ self.factor)


def next_temperature(log_likelihood: np.ndarray, beta: float, share: float) -> float:
    """The power at which the weights keep a share of the effective size, by bisection."""

    def kept(new: float) -> float:
        log_weight = (new - beta) * log_likelihood
        weight = np.exp(log_weight - log_weight.max())
        return float(weight.sum() ** 2 / np.sum(weight**2) / len(weight))

    if kept(1.0) >= share:
        return 1.0
    low, high = beta, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if kept(middle) >= share else (low, middle)
    return low


def anneal(target, particles: int, share: float, moves: int, rng: np.random.Generator):
    """Draws from the prior to the posterior, through temperatures: the ensemble, its mover, and all powers."""
    z = rng.standard_normal((particles, target.dimension))
    log_likelihood, beta, ladder, step = target(z), 0.0, [0.0], 0.3
    while beta < 1.0:
        finite = np.where(np.isfinite(log_likelihood), log_likelihood, -1e300)
        beta, before = next_temperature(finite, beta, share), beta
        log_weight = (beta - before) * finite
        weight = np.exp(log_weight - log_weight.max())
        mover = Mover(target, np.array([beta]), rng)
        mover.step[:] = step
        mover.fit(z[None], weight)
        places = (rng.random() + np.arange(particles)) / particles
        chosen = np.searchsorted(np.cumsum(weight / weight.sum()), places).clip(0, particles - 1)
        state = Ensemble(z[None, chosen], log_likelihood[None, chosen])
        for _ in range(moves):
            state, _ = mover(state, adapt=True)
        z, log_likelihood, step = state.z[0], state.log_likelihood[0], float(mover.step[0])
        ladder.append(beta)
    mover.fit(z[None])
    return state, mover, np.array(ladder)


def sequential(
    target, rng: np.random.Generator, effort: int, particles: int = 2000, keep: int = 8, thin: int = 10
) -> np.ndarray:
    """Draws (S, D) of tempered sequential Monte Carlo, followed by moves at the posterior."""
    if target.case.needs:
        particles, keep, thin = (500, 12, 5) if target.case.sites == 1 else (1000, keep, 5)
    state, mover, _ = anneal(target, particles, 0.7, 8 if not target.case.needs else 5, rng)
    for _ in range(2 * thin):
        state, _ = mover(state, adapt=True)
    kept = []
    for _ in range(effort * keep):
        for _ in range(thin):
            state, _ = mover(state, adapt=False)
        kept.append(state.z[0])
    return np.concatenate([z for first in range(4) for z in [one[first::4] for one in kept]])  # batches by particle


def parallel(
    target, rng: np.random.Generator, effort: int, chains: int = 100, burn: int = 300, keep: int = 800
) -> np.ndarray:
    """Draws (S, D) of parallel tempering, all chains started at draws of the prior."""
    _, _, ladder = anneal(target, max(200, 4 * target.dimension), 0.4, 3, rng)
    ladder = ladder[1:] if ladder[1] > 0.02 else ladder[2:]
    ladder = np.concatenate([[0.0], ladder])
    mover = Mover(target, ladder, rng)
    z = rng.standard_normal((len(ladder), chains, target.dimension))
    state = Ensemble(z, target(z.reshape(-1, target.dimension)).reshape(len(ladder), chains))
    recent: list[np.ndarray] = []
    kept = []
    for iteration in range(burn + effort * keep):
        state, _ = mover(state, adapt=iteration < burn)
        state = exchange(state, ladder, iteration % 2, rng)
        if iteration < burn:
            recent.append(state.z)
            if iteration % 40 == 39 and iteration < burn - 20:
                draws = np.concatenate(recent[len(recent) // 2 :], axis=1)
                mover.fit(draws)
                recent = recent[-20:]
        else:
            kept.append(state.z[-1])
    return np.concatenate([z for first in range(4) for z in [one[first::4] for one in kept]])


def exchange(state: Ensemble, ladder: np.ndarray, first: int, rng: np.random.Generator) -> Ensemble:
    """Swap neighbouring temperatures."""
    z, log_likelihood = state.z.copy(), state.log_likelihood.copy()
    for t in range(first, len(ladder) - 1, 2):
        with np.errstate(invalid="ignore"):
            gain = (ladder[t + 1] - ladder[t]) * (log_likelihood[t] - log_likelihood[t + 1])
        swap = np.log(rng.random(len(gain))) < np.nan_to_num(gain, nan=-np.inf)
        for array in (z, log_likelihood):
            array[t, swap], array[t + 1, swap] = array[t + 1, swap], array[t, swap].copy()
    return Ensemble(z, log_likelihood)


def sequential_monte_carlo(survey: Survey, rng: np.random.Generator, effort: int):
    """Moments and draws by tempered sequential Monte Carlo; of each site, if they are independent."""
    if not survey.case.separate or survey.case.sites == 1:
        return _of_draws(survey, lambda target: sequential(target, rng, effort))
    parts = [sequential_monte_carlo(one, rng, effort) for one in _sites(survey)]
    means, stds, draws = (list(column) for column in zip(*parts, strict=True))
    fewest = min(map(len, draws))
    return np.concatenate(means), np.concatenate(stds), np.concatenate([one[:fewest] for one in draws], axis=1)


def parallel_tempering(survey: Survey, rng: np.random.Generator, effort: int):
    """Moments and draws by parallel tempering."""
    chains, keep = (60, 500) if survey.case.needs else (100, 800)
    return _of_draws(survey, lambda target: parallel(target, rng, effort, chains, keep=keep))


def _sites(survey: Survey) -> list[Survey]:
    """Surveys of one site each."""
    case = replace(survey.case, sites=1)
    columns = zip(survey.truth, survey.data, survey.noise, strict=True)
    return [Survey(case, survey.seed, *(part[None] for part in parts)) for parts in columns]


def _of_draws(survey: Survey, sample):
    target = target_of(survey)
    values = target.values(sample(target))
    return values.mean(axis=0), values.std(axis=0), values[:: max(1, len(values) // KEPT)]


METHODS = {
    "grid": ("quadrature", "importance sampling"),
    "separate": ("adaptive importance sampling", "sequential Monte Carlo"),
    "coupled": ("sequential Monte Carlo", "parallel tempering"),
}
FUNCTIONS = {
    "quadrature": quadrature,
    "importance sampling": importance_sampling,
    "adaptive importance sampling": adaptive_importance_sampling,
    "sequential Monte Carlo": sequential_monte_carlo,
    "parallel tempering": parallel_tempering,
}
