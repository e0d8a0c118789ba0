"""Reference chains for a posterior with their resources: workers, run directories, ledger, checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import xarray as xr

from invgp.errors import RunsFailedError
from invgp.execution.pools import open_pool
from invgp.execution.run_directories import make_run_directory
from invgp.inference.invert import open_recorder
from invgp.ledger import Ledger
from invgp.output_paths import remove_if_empty
from invgp.problem import Problem
from invgp.validation.chain_progress import ChainMonitor
from invgp.validation.comparison import compare_with_chains
from invgp.validation.reference_chains import DirectSimulator, emulated_reference, reference


class InterruptedComparison(KeyboardInterrupt):
    """The user interrupted a comparison.

    Attributes
    ----------
    chains : Path or None
        File with the chains so far, from which the same call continues; None if there is none.
    ledger : Path or None
        Ledger that contains runs; None if there is none.
    """

    def __init__(self, chains: Path | None, ledger: Path | None) -> None:
        super().__init__("the comparison was interrupted")
        self.chains, self.ledger = chains, ledger


def run_comparison(
    problem: Problem,
    posterior: xr.Dataset,
    *,
    checkpoint: Path | None,
    ledger: Path | None,
    workers: int | None,
    scheduler: str | None,
    emulator: bool,
    monitor: ChainMonitor,
    **settings: int,
) -> xr.Dataset:
    """Sample reference chains and compare the posterior with them; the parameters are those of `invgp.compare`.

    Parameters
    ----------
    checkpoint : Path or None
        File of the chains, which continue from there.
    settings : int
        ``chains``, ``draws``, ``burn_in``, ``thin`` and ``seed``.
    """
    try:
        with (
            open_pool(problem.inference, workers=workers, scheduler=scheduler) as pool,
            _run_directory(checkpoint) as directory,
            open_recorder(problem, ledger) as recorder,
        ):
            run = DirectSimulator.of(problem, directory, pool, monitor, recorder)
            find = emulated_reference if emulator else reference
            try:
                chains = find(problem, run, checkpoint=checkpoint, report=monitor.count_iterations, **settings)
            except RunsFailedError as failure:
                raise RunsFailedError(run.simulator.describe_failures(str(failure))) from failure
    except KeyboardInterrupt as error:
        begun = checkpoint if checkpoint is not None and checkpoint.exists() else None
        raise InterruptedComparison(begun, ledger if ledger is not None and contains_runs(ledger) else None) from error
    comparison = compare_with_chains(problem, posterior, chains)
    made = settings | {"draws": chains.draws.shape[1]}
    comparison.attrs |= {f"invgp_reference_{name}": value for name, value in made.items()}
    return comparison


@contextmanager
def _run_directory(checkpoint: Path | None) -> Iterator[Path]:
    """Create a directory for runs beside the checkpoint, or a temporary one; keep it if a run failed."""
    if checkpoint is None:
        with TemporaryDirectory(prefix="invgp-compare-") as temporary, make_run_directory(Path(temporary)) as directory:
            yield directory
        return
    runs = checkpoint.with_suffix("").with_suffix(".runs")
    try:
        with make_run_directory(runs) as directory:
            yield directory
    finally:
        remove_if_empty(runs)


def contains_runs(ledger: Path) -> bool:
    """Return whether a ledger contains runs, from which the next call continues."""
    with Ledger(ledger, read_only=True) as opened:
        return bool(opened.models())
