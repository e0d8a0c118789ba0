"""Notes for users on possible problems of the posterior of a field model."""

from __future__ import annotations

import math

import numpy as np

from invgp.inference.field_draws import MOST_VARIABLES, gaussian_k_hat
from invgp.inference.field_state import FieldSearch, FieldSearchState
from invgp.inference.notes import noise_notes, prior_notes
from invgp.latent_model.prior_field import MOST_MODES
from invgp.posterior import Samples


def field_notes(search: FieldSearch, state: FieldSearchState, samples: Samples | None) -> list[str]:
    """Return all notes for users on the posterior of a state, with draws or as a Gaussian."""
    notes = _notes_on_modes(search, state) + _notes_on_sampling(search, state, samples)
    info = state.info
    if info is not None and info.few_runs > search.options.most_from_few_runs:
        notes.append(
            f"{info.few_runs:.0%} of the remaining variance, where the data inform the field, is due to the small "
            "number of runs: more runs would narrow the posterior."
        )
    if search.learning and not state.has_learned:
        notes.append(
            "The hyperparameters were not learnt: there are too few runs to determine how the data depend on them."
        )
    partial = int(np.isnan(state.outputs[:, state.model.whitening.observed]).any(axis=1).sum())
    if partial:
        notes.append(
            f"{partial} of {len(state.outputs)} runs gave only some of their outputs; the missing ones are "
            "estimated from the other runs, and the posterior includes the uncertainty of this estimate."
        )
    noise = np.asarray(
        [state.theta[search.learning.parameters.columns["noise", s.name]][0] for s in search.problem.noise.scales]
    )
    notes += noise_notes(search.problem, noise)
    return notes + prior_notes(search.problem)


def _notes_on_sampling(search: FieldSearch, state: FieldSearchState, samples: Samples | None) -> list[str]:
    if samples is None:
        return _notes_on_shape(search, state)
    notes, options = [], search.options
    if options.verified <= state.verification.error < math.inf:  # infinite without new runs
        notes.append(
            f"The regression that replaces the simulator is off by {state.verification.error:.2g} posterior "
            "standard deviations at new runs: mean and spread may be wrong by as much, and more runs are needed."
        )
    if samples.r_hat.max() > options.largest_r_hat:
        notes.append(
            f"The draws have not converged (R-hat up to {samples.r_hat.max():.2f}): means and spreads are doubtful."
        )
    shares = np.bincount(samples.mode) / len(samples.mode)
    shares = shares[shares >= options.least_probable]
    if len(shares) > 1:
        listed = ", ".join(f"{share:.0%}" for share in shares[:3])
        notes.append(
            f"The posterior has {len(shares)} modes, with probabilities {listed}"
            f"{' and others' if len(shares) > 3 else ''}: means and standard deviations summarise all of them; "
            "look at the draws of each mode."
        )
    if state.model.variables > MOST_VARIABLES:
        notes.append(f"With {state.model.variables:,} variables, other modes of the posterior were not searched for.")
    if len(samples.latents) < options.fewest_effective:
        notes.append(
            f"The grid is so large that means and spreads come from {len(samples.latents):,} draws only: they have "
            f"a relative error of about {1.0 / np.sqrt(len(samples.latents)):.0%}."
        )
    return notes


def _notes_on_shape(search: FieldSearch, state: FieldSearchState) -> list[str]:
    """Add a note if the posterior is described by a Gaussian and is not Gaussian."""
    if search.samples_exactly or state.model.is_gaussian(state.inference):
        return []
    if (
        gaussian_k_hat(state.model, state.inference, search.streams.sampling.spawn(1)[0])
        <= search.options.largest_k_hat
    ):
        return []
    return [
        "The posterior is far from Gaussian, so that intervals and draws may be wrong: inference.posterior = "
        "'sampled' draws from the exact one without more runs."
    ]


def _notes_on_modes(search: FieldSearch, state: FieldSearchState) -> list[str]:
    """Add a note if the prior has more modes than `MOST_MODES`."""
    field = state.model.field
    left = float(np.max(np.mean(field.omitted_variance() / field.std**2, axis=0)))
    most = max(part.stop - part.start for part in field.slices)
    if most < MOST_MODES or left <= 1.0 - search.problem.inference.kept_variance:
        return []
    return [
        f"{most:,} modes, the largest number allowed, omit {left:.2g} of the prior variance on the grid, more "
        "than inference.kept_variance allows: finer detail is not inferred."
    ]
