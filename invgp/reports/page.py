"""Render the HTML page of a report."""

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
from matplotlib.figure import Figure
from PIL import Image

from invgp.errors import ConfigError
from invgp.files.atomic_files import atomic_file
from invgp.maps.nodes import as_points
from invgp.plots import KINDS, FigureOptions, suitable_kinds
from invgp.plots.style import STYLE
from invgp.posterior.contents import field_names, mode_probabilities
from invgp.reports import findings, provenance
from invgp.reports.answers import AnswerSection
from invgp.reports.explorer_data import explorer_data
from invgp.reports.provenance import LedgerSummary

SCRIPTS = ("numbers.js", "axes.js", "fields.js", "fit.js", "site.js", "main.js")
DPI = 140  # sharp on a screen and in print, and small
CAPTIONS = {
    "section": "The latents along the line: mean and 95% interval of posterior and prior.",
    "map": "Maps of the posterior mean and standard deviation of each latent.",
    "more": "Change by the data: posterior minus prior mean, and information from 0 (none) to 1 (determined).",
    "scalars": "Posterior and prior densities of the scalars.",
    "fit": "Data and predictions, and residuals in standard deviations of the noise.",
    "draws": "Joint posterior draws: fields that are consistent with the data, each equally probable.",
    "correlation": "Posterior correlations at one site. Strong ones show what the data cannot resolve.",
    "hyperparameters": "Posterior and prior of the learnt hyperparameters; the fields are averaged over them.",
    "convergence": "Evidence lower bound and number of simulator runs for each iteration.",
}


def write(
    ds: xr.Dataset,
    path: str | Path,
    source: str = "posterior.nc",
    runs: LedgerSummary | None = None,
    kinds: Sequence[str] | None = None,
    answers: Sequence[AnswerSection] = (),
) -> Path:
    """Write the report of a posterior.

    Parameters
    ----------
    ds : Dataset
        A posterior, as `invgp run` writes it.
    path : str or Path
        The HTML file to write.
    source : str
        Name of the file of the posterior, for the page.
    runs : LedgerSummary
        Summary of its runs.
    kinds : sequence of str
        Figures in the page, keys of `invgp.plots.KINDS`; by default all suitable ones.
    answers : sequence of AnswerSection
        Sections with results of commands about this posterior; see `invgp.reports.answer_section`.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ConfigError
        The dataset is a map.
    WriteError
        The file could not be written.
    """
    path = Path(path)
    page = render(ds, source, runs, kinds, answers)
    with atomic_file("the report", path) as part:
        part.write_text(page, encoding="utf-8", newline="\n")
    return path


def render(
    ds: xr.Dataset,
    source: str = "posterior.nc",
    runs: LedgerSummary | None = None,
    kinds: Sequence[str] | None = None,
    answers: Sequence[AnswerSection] = (),
) -> str:
    """Return the page as text. The same posterior gives the same page.

    Parameters
    ----------
    ds, source, runs, kinds, answers
        As in `write`.

    Returns
    -------
    str

    Raises
    ------
    ConfigError
        The dataset is a map.
    """
    if "site" not in ds.dims:
        raise ConfigError("a report needs a posterior of `invgp run`, not a map")
    fields = as_points(ds)
    script, digest = join_scripts(SCRIPTS)
    environment = Environment(
        loader=PackageLoader("invgp.reports", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html.j2").render(
        title=str(ds.attrs.get("title", "Posterior")),
        version=version("invgp"),
        source=source,
        style=Markup(read_text("page.css")),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own files
        script_hash=digest,
        explorer=explorer_data(fields),
        verdict=findings.assess_convergence(ds),
        summary=findings.summary_sentence(ds),
        latents=findings.latent_tables(fields),
        observations=findings.observation_tables(ds),
        sources=findings.source_rows(ds),
        hyperparameters=findings.hyperparameter_rows(ds),
        remarks=findings.diagnostic_remarks(ds),
        sampling=findings.sampling_rows(ds),
        modes=findings.mode_tables(ds),
        mode_count=len(mode_probabilities(ds)),
        cost=provenance.cost_sentences(ds, runs),
        runs=runs,
        provenance=provenance.provenance_rows(ds, source),
        commands=provenance.reproduction_commands(ds, source),
        config=str(ds.attrs.get("invgp_config", "")),
        versions=provenance.software_versions(ds),
        figures=_render_figures(ds, suitable_kinds(ds) if kinds is None else kinds),
        answers=[(one, "" if one.figure is None else _png_address(one.figure)) for one in answers],
    )


def join_scripts(names: Sequence[str]) -> tuple[str, str]:
    """Return scripts of this package as one, and its hash for the security policy of a page."""
    script = "\n".join(["'use strict';", *(read_text(name) for name in names)])
    return script, b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode("ascii")


def read_text(name: str) -> str:
    """Return a text file of this package."""
    return resources.files("invgp.reports").joinpath(name).read_text(encoding="utf-8").strip()


def _render_figures(ds: xr.Dataset, kinds: Sequence[str]) -> list[dict[str, str]]:
    """Return figures as PNG with their captions."""
    found = []
    for kind in kinds:
        found.append({"kind": kind, "source": _draw(ds, kind, FigureOptions()), "words": CAPTIONS[kind]})
        if kind in ("section", "map") and _has_prior(ds):
            more = _draw(ds, kind, FigureOptions(("difference", "information")))
            found.append({"kind": f"{kind}-more", "source": more, "words": CAPTIONS["more"]})
    return found


def _has_prior(ds: xr.Dataset) -> bool:
    names = field_names(ds)
    return all(f"{name}{suffix}" in ds for name in names for suffix in ("_prior", "_information"))


def _draw(ds: xr.Dataset, kind: str, options: FigureOptions) -> str:
    """Return a figure of a posterior as a data address."""
    with rc_context(STYLE):
        return _png_address(KINDS[kind](ds, options, None))


def _png_address(figure: Figure) -> str:
    """Return a figure as a data address, in 256 colours."""
    drawn, packed = BytesIO(), BytesIO()
    with rc_context(STYLE):
        figure.savefig(drawn, format="png", dpi=DPI)
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(packed, format="png", optimize=True)
    return "data:image/png;base64," + b64encode(packed.getvalue()).decode("ascii")
