"""Polynomials for the outputs of a site model, fitted to the latest runs: one for all sites, or one per site."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from invgp.emulation.emulator_inputs import Inputs
from invgp.emulation.hermite_basis import Basis, bases
from invgp.problem import Floats

Integers = NDArray[np.intp]
MOST_FEATURES = 220  # most coefficients of a polynomial
RUNS_PER_FEATURE = 3  # fewest runs per coefficient
RUNS_IN_ALL, RUNS_PER_SITE = 4000, 150  # runs that are kept: in all, or per site if this is more
LARGEST_ERROR = 3.0  # noise standard deviations at the power of the likelihood; larger errors count as this value
RIDGE = 1e-10  # relative to the mean square of the features
NUMBERS_AT_ONCE = 2**22  # features in one block, to limit memory


@dataclass(frozen=True)
class RecentRuns:
    """The latest n runs of each site.

    Attributes
    ----------
    latents : array, shape (N, n, Q)
    outputs : array, shape (N, n, P)
        Zero where the run failed.
    valid : array of bool, shape (N, n)
    """

    latents: Floats
    outputs: Floats
    valid: NDArray[np.bool_]

    @staticmethod
    def empty(sites: int, latents: int, outputs: int) -> RecentRuns:
        """Return no runs, with space for the latest of N sites with Q latents and P outputs."""
        n = max(RUNS_IN_ALL // sites, RUNS_PER_SITE)
        return RecentRuns(
            np.zeros((sites, n, latents)), np.zeros((sites, n, outputs)), np.zeros((sites, n), dtype=bool)
        )

    def append(self, sites: Integers, f: Floats, outputs: Floats, valid: NDArray[np.bool_]) -> RecentRuns:
        """Return the runs with a batch of new ones, (C, b, Q), (C, b, P) and (C, b), at sites (b,)."""

        def insert(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
            changed = old.copy()
            changed[sites] = np.concatenate([np.swapaxes(new, 0, 1), old[sites]], axis=1)[:, : old.shape[1]]
            return changed

        return RecentRuns(insert(self.latents, f), insert(self.outputs, outputs), insert(self.valid, valid))


class PolynomialFit(NamedTuple):
    """Polynomials of the standardised latents (and site columns), for all sites together (S = 1) or each (S = N).

    Attributes
    ----------
    inputs : Inputs
    basis : Basis
    centre, scale : arrays, shape (S, I)
    coefficients : array, shape (S, F, P)
    error : float
        Root mean square error at runs that were left out, in noise standard deviations at the power of the likelihood;
        larger ones than `LARGEST_ERROR` are clipped.
    """

    inputs: Inputs
    basis: Basis
    centre: Floats
    scale: Floats
    coefficients: Floats
    error: float

    def linearise(self, f: Floats, sites: Integers) -> tuple[Floats, Callable[[Floats], Floats]]:
        """Predict the outputs (C, n, P) at latents f (C, n, Q) of sites (n,), and return the transposed derivative.

        The latter converts cotangents (C, n, P) of the outputs to a gradient (C, n, Q) with respect to the latents.
        """
        C, n, _ = f.shape
        step = max(NUMBERS_AT_ONCE // (C * len(self.basis)), 1)
        parts = [self._linearise(f[:, i : i + step], sites[i : i + step]) for i in range(0, n, step)]

        def pull_back(cotangents: Floats) -> Floats:
            gradients = [pull(cotangents[:, k * step : (k + 1) * step]) for k, (_, pull) in enumerate(parts)]
            return np.concatenate(gradients, axis=1)

        return np.concatenate([outputs for outputs, _ in parts], axis=1), pull_back

    def _linearise(self, f: Floats, sites: Integers) -> tuple[Floats, Callable[[Floats], Floats]]:
        C, n, Q = f.shape
        own = np.zeros_like(sites) if len(self.centre) == 1 else sites
        rows = self.inputs.rows(f.swapaxes(0, 1).reshape(n * C, Q), np.repeat(sites, C))
        raw = rows[:, : self.centre.shape[1]].reshape(n, C, -1)
        x = ((raw - self.centre[own, None]) / self.scale[own, None]).reshape(n * C, -1)
        with np.errstate(over="ignore", invalid="ignore"):
            features = self.basis(x)
            by_site = np.moveaxis(features.reshape(-1, n, C), 0, -1)
            outputs = (by_site @ self.coefficients[own]).swapaxes(0, 1)

        def pull_back(cotangents: Floats) -> Floats:
            with np.errstate(over="ignore", invalid="ignore"):
                weights = cotangents.swapaxes(0, 1) @ self.coefficients[own].mT  # (n, C, F)
                gradient = self.basis.pull_back(features, np.moveaxis(weights, -1, 0).reshape(-1, n * C))
            gradient = gradient.reshape(n, C, -1) / self.scale[own, None]
            return np.asarray(self.inputs.pull_back(gradient.reshape(n * C, -1), Q).reshape(n, C, Q).swapaxes(0, 1))

        return np.asarray(outputs), pull_back


def fit_polynomials(inputs: Inputs, runs: RecentRuns, noise: Floats, power: float) -> PolynomialFit | None:
    """Fit polynomials of several degrees, and return the one with the smallest error at runs that were left out.

    Parameters
    ----------
    inputs : Inputs
    runs : RecentRuns
    noise : array, shape (N, P)
        Noise standard deviation; infinite where nothing was observed.
    power : float
        Power of the likelihood.

    Returns
    -------
    PolynomialFit or None
        None if there are too few runs.
    """
    used = runs.valid.any(axis=1)
    if not used.any():
        return None
    weight = np.where(runs.valid[..., None], np.sqrt(power) / noise[:, None], 0.0)  # (N, n, P)
    N, n, Q = runs.latents.shape
    sites = np.repeat(np.arange(N), n)
    x = inputs.rows(runs.latents.reshape(N * n, Q), sites)
    best: PolynomialFit | None = None
    together = np.flatnonzero(runs.valid.ravel())
    together = together[:: max(len(together) // RUNS_IN_ALL, 1)]
    for basis in bases(inputs.size, MOST_FEATURES):
        if RUNS_PER_FEATURE * len(basis) <= len(together):
            found = _fit(
                inputs,
                basis,
                x[together][None],
                runs.outputs.reshape(N * n, -1)[together][None],
                weight.reshape(N * n, -1)[together][None],
            )
            best = found if best is None or found.error < best.error else best
    fewest = int(runs.valid[used].sum(axis=1).min())
    own = x.reshape(N, n, -1)[..., : len(inputs.latents)]
    for basis in bases(len(inputs.latents), MOST_FEATURES) if N > 1 else ():
        if RUNS_PER_FEATURE * len(basis) <= fewest:
            found = _fit(inputs, basis, own, runs.outputs, weight)
            best = found if best is None or found.error < best.error else best
    return best


def _fit(inputs: Inputs, basis: Basis, x: Floats, y: Floats, weight: Floats) -> PolynomialFit:
    """Fit polynomials to inputs x (S, n, I) and outputs y (S, n, P); runs with weight (S, n, P) 0 are left out."""
    S, n, I = x.shape  # noqa: E741
    valid = np.any(weight > 0.0, axis=2, keepdims=True)
    count = np.maximum(valid.sum(axis=1), 1)
    centre = np.sum(valid * x, axis=1) / count
    spread = np.sqrt(np.sum(valid * (x - centre[:, None]) ** 2, axis=1) / count)
    scale = np.where(spread > 1e-12, spread, 1.0)
    standardised = (x - centre[:, None]) / scale[:, None]
    features = np.moveaxis(basis(standardised.reshape(S * n, I)).reshape(-1, S, n), 0, -1) * valid
    gram = features.mT @ features
    mean_square = np.trace(gram, axis1=1, axis2=2)[:, None, None] / len(basis)
    ridge = np.where(mean_square > 0.0, RIDGE * mean_square, 1.0)  # 1 for a site without runs
    inverse = np.linalg.inv(gram + ridge * np.eye(len(basis)))
    coefficients = inverse @ (features.mT @ (valid * y))
    leverage = np.sum((features @ inverse) * features, axis=2, keepdims=True)
    errors = weight * (y - features @ coefficients) / np.maximum(1.0 - leverage, 1e-6)
    squares = np.asarray(np.minimum(errors**2, LARGEST_ERROR**2))[weight > 0.0]
    return PolynomialFit(inputs, basis, centre, scale, coefficients, float(np.sqrt(np.mean(squares))))
