"""Public functions on posteriors, one per command: plot, report, export, compare, calibrate, and files.

Each argument has the name of the option of its command. Packages that take long to import are imported when a function
is called, so that the command line can use the signatures without waiting.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invgp import netcdf
from invgp.errors import ArgumentError, ConfigError, LedgerError
from invgp.output_paths import (
    check_not_source,
    check_not_survey,
    check_posterior_path,
    check_writable,
)

if TYPE_CHECKING:
    import xarray as xr

    from invgp.problem import Problem
    from invgp.reports.ledger_summary import LedgerSummary
    from invgp.validation.chain_progress import ChainMonitor

CHEAP_ROWS = 1000  # rows per task from which a model is faster to run again than to look up
CENTIMETRES_PER_INCH = 2.54
FEW_RUNS = "few-runs"  # a quantity that only posteriors of field models have
logger = logging.getLogger("invgp")


def open_posterior(path: str | Path) -> xr.Dataset:
    """Read a posterior, or a map, from a netCDF file.

    Unlike `xarray.open_dataset`, this function checks that the file is complete and contains what the other functions
    need.

    Parameters
    ----------
    path : str or Path
        File that `invgp.write`, `invgp run` or `invgp predict` wrote.

    Returns
    -------
    xarray.Dataset
        In memory; the file is closed.

    Raises
    ------
    ConfigError
        The file cannot be read, or is not a posterior or a map.

    Examples
    --------
    >>> path = invgp.write(posterior, "line.nc")
    >>> invgp.open_posterior("line.nc")["depth"].dims
    ('site',)
    """
    return netcdf.read(path)


def write(posterior: xr.Dataset, path: str | Path) -> Path:
    """Write a posterior, or a map, as CF netCDF.

    Parameters
    ----------
    posterior : xarray.Dataset
        From `invgp.invert` or `invgp.predict`.
    path : str or Path
        File name, with the suffix ``.nc``. The file is written completely or not at all.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ArgumentError
        The path has another suffix, or nothing can be written there.
    WriteError
        The file could not be written.

    Examples
    --------
    >>> invgp.write(posterior, "results/line.nc").name
    'line.nc'
    """
    path = Path(path)
    if path.suffix != ".nc":
        raise ArgumentError(f"path: must end in .nc, was {str(path)!r}")
    check_writable(path, "path")
    return netcdf.write(posterior, path)


def plot(
    posterior: xr.Dataset | str | Path,
    output: str | Path | None = None,
    *,
    kinds: Sequence[str] = (),
    latents: Sequence[str] = (),
    layers: Sequence[str | int] = (),
    show: Sequence[str] = (),
    site: int | None = None,
    mode: int | None = None,
    at: Mapping[str, float] | None = None,
    limits: Mapping[str, tuple[float, float]] | None = None,
    hatch_below: float | None = None,
    size: tuple[float, float] | None = None,
    dpi: float | None = None,
    format: str | None = None,  # noqa: A002 - the name of the option
) -> tuple[Path, ...]:
    """Write figures of a posterior or a map.

    For matplotlib figures instead of files, use the functions in `invgp.plots`.

    Parameters
    ----------
    posterior : xarray.Dataset, str or Path
        Posterior or map, or its file.
    output : str or Path, optional
        File with the suffix ``.png``, ``.svg`` or ``.pdf``. The section or the map, or a single figure, is written
        there, other figures to ``<output>_<kind>``. By default beside the file of the posterior, or ``posterior.png``.
    kinds : sequence of str
        ``"section"``, ``"map"``, ``"fit"``, ``"correlation"``, ``"draws"``,
        ``"hyperparameters"``, ``"convergence"`` or ``"all"``; by default the section or the map, and the fit.
    latents : sequence of str
        Latents to plot; by default all.
    layers : sequence of str or int
        Labels to plot; by default all.
    show : sequence of str
        Quantities of sections and maps: ``"mean"``, ``"std"``, ``"difference"``, ``"information"``, for field models
        ``"few-runs"``, or ``"all"``; by default the mean, in maps also the standard deviation.
    site : int, optional
        Number of the site, from 1, of the correlations.
    mode : int, optional
        Number of a mode of a sampled posterior, from 1, the most probable; by default all modes together.
    at : mapping of str to float, optional
        Coordinates at which a grid is cut, such as ``{"northing": 500.0}``.
    limits : mapping of str to (float, float), optional
        Limits of the colour scale or the axis of variables, such as ``{"depth_std": (0.0, 50.0)}``.
    hatch_below : float, optional
        Information below which areas are hatched, by default 0.2; 0 for no hatching.
    size : (float, float), optional
        Width and height of each figure, in centimetres.
    dpi : float, optional
        Dots per inch, by default 300.
    format : str, optional
        ``"png"``, ``"svg"`` or ``"pdf"``, if `output` is not given.

    Returns
    -------
    tuple of Path
        The files.

    Raises
    ------
    ArgumentError, PlotError
        The figures cannot be made or written as requested.

    Examples
    --------
    >>> [path.name for path in invgp.plot(posterior, "line.png", dpi=72)]
    ['line.png', 'line_fit.png']
    """
    source = _source(posterior)
    target = _figure_path(source or Path("posterior.nc"), None if output is None else Path(output), format)
    check_writable(target, "output")
    from invgp import plots  # noqa: PLC0415 - mistakes are reported without waiting for matplotlib

    plots.check_format(target, "output")
    dataset = plots.slice_grid(_read_mode(posterior, mode), dict(at or {}))
    selected = plots.select_latents(dataset, tuple(latents), tuple(str(layer) for layer in layers))
    options = replace(
        _figure_options(selected, tuple(show), limits or {}, hatch_below),
        latents=tuple(latents),
        labels=tuple(str(layer) for layer in layers),
        size=None if size is None else (size[0] / CENTIMETRES_PER_INCH, size[1] / CENTIMETRES_PER_INCH),
    )
    for kind in kinds:
        if kind not in (*plots.KINDS, "all"):
            raise ArgumentError(f"kinds: must be of {', '.join(plots.KINDS)} or all, was {kind!r}")
    chosen = plots.suitable_kinds(selected) if "all" in kinds else tuple(kinds)
    if site is not None and "correlation" not in chosen:
        raise ArgumentError(f"site: must be left out unless `kinds` contains correlation, was {site}")
    return tuple(plots.plot(dataset, target, chosen, options, alone=output is not None, site=site, dpi=dpi))


def report(
    posterior: xr.Dataset | str | Path, output: str | Path | None = None, *, ledger: str | Path | None = None
) -> Path:
    """Write a self-contained HTML report of a posterior.

    Parameters
    ----------
    posterior : xarray.Dataset, str or Path
        Posterior from `invgp.invert`, or its file.
    output : str or Path, optional
        File with the suffix ``.html``; by default beside the file of the posterior, or ``posterior.html``.
    ledger : str or Path, optional
        Ledger of its runs; by default the one beside the file of the posterior, if there is one.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ArgumentError
        The dataset is not a posterior, or nothing can be written at `output`.

    Examples
    --------
    >>> invgp.report(posterior, "line.html").name
    'line.html'
    """
    source = _source(posterior)
    file = source or Path("posterior.nc")
    output = file.with_suffix(".html") if output is None else Path(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"output: must end in .html, was {str(output)!r}")
    check_writable(output, "output")
    from invgp import reports  # noqa: PLC0415 - mistakes are reported without waiting for matplotlib

    dataset = _read(posterior)
    if "site" not in dataset.dims or "invgp_config" not in dataset.attrs:
        was = "" if source is None else f", was {str(source)!r}"
        raise ArgumentError(f"posterior: must be a file that `invgp run` wrote{was}")
    beside = None if source is None else source.with_suffix(".ledger.sqlite")
    runs = _read_runs(ledger, beside, str(dataset.attrs.get("invgp_simulator_digest", "")))
    return reports.write(dataset, output, file.name, runs)


def export(
    posterior: xr.Dataset | str | Path,
    format: str,  # noqa: A002 - the name of the option
    output: str | Path | None = None,
    *,
    variables: Sequence[str] = (),
    mode: int | None = None,
) -> list[Path]:
    """Write a posterior or a map in the format of another program.

    Parameters
    ----------
    posterior : xarray.Dataset, str or Path
        Posterior or map, or its file.
    format : str
        ``"csv"``, ``"geotiff"``, ``"aseg-gdf2"``, ``"vtk"``, ``"arviz"`` or ``"pest"``.
    output : str or Path, optional
        File to write; by default beside the file of the posterior, or ``posterior`` with the suffix of the format.
    variables : sequence of str
        Variables of the dataset to export (for ``"arviz"`` and ``"pest"``, latents); by default those that suit the
        format.
    mode : int, optional
        Number of a mode of a sampled posterior, from 1, the most probable; by default all modes together.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ArgumentError
        The format or a variable is unknown, or nothing can be written at `output`.

    Examples
    --------
    >>> [path.name for path in invgp.export(posterior, "csv", "line.csv", variables=["depth", "depth_std"])]
    ['line.csv']
    """
    from invgp import exporters  # noqa: PLC0415 - as above

    if format not in exporters.FORMATS:
        raise ArgumentError(f"format: must be {', '.join(exporters.FORMATS)}, was {format!r}")
    source = _source(posterior)
    path = (source or Path("posterior.nc")).with_suffix(exporters.FORMATS[format].suffix)
    path = path if output is None else Path(output)
    if source is not None:
        check_not_source(path, source)
    check_writable(path, "output")
    with nullcontext(posterior) if not isinstance(posterior, str | Path) else netcdf.open_dataset(posterior) as dataset:
        refuse_calibration(dataset, source)
        check_not_survey(path, dataset)
        return exporters.export(_select_mode(dataset, mode), format, path, variables)


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
    from invgp.problem import Problem  # noqa: PLC0415 - mistakes are reported without waiting for SciPy
    from invgp.validation.posterior_problem import check_problem_of, find_config, load_problem_of  # noqa: PLC0415

    source = _source(posterior)
    dataset = _read(posterior)
    if isinstance(config, Problem):
        problem = check_problem_of(dataset, config)
    elif config is None and source is None:
        raise ArgumentError("config: must be the problem or the configuration of the posterior, was not given")
    else:
        file = find_config(source, dataset) if config is None and source is not None else Path(str(config))
        problem = load_problem_of(dataset, file, None if data is None else Path(data))
    output, plot = (None if path is None else Path(path) for path in (output, plot))
    _check_comparison_paths(output, plot, source, problem)
    ledger = Path(ledger) if ledger is not None else None if source is None else ledger_path(problem, source)
    from invgp.validation.chain_progress import ChainMonitor, show_chains  # noqa: PLC0415
    from invgp.validation.run_comparison import run_comparison  # noqa: PLC0415

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


def ledger_path(problem: Problem, posterior: Path) -> Path | None:
    """Return the ledger beside a posterior; None if the runs are faster to repeat than to look up."""
    wanted = problem.output.ledger
    simulators = [part.problem.forward for part in problem.parts if not part.direct]
    kept = any(forward.rows_per_task < CHEAP_ROWS for forward in simulators) if wanted is None else wanted
    return posterior.with_suffix(".ledger.sqlite") if kept else None


def _source(posterior: object) -> Path | None:
    """Return the path of a posterior; None for a dataset."""
    if isinstance(posterior, str | Path):
        return Path(posterior)
    if hasattr(posterior, "attrs") and hasattr(posterior, "data_vars"):
        return None
    raise ArgumentError(f"posterior: must be an xarray.Dataset or a path, was a {type(posterior).__name__}")


def _read(posterior: xr.Dataset | str | Path) -> xr.Dataset:
    """Read a posterior, or return the dataset, unless it is a calibration."""
    if isinstance(posterior, str | Path):
        dataset, source = netcdf.read(posterior), Path(posterior)
        refuse_calibration(dataset, source)
        return dataset
    refuse_calibration(posterior, None)
    return posterior


def _read_mode(posterior: xr.Dataset | str | Path, mode: int | None) -> xr.Dataset:
    """Return a posterior or a map, or the posterior of one of its modes."""
    return _select_mode(_read(posterior), mode)


def _select_mode(dataset: xr.Dataset, mode: int | None) -> xr.Dataset:
    if mode is None:
        return dataset
    from invgp.maps.modes import select_mode  # noqa: PLC0415 - as above

    return select_mode(dataset, mode)


def refuse_calibration(dataset: xr.Dataset, source: Path | None) -> None:
    """Raise `ArgumentError` for the result of a calibration, which contains latents but no posterior."""
    if "invgp_latents" not in dataset.attrs:
        raise ArgumentError("posterior: must be a posterior of invgp, was another dataset")
    if "invgp_calibration" in dataset.attrs:
        was = "a calibration" if source is None else f"{str(source)!r}, a calibration"
        raise ArgumentError(
            f"posterior: must be a file that `invgp run` wrote, was {was}: `invgp calibrate` makes its table and figure"
        )


def _figure_path(posterior: Path, output: Path | None, suffix: str | None) -> Path:
    """Return the file of the first figure."""
    if output is None:
        return posterior.with_suffix(f".{suffix or 'png'}")
    if suffix is not None and output.suffix.lower() != f".{suffix}":
        raise ArgumentError(f"format: must be that of `output`, which is {str(output)!r}, was {suffix!r}")
    return output


def _figure_options(
    dataset: xr.Dataset, show: tuple[str, ...], limits: Mapping[str, tuple[float, float]], hatch_below: float | None
) -> Any:
    """Return the options of the figures."""
    from invgp import plots  # noqa: PLC0415 - as above

    names = str(dataset.attrs["invgp_latents"]).split()
    suffixes = {name: quantity.suffix for name, quantity in plots.QUANTITIES.items()}
    unknown = [name for name in show if name not in (*suffixes, "all")]
    if unknown:
        raise ArgumentError(f"show: must be of {', '.join(suffixes)} or all, was {unknown[0]!r}")
    if not any(f"{name}{suffixes[FEW_RUNS]}" in dataset for name in names):
        if FEW_RUNS in show:
            raise ArgumentError(
                f"show: must not be {FEW_RUNS!r} here: only the posterior of a field model has it, on its own grid"
            )
        del suffixes[FEW_RUNS]
    known = [name + suffix for name in names for suffix in suffixes.values()]
    for variable, (low, high) in limits.items():
        if variable not in known:
            raise ArgumentError(f"limits: must be of one of {', '.join(known)}, was {variable!r}")
        if not (low < high and math.isfinite(high - low)):
            raise ArgumentError(f"limits: the lower must be below the upper, was {low:g} and {high:g} for {variable!r}")
    shown = tuple(name for name in suffixes if name != FEW_RUNS) if "all" in show else tuple(dict.fromkeys(show))
    settings: dict[str, Any] = {} if hatch_below is None else {"hatch_below": hatch_below}
    return plots.FigureOptions(shown, dict(limits), **settings)


def _read_runs(ledger: str | Path | None, beside: Path | None, simulator_digest: str) -> LedgerSummary | None:
    """Read a summary of the runs; a ledger that was not named may be missing or damaged."""
    from invgp.reports.ledger_summary import summarise_ledger  # noqa: PLC0415 - as above

    if ledger is not None:
        return summarise_ledger(Path(ledger), simulator_digest)
    try:
        return summarise_ledger(beside, simulator_digest) if beside is not None and beside.is_file() else None
    except (ConfigError, LedgerError) as error:
        logger.warning("the ledger beside the posterior is left out: %s", error)
        return None


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
