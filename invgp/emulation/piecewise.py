"""Piecewise polynomials: maxima and minima of polynomials, for simulators with kinks.

A simulator with kinks often switches between smooth mechanisms: the first arrival is the earliest of several waves, a
sensor has limits, an amplitude is an absolute value. A maximum or minimum of polynomials represents such an output, and
locates its kinks, with few runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import Array, array_namespace, backend_of
from invgp.emulation.hermite_basis import Basis
from invgp.emulation.polynomial import Polynomial, PullBack
from invgp.emulation.ridge import Ridge
from invgp.emulation.training_runs import Integers
from invgp.problem import Floats

QUANTILES = (0.2, 0.5, 0.8)  # of inputs and outputs, at which the runs are divided at first
ROUNDS = 12  # most alternations between the pieces of the runs and the fits of the pieces
FIRST_ROUNDS, BEST_STARTS = 4, 6  # alternations after which the best starts are chosen, and their number
NEGLIGIBLE = 0.01  # error in noise standard deviations below which no larger basis is tried
MOST_PIECES = 3
RUNS_PER_FEATURE = 1.3  # fewest runs per coefficient of a piece
IMPROVED = 0.7  # relative error at which one more piece is an improvement
FIRST_DEGREE = 2  # of the pieces with which the runs are divided
MOST_DIVIDED = 40  # most coefficients of a piece with which all divisions are tried
TOPS = (True, False)
RIDGE = 1e-8  # strength of the penalty while the runs are divided
Mask = NDArray[np.bool_]
Division = tuple[float, Integers, tuple[bool, ...]]  # mean squared residual, pieces of the runs, and maxima


@dataclass(frozen=True)
class Fold:
    """Extremum of the pieces of one output, from the first to the last.

    Parameters
    ----------
    output : int
        Number of the output.
    pieces : tuple of Polynomial
        Polynomials of this output.
    largest : tuple of bool
        For each piece but the first, whether the larger or the smaller of it and of the result so far is taken.
    """

    output: int
    pieces: tuple[Polynomial, ...]
    largest: tuple[bool, ...]

    def active(self, values: Floats) -> Integers:
        """Return the number of the piece (B,) that determines the output, by the values (K, B) of the pieces."""
        return _active(values, self.largest)


@dataclass(frozen=True)
class PiecewisePolynomials:
    """A polynomial of all outputs; some of them are maxima and minima of polynomials instead.

    Parameters
    ----------
    polynomial : Polynomial
    folds : tuple of Fold
    """

    polynomial: Polynomial
    folds: tuple[Fold, ...]

    @property
    def name(self) -> str:
        """Name of the regression, for users."""
        return f"piecewise {self.folds[0].pieces[0].basis.name}"

    @property
    def width(self) -> int:
        """Numbers that one prediction takes."""
        return len(self.polynomial.basis) + sum(len(piece.basis) for fold in self.folds for piece in fold.pieces)

    def __call__(self, x: Floats, sites: Integers) -> Floats:
        """Predict outputs (B, P) at inputs (B, I)."""
        y = self.polynomial(x, sites)
        for fold in self.folds:
            values = np.stack([piece(x, sites)[:, 0] for piece in fold.pieces])
            y[:, fold.output] = values[fold.active(values), np.arange(len(x))]
        return y

    def linearise(self, x: Array, sites: Integers) -> tuple[Array, PullBack]:
        """Predict outputs (B, P), and return the function that multiplies cotangents by the derivatives."""
        xp, backend = array_namespace(x), backend_of(x)
        y, pull_back_polynomial = self.polynomial.linearise(x, sites)
        y = xp.asarray(y, copy=True)
        parts: list[tuple[int, Array, PullBack]] = []
        for fold in self.folds:
            found = [piece.linearise(x, sites) for piece in fold.pieces]
            value, here = found[0][0][:, 0], xp.zeros(x.shape[0], dtype=xp.int32, device=backend.device)
            for k, largest in enumerate(fold.largest, start=1):
                other = found[k][0][:, 0]
                wins = other > value if largest else other < value
                value = xp.where(wins, other, value)
                here = xp.where(wins, xp.full_like(here, k), here)
            y[:, fold.output] = value
            for k, (_, pull_back_piece) in enumerate(found):
                parts.append((fold.output, xp.astype(here == k, y.dtype), pull_back_piece))
        replaced = np.ones(self.polynomial.coefficients.shape[1])
        replaced[[fold.output for fold in self.folds]] = 0.0
        kept = backend.asarray(replaced)

        def pull_back(cotangents: Array) -> Array:
            gradient = pull_back_polynomial(cotangents * kept)
            for output, share, pull_back_piece in parts:
                gradient = gradient + pull_back_piece((cotangents[:, output] * share)[:, None])
            return gradient

        return y, pull_back

    def is_outside(self, x: Floats, sites: Integers) -> Mask:
        """Return a mask (B,) of the inputs that lie outside the region of the runs of the piece there."""
        outside = np.zeros(len(x), dtype=bool)
        if len(self.folds) < self.polynomial.coefficients.shape[1]:
            outside |= self.polynomial.is_outside(x, sites)
        for fold in self.folds:
            values = np.stack([piece(x, sites)[:, 0] for piece in fold.pieces])
            beyond = np.stack([piece.is_outside(x, sites) for piece in fold.pieces])
            outside |= beyond[fold.active(values), np.arange(len(x))]
        return outside


def fit_pieces(
    polynomial: Polynomial,
    bases: list[Basis],
    x: Floats,
    y: Floats,
    errors: Floats,
    folds: Integers,
    outputs: Integers,
) -> tuple[PiecewisePolynomials, Floats] | None:
    """Fit a maximum or minimum of polynomials to some of the outputs.

    Parameters
    ----------
    polynomial : Polynomial
        Polynomial of all outputs.
    bases : list of Basis
        Candidates for the pieces, the smallest first.
    x, y : arrays, shape (R, I) and (R, P)
        Inputs and outputs; all finite.
    errors : array, shape (R, P)
        Cross-validation errors of the polynomial.
    folds : array of int, shape (R,)
        Fold of each run.
    outputs : array of int
        Numbers of the outputs with kinks.

    Returns
    -------
    (PiecewisePolynomials, array of shape (R, P)) or None
        With its cross-validation errors; None if there are too few runs.
    """
    z, found, errors = polynomial.standardise(x), [], errors.copy()
    for output in outputs:
        best = _fit_output(polynomial, bases, z, y[:, output], folds, int(output))
        if best is not None and _size(best[1]) < _size(errors[:, output]):
            found.append(best[0])
            errors[:, output] = best[1]
    return (PiecewisePolynomials(polynomial, tuple(found)), errors) if found else None


def _fit_output(
    polynomial: Polynomial, bases: list[Basis], z: Floats, y: Floats, folds: Integers, output: int
) -> tuple[Fold, Floats] | None:
    """Fit the pieces of one output y (R,) to standardised inputs z (R, I); return them and cross-validation errors."""
    if not np.ptp(y) > 0.0:
        return None
    best: tuple[Fold, Floats] | None = None
    labels, largest = np.zeros(len(y), dtype=np.intp), tuple[bool, ...]()
    for count in range(2, MOST_PIECES + 1):
        before, kept, division = best, (labels, largest), None
        for basis in (basis for basis in bases if basis.degree >= FIRST_DEGREE):
            features = basis(z)
            starts = [] if division is None else [division]
            if len(basis) <= MOST_DIVIDED or division is None:
                parts = _first_parts(z, y)
                starts += [(np.where(part, count - 1, labels), (*largest, top)) for part in parts for top in TOPS]
            found = _best_divisions(basis, features, y, starts, FIRST_ROUNDS)[:BEST_STARTS]
            found = _best_divisions(basis, features, y, [each[1:] for each in found], ROUNDS)
            if not found:
                continue
            division = found[0][1:]
            fitted = _fit_pieces(polynomial, basis, features, y, *division, folds, output)
            if fitted is None:
                continue
            if best is None or _size(fitted[1]) < (IMPROVED if best is before else 1.0) * _size(best[1]):
                best, kept = fitted, division
            if best is not None and _size(best[1]) <= NEGLIGIBLE:
                return best
        if best is before:
            break
        labels, largest = kept
    return best


def _first_parts(z: Floats, y: Floats) -> list[Mask]:
    """Return the runs (R,) on one side of quantiles of each input and of the output."""
    columns = [*z.T, y]
    parts = [column > np.quantile(column, q) for column in columns for q in QUANTILES]
    return [part for part in parts if part.any() and not part.all()]


def _best_divisions(
    basis: Basis, features: Floats, y: Floats, starts: list[tuple[Integers, tuple[bool, ...]]], rounds: int
) -> list[Division]:
    """Return the divisions that several starts lead to, the best first."""
    found = [_divide(basis, features, y, *start, rounds) for start in starts]
    different = {round(each[0], 12): each for each in found if each is not None}
    return [different[residual] for residual in sorted(different)]


def _divide(
    basis: Basis, features: Floats, y: Floats, labels: Integers, largest: tuple[bool, ...], rounds: int
) -> Division | None:
    """Alternate between fits of the pieces and the assignment of runs to them.

    Returns
    -------
    (float, array of int of shape (R,), tuple of bool) or None
        Mean squared residual, the piece of each run, and `largest`; None if a piece has too few runs.
    """
    best = None
    for _ in range(rounds):
        parts = [labels == k for k in range(len(largest) + 1)]
        own = [_basis_for(basis, int(np.count_nonzero(part))) for part in parts]
        if any(each is None for each in own):
            return best
        values = np.stack(
            [_solve(features[: len(each)], y, part) for each, part in zip(own, parts, strict=True) if each is not None]
        )
        active = _active(values, largest)
        residual = float(np.mean((values[active, np.arange(len(y))] - y) ** 2))
        fewest = int(np.bincount(active, minlength=len(parts)).min())
        if _basis_for(basis, fewest) is not None and (best is None or residual < best[0]):
            best = residual, active, largest
        if np.array_equal(active, labels):
            break
        labels = active
    return best


def _basis_for(basis: Basis, runs: int) -> Basis | None:
    """Return the part of a basis, up to the highest degree, for which there are enough runs; None if there is none.

    Its products are the first ones of the basis.
    """
    for degree in range(basis.degree, 0, -1):
        lower = Basis(basis.inputs, degree, basis.interaction)
        if runs >= RUNS_PER_FEATURE * len(lower):
            return lower
    return None


def _solve(features: Floats, y: Floats, part: Mask) -> Floats:
    """Fit some of the runs; return the values (R,) at all of them."""
    own = features[:, part]
    matrix = own @ own.T
    matrix[np.diag_indices_from(matrix)] += RIDGE * np.trace(matrix) / len(matrix)
    return np.asarray(np.linalg.solve(matrix, own @ y[part]) @ features)


def _fit_pieces(
    polynomial: Polynomial,
    basis: Basis,
    features: Floats,
    y: Floats,
    labels: Integers,
    largest: tuple[bool, ...],
    folds: Integers,
    output: int,
) -> tuple[Fold, Floats] | None:
    """Fit pieces of a basis to a division of the runs; return them, and their errors (R,)."""
    pieces, left_out = [], []
    for k in range(len(largest) + 1):
        part = labels == k
        own = _basis_for(basis, int(np.count_nonzero(part)))
        if own is None:
            return None
        piece, values = _fit_piece(polynomial, own, features[: len(own)], y, part, folds)
        pieces.append(piece)
        left_out.append(values)
    if max(piece.basis.degree for piece in pieces) < basis.degree:
        return None
    errors = y - np.stack(left_out)[_active(np.stack(left_out), largest), np.arange(len(y))]
    return Fold(output, tuple(pieces), largest), errors


def _fit_piece(
    polynomial: Polynomial, basis: Basis, features: Floats, y: Floats, part: Mask, folds: Integers
) -> tuple[Polynomial, Floats]:
    """Fit a piece to some of the runs; return it, and its values (R,) at all runs, each without the fold of the run.

    A run may belong to another piece without its fold.
    """
    fit = Ridge.fit(features[:, part], y[part, None])
    own = np.flatnonzero(part)
    change = fit.orthonormal * fit.left_out_errors(folds[own])
    sums = np.zeros((int(folds.max()) + 1, len(basis)))
    np.add.at(sums, folds[own], change)
    values = fit.coefficients[:, 0] @ features - np.sum((fit.whitening.T @ features) * sums[folds].T, axis=0)
    piece = replace(
        polynomial,
        basis=basis,
        coefficients=fit.coefficients,
        whitening=fit.whitening,
        usual_leverage=fit.usual_leverage(),
    )
    return piece, values


def _active(values: Floats, largest: tuple[bool, ...]) -> Integers:
    """Return the number (B,) of the piece, of values (K, B), that determines the result."""
    best, active = values[0], np.zeros(values.shape[1], dtype=np.intp)
    for k, top in enumerate(largest, start=1):
        wins = values[k] > best if top else values[k] < best
        best, active = np.where(wins, values[k], best), np.where(wins, k, active)
    return active


def _size(errors: Floats) -> float:
    return float(np.sqrt(np.mean(errors**2)))
