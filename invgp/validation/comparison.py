"""Comparison of a posterior with reference chains, and convergence diagnostics of the chains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from arviz_stats.base.array import array_stats

from invgp.errors import ArgumentError, RunsFailedError
from invgp.execution.pools import open_pool
from invgp.execution.run_directories import make_run_directory
from invgp.inference.invert import open_recorders
from invgp.ledger import Ledger
from invgp.operating_system import remove_if_empty
from invgp.posterior.contents import scalar_names
from invgp.problem import Floats, Latent, Problem
from invgp.sampling.exact_target import Chains
from invgp.sampling.tempered_chains import RunsSpent
from invgp.sampling.tolerant_simulator import TolerantSimulator
from invgp.validation.reference_chains import FEWEST_EFFECTIVE, LARGEST_R_HAT, ChainMonitor, default_runs, reference

QUANTILES = (0.025, 0.5, 0.975)
TAILS = (0.05, 0.95)  # quantiles of the tail effective sample size
FEWEST_CONVERGED = 0.99  # share of the latent values at which chains must meet both limits
ATTRIBUTES = (
    *("Conventions", "title", "history", "source", "references"),
    *("invgp_survey", "invgp_survey_digest", "invgp_simulator", "invgp_config", "invgp_coordinates"),
)


class Row(NamedTuple):
    """Comparison of one process of a posterior with the reference.

    Attributes
    ----------
    latent, label : str
    error : float, in standard deviations of the reference
        Error of the posterior mean, root mean square over the sites or nodes.
    error_mcse : float
        Monte Carlo standard error of the reference mean, in the same units, root mean square.
    ratio : float
        Posterior standard deviation divided by that of the reference, median.
    ratio_mcse : float
        Monte Carlo standard error of the ratio, median.
    inside : float
        Share of the reference inside the posterior intervals of the probability `invgp_interval` of the comparison,
        mean; NaN if the posterior has no such quantiles.
    r_hat, ess : float
        Largest R-hat and smallest effective sample size.
    """

    latent: str
    label: str
    error: float
    error_mcse: float
    ratio: float
    ratio_mcse: float
    inside: float
    r_hat: float
    ess: float


def compare_with_chains(problem: Problem, posterior: xr.Dataset, chains: Chains) -> xr.Dataset:
    """Compare a posterior with reference chains, for each latent and site or node.

    Parameters
    ----------
    problem : Problem
    posterior : xarray.Dataset
        Posterior of the same problem, from `invgp.invert`.
    chains : Chains
        Reference.

    Returns
    -------
    xarray.Dataset
        For each latent, here depth: ``depth_reference`` and its ``_std``, ``_quantile``, ``_draw``, ``_mcse`` (Monte
        Carlo standard error), ``_std_mcse``, ``_r_hat`` and ``_ess``; ``depth_error`` of the posterior's mean, in
        standard deviations of the reference; ``depth_ratio`` of the posterior's spread to that of the reference;
        ``depth_inside``, the share of the reference inside the posterior interval of probability ``invgp_interval``.
    """
    variables: dict[str, xr.DataArray] = {}
    for latent in problem.latents:
        columns = problem.latent_slices[latent.name]
        draws, early_and_late = (latent.link(part[..., columns]) for part in (chains.by_chain, chains.by_iteration))
        variables |= _latent_variables(latent, posterior, draws, early_and_late)
    coordinates = {name: c for name, c in posterior.coords.items() if set(c.dims) <= _dimensions(posterior, problem)}
    attributes = {name: posterior.attrs[name] for name in ATTRIBUTES if name in posterior.attrs}
    runs = {"invgp_runs": int(posterior.attrs.get("invgp_runs", 0)), "invgp_reference_runs": chains.runs}
    names = {"invgp_latents": " ".join(latent.name for latent in problem.latents)}
    names |= {"invgp_scalars": " ".join(problem.scalars)} if problem.scalars else {}
    dataset = xr.Dataset(variables, coordinates, {**attributes, **names, **runs})
    about = {"long_name": "probability of the quantile", "units": "1"}
    dataset["quantile"] = xr.DataArray(np.asarray(QUANTILES), dims="quantile", attrs=about)
    if (interval := widest_interval(posterior)) is not None:
        dataset.attrs["invgp_interval"] = interval[1] - interval[0]
    learnt = [name for latent in problem.latents if "learnt" in posterior[(name := latent.name)].attrs]
    if learnt:
        dataset.attrs["invgp_reference_fixed"] = " ".join(learnt)
    dataset.attrs["invgp_reference_converged"] = "yes" if chains_have_converged(dataset) else "no"
    return dataset


def comparison_rows(comparison: xr.Dataset) -> list[Row]:
    """Summarise the comparison in one row per process.

    Parameters
    ----------
    comparison : Dataset
        From `invgp.compare`.

    Returns
    -------
    list of Row
    """
    return [row for name in comparison.attrs["invgp_latents"].split() for row in _rows(comparison, name)]


def chains_have_converged(comparison: xr.Dataset) -> bool:
    """Return whether the chains have converged: R-hat and effective sample size are good nearly everywhere.

    Parameters
    ----------
    comparison : Dataset
        From `invgp.compare`.

    Returns
    -------
    bool
    """
    r_hat, ess = (_values_of_all_latents(comparison, suffix) for suffix in ("_r_hat", "_ess"))
    return bool(np.mean((r_hat < LARGEST_R_HAT) & (ess > FEWEST_EFFECTIVE)) >= FEWEST_CONVERGED)


def describe_convergence(comparison: xr.Dataset) -> str:
    """Describe the convergence of the chains in one sentence.

    Parameters
    ----------
    comparison : Dataset
        From `invgp.compare`.

    Returns
    -------
    str
    """
    r_hat, ess = (_values_of_all_latents(comparison, suffix) for suffix in ("_r_hat", "_ess"))
    worst = f"R-hat at most {np.max(r_hat):.3f}, effective sample size at least {np.min(ess):,.0f}"
    if chains_have_converged(comparison):
        return f"the chains have converged: {worst}"
    good = np.mean((r_hat < LARGEST_R_HAT) & (ess > FEWEST_EFFECTIVE))
    return (
        f"the chains have not converged, and are no reference yet: {worst}; R-hat is below {LARGEST_R_HAT} and the "
        f"effective sample size above {FEWEST_EFFECTIVE:g} for {good:.0%} of all latent values, which should be "
        f"{FEWEST_CONVERGED:.0%}"
    )


def widest_interval(posterior: xr.Dataset) -> tuple[float, float] | None:
    """Return the probabilities of the widest central interval among the quantiles of a posterior; None without one."""
    levels = posterior["quantile"].values.tolist() if "quantile" in posterior else []
    pairs = [(q, p) for q in levels for p in levels if q < 0.5 and np.isclose(q + p, 1.0)]
    return min(pairs, default=None)


def _latent_variables(
    latent: Latent, posterior: xr.Dataset, draws: Floats, early_and_late: Floats
) -> dict[str, xr.DataArray]:
    """Build the variables of one latent from reference draws (K, R, N, L) of the physical quantity, in two orders."""
    what, mean = latent.long_name or latent.name, posterior[latent.name]
    if latent.is_scalar:
        draws, early_and_late = draws[..., :1, :], early_and_late[..., :1, :]
    # A latent without a dimension has no axis for its label, and a scalar none for the points.
    draws, early_and_late = (part.reshape(*part.shape[:2], *mean.shape) for part in (draws, early_and_late))

    def field(values: Floats, long_name: str, unit: str = latent.unit, leading: tuple[str, ...] = ()) -> xr.DataArray:
        return xr.DataArray(
            values, dims=(*leading, *mean.dims), attrs={"long_name": f"{long_name} of {what}", "units": unit}
        )

    pooled = draws.reshape(-1, *mean.shape)
    centre, spread = pooled.mean(axis=0), pooled.std(axis=0, ddof=1)
    measured = posterior[latent.name].values, posterior[f"{latent.name}_std"].values
    reference = {
        "": field(centre, "reference mean"),
        "_std": field(spread, "reference standard deviation"),
        "_quantile": field(np.quantile(pooled, QUANTILES, axis=0), "reference quantile", leading=("quantile",)),
        "_draw": field(draws.astype(np.float32), "reference draw", leading=("chain", "draw")),
        "_mcse": field(_diagnostic("mcse", draws), "Monte Carlo standard error of the reference mean"),
        "_std_mcse": field(spread_mcse(draws), "Monte Carlo standard error of the reference standard deviation"),
        "_r_hat": field(_diagnostic("rhat", early_and_late), "split R-hat, rank-normalised, of the populations", "1"),
        "_ess": field(
            np.minimum(_diagnostic("ess", draws), _diagnostic("ess", draws, method="tail", prob=TAILS)),
            "smaller of the bulk and tail effective sample sizes",
            "1",
        ),
    }
    inside = {}
    if (interval := widest_interval(posterior)) is not None:
        lower, upper = (posterior[f"{latent.name}_quantile"].sel(quantile=level).values for level in interval)
        share = np.mean((pooled >= lower) & (pooled <= upper), axis=0)
        inside[f"{latent.name}_inside"] = field(share, "share inside the posterior interval of the reference", "1")
    return (
        inside
        | {f"{latent.name}_reference{suffix}": variable for suffix, variable in reference.items()}
        | {
            f"{latent.name}_error": field(
                (measured[0] - centre) / spread,
                "error (in standard deviations of the reference) of the posterior mean",
                "1",
            ),
            f"{latent.name}_ratio": field(measured[1] / spread, "ratio of posterior to reference spread", "1"),
        }
    )


def _diagnostic(name: str, draws: Floats, **how: Any) -> Floats:
    """Compute a diagnostic (...) of ArviZ from samples (C, R, ...)."""
    diagnostic: Callable[..., Any] = getattr(array_stats, name)
    return np.asarray(diagnostic(draws, chain_axis=0, draw_axis=1, **how), dtype=np.float64)


def spread_mcse(draws: Floats) -> Floats:
    """Compute the Monte Carlo standard error (...) of the standard deviation from samples (C, R, ...).

    ArviZ 0.8 uses the effective sample size of the mean (arviz-stats issue 428). This is too large for chains whose
    squares are more strongly correlated than their values.
    """
    squares = (draws - draws.mean(axis=(0, 1))) ** 2
    error_of_variance = squares.std(axis=(0, 1)) / np.sqrt(_diagnostic("ess", draws, method="sd"))
    return np.asarray(0.5 * error_of_variance / np.sqrt(squares.mean(axis=(0, 1))))


def _rows(comparison: xr.Dataset, name: str) -> list[Row]:
    def columns(variable: str) -> Floats:
        values = comparison[variable].values
        points = 1 if name in scalar_names(comparison) else len(values)
        return np.asarray(values.reshape(points, -1).T, dtype=np.float64)

    spread, ratio = columns(f"{name}_reference_std"), columns(f"{name}_ratio")
    error_mcse = columns(f"{name}_reference_mcse") / spread
    ratio_mcse = ratio * columns(f"{name}_reference_std_mcse") / spread
    r_hat, ess = columns(f"{name}_reference_r_hat"), columns(f"{name}_reference_ess")
    inside = columns(f"{name}_inside") if f"{name}_inside" in comparison else np.full_like(ratio, np.nan)
    return [
        Row(
            name,
            label,
            error=_root_mean_square(columns(f"{name}_error")[i]),
            error_mcse=_root_mean_square(error_mcse[i]),
            ratio=float(np.median(ratio[i])),
            ratio_mcse=float(np.median(ratio_mcse[i])),
            inside=float(np.mean(inside[i])),
            r_hat=float(np.max(r_hat[i])),
            ess=float(np.min(ess[i])),
        )
        for i, label in enumerate(_labels(comparison, name))
    ]


def _labels(comparison: xr.Dataset, name: str) -> list[str]:
    dimension = [d for d in comparison[f"{name}_error"].dims if d not in ("site", "node")]
    if not dimension:
        return [""]
    labels = comparison.get(f"{dimension[0]}_label", comparison[dimension[0]]).values.tolist()
    return [label if isinstance(label, str) else f"{dimension[0]} {label}" for label in labels]


def _values_of_all_latents(comparison: xr.Dataset, suffix: str) -> Floats:
    names = comparison.attrs["invgp_latents"].split()
    return np.concatenate([comparison[f"{name}_reference{suffix}"].values.ravel() for name in names])


def _dimensions(posterior: xr.Dataset, problem: Problem) -> set[Any]:
    return {dimension for latent in problem.latents for dimension in posterior[latent.name].dims}


def _root_mean_square(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))


class InterruptedComparison(KeyboardInterrupt):
    """The user interrupted a comparison.

    Attributes
    ----------
    ledger : Path or None
        Ledger with the runs so far, from which the same call continues; None if there is none.
    """

    def __init__(self, ledger: Path | None) -> None:
        super().__init__("the comparison was interrupted")
        self.ledger = ledger


def run_comparison(
    problem: Problem,
    posterior: xr.Dataset,
    *,
    ledger: Path | None,
    run_directory: Path | None,
    workers: int | None,
    scheduler: str | None,
    monitor: ChainMonitor,
    runs: int | None,
    chains: int | None,
    effective: int,
    seed: int,
) -> xr.Dataset:
    """Sample reference chains and compare the posterior with them; the parameters are those of `invgp.compare`.

    Parameters
    ----------
    run_directory : Path or None
        Directory of the runs, in which failed runs are kept; None for a temporary one.
    """
    runs = default_runs(problem) if runs is None else runs
    monitor.limit = runs
    try:
        with (
            open_pool(problem.inference, workers=workers, scheduler=scheduler) as pool,
            _open_directory(run_directory) as directory,
            open_recorders(problem, ledger) as recorders,
        ):
            run = TolerantSimulator.of(problem, directory, pool, monitor, recorders)
            try:
                found = reference(
                    problem,
                    run,
                    runs=runs,
                    chains=chains,
                    effective=effective,
                    seed=seed,
                    report=monitor.report_chains,
                )
            except RunsFailedError as failure:
                raise RunsFailedError(run.simulator.describe_failures(str(failure))) from failure
            except RunsSpent as spent:
                raise ArgumentError(_describe_lack(runs, spent, ledger)) from None
    except KeyboardInterrupt as error:
        raise InterruptedComparison(ledger if ledger is not None and contains_runs(ledger) else None) from error
    comparison = compare_with_chains(problem, posterior, found)
    populations, per_population, draws = found.draws.shape[:3]
    comparison.attrs |= {
        "invgp_reference_chains": populations * per_population,
        "invgp_reference_draws": draws,
        "invgp_reference_seed": seed,
    }
    return comparison


def _describe_lack(runs: int, spent: RunsSpent, ledger: Path | None) -> str:
    kept = "" if ledger is None else f"; the runs are kept in {str(ledger)!r}, and a larger number continues from there"
    reached = (
        f"{spent.power:.2g}, and must become 1" if spent.power < 1.0 else "1, but too few runs were left for draws"
    )
    number = (
        "" if spent.needed is None else f"; by the progress so far, about {max(spent.needed, runs):,} may be enough"
    )
    return (
        f"runs: must be larger than {runs:,} here: the chains, which start at the prior, did not reach the posterior "
        f"(the power of the likelihood was {reached}){number}; fewer chains need fewer runs{kept}"
    )


@contextmanager
def _open_directory(path: Path | None) -> Iterator[Path]:
    """Create the directory of runs, or a temporary one; keep it if a run failed."""
    if path is None:
        with TemporaryDirectory(prefix="invgp-compare-") as temporary, make_run_directory(Path(temporary)) as directory:
            yield directory
        return
    try:
        with make_run_directory(path) as directory:
            yield directory
    finally:
        remove_if_empty(path)


def contains_runs(ledger: Path) -> bool:
    """Return whether a ledger contains runs, from which the next call continues."""
    with Ledger(ledger, read_only=True) as opened:
        return bool(opened.models())
