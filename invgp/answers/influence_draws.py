"""Draws for the influence of data, and posteriors without sources, for site and field models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import logsumexp

from invgp.answers.cross_validation import draws_of
from invgp.answers.emulated_problem import EmulatedProblem, emulate, hide_data
from invgp.answers.influence import (
    DataGroup,
    DataMoments,
    DatumInfluence,
    choose_places,
    data_groups,
    datum_influence,
    group_reductions,
    largest_leverage,
    moments_of_draws,
)
from invgp.answers.known_field import FieldDrawsAndData, draw_data, draw_without_data, invert_known_runs
from invgp.answers.left_out_data import LeaveOut, LeftOut
from invgp.answers.pace import report_each
from invgp.core.backend import select_backend, to_numpy
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.inference.emulated_posterior import SamplingOptions
from invgp.inference.importance_draws import RELIABLE, smooth_weights
from invgp.latent_model.noise_density import noise_log_density
from invgp.latent_model.problem_prior import noise_covariance
from invgp.problem import Floats, Problem

MOST_DRAWS, FEWEST_DRAWS = 4000, 500
SAMPLED_EFFECTIVE = 100.0  # effective draws of it, for the doubt of a shift
LARGEST_K_HAT = 1.0  # of weights that still give variances
MOST_NUMBERS = 4e7  # of the draws of all latents or outputs, to limit memory

Influence = tuple[DatumInfluence, list[DataGroup], dict[str, Floats]]


def site_influence(posterior: xr.Dataset, emulated: EmulatedProblem) -> Influence:
    """Return the influence of each datum of a site model, its groups of data, and what these contribute."""
    problem = emulated.problem
    numbers = problem.survey.size * max(problem.latent_count, problem.noise_std.shape[1])
    latents = draws_of(posterior, emulated, min(MOST_DRAWS, max(int(MOST_NUMBERS / numbers), FEWEST_DRAWS)))
    noise = noise_covariance(emulated.noisy_problem)
    if float(posterior.attrs.get("invgp_gaussian_k_hat", 0.0)) <= SamplingOptions().largest_k_hat:
        moments = _gaussian_moments(emulated, latents, emulated.predict(latents), noise)
        found = datum_influence(moments, problem.survey.Y, noise)
    else:
        on_emulator = "simulator" not in str(posterior.attrs.get("invgp_draws", ""))
        found = influence_of_draws(LeaveOut(emulated, latents, on_emulator=on_emulator), noise)
    groups = data_groups(problem)

    def std_without(group: DataGroup) -> dict[str, Floats]:
        hidden = hide_data(problem, group.mask)
        return _stds(emulate(hidden, emulated.state.runs, emulated.model.seed, emulated.gaussian.sites))

    return found, groups, group_reductions(groups, _stds(emulated), std_without)


class LeavesOut(Protocol):
    """Finds posteriors without some data."""

    @property
    def most_sampled(self) -> int:
        """Number of data whose posterior without them may be sampled again."""

    @property
    def problem(self) -> Problem:
        """The problem with all data."""

    @property
    def latents(self) -> Floats:
        """Draws (R, G, Q) of the posterior with all data, at the sites or nodes."""

    @property
    def sampled_mean(self) -> Floats:
        """Means (G, Q) of the processes with all data, from the sampler of `sample_without`."""

    def without(self, mask: NDArray[np.bool_]) -> LeftOut:
        """Return the posterior without some data (N, P) of one site, by weights of the draws."""

    def sample_without(self, mask: NDArray[np.bool_], weighted: LeftOut) -> LeftOut:
        """Draw from the posterior without these data."""


@dataclass(frozen=True)
class FieldLeaveOut:
    """Leaves out data of a field model, with the regression on the runs in its ledger.

    Attributes
    ----------
    problem : Problem
    ledger : Path
    seed : int
    draws : FieldDrawsAndData
        Draws with all data.
    """

    problem: Problem
    ledger: Path
    seed: int
    draws: FieldDrawsAndData

    @property
    def most_sampled(self) -> int:
        """Number of data whose posterior without them may be sampled again: each takes a regression of its own."""
        return 3

    @property
    def latents(self) -> Floats:
        """Draws (R, G, Q) of the posterior with all data at the nodes."""
        return self.draws.latents

    @cached_property
    def sampled_mean(self) -> Floats:
        """Means (G, Q) of the processes with all data."""
        return np.asarray(self.draws.latents.mean(axis=0))

    def without(self, mask: NDArray[np.bool_]) -> LeftOut:
        """Return the posterior without some data (N, P) of one site, by weights of the draws."""
        [site] = np.flatnonzero(mask.any(axis=1))
        backend = select_backend("cpu")
        at_site = np.asarray([site])
        own = self.draws.outputs[:, at_site]
        known = backend.asarray(np.where(np.isfinite(own), own, 0.0))
        full, rest = (
            to_numpy(noise_log_density(problem.select_sites(at_site), backend)(known))[:, 0]
            for problem in (self.problem, hide_data(self.problem, mask))
        )
        weights, k_hat = smooth_weights(rest - full)
        return _left_out(self.latents, own, weights, k_hat)

    def sample_without(self, mask: NDArray[np.bool_], weighted: LeftOut) -> LeftOut:  # noqa: ARG002
        """Draw from the posterior without these data, with a regression of its own."""
        draws = draw_data(hide_data(self.problem, mask), self.ledger, self.seed)
        [site] = np.flatnonzero(mask.any(axis=1))
        return _left_out(draws.latents, draws.outputs[:, [site]], np.zeros(len(draws.latents)), np.nan)


def _left_out(latents: Floats, outputs: Floats, log_weights: Floats, k_hat: float) -> LeftOut:
    """Return weighted draws of a field model, which has no latents of its own at a site."""
    R = len(latents)
    normalised = log_weights - logsumexp(log_weights)
    return LeftOut(latents, normalised, k_hat, np.zeros((R, 1, 1, 0)), outputs[:, :, None], np.zeros((R, 1)))


def influence_of_draws(leave_out: LeavesOut, noise: Floats) -> DatumInfluence:
    """Compute the influence of each datum from the posterior without it.

    Parameters
    ----------
    leave_out : LeavesOut
    noise : array, shape (N, P, P)
        Covariance of the noise of the data at each site.

    Returns
    -------
    DatumInfluence
        NaN where the posterior without the datum is not known: the weights of the draws are not reliable, and others of
        these data pull harder.
    """
    problem = leave_out.problem
    Y = problem.survey.Y
    f = problem.mix(leave_out.latents)
    mean, std = f.mean(axis=0), f.std(axis=0)
    sampling_error = std / np.sqrt(SAMPLED_EFFECTIVE)
    places = choose_places(f.shape[1])
    found = DatumInfluence(
        np.full(Y.shape, np.nan),
        np.full(Y.shape, np.nan),
        np.zeros(Y.shape, dtype=np.intp),
        np.zeros(Y.shape, dtype=np.intp),
        np.zeros(len(Y)),
    )

    def enter(n: int, p: int, out: LeftOut, before: Floats, error: Floats) -> None:
        """Enter the leverage and the largest clear shift of a datum."""
        shift, doubt = _shift(problem, n, out, before, error, places, std)
        largest = int(np.argmax(np.abs(shift) - 2.0 * doubt))
        row, process = divmod(largest, shift.shape[1])
        found.leverage[n, p] = _leverage(out, Y[n], p, noise[n])
        found.pull[n, p] = shift[row, process]
        found.place[n, p], found.process[n, p] = np.append(places, n)[row], process

    doubtful: list[tuple[float, int, int]] = []
    for n in range(len(Y)):
        mask = np.zeros(Y.shape, dtype=bool)
        mask[n] = np.isfinite(Y[n])
        if not mask[n].any():
            continue
        out = leave_out.without(mask)
        found.information[n] = _information(out, Y[n], noise[n]) if out.k_hat <= LARGEST_K_HAT else np.nan
        for p in np.flatnonzero(np.isfinite(Y[n])).tolist():
            one = np.zeros_like(mask)
            one[n, p] = True
            out = leave_out.without(one)
            enter(n, p, out, mean, np.zeros_like(std))
            if out.k_hat > RELIABLE:
                doubtful.append((float(abs(found.pull[n, p])), n, p))
                found.leverage[n, p] = found.pull[n, p] = np.nan
    again = sorted(doubtful, reverse=True)[: leave_out.most_sampled]
    for _, n, p in report_each(again, "data whose posterior is sampled without them"):
        one = np.zeros(Y.shape, dtype=bool)
        one[n, p] = True
        out = leave_out.sample_without(one, leave_out.without(one))
        enter(n, p, out, problem.mix(leave_out.sampled_mean[None])[0], sampling_error)
        if np.isfinite(Y[n]).sum() == 1:
            found.information[n] = _information(out, Y[n], noise[n])
    return found


def _shift(
    problem: Problem, n: int, out: LeftOut, before: Floats, error: Floats, places: NDArray[np.intp], std: Floats
) -> tuple[Floats, Floats]:
    """Return by how much data of site n shift the means of the processes, and the standard error of this.

    Both have the shape (B, Q), at the places, with those at the site itself as a last row if it has latents.
    """
    latents, weights = problem.mix(out.latents[:, places]), np.exp(out.log_weights)
    after = np.einsum("r,rbq->bq", weights, latents)
    if not out.own.shape[-1]:
        scale = np.where(std > 0.0, std, np.inf)[places]
        doubt = np.sqrt(np.einsum("r,rbq->bq", (weights - 1.0 / len(weights)) ** 2, (latents - after) ** 2))
        return (before[places] - after) / scale, np.hypot(doubt, error[places]) / scale
    own, own_weights = problem.mix(out.own[:, 0]), out.point_weights
    own_after = np.einsum("rm,rmq->q", own_weights, own)
    own_means = np.einsum("rm,rmq->rq", np.exp(out.own_log_weights), own)
    change = (weights - 1.0 / len(weights)) ** 2
    doubt = np.sqrt(np.einsum("r,rbq->bq", change, (latents - after) ** 2))
    own_doubt = np.sqrt(np.einsum("r,rq->q", weights**2, (own_means - own_after) ** 2))
    scale = np.where(std > 0.0, std, np.inf)
    at = np.append(places, n)
    shift = (before[at] - np.vstack([after, own_after])) / scale[at]
    kept = np.append(places != n, [True])[:, None]  # the site itself is the last row
    total = np.hypot(np.vstack([doubt, own_doubt]), error[at]) / scale[at]
    return np.where(kept, shift, 0.0), np.where(kept, total, 0.0)


def _own_moments(out: LeftOut, own: NDArray[np.intp]) -> Floats:
    """Return the covariance (P', P') of the outputs `own` at the site without the data that are left out."""
    weights, outputs = out.point_weights, out.outputs[:, 0][..., own]
    centred = outputs - np.einsum("rm,rmp->p", weights, outputs)
    return np.asarray(np.einsum("rm,rmp,rmq->pq", weights, centred, centred))


def _leverage(out: LeftOut, y: Floats, p: int, noise: Floats) -> float:
    """Return the share of the datum in its own prediction: var / (var + noise), with var of the prediction without it.

    For linear outputs this is the leverage of the datum. If noise is correlated, its noise is that given the other
    data of the site.
    """
    own = np.flatnonzero(np.isfinite(y))
    precision = np.linalg.inv(noise[np.ix_(own, own)])
    k = int(np.flatnonzero(own == p)[0])
    row = precision[k] / precision[k, k]
    variance = float(row @ _own_moments(out, own) @ row)
    return variance / (variance + 1.0 / float(precision[k, k]))


def _information(out: LeftOut, y: Floats, noise: Floats) -> float:
    """Return the information, in nats, that only the data of the site give, from their prediction without them."""
    own = np.flatnonzero(np.isfinite(y))
    ratio = np.linalg.solve(noise[np.ix_(own, own)], _own_moments(out, own))
    return 0.5 * float(np.linalg.slogdet(np.eye(len(own)) + ratio)[1])


def _gaussian_moments(emulated: EmulatedProblem, latents: Floats, outputs: Floats, noise: Floats) -> DataMoments:
    """Return the moments of the Gaussian approximation, with outputs that are linear in the latents of their site.

    Parameters
    ----------
    emulated : EmulatedProblem
    latents : array, shape (R, N, Q)
        Draws, only for the slopes of the outputs.
    outputs : array, shape (R, N, P)
    noise : array, shape (N, P, P)
        Covariance of the noise.
    """
    problem, gaussian = emulated.problem, emulated.gaussian
    mean, covariance = (to_numpy(part) for part in gaussian.marginals)
    centre, middle = latents.mean(axis=0), outputs.mean(axis=0)
    known = np.isfinite(middle)
    g = np.where(known, outputs - middle, 0.0).swapaxes(0, 1)
    z = (latents - centre).swapaxes(0, 1)
    slopes = np.linalg.pinv(z) @ g
    rest = np.mean((g - z @ slopes) ** 2, axis=1)
    places = choose_places(len(mean))
    roots = _covariance_roots(gaussian, places)

    def cross(n: int) -> Floats:
        [root] = _covariance_roots(gaussian, np.asarray([n]))
        return np.asarray(problem.mix(np.einsum("bkq,kp->bpq", roots, root @ slopes[n])).swapaxes(1, 2))

    M = np.eye(problem.latent_count) if problem.mixing is None else problem.mixing
    variance = np.einsum("ij,bjk,ik->bi", M, covariance[places], M)
    return DataMoments(
        middle + np.einsum("nq,nqp->np", mean - centre, slopes),
        np.asarray(slopes.swapaxes(1, 2) @ covariance @ slopes),
        places,
        np.sqrt(variance),
        cross,
        largest_leverage(rest / np.diagonal(noise, axis1=1, axis2=2)),
    )


def _covariance_roots(gaussian: GaussianPosterior, sites: NDArray[np.intp]) -> Floats:
    """Return A (B, K, Q) of B sites: the posterior covariance of the latents at sites b and c is A_b^T A_c.

    For inducing points, the covariance of the latents given these is left out.
    """
    projection, root = to_numpy(gaussian.prior.geometry_at(sites).projection), to_numpy(gaussian.q.root)
    size = projection.shape[1]
    return np.stack([root[:, j * size : (j + 1) * size] @ W for j, W in enumerate(projection)]).transpose(2, 1, 0)


def _stds(emulated: EmulatedProblem) -> dict[str, Floats]:
    """Return the standard deviation (N, L) of the processes of each latent, of the Gaussian approximation."""
    problem, covariance = emulated.problem, to_numpy(emulated.gaussian.marginals.covariance)
    if problem.mixing is not None:
        covariance = problem.mixing @ covariance @ problem.mixing.T
    std = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    return {
        latent.name: std[:1, problem.latent_slices[latent.name]]
        if latent.is_scalar
        else std[:, problem.latent_slices[latent.name]]
        for latent in problem.latents
    }


def field_influence(posterior: xr.Dataset, problem: Problem, ledger: Path) -> Influence:
    """Return the influence of each datum of a field model, its groups of data, and what these contribute."""
    seed = int(posterior.attrs["invgp_seed"])
    draws = draw_data(problem, ledger, seed)
    noise = noise_covariance(problem)
    largest = largest_leverage(draws.curvature / np.diagonal(noise, axis1=1, axis2=2))
    if draws.is_gaussian:
        moments = moments_of_draws(problem.mix(draws.latents), draws.outputs, largest)
        found = datum_influence(moments, problem.survey.Y, noise)
    else:
        found = influence_of_draws(FieldLeaveOut(problem, ledger, seed, draws), noise)
    groups = data_groups(problem)

    def stds(dataset: xr.Dataset) -> dict[str, Floats]:
        return {
            latent.name: np.asarray(dataset[f"{latent.name}_std"].transpose("node", ..., missing_dims="ignore").values)
            for latent in problem.latents
        }

    observed = np.isfinite(problem.survey.Y)

    def std_without(group: DataGroup) -> dict[str, Floats]:
        if not (observed & ~group.mask).any():  # only direct data are left
            spread = draw_without_data(problem, ledger, seed).std(axis=0)
            own = stds(posterior)
            return {
                latent.name: spread[
                    : 1 if latent.is_scalar else len(spread), problem.latent_slices[latent.name]
                ].reshape(own[latent.name].shape)
                for latent in problem.latents
            }
        without = hide_data(problem, group.mask) if group.mask.any() else problem.without(group.name)
        return stds(invert_known_runs(without, ledger, seed))

    return found, groups, group_reductions(groups, stds(posterior), std_without)
