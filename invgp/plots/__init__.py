"""Figures of a posterior: sections along a line, maps, and the fit to the data.

Every function takes the Dataset that `invgp run` writes, in memory or opened from its netCDF file, and
returns a matplotlib `Figure` sized for the page of a journal. `plot` writes the figures that suit it.
"""

from __future__ import annotations

from pathlib import Path

import xarray as xr
from matplotlib import rc_context

from invgp.errors import PlotError
from invgp.plots.fit import data_fit
from invgp.plots.maps import maps
from invgp.plots.reading import read_names
from invgp.plots.sections import section
from invgp.plots.style import STYLE

__all__ = ["data_fit", "maps", "plot", "section"]

_FORMATS = (".pdf", ".png", ".svg")


def plot(ds: xr.Dataset, path: str | Path) -> tuple[Path, Path]:
    """Write the section or the maps of a posterior to ``path``, and the fit to its data beside it.

    Parameters
    ----------
    ds : Dataset
        A posterior over sites with one or two coordinates.
    path : str or Path
        File to write, in the format of its suffix: .pdf, .png or .svg. The fit goes to
        ``<stem>_fit<suffix>``.

    Returns
    -------
    tuple of Path
        The two files written.

    Raises
    ------
    PlotError
        If ``ds`` is not a posterior of invgp, its sites have more than two coordinates, or the format is
        unknown.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise PlotError(f"The suffix of the figure must be one of {', '.join(_FORMATS)}, but it is '{path.suffix}'.")
    fit_path = path.with_name(f"{path.stem}_fit{path.suffix}")
    fields = section if len(read_names(ds, "coordinates")) == 1 else maps
    figures = {path: fields(ds), fit_path: data_fit(ds)}
    path.parent.mkdir(parents=True, exist_ok=True)
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}  # the same posterior gives the same file
    with rc_context(STYLE):
        for target, figure in figures.items():
            figure.savefig(target, metadata=undated.get(suffix))
    return path, fit_path
