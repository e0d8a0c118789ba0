"""Draws at sites that the emulator cannot serve, weighted with the simulator itself.

Next to a kink or a jump of the simulator the error of the emulator, which is part of the noise, widens the posterior.
The simulator is run at draws from this wider posterior, and the draws are selected by the ratio of the exact density of
the data to that of the emulator. As with delayed acceptance, the emulator only proposes: the weighted draws are right
whatever its error, if their effective number is large enough.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from invgp.emulation import Surrogate
from invgp.inference.draw_checks import DensityRatio
from invgp.inference.emulated_draws import posterior_on
from invgp.inference.emulated_posterior import SamplingOptions, label_modes
from invgp.inference.importance_draws import effective_number, smooth_weights
from invgp.inference.runner import Runner
from invgp.inference.search_state import SampledTarget, SearchState
from invgp.inference.site_model import SiteModel
from invgp.inference.tempered_draws import independent_groups
from invgp.latent_model.learnt_parameters import LearntParameters
from invgp.problem import Floats

Integers = NDArray[np.intp]


@dataclass(frozen=True)
class SimulatedOptions:
    """Tuning of the draws that are weighted with the simulator.

    Parameters
    ----------
    batch : int
        Runs of each site between two tests of the weights.
    most_runs : int
        Most runs of each site.
    enough : float
        Effective number of draws beyond which no more runs are made.
    fewest_effective : float
        Effective number of draws below which the site counts as not sampled.
    largest_k_hat : float
        Largest Pareto k of the weights, unless no weight is large.
    largest_share : float
        Largest share of one weight in all of them at which the Pareto k does not matter.
    most_missing : float
        Largest share of draws whose runs lack an output.
    """

    batch: int = 50
    most_runs: int = 400
    enough: float = 150.0
    fewest_effective: float = 60.0
    largest_k_hat: float = 0.7
    largest_share: float = 0.05
    most_missing: float = 0.1


def sample_with_simulator(
    model: SiteModel,
    runner: Runner,
    state: SearchState,
    sites: NDArray[np.bool_],
    rng: np.random.Generator,
    options: SimulatedOptions = SimulatedOptions(),
) -> SearchState:
    """Weight the draws of some sites with runs of the simulator, within the runs that are left.

    Sites that are independent of each other in the prior are weighted apart from each other.

    Parameters
    ----------
    model : SiteModel
    runner : Runner
    state : SearchState
        State with draws of the result.
    sites : array of bool, shape (N,)
        Sites that need runs.
    rng : numpy.random.Generator
    options : SimulatedOptions

    Returns
    -------
    SearchState
        State with the new draws and runs. `direct` marks the sites that could be sampled.
    """
    samples, target = state.samples, state.target
    if samples is None or target is None or not _is_possible(model, target):
        return state
    groups = independent_groups(target.gaussian.prior, SamplingOptions().independent)
    groups = [group for group in groups if sites[group].any()]
    stage, latents, direct = int(state.runs.stage.max()) + 1, samples.latents.copy(), state.direct.copy()
    effective, log_evidence, error = samples.effective.copy(), samples.log_evidence, samples.log_evidence_error
    for number, group in enumerate(groups):
        bad = group[sites[group]]
        left = runner.simulator.runs_left
        most = options.most_runs if left is None else min(left // _count(sites, groups[number:]), options.most_runs)
        runner.report_stage(f"draws with the simulator, {number + 1} of {len(groups)} groups of sites")
        weighting = _Weighting(model, runner, target, samples.latents[:, bad], bad, stage, rng, options)
        state, chosen, log_weights = weighting.run(state, most)
        if not len(chosen):
            continue
        smoothed, k_hat = smooth_weights(log_weights)
        count = effective_number(smoothed)
        if has_heavy_tail(log_weights, k_hat, options) or count < options.fewest_effective:
            continue
        if weighting.missing > options.most_missing * len(chosen):
            continue
        shares = np.exp(smoothed - logsumexp(smoothed))
        places = (rng.random() + np.arange(len(latents))) / len(latents)
        selected = np.minimum(np.searchsorted(np.cumsum(shares), places), len(shares) - 1)
        latents[:, group] = samples.latents[np.ix_(chosen[rng.permutation(selected)], group)]
        effective[group], direct[bad] = np.minimum(effective[group], count), True
        log_evidence += float(logsumexp(log_weights) - np.log(len(log_weights)))
        error = float(np.hypot(error, count**-0.5))
    if not direct.any():
        return state
    posterior = posterior_on(model, target.emulator, target.gaussian)
    samples = replace(
        samples,
        latents=latents,
        mode=label_modes(latents, SamplingOptions()),
        method=f"{samples.method}, weighted with the simulator at some sites",
        effective=effective,
        log_evidence=log_evidence,
        log_evidence_error=error,
        whitened=posterior.whiten(latents),
    )
    return replace(state, samples=samples, direct=direct)


def has_heavy_tail(log_weights: Floats, k_hat: float, options: SimulatedOptions = SimulatedOptions()) -> bool:
    """Return whether a few of the weights (S,) may decide the result, so that larger ones may be missing.

    The Pareto k alone does not show it: among nearly equal weights, a few others look like a heavy tail.
    """
    largest = float(np.exp(log_weights.max() - logsumexp(log_weights)))
    return k_hat > options.largest_k_hat and largest > options.largest_share


def outputs_at_draws(state: SearchState, emulator: Surrogate, latents: Floats, sites: Integers) -> Floats:
    """Return outputs (S, B, P) at latents (S, B, Q): at `direct` sites those of runs at the same values, if any."""
    outputs = emulator.predict(latents, sites)
    for column in np.flatnonzero(state.direct[sites]):
        here = np.flatnonzero(state.runs.sites == sites[column])
        runs = {state.runs.latents[k].tobytes(): state.runs.outputs[k] for k in here}
        for row, values in enumerate(latents[:, column]):
            output = runs.get(values.tobytes())
            if output is not None:
                outputs[row, column] = np.where(np.isfinite(output), output, outputs[row, column])
    return outputs


def strata(points: Floats, count: int) -> list[Integers]:
    """Divide points (R, D) into `count` parts of nearly equal size, each compact: cut along the widest direction."""
    parts = [(np.arange(len(points)), min(count, len(points)))]
    done = []
    while parts:
        part, own = parts.pop()
        if own < 2:
            done.append(part)
            continue
        axis = int(np.argmax(points[part].std(axis=0)))
        order = part[np.argsort(points[part, axis], kind="stable")]
        middle = len(order) * (own // 2) // own
        parts += [(order[middle:], own - own // 2), (order[:middle], own // 2)]
    return done


class _Weighting:
    """Runs of the simulator at draws of some sites, chosen evenly among the draws, and their log weights."""

    def __init__(
        self,
        model: SiteModel,
        runner: Runner,
        target: SampledTarget,
        draws: Floats,
        sites: Integers,
        stage: int,
        rng: np.random.Generator,
        options: SimulatedOptions,
    ) -> None:
        self.runner, self.sites, self.stage = runner, sites, stage
        self.draws, self.rng, self.options = draws, rng, options
        self.missing = 0  # draws with a run that lacks an output
        self.ratio = DensityRatio(model, target.emulator, target.gaussian, sites)

    def run(self, state: SearchState, most: int) -> tuple[SearchState, Integers, Floats]:
        """Run the simulator in batches until the weights have a large enough effective number.

        Returns
        -------
        state : SearchState
            With the new runs.
        chosen : array of int, shape (S,)
            Numbers of the draws at which the simulator was run.
        log_weights : array, shape (S,)
        """
        flat = self.draws.reshape(len(self.draws), -1)
        parts = strata(flat / np.maximum(flat.std(axis=0), 1e-300), min(self.options.batch, len(flat)))
        orders = [self.rng.permutation(part) for part in parts]
        chosen, weights = np.zeros(0, dtype=np.intp), np.zeros(0)
        for k in range(most // len(parts)):
            new = np.asarray([order[k % len(order)] for order in orders])
            state, log_weights = self._weigh(state, new)
            chosen, weights = np.concatenate([chosen, new]), np.concatenate([weights, log_weights])
            if len(weights) >= 2 * len(parts) and effective_number(weights) >= self.options.enough:
                break
        return state, chosen, weights

    def _weigh(self, state: SearchState, chosen: Integers) -> tuple[SearchState, Floats]:
        latents = self.draws[chosen]
        batch = self.runner.sample(latents, "simulated-draws", self.sites)
        state = replace(state, runs=state.runs.append(latents, batch.outputs, batch.valid, self.sites, self.stage))
        log_weights, known = self.ratio(latents, batch)
        self.missing += int(np.count_nonzero(~known.all(axis=1)))
        return state, np.sum(log_weights, axis=1)


def _is_possible(model: SiteModel, target: SampledTarget) -> bool:
    """Return whether the prior is dense and small enough, and no hyperparameter is learnt."""
    prior = target.gaussian.prior
    size = prior.site_count * prior.latent_count
    return prior.dense and size <= SamplingOptions().most_tempered and not LearntParameters(model.problem)


def _count(sites: NDArray[np.bool_], groups: list[Integers]) -> int:
    return int(sum(sites[group].sum() for group in groups))
