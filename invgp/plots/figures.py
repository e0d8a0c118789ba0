"""The types of figures of a posterior, and their files."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import xarray as xr
from matplotlib import rc_context
from matplotlib.figure import Figure

from invgp.errors import PlotError
from invgp.files.atomic_files import atomic_file, staging_directory
from invgp.plots.draws import draws_figure
from invgp.plots.figure_options import FigureOptions
from invgp.plots.fit import fit_figure
from invgp.plots.hyperparameter_figure import hyperparameter_figure
from invgp.plots.inference_figures import convergence_figure, correlation_figure
from invgp.plots.map_figures import map_figure
from invgp.plots.plot_data import label_dimension, read_names
from invgp.plots.profile_figure import profile_figure
from invgp.plots.scalar_figure import FEWEST_DRAWS, scalar_figure
from invgp.plots.sections import section_figure
from invgp.plots.style import STYLE, size_error

_FORMATS = (".png", ".svg", ".pdf")
_MAIN_KINDS = ("section", "map")  # their file has the given name; the name of another file includes its kind
FigureFunction = Callable[[xr.Dataset, FigureOptions, int | None], Figure]
KINDS: dict[str, FigureFunction] = {
    "section": lambda ds, options, _: section_figure(ds, options),
    "map": lambda ds, options, _: map_figure(ds, options),
    "profile": lambda ds, options, _: profile_figure(ds, options),
    "fit": lambda ds, options, _: fit_figure(ds, options),
    "correlation": correlation_figure,
    "scalars": lambda ds, options, _: scalar_figure(ds, options),
    "draws": lambda ds, options, _: draws_figure(ds, options),
    "hyperparameters": lambda ds, options, _: hyperparameter_figure(ds, options),
    "convergence": lambda ds, options, _: convergence_figure(ds, options),
}


def suitable_kinds(ds: xr.Dataset) -> tuple[str, ...]:
    """Return the types of figures that can be drawn of a dataset.

    Parameters
    ----------
    ds : Dataset
        A posterior or a map.

    Returns
    -------
    tuple of str
        Keys of `KINDS`.

    Raises
    ------
    PlotError
        The dataset is not an invgp posterior.
    """
    latents, fields, scalars = (read_names(ds, kind) for kind in ("latents", "fields", "scalars"))
    main = "section" if len(read_names(ds, "coordinates")) == 1 else "map"
    sampled = all(f"{name}_sample" in ds for name in latents)
    several = len(latents) > 1 or label_dimension(ds[latents[0]]) is not None
    suitable = {
        main: bool(fields),
        "fit": "site" in ds.dims and bool(str(ds.attrs.get("invgp_observations", "")).split()),
        "correlation": "site" in ds.dims and several and (sampled or "correlation" in ds),
        "scalars": bool(scalars) and sampled and ds.sizes["realization"] >= FEWEST_DRAWS,
        "draws": bool(fields) and sampled,
        "hyperparameters": "draw" in ds.dims and bool(str(ds.attrs.get("invgp_hyperparameters", ""))),
        "convergence": "elbo" in ds,
    }
    return tuple(kind for kind in KINDS if suitable.get(kind))


def plot(
    ds: xr.Dataset,
    path: str | Path,
    kinds: Sequence[str] = (),
    options: FigureOptions | None = None,
    *,
    alone: bool = False,
    site: int | None = None,
    dpi: float | None = None,
) -> tuple[Path, ...]:
    """Write figures of a posterior to files.

    Parameters
    ----------
    ds : Dataset
        A posterior, or a map of `invgp.predict`.
    path : str or Path
        File to write, in the format of its suffix: .png, .svg or .pdf. The section or the map has this name; other
        figures have the name ``<stem>_<kind><suffix>``.
    kinds : sequence of str
        Keys of `KINDS`; by default the section or the map, whichever is suitable, the scalars if there are any, and the
        fit if there are data.
    options : FigureOptions
        Quantities, limits, hatching, selection and size.
    alone : bool
        Whether a single figure has the name `path`, whatever its kind.
    site : int
        Number of the site of the correlations, from 1.
    dpi : float
        Resolution in dots per inch; 300 by default.

    Returns
    -------
    tuple of Path
        The files.

    Raises
    ------
    PlotError
        The dataset is not an invgp posterior, an argument is invalid, or the format is unknown.

    Examples
    --------
    >>> invgp.plots.plot(posterior, "posterior.png", ["section", "fit"])
    (PosixPath('posterior.png'), PosixPath('posterior_fit.png'))
    """
    path = Path(path)
    check_format(path, "path")
    options = options or FigureOptions()
    by_default = [kind for kind in suitable_kinds(ds) if kind in (*_MAIN_KINDS, "scalars", "fit")]
    by_default += ["profile"] if options.line is not None else []
    chosen = tuple(dict.fromkeys(kinds or by_default))
    for kind in chosen:
        if "invgp_map" in ds.attrs and kind not in (*_MAIN_KINDS, "profile", *suitable_kinds(ds)):
            raise PlotError(f"kinds: {kind} is not in a map of `invgp predict`, but in what `invgp run` wrote")
    given_name = (*_MAIN_KINDS, *(chosen if alone and len(chosen) == 1 else ()))
    targets = [path if kind in given_name else path.with_name(f"{path.stem}_{kind}{path.suffix}") for kind in chosen]
    figures = {target: KINDS[kind](ds, options, site) for target, kind in zip(targets, chosen, strict=True)}
    with staging_directory("the figures" if len(figures) > 1 else "the figure", path) as directory:
        for target, figure in figures.items():
            _write_figure(figure, directory / target.name, dpi)
    return tuple(figures)


def check_format(path: Path, key: str) -> None:
    """Check that figures can be written in the format of a file.

    Parameters
    ----------
    path : Path
        The file.
    key : str
        Name of the argument or option, for the error message.

    Raises
    ------
    PlotError
        The suffix is not .png, .svg or .pdf.
    """
    if path.suffix.lower() not in _FORMATS:
        raise PlotError(f"{key}: must end in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}, was {str(path)!r}")


def save_figure(figure: Figure, path: Path, dpi: float | None = None) -> None:
    """Write a figure in the format of the suffix of its file; the same figure gives the same file.

    Parameters
    ----------
    figure : Figure
    path : Path
        File to write.
    dpi : float
        Resolution in dots per inch; 300 by default.

    Raises
    ------
    WriteError
        The file could not be written.
    """
    with atomic_file("the figure", path) as part:
        _write_figure(figure, part, dpi)


def _write_figure(figure: Figure, path: Path, dpi: float | None) -> None:
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    try:
        with rc_context(STYLE), warnings.catch_warnings():
            warnings.filterwarnings("error", message="constrained_layout not applied")
            figure.savefig(path, metadata=undated.get(path.suffix.lower()), dpi=dpi or STYLE["savefig.dpi"])
    except UserWarning:
        raise size_error((figure.get_figwidth(), figure.get_figheight()), "the labels around the panels") from None
