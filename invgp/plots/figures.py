"""The kinds of figures of a posterior, and the files they go to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import xarray as xr
from matplotlib import rc_context
from matplotlib.figure import Figure

from invgp.atomic_files import atomic_file, staging_directory
from invgp.errors import PlotError
from invgp.plots.convergence import convergence
from invgp.plots.correlation import correlation
from invgp.plots.draws import draws
from invgp.plots.fit import data_fit
from invgp.plots.look import Look
from invgp.plots.maps import maps
from invgp.plots.reading import label_dimension, read_names
from invgp.plots.sections import section
from invgp.plots.style import STYLE, too_small

_FORMATS = (".png", ".svg", ".pdf")
FIELDS = ("section", "map")  # the figure that takes the name it is given, where others get one of their own
Draw = Callable[[xr.Dataset, Look, int | None], Figure]
KINDS: dict[str, Draw] = {
    "section": lambda ds, look, _: section(ds, look),
    "map": lambda ds, look, _: maps(ds, look),
    "fit": lambda ds, look, _: data_fit(ds, look),
    "correlation": lambda ds, look, site: correlation(ds, site, look),
    "draws": lambda ds, look, _: draws(ds, look),
    "convergence": lambda ds, look, _: convergence(ds, look),
}


def suitable(ds: xr.Dataset) -> tuple[str, ...]:
    """The kinds of figures that can be drawn of a dataset."""
    latents = read_names(ds, "latents")
    fields = "section" if len(read_names(ds, "coordinates")) == 1 else "map"
    sampled = all(f"{name}_sample" in ds for name in latents)
    several = len(latents) > 1 or label_dimension(ds[latents[0]]) is not None
    there = {
        fields: True,
        "fit": "site" in ds.dims and bool(str(ds.attrs.get("invgp_observations", "")).split()),
        "correlation": "site" in ds.dims and several and (sampled or "correlation" in ds),
        "draws": sampled,
        "convergence": "elbo" in ds,
    }
    return tuple(kind for kind in KINDS if there.get(kind))


def plot(
    ds: xr.Dataset,
    path: str | Path,
    kinds: Sequence[str] = (),
    look: Look | None = None,
    *,
    alone: bool = False,
    site: int | None = None,
    dpi: float | None = None,
) -> tuple[Path, ...]:
    """Write figures of a posterior.

    Parameters
    ----------
    ds : Dataset
        A posterior, or what `invgp predict` made of one.
    path : str or Path
        File to write, in the format of its suffix: .png, .svg or .pdf. The section or the map goes there; others go
        to ``<stem>_<kind><suffix>``.
    kinds : sequence of str
        Names of `KINDS`; by default the section or the map, whichever suits, and the fit where there are data.
    look : Look
        What is drawn, limits, from where to hatch, and the size.
    alone : bool
        Whether one figure goes to ``path`` itself, of whatever kind.
    site : int
        Number of the site of the correlations.
    dpi : float
        Dots per inch; 300 by default.

    Returns
    -------
    tuple of Path
        The files written.

    Raises
    ------
    PlotError
        If ``ds`` is not a posterior of invgp, or cannot be drawn as asked, or the format is unknown.
    """
    path = Path(path)
    check_format(path, "--output")
    chosen = tuple(dict.fromkeys(kinds)) or tuple(kind for kind in suitable(ds) if kind in (*FIELDS, "fit"))
    for kind in chosen:
        if "invgp_map" in ds.attrs and kind not in (*FIELDS, *suitable(ds)):
            raise PlotError(f"--kind: {kind} is not in a map of `invgp predict`, but in what `invgp run` wrote")
    here = (*FIELDS, *(chosen if alone and len(chosen) == 1 else ()))
    targets = [path if kind in here else path.with_name(f"{path.stem}_{kind}{path.suffix}") for kind in chosen]
    figures = {target: KINDS[kind](ds, look or Look(), site) for target, kind in zip(targets, chosen, strict=True)}
    with staging_directory("the figures" if len(figures) > 1 else "the figure", path) as directory:
        for target, figure in figures.items():
            _draw(figure, directory / target.name, dpi)
    return tuple(figures)


def check_format(path: Path, key: str) -> None:
    """Raise `PlotError` unless figures can be written in the format of this file, which `key` names."""
    if path.suffix.lower() not in _FORMATS:
        raise PlotError(f"{key}: must end in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}, was {str(path)!r}")


def save(figure: Figure, path: Path, dpi: float | None = None) -> None:
    """Write a figure in the format of its suffix; the same figure gives the same file."""
    with atomic_file("the figure", path) as part:
        _draw(figure, part, dpi)


def _draw(figure: Figure, path: Path, dpi: float | None) -> None:
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    try:
        with rc_context(STYLE), warnings.catch_warnings():
            warnings.filterwarnings("error", message="constrained_layout not applied")
            figure.savefig(path, metadata=undated.get(path.suffix.lower()), dpi=dpi or STYLE["savefig.dpi"])
    except UserWarning:
        raise too_small((figure.get_figwidth(), figure.get_figheight()), "what stands around the panels") from None
