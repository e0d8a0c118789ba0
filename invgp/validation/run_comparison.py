"""Reference chains for a posterior with their resources: workers, run directories, ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import xarray as xr

from invgp.errors import ArgumentError, RunsFailedError
from invgp.execution.pools import open_pool
from invgp.execution.run_directories import make_run_directory
from invgp.inference.invert import open_recorders
from invgp.ledger import Ledger
from invgp.operating_system import remove_if_empty
from invgp.problem import Problem
from invgp.sampling.tempered_chains import RunsSpent
from invgp.sampling.tolerant_simulator import TolerantSimulator
from invgp.validation.chain_progress import ChainMonitor
from invgp.validation.comparison import compare_with_chains
from invgp.validation.reference_chains import default_runs, reference


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
    return (
        f"runs: must be larger than {runs:,} here: the chains, which start at the prior, did not reach the posterior "
        f"(the power of the likelihood was {reached}); fewer chains need fewer runs{kept}"
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
