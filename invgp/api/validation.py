"""Tests of posteriors: comparison with Markov chains, and calibration on simulated surveys."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from invgp import netcdf
from invgp.api.output_paths import check_posterior_path, check_writable
from invgp.api.posterior_files import find_posterior, ledger_path, origin_of, problem_of, read_posterior, source_of
from invgp.errors import ArgumentError, ConfigError

if TYPE_CHECKING:
    import xarray as xr

    from invgp.problem import Problem
    from invgp.validation.reference_chains import ChainMonitor


def compare(
    posterior: xr.Dataset | str | Path,
    config: str | Path | Problem | None = None,
    *,
    data: str | Path | None = None,
    runs: int | None = None,
    chains: int | None = None,
    effective: int = 1000,
    seed: int = 0,
    ledger: str | Path | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    output: str | Path | None = None,
    plot: str | Path | None = None,
    progress: bool = False,
    monitor: ChainMonitor | None = None,
) -> xr.Dataset:
    """Compare a posterior with samples from the exact posterior, by Markov chains on the simulator itself.

    The chains start at the prior and are tempered to the posterior, so that they find all modes. They need many
    simulator runs. If `posterior` is a file and the simulator is not very fast, the runs are kept in the ledger beside
    it; after an interruption, or with more `runs`, the same call continues from there.

    Parameters
    ----------
    posterior : xarray.Dataset, str or Path
        Posterior from `invgp.invert`, or its file.
    config : str, Path or Problem, optional
        Its problem or configuration file; by default the configuration is searched for by its text, beside and above
        the file of the posterior.
    data : str or Path, optional
        Survey file, if it is not that of the configuration.
    runs : int, optional
        Largest number of simulator runs; by default 30,000 per site with observations, or for a field model. The chains
        end earlier if they have converged.
    chains : int, optional
        Number of chains, a multiple of 4 and at least 8; by default 64 to 256, fewer for larger problems. Fewer chains
        need fewer runs to reach the posterior.
    effective : int
        Effective sample size of each latent value at which the chains end.
    seed : int
        Random seed.
    ledger : str or Path, optional
        Ledger of the runs; by default that of the posterior.
    workers : int, optional
        Number of runs at the same time; by default `inference.workers`.
    scheduler : str, optional
        Address or file of a Dask scheduler; by default `inference.scheduler`.
    output : str or Path, optional
        netCDF file for the samples and the comparison; by default none.
    plot : str or Path, optional
        Figure, ``.png``, ``.svg`` or ``.pdf``; by default none.
    progress : bool
        Whether the progress is displayed.
    monitor : ChainMonitor, optional
        Receives each step, instead of the display.

    Returns
    -------
    xarray.Dataset
        For each latent, here depth: ``depth_reference`` (the mean of the samples) with ``_std``, ``_quantile``,
        ``_draw``, ``_mcse``, ``_r_hat`` and ``_ess``; ``depth_error`` of the posterior mean, in standard deviations of
        the reference; ``depth_ratio`` of the standard deviations; ``depth_inside``, the share of the samples inside the
        widest posterior interval.

    Raises
    ------
    ConfigError
        The configuration or the survey is not that of the posterior, an argument is not valid, or `runs` do not suffice
        to reach the posterior.
    RunsFailedError
        The chains cannot start because all runs fail.
    InterruptedComparison
        Ctrl-C.

    Examples
    --------
    >>> comparison = invgp.compare(posterior, problem, chains=16, effective=50)
    >>> comparison["depth_reference_draw"].dims
    ('chain', 'draw', 'site')
    """
    for name, value, least in (("runs", runs, 1), ("chains", chains, 8), ("effective", effective, 1)):
        if value is not None and value < least:
            raise ArgumentError(f"{name}: must be at least {least}, was {value}")
    if chains is not None and chains % 4:
        raise ArgumentError(f"chains: must be a multiple of 4, was {chains}")
    posterior, config = find_posterior(posterior, config)
    source = source_of(posterior)
    dataset = read_posterior(posterior)
    problem = problem_of(dataset, origin_of(posterior), config, data)
    output, plot = (None if path is None else Path(path) for path in (output, plot))
    _check_comparison_paths(output, plot, source, problem)
    ledger = Path(ledger) if ledger is not None else None if source is None else ledger_path(problem, source)
    from invgp.validation.comparison import run_comparison  # noqa: PLC0415
    from invgp.validation.reference_chains import ChainMonitor, show_chains  # noqa: PLC0415

    with nullcontext(monitor or ChainMonitor()) if monitor or not progress else show_chains() as display:
        comparison = run_comparison(
            problem,
            dataset,
            ledger=ledger,
            run_directory=None if source is None else source.with_suffix(".runs"),
            workers=workers,
            scheduler=scheduler,
            monitor=display,
            runs=runs,
            chains=chains,
            effective=effective,
            seed=seed,
        )
    if output is not None:
        netcdf.write(comparison, output)
    if plot is not None:
        from invgp import plots  # noqa: PLC0415

        plots.save_figure(plots.plot_comparison(dataset, comparison), plot)
    return comparison


def calibrate(
    problem: Problem,
    surveys: int = 200,
    *,
    output: str | Path | None = None,
    plot: str | Path | None = None,
    workers: int | None = None,
    seed: int | None = None,
    drawn_from: Problem | None = None,
    progress: bool = False,
) -> xr.Dataset:
    """Estimate the coverage of posterior intervals on simulated surveys.

    Each survey has a truth drawn from the prior and simulated data with noise. It is inverted, and the truth is
    compared with the posterior.

    Parameters
    ----------
    problem : Problem
    surveys : int
        Number of simulated surveys.
    output : str or Path, optional
        netCDF file for the result; by default none. Each finished survey is kept beside it, in the directory
        ``<output>.surveys``; after an interruption, or with more surveys, the same call continues from there.
    plot : str or Path, optional
        Figure, ``.png``, ``.svg`` or ``.pdf``; by default none.
    workers : int, optional
        Number of surveys that are inverted at the same time; by default `inference.workers`.
    seed : int, optional
        Random seed; by default `inference.seed`. The same seed gives a bit-identical result for any number of workers,
        and survey k does not depend on the number of surveys.
    drawn_from : Problem, optional
        Problem with the prior, the simulator and the noise of truths and data, to test a posterior with wrong
        assumptions; by default `problem`.
    progress : bool
        Whether the progress is displayed.

    Returns
    -------
    xarray.Dataset
        Truths, their posterior probabilities and ranks by survey, site and label; the coverage and its band by interval
        and label.

    Raises
    ------
    ConfigError
        An argument is not valid, or `output` belongs to another calibration.
    RunsFailedError
        The simulator fails at all truths drawn for a survey, or no inversion succeeded.
    InterruptedCalibration
        Ctrl-C; it contains the result of the surveys that were finished.

    Examples
    --------
    >>> result = invgp.calibrate(problem, surveys=2)
    >>> result["coverage"].dims
    ('interval',)
    """
    from invgp.validation.calibration import InterruptedCalibration, run_calibration  # noqa: PLC0415 - as above

    output, plot = (None if path is None else Path(path) for path in (output, plot))
    if output is not None:
        check_posterior_path(output, "output", problem)
        _check_not_fewer_surveys(surveys, output)
    if plot is not None:
        from invgp.plots import check_format  # noqa: PLC0415

        check_format(plot, "plot")
        check_writable(plot, "plot")
    folder = None if output is None else output.with_suffix(".surveys")
    try:
        result = run_calibration(
            problem,
            surveys,
            seed=seed,
            workers=workers,
            drawn_from=drawn_from,
            folder=folder,
            keep_runs=folder is not None and ledger_path(problem, folder) is not None,
            progress=progress,
        )
    except InterruptedCalibration as interruption:
        if interruption.result is not None:
            _write_calibration(interruption.result, *(interrupted_path(path) for path in (output, plot)))
        raise
    _write_calibration(result, output, plot)
    for partial in filter(None, (interrupted_path(output), interrupted_path(plot))):
        partial.unlink(missing_ok=True)
    return result


def interrupted_path(path: Path | None) -> Path | None:
    """Return the file for an incomplete result, ``<path>.interrupted.nc``."""
    return None if path is None else path.with_suffix(f".interrupted{path.suffix}")


def _check_comparison_paths(output: Path | None, plot: Path | None, source: Path | None, problem: Problem) -> None:
    """Check that the results can be written, before the simulator runs."""
    if output is not None:
        check_posterior_path(output, "output", problem)
        if source is not None and output.absolute() == source.absolute():
            raise ArgumentError(f"output: must be a file of its own, was {str(output)!r}, which is the posterior")
    if plot is not None:
        from invgp.plots import check_format  # noqa: PLC0415

        check_format(plot, "plot")
        check_writable(plot, "plot")


def _check_not_fewer_surveys(surveys: int, output: Path) -> None:
    """Raise `ArgumentError` if a calibration would replace one with more surveys."""
    if not output.exists():
        return
    try:
        with netcdf.open_dataset(output) as earlier:
            there = int(earlier.attrs.get("invgp_surveys", 0))
    except ConfigError:  # not a file of invgp
        return
    if there > surveys:
        raise ArgumentError(
            f"surveys: must be at least {there}, was {surveys}: {str(output)!r} is a calibration with {there} surveys; "
            "for fewer, choose another `output`, or remove that file"
        )


def _write_calibration(result: xr.Dataset, output: Path | None, plot: Path | None) -> None:
    """Write the netCDF file and the figure."""
    if output is not None:
        netcdf.write(result, output)
    if plot is not None:
        from invgp import plots  # noqa: PLC0415 - as above

        plots.save_figure(plots.plot_calibration(result), plot)
