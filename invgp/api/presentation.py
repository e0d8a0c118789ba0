"""Figures, reports and exported files of posteriors and maps."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invgp import netcdf
from invgp.api.output_paths import check_not_source, check_not_survey, check_writable
from invgp.api.posterior_files import (
    find_posterior,
    read_mode,
    read_posterior,
    refuse_calibration,
    select_one_mode,
    source_of,
    warn_unless_converged,
)
from invgp.errors import ArgumentError, ConfigError, LedgerError

if TYPE_CHECKING:
    import xarray as xr

    from invgp.reports.answers import AnswerSection
    from invgp.reports.provenance import LedgerSummary

CENTIMETRES_PER_INCH = 2.54
FEW_RUNS = "few-runs"  # a quantity that only posteriors of field models have
logger = logging.getLogger("invgp")


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
    colour_map: str = "",
    line: tuple[float, float, float, float] | None = None,
    values: str | Path | None = None,
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
        ``"section"``, ``"map"``, ``"profile"``, ``"fit"``, ``"correlation"``, ``"draws"``,
        ``"hyperparameters"``, ``"scalars"``, ``"convergence"`` or ``"all"``; by default the section or the map, the
        scalars, and the fit.
    latents : sequence of str
        Latents to plot; by default all.
    layers : sequence of str or int
        Labels to plot; by default all.
    show : sequence of str
        Quantities of sections and maps: ``"mean"``, ``"std"``, ``"difference"``, ``"information"``, ``"prior"``,
        ``"quantiles"``, ``"exceedance"``, for field models ``"few-runs"``, or ``"all"`` for the first four; by default
        the mean, in maps also the standard deviation.
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
    colour_map : str, optional
        Matplotlib colour map of latents on maps.
    line : (float, float, float, float), optional
        Ends of a profile A-A' on a map: east and north of A, then of A'. Maps show the line, and the figure
        ``"profile"`` shows the latents along it.
    values : str or Path, optional
        CSV table of known values, as of boreholes, that are drawn over the means: coordinates, and columns named by
        latents (``depth``, or ``depth_2`` for the label 2). `invgp.plots.compare_with_values` compares them.
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
    posterior, _ = find_posterior(posterior)
    source = source_of(posterior)
    target = _figure_path(source or Path("posterior.nc"), None if output is None else Path(output), format)
    check_writable(target, "output")
    from invgp import plots  # noqa: PLC0415 - mistakes are reported without waiting for matplotlib

    plots.check_format(target, "output")
    dataset = plots.slice_grid(read_mode(posterior, mode), dict(at or {}))
    selected = plots.select_latents(dataset, tuple(latents), tuple(str(layer) for layer in layers))
    options = replace(
        _figure_options(selected, tuple(show), limits or {}, hatch_below),
        latents=tuple(latents),
        labels=tuple(str(layer) for layer in layers),
        colour_map=colour_map,
        line=line,
        known=() if values is None else plots.read_known_values(values, dataset),
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
    posterior: xr.Dataset | str | Path,
    output: str | Path | None = None,
    *,
    ledger: str | Path | None = None,
    answers: Sequence[xr.Dataset | str | Path] = (),
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
    answers : sequence of xarray.Dataset, str or Path
        Results about this posterior, or their files, that get a section with a table and a figure: from `invgp.prior`,
        `revise`, `difference`, `weigh`, `crossvalidate`, `influence` or `design`.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ArgumentError
        The dataset is not a posterior, an answer is not a result about it, or nothing can be written at `output`.

    Examples
    --------
    >>> invgp.report(posterior, "line.html").name
    'line.html'
    """
    posterior, _ = find_posterior(posterior)
    source = source_of(posterior)
    file = source or Path("posterior.nc")
    output = file.with_suffix(".html") if output is None else Path(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"output: must end in .html, was {str(output)!r}")
    check_writable(output, "output")
    from invgp import reports  # noqa: PLC0415 - mistakes are reported without waiting for matplotlib

    dataset = read_posterior(posterior)
    if "site" not in dataset.dims or "invgp_config" not in dataset.attrs:
        was = "" if source is None else f", was {str(source)!r}"
        raise ArgumentError(f"posterior: must be a file that `invgp run` wrote{was}")
    beside = None if source is None else source.with_suffix(".ledger.sqlite")
    runs = _read_runs(ledger, beside, str(dataset.attrs.get("invgp_simulator_digest", "")))
    sections = [_answer_section(dataset, one) for one in answers]
    return reports.write(dataset, output, file.name, runs, answers=sections)


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
        ``"csv"``, ``"geotiff"``, ``"geopackage"``, ``"aseg-gdf2"``, ``"vtk"``, ``"arviz"`` or ``"pest"``.
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
    posterior, _ = find_posterior(posterior)
    source = source_of(posterior)
    path = (source or Path("posterior.nc")).with_suffix(exporters.FORMATS[format].suffix)
    path = path if output is None else Path(output)
    if source is not None:
        check_not_source(path, source)
    check_writable(path, "output")
    with nullcontext(posterior) if not isinstance(posterior, str | Path) else netcdf.open_dataset(posterior) as dataset:
        refuse_calibration(dataset, source)
        warn_unless_converged(dataset, source)
        check_not_survey(path, dataset)
        return exporters.export(select_one_mode(dataset, mode), format, path, variables)


def _answer_section(posterior: xr.Dataset, answer: xr.Dataset | str | Path) -> AnswerSection:
    """Return the section of a report with a result, or with the content of its file."""
    from invgp import reports  # noqa: PLC0415 - as above

    if isinstance(answer, str | Path):
        return reports.answer_section(posterior, netcdf.read(answer), Path(answer).name)
    return reports.answer_section(posterior, answer, "a dataset")


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
    own = [suffixes[quantity] for quantity in (*plots.SUMMARY, FEW_RUNS) if quantity in suffixes]  # others follow these
    known = [name + suffix for name in names for suffix in own]
    for variable, (low, high) in limits.items():
        if variable not in known:
            raise ArgumentError(f"limits: must be of one of {', '.join(known)}, was {variable!r}")
        if not (low < high and math.isfinite(high - low)):
            raise ArgumentError(f"limits: the lower must be below the upper, was {low:g} and {high:g} for {variable!r}")
    shown = plots.SUMMARY if "all" in show else tuple(dict.fromkeys(show))
    settings: dict[str, Any] = {} if hatch_below is None else {"hatch_below": hatch_below}
    return plots.FigureOptions(shown, dict(limits), **settings)


def _read_runs(ledger: str | Path | None, beside: Path | None, simulator_digest: str) -> LedgerSummary | None:
    """Read a summary of the runs; a ledger that was not named may be missing or damaged."""
    from invgp.reports.provenance import summarise_ledger  # noqa: PLC0415 - as above

    if ledger is not None:
        return summarise_ledger(Path(ledger), simulator_digest)
    try:
        return summarise_ledger(beside, simulator_digest) if beside is not None and beside.is_file() else None
    except (ConfigError, LedgerError) as error:
        logger.warning("the ledger beside the posterior is left out: %s", error)
        return None
