"""From a posterior to its page."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from importlib import resources
from importlib.metadata import version
from io import BytesIO
from pathlib import Path

import xarray as xr
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from matplotlib import rc_context
from PIL import Image

from invgp.atomic_files import atomic_file
from invgp.errors import ConfigError
from invgp.maps.nodes import as_points
from invgp.plots import KINDS, FigureOptions, suitable_kinds
from invgp.plots.style import STYLE
from invgp.reports import findings, origin
from invgp.reports.arrays import explorer
from invgp.reports.ledger import RunsKept

SCRIPTS = ("numbers.js", "axes.js", "fields.js", "fit.js", "site.js", "main.js")
DOTS = 140  # an inch: sharp on a screen and in print, and small
WORDS = {
    "section": "The latents along the line: mean and 95% interval of posterior and prior.",
    "map": "Maps of the posterior mean and standard deviation of each latent.",
    "more": "Change by the data: posterior minus prior mean, and information from 0 (none) to 1 (determined).",
    "fit": "Data and predictions, and residuals in standard deviations of the noise.",
    "draws": "Joint posterior draws: fields that are consistent with the data, each equally probable.",
    "correlation": "Posterior correlations at one site. Strong ones show what the data cannot resolve.",
    "convergence": "Evidence lower bound and number of simulator runs for each iteration.",
}


def write(
    ds: xr.Dataset,
    path: str | Path,
    source: str = "posterior.nc",
    runs: RunsKept | None = None,
    kinds: Sequence[str] | None = None,
) -> Path:
    """Write the report of a posterior.

    Parameters
    ----------
    ds : Dataset
        A posterior, as `invgp run` writes it.
    path : str or Path
        The HTML file to write.
    source : str
        Name of the posterior's file, as the page tells it.
    runs : RunsKept
        What the ledger says of its runs.
    kinds : sequence of str
        Of the figures in the page, keys of `invgp.plots.KINDS`; by default all suitable ones.

    Returns
    -------
    Path
        The file written.
    """
    path = Path(path)
    page = render(ds, source, runs, kinds)
    with atomic_file("the report", path) as part:
        part.write_text(page, encoding="utf-8", newline="\n")
    return path


def render(
    ds: xr.Dataset,
    source: str = "posterior.nc",
    runs: RunsKept | None = None,
    kinds: Sequence[str] | None = None,
) -> str:
    """The page as text; the same posterior gives the same page. Parameters are those of `write`."""
    if "site" not in ds.dims:
        raise ConfigError("a report is of a posterior that `invgp run` wrote, not of a map")
    fields = as_points(ds)
    script = "\n".join(["'use strict';", *(_text(name) for name in SCRIPTS)])
    environment = Environment(
        loader=PackageLoader("invgp.reports", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html.j2").render(
        title=str(ds.attrs.get("title", "Posterior")),
        version=version("invgp"),
        source=source,
        style=Markup(_text("page.css")),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own files
        script_hash=b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode("ascii"),
        explorer=explorer(fields),
        verdict=findings.verdict(ds),
        summary=findings.summary(ds),
        latents=findings.latents(fields),
        observations=findings.observations(ds),
        remarks=findings.remarks(ds),
        cost=origin.cost(ds, runs),
        runs=runs,
        provenance=origin.provenance(ds, source),
        commands=origin.commands(ds, source),
        config=str(ds.attrs.get("invgp_config", "")),
        versions=origin.versions(ds),
        figures=_figures(ds, suitable_kinds(ds) if kinds is None else kinds),
    )


def _text(name: str) -> str:
    return resources.files("invgp.reports").joinpath(name).read_text(encoding="utf-8").strip()


def _figures(ds: xr.Dataset, kinds: Sequence[str]) -> list[dict[str, str]]:
    """Figures as PNG, with their captions."""
    found = []
    for kind in kinds:
        found.append({"kind": kind, "source": _png(ds, kind, FigureOptions()), "words": WORDS[kind]})
        if kind in ("section", "map") and _has_prior(ds):
            more = _png(ds, kind, FigureOptions(("difference", "information")))
            found.append({"kind": f"{kind}-more", "source": more, "words": WORDS["more"]})
    return found


def _has_prior(ds: xr.Dataset) -> bool:
    names = str(ds.attrs["invgp_latents"]).split()
    return all(f"{name}{suffix}" in ds for name in names for suffix in ("_prior", "_information"))


def _png(ds: xr.Dataset, kind: str, options: FigureOptions) -> str:
    """A figure as the address of its own data, in 256 colours."""
    drawn, packed = BytesIO(), BytesIO()
    with rc_context(STYLE):
        KINDS[kind](ds, options, None).savefig(drawn, format="png", dpi=DOTS)
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(packed, format="png", optimize=True)
    return "data:image/png;base64," + b64encode(packed.getvalue()).decode("ascii")
