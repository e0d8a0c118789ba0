"""Figures of a posterior: sections along a line, maps, and the fit to the data; and of a calibration.

Every function takes the Dataset that `invgp run` (or `invgp calibrate`) writes, in memory or opened from its netCDF
file, and returns a matplotlib `Figure` sized for the page of a journal. `plot` writes the figures that suit it.
"""

from __future__ import annotations

from pathlib import Path

import xarray as xr
from matplotlib import rc_context
from matplotlib.figure import Figure

from invgp.errors import PlotError
from invgp.plots.calibration import calibration
from invgp.plots.comparison import comparison
from invgp.plots.fit import data_fit
from invgp.plots.maps import maps
from invgp.plots.reading import read_names
from invgp.plots.sections import section
from invgp.plots.style import STYLE

__all__ = ["calibration", "check_format", "comparison", "data_fit", "maps", "plot", "save", "section"]

_FORMATS = (".png", ".svg", ".pdf")


def plot(ds: xr.Dataset, path: str | Path) -> tuple[Path, Path]:
    """Write the section or the maps of a posterior to ``path``, and the fit to its data beside it.

    Parameters
    ----------
    ds : Dataset
        A posterior. Sites with one coordinate give a section, with two or more, maps over the first two.
    path : str or Path
        File to write, in the format of its suffix: .png, .svg or .pdf. The fit goes to
        ``<stem>_fit<suffix>``.

    Returns
    -------
    tuple of Path
        The two files written.

    Raises
    ------
    PlotError
        If ``ds`` is not a posterior of invgp, or the format is unknown.
    """
    path = Path(path)
    check_format(path, "--output")
    fit_path = path.with_name(f"{path.stem}_fit{path.suffix}")
    fields = section if len(read_names(ds, "coordinates")) == 1 else maps
    figures = {path: fields(ds), fit_path: data_fit(ds)}
    for target, figure in figures.items():
        save(figure, target)
    return path, fit_path


def check_format(path: Path, key: str) -> None:
    """Raise `PlotError` unless figures can be written in the format of this file, which `key` names."""
    if path.suffix.lower() not in _FORMATS:
        raise PlotError(f"{key}: must end in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}, was {str(path)!r}")


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its suffix; the same figure gives the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    with rc_context(STYLE):
        figure.savefig(path, metadata=undated.get(path.suffix.lower()))
