"""Check of a prior before an inversion."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from invgp.api.emulated_files import check_result_paths, write_result
from invgp.api.posterior_files import ledger_path

if TYPE_CHECKING:
    import xarray as xr

    from invgp.problem import Problem


def prior(
    problem: Problem | str | Path,
    *,
    runs: int | None = None,
    data: str | Path | None = None,
    workers: int | None = None,
    seed: int = 1,
    output: str | Path | None = None,
    plot: str | Path | None = None,
) -> xr.Dataset:
    """Draw from the prior of a problem, simulate data for a few draws, and compare them with the observed data.

    Parameters
    ----------
    problem : Problem, str or Path
        The problem or its configuration file. With a file, the runs are recorded in the ledger of the inversion, if it
        has one, and the inversion uses them.
    runs : int, optional
        Number of simulator runs; by default 100, or 20 of a field model. With 0 only fields are drawn. For a site
        model there are at least ten draws at each of as many sites as the runs allow.
    data : str or Path, optional
        Survey file instead of that of the configuration.
    workers : int, optional
        Number of parallel workers; by default that of the problem.
    seed : int
        Random seed of the draws.
    output : str or Path, optional
        netCDF file for the result; by default none.
    plot : str or Path, optional
        Figure, ``.png``, ``.svg`` or ``.pdf``; by default none.

    Returns
    -------
    xarray.Dataset
        ``depth_prior_sample``, draws of each latent; for each observation ``time_simulated`` for some draws and sites,
        and ``time_prior_score``, the distance of the data from the simulated ones in standard deviations. The attribute
        ``invgp_conflicts`` has a sentence for each observation that is far outside the prior, as with a wrong unit.

    Raises
    ------
    RunsFailedError
        Too many runs failed.
    ConfigError
        An argument or the configuration is not valid.

    Examples
    --------
    >>> found = invgp.prior(problem, runs=30)
    >>> found["time_simulated"].sizes["run"], found.attrs["invgp_conflicts"]
    (10, '')
    """
    from invgp.answers.prior_check import check_prior  # noqa: PLC0415 - mistakes are reported without waiting for SciPy
    from invgp.config import load  # noqa: PLC0415

    file = Path(problem) if isinstance(problem, str | Path) else None
    output, plot = check_result_paths(output, plot, (file,))
    loaded = load(file, data=data) if isinstance(problem, str | Path) and file is not None else problem
    if isinstance(loaded, str | Path):
        raise TypeError("the problem is a path")
    ledger = None if file is None else ledger_path(loaded, loaded.output.file)
    with TemporaryDirectory() as directory:
        found = check_prior(loaded, runs, seed, directory=Path(directory), workers=workers, ledger=ledger)
    write_result(found, output, plot, "plot_prior")
    return found
