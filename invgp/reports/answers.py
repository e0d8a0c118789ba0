"""Sections of a report with the results of commands that answer questions about the posterior."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import xarray as xr
from matplotlib.figure import Figure

from invgp import plots
from invgp.answers.difference import compute_difference
from invgp.answers.summaries import Summary, Table, check_answer, summarise
from invgp.errors import ArgumentError
from invgp.formatting import count_noun
from invgp.posterior.attributes import has_converged

LEVEL = 2.0  # joint standard deviations from which the change by a revision is marked


class AnswerSection(NamedTuple):
    """A section of a report.

    Attributes
    ----------
    command : str
        Name of the command that answered.
    title : str
    words : str
        What the section shows.
    source : str
        Name of its file.
    tables : list of Table
    sentences, warnings : list of str
    figure : Figure or None
        None if there is nothing to draw, as for scalars.
    """

    command: str
    title: str
    words: str
    source: str
    tables: list[Table]
    sentences: list[str]
    warnings: list[str]
    figure: Figure | None


class _Style(NamedTuple):
    title: str
    words: str
    draw: Callable[[xr.Dataset], Figure]


STYLES = {
    "prior": _Style(
        "Prior check", "Draws from the prior, and their simulated data with the observed.", plots.plot_prior
    ),
    "influence": _Style(
        "Influence of the data",
        "Share of its own prediction that each datum determines, the largest shift of a field by each datum, and the "
        "information that only one site gives.",
        plots.plot_influence,
    ),
    "crossvalidate": _Style(
        "Cross-validation",
        "Data that were left out, in standard deviations of their prediction from the other data.",
        plots.plot_cross_validation,
    ),
    "design": _Style(
        "Next measurement",
        "Expected reduction of the standard deviation of each target by candidate measurements.",
        plots.plot_design,
    ),
    "difference": _Style(
        "Change between two posteriors",
        "Change of the mean, in the unit of the field and in joint standard deviations, and of the standard deviation.",
        plots.plot_difference,
    ),
    "weigh": _Style(
        "Comparison of models", "Log Bayes factor of each model relative to the best one.", plots.plot_evidence
    ),
    "revise": _Style(
        "Revised posterior",
        "Change of mean and standard deviation from the posterior of this report to the revised one.",
        plots.plot_difference,
    ),
}


def answer_section(posterior: xr.Dataset, answer: xr.Dataset, source: str) -> AnswerSection:
    """Return the section of a result.

    Parameters
    ----------
    posterior : Dataset
        Posterior of the report.
    answer : Dataset
        Result of `invgp.prior`, `influence`, `crossvalidate`, `design`, `difference`, `weigh` or `revise`.
    source : str
        Name of its file.

    Raises
    ------
    ArgumentError
        It is another dataset, is not complete, or does not belong to the posterior.
    """
    if "invgp_revision_method" in answer.attrs:
        command, drawn = "revise", compute_difference(posterior, answer, LEVEL)
        summary = _summarise_revision(drawn, answer)
    else:
        check_answer(answer, source)
        _check_belongs(posterior, answer, source)
        command, drawn = str(answer.attrs["invgp_answer"]), answer
        summary = summarise(answer)
    style = STYLES[command]
    figure = None if drawn.attrs["invgp_answer"] == "difference" and "site" not in drawn.dims else style.draw(drawn)
    return AnswerSection(command, style.title, style.words, source, *summary, figure)


def _summarise_revision(change: xr.Dataset, revised: xr.Dataset) -> Summary:
    """Return the change by a revision, with what was changed and how far the result can be trusted."""
    attributes = revised.attrs
    k_hat = float(attributes.get("invgp_revision_k_hat", math.nan))
    how = str(attributes["invgp_revision_method"]) + (f", Pareto k {k_hat:.2f}" if math.isfinite(k_hat) else "")
    sentences = [f"Changed: {attributes.get('invgp_revision') or 'the problem'}.", f"Method: {how}; no runs."]
    warnings = []
    if not has_converged(revised):
        needed = int(attributes.get("invgp_revision_runs_needed", 0))
        advice = f"; an inversion would make about {count_noun(needed, 'run')}" if needed else ""
        warnings = [f"the revised posterior is not reliable: {attributes.get('invgp_status', '')}{advice}"]
    return Summary(summarise(change).tables, sentences, warnings)


def _check_belongs(posterior: xr.Dataset, answer: xr.Dataset, source: str) -> None:
    """Raise `ArgumentError` if the latents, observations or sites of an answer are not those of the posterior."""
    for key, what in (("invgp_latents", "latents"), ("invgp_observations", "observations")):
        known, own = (str(one.attrs.get(key, "")).split() for one in (posterior, answer))
        unknown = [name for name in own if name not in known]
        if unknown:
            raise ArgumentError(f"answers: must have the {what} of the posterior, {source} has {unknown[0]!r}")
    of_data = answer.attrs["invgp_answer"] in ("prior", "influence", "crossvalidate")
    if of_data and answer.sizes.get("site") != posterior.sizes["site"]:
        raise ArgumentError(
            f"answers: must have the {posterior.sizes['site']:,} sites of the posterior, {source} has "
            f"{answer.sizes.get('site', 0):,}"
        )
