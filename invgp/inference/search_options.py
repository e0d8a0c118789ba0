"""Tuning of the search for the posterior of a site model: its Gaussian approximation, and its draws."""

from __future__ import annotations

from dataclasses import dataclass

from invgp.emulation.run_schedule import runs_in_a_step
from invgp.problem import Problem


@dataclass(frozen=True)
class SearchOptions:
    """Tuning of the search for the Gaussian posterior of a site model.

    Distances between posteriors are in standard deviations at the site that moves most. Emulator errors are in standard
    deviations of the noise. Precisions of starts are relative to the prior precision.

    Attributes
    ----------
    longest_step : float
        Largest movement of the posterior in one step of the first stage.
    roughly_converged, converged : float
        Movement at which the first stage and the last stage of an optimisation have converged.
    samples_per_coefficient : float
        Samples per estimated coefficient, for runs of the simulator.
    most_emulated, fewest_emulated : int
        Most and fewest samples per site on an emulator.
    fully_sampled : int
        Most sites with `most_emulated` samples; errors of more sites average out.
    numbers_at_once : int
        Samples or outputs of a mini-batch, which determine the memory (400 MB).
    narrower_starts : tuple of float
        Site precisions of narrower starts, tried in turn if the simulator fails too often under the prior.
    step_converged : float
        Movement in the last outer step on an emulator at which the search has converged.
    moving_share : float
        Share of the sites whose movement counts for `step_converged`: all of up to a hundred sites. Among many sites,
        some lie beyond the other runs and move with every new emulator; its error there is added to the noise.
    farthest : float
        Largest movement of a mean in one outer step, to stay near the runs.
    widened : float
        Factor on the posterior spread for new runs, so that the emulator does not extrapolate.
    stalled : float
        Relative change of the emulator error in a step above which it may be numerical noise of the simulator.
    shared_error : float
        Error, times the square root of the number of neighbouring sites that share it, below which the emulator is not
        refined.
    preliminary_error : float
        The same, above which the posterior of a large survey is optimised roughly.
    largest_error : float
        Upper limit of the emulator error that is added to the noise, for sites without information.
    part_sites, part_steps : int
        Sites of the part of a large survey in which the emulator is fitted first: a number, and for simulators with
        many inputs a multiple of the runs of a step.
    fewest_part_sites : int
        Fewest sites of each source in this part.
    fewest_parts : int
        Such a part is used in surveys that are at least so many times as large.
    most_simulated : int
        Most sites of a survey with more sites than runs at which the simulator itself is used.
    restarts : int
        Most second searches around unexplained sites, each from another random field.
    reset_precision : float
        Site precision of a second start.
    restart_error : float
        Largest emulator error at a second start with which the emulator is used there.
    start_pairs, fewer_start_pairs : int
        Pairs of starts for alternative solutions, mirrored about the prior mean: of shifted fields, and of samples from
        the prior; with up to `many_sites` sites, and with more.
    many_sites : int
        See `start_pairs`.
    start_precision : float
        Site precision of these starts, divided among neighbours.
    fewest_apart : float
        Smallest distance between two solutions at the site where they differ most.
    subset : int
        Sites of the subset that is searched first: enough for correlations, few enough to be cheap.
    subset_radius : float
        Radius of the subset, in length-scales.
    odds : float
        An alternative that is less probable than the best solution by a larger factor is not reported.
    most_explored : int
        Most alternatives that are explored with new runs.
    fewest_shape_samples, most_shape_samples : int
        Fewest and most samples per site of the shape test on the simulator.
    shape_runs : int
        Runs of the shape test on the simulator, within these limits.
    emulated_shape_samples : int
        Samples per site of the shape test on an emulator.
    most_shape_sites : int
        Most sites of the shape test on an emulator, to limit time and memory.
    most_checked : int
        Sites times latents up to which the posterior of all sites together is tested.
    """

    longest_step: float = 1.0
    roughly_converged: float = 0.3
    converged: float = 0.05
    samples_per_coefficient: float = 2.0
    most_emulated: int = 256
    fewest_emulated: int = 64
    fully_sampled: int = 1000
    numbers_at_once: int = 5 * 10**7
    narrower_starts: tuple[float, ...] = (3.0, 30.0)
    step_converged: float = 0.15
    moving_share: float = 0.99
    farthest: float = 2.0
    widened: float = 1.2
    stalled: float = 0.6
    shared_error: float = 0.1
    preliminary_error: float = 3.0
    largest_error: float = 1000.0
    part_sites: int = 4000
    part_steps: int = 8
    fewest_part_sites: int = 200
    fewest_parts: int = 4
    most_simulated: int = 8
    restarts: int = 3
    reset_precision: float = 0.1
    restart_error: float = 1.0
    start_pairs: int = 2
    fewer_start_pairs: int = 1
    many_sites: int = 1000
    start_precision: float = 3.0
    fewest_apart: float = 3.0
    subset: int = 32
    subset_radius: float = 5.0
    odds: float = 100.0
    most_explored: int = 2
    fewest_shape_samples: int = 32
    most_shape_samples: int = 256
    shape_runs: int = 4096
    emulated_shape_samples: int = 512
    most_shape_sites: int = 2000
    most_checked: int = 2000


DEFAULTS = SearchOptions()


@dataclass(frozen=True)
class RoundOptions:
    """Tuning of the rounds of sampling, runs and fits.

    Parameters
    ----------
    gaussian_steps : int
        Most outer steps of the Gaussian approximation.
    most_rounds : int
        Most rounds.
    tempered_share : float
        Runs from the tempered posterior, relative to those from the posterior itself.
    good : float
        Root mean square error of the emulator at draws that ends the rounds, relative to `inference.emulator_error`.
    good_tempered : float
        The same for the draws of the tempered posterior.
    bad : float
        Error of a single run that counts as bad, relative to `inference.emulator_error`.
    most_bad : float
        Largest share of bad runs.
    stalled : float
        Relative decrease of the error in two rounds below which it is taken for noise of the simulator.
    tolerable : float
        Largest error, in noise standard deviations, of an emulator whose error no longer decreases.
    most_sampled : int
        Largest number of variables that are sampled; beyond, the posterior is a Gaussian approximation.
    most_repeats : int
        Most repeated fits after the last round, if a run shows that the emulator was wrong.
    surprising : float
        Root mean square of the errors at new runs, relative to their estimates, above which these are not trusted.
    largest_variance : float
        Mean squared distance from 1 of the weights that would correct the draws at new runs, up to which surprising
        errors do not matter. Its square root limits the error of a mean, in standard deviations.
    largest_extreme : float
        Largest logarithm of the weight, in absolute value, that would correct an extreme draw. So few draws are extreme
        that a larger error of the emulator does not matter if they belong to the posterior.
    most_refined, refining : int
        Most repeated fits for sites whose posterior the error of the emulator changes, and runs at each of them.
    most_widened : float
        Largest share of sites whose posterior the error of the emulator changes; a note names these sites.
    """

    gaussian_steps: int = 4
    most_rounds: int = 15
    tempered_share: float = 0.5
    good: float = 0.5
    good_tempered: float = 3.0
    bad: float = 2.0
    most_bad: float = 0.05
    stalled: float = 0.2
    tolerable: float = 0.5
    most_sampled: int = 100_000
    most_repeats: int = 2
    surprising: float = 1.5
    largest_variance: float = 0.05
    largest_extreme: float = 2.0
    most_refined: int = 4
    refining: int = 10
    most_widened: float = 0.05


def can_draw(problem: Problem, rounds: RoundOptions = RoundOptions()) -> bool:
    """Return whether the result is draws from the exact posterior of a site model: they are wanted, and not too many.

    Parameters
    ----------
    problem : Problem
    rounds : RoundOptions
    """
    size = problem.survey.size * problem.latent_count
    return problem.inference.posterior == "sampled" and size <= rounds.most_sampled


def size_of_part(problem: Problem, options: SearchOptions = DEFAULTS) -> int:
    """Return the number of sites at which the emulator of a large survey is found first.

    Parameters
    ----------
    problem : Problem
    options : SearchOptions
    """
    return max(options.part_sites, options.part_steps * runs_in_a_step(problem))


def fewest_sites_for_a_part(problem: Problem, options: SearchOptions = DEFAULTS) -> int:
    """Return the size of a survey from which on its emulator is found at a part of the sites first.

    Parameters
    ----------
    problem : Problem
    options : SearchOptions
    """
    return options.fewest_parts * size_of_part(problem, options)
