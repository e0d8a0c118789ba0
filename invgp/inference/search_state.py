"""State of the search for the posterior of a site model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from invgp.core.backend import to_numpy
from invgp.core.coupled.gaussian_posterior import GaussianPosterior
from invgp.emulation import Runs, Surrogate
from invgp.posterior import Samples
from invgp.problem import Floats, Problem


@dataclass(frozen=True)
class SearchResult:
    """Outcome of a search for a posterior.

    Attributes
    ----------
    status : str
        Why the search ended, as a phrase for users.
    converged : bool
        Whether it ended because the posterior had converged.
    """

    status: str
    converged: bool


UNFINISHED = SearchResult("", converged=False)
STALLED = SearchResult("stopped because further runs do not make the emulator more accurate", converged=False)
NOT_ACCURATE = SearchResult("stopped before the emulator was accurate at the draws", converged=False)


def judge_failures(problem: Problem, state: SearchState) -> SearchState:
    """Return the state with the outcome that the search has not converged if too many runs failed at the posterior.

    Parameters
    ----------
    problem : Problem
    state : SearchState

    Returns
    -------
    SearchState
    """
    allowed = problem.inference.max_failed_share
    if state.failed_share <= allowed:
        return state
    status = (
        f"{state.failed_share:.0%} of the runs at the posterior failed, more than inference.max_failed_share = "
        f"{allowed:g}"
    )
    return replace(state, result=SearchResult(status, converged=False))


@dataclass(frozen=True)
class Candidate:
    """The best Gaussian posterior so far, with posterior mean and standard deviation (N, P) of the outputs."""

    posterior: GaussianPosterior
    predicted: Floats
    predicted_std: Floats


@dataclass(frozen=True)
class SampledTarget:
    """What is sampled: the posterior on an emulator.

    Attributes
    ----------
    gaussian : GaussianPosterior
        Gaussian approximation.
    emulator : Surrogate
    explained : bool
        Whether the search for the Gaussian has converged and explains the data.
    several_modes : bool
        Whether the search for modes has found several.
    starts : array, shape (R, D), or None
        Draws of the search for modes, as variables of the prior, if it has searched all sites.
    """

    gaussian: GaussianPosterior
    emulator: Surrogate
    explained: bool
    several_modes: bool
    starts: Floats | None = None


@dataclass(frozen=True)
class Step:
    """An outer step of a search on an emulator.

    Attributes
    ----------
    number : int
    runs : int
        Its simulator runs.
    by_source : tuple of int
        Runs of each simulator; empty for a problem with one simulator.
    """

    number: int
    runs: int
    by_source: tuple[int, ...] = ()

    @property
    def source_runs(self) -> tuple[int, ...]:
        """Runs of each simulator."""
        return self.by_source or (self.runs,)


@dataclass(frozen=True)
class SearchState:
    """Everything that a search has found so far. Each part of a search takes a state and returns a new one.

    Attributes
    ----------
    start : GaussianPosterior
        Posterior from which the search began: the prior, or a narrower distribution.
    runs : Runs
        Runs for the emulator.
    direct : array of bool, shape (N,)
        Sites at which the simulator is used instead of the emulator.
    verification : array, shape (N,)
        Error of the emulator at new runs, in standard deviations of the noise; NaN where it was not verified.
    shape_errors : array, shape (N, Q)
        Difference from a Gaussian at each site, in standard deviations; NaN where it is not known.
    candidate : Candidate or None
        The best Gaussian posterior; None before the first evaluation of the bound.
    emulator : Surrogate or None
        Emulator for which the candidate was found; None without an emulator.
    steps : tuple of Step
        Outer steps that are left.
    target : SampledTarget or None
        What was sampled last.
    solver_noise : array, shape (P,), or None
        Numerical noise of the simulator, in the units of the observations; None if it was not measured.
    inaccurate : array of bool, shape (N,), or None
        Sites where the emulator is used though it is not accurate enough, because of this noise.
    samples : Samples or None
        Draws from the exact posterior.
    notes, shape_notes : tuple of str
        Notes for users.
    result : SearchResult
        Outcome of the latest search.
    failed_share : float
        Fraction of the latest runs at draws from the posterior that failed.
    """

    start: GaussianPosterior
    runs: Runs
    direct: NDArray[np.bool_]
    verification: Floats
    shape_errors: Floats
    candidate: Candidate | None = None
    emulator: Surrogate | None = None
    steps: tuple[Step, ...] = ()
    target: SampledTarget | None = None
    solver_noise: Floats | None = None
    inaccurate: NDArray[np.bool_] | None = None
    samples: Samples | None = None
    notes: tuple[str, ...] = ()
    shape_notes: tuple[str, ...] = ()
    result: SearchResult = UNFINISHED
    failed_share: float = 0.0

    @property
    def posterior(self) -> GaussianPosterior:
        """The best Gaussian posterior, or the start if there is none yet."""
        return self.start if self.candidate is None else self.candidate.posterior

    @property
    def shape_error(self) -> Floats:
        """Largest shape error (N,) over the latents of each site; NaN where it could not be determined."""
        return np.asarray(self.shape_errors.max(axis=1))

    def moments(self) -> tuple[Floats, Floats]:
        """Return mean (N, Q) and covariance (N, Q, Q) of the latent processes at each site, of the best Gaussian."""
        marginals = self.posterior.marginals
        return to_numpy(marginals.mean), to_numpy(marginals.covariance)

    def with_note(self, note: str) -> SearchState:
        """Return the state with one more note.

        Parameters
        ----------
        note : str
            One sentence.

        Returns
        -------
        SearchState
        """
        return replace(self, notes=(*self.notes, note))
