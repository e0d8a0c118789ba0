"""Summary of a problem as text for a terminal and as HTML for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from invgp.formatting import count_noun
from invgp.problem.prior_and_noise import Latent, Noise
from invgp.problem.survey import Column, Observation, Survey

Row = tuple[str, ...]
Tables = dict[str, tuple[Row, list[Row]]]
STYLE = "border-collapse: collapse; margin: 0.3em 0"
CELL = "text-align: left; padding: 0.15em 0.8em 0.15em 0; vertical-align: top"


def summary_line(title: str, survey: Survey, latents: Sequence[Latent], simulator: str) -> str:
    """Return the title, the numbers of sites, observations and processes, and the simulator, in one line."""
    present = int((~np.isnan(survey.Y)).sum())
    counts = (
        count_noun(survey.size, "site"),
        count_noun(present, "observation"),
        count_noun(sum(latent.size for latent in latents), "latent process", "latent processes"),
    )
    return f"{title or 'Problem'}: {', '.join(counts)}, simulator {simulator!r}"


def summary_tables(survey: Survey, noise: Noise, latents: Sequence[Latent]) -> Tables:
    """Return the tables of a summary.

    Parameters
    ----------
    survey : Survey
    noise : Noise
    latents : sequence of Latent

    Returns
    -------
    dict of str to tuple
        For each title (sites, observations, latents) the column names and the rows.
    """
    sites = [_column_row(c, "coordinate") for c in survey.coordinates] + [
        _column_row(c, "covariate") for c in survey.covariates
    ]
    data = [_observation_row(o, noise.std[o.name]) for o in survey.observations]
    return {
        "Sites": (("name", "role", "from", "to", "unit"), sites),
        "Observations": (("name", "labels", "from", "to", f"{noise.kind} noise", "missing", "unit"), data),
        "Latents": (
            ("name", "labels", "prior mean", "prior std", "kernel", "length-scale", "link", "unit"),
            [_latent_row(latent) for latent in latents],
        ),
    }


def format_text(line: str, tables: Tables) -> str:
    """Return a summary as plain text."""
    lines = [line]
    for title, (header, rows) in tables.items():
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        lines += ["", title]
        lines += [
            "  " + "  ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in (header, *rows)
        ]
    return "\n".join(lines)


def format_html(line: str, tables: Tables) -> str:
    """Return a summary as HTML without colours, so that it is legible in light and dark themes."""
    parts = [f"<strong>{escape(line)}</strong>"]
    for title, (header, rows) in tables.items():
        head = _cells(header, "th")
        body = "".join(_cells(row, "td") for row in rows)
        parts.append(
            f'<table style="{STYLE}"><caption style="text-align: left"><em>{title}</em></caption>'
            f"<thead>{head}</thead><tbody>{body}</tbody></table>"
        )
    return f"<div>{''.join(parts)}</div>"


def _cells(row: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f'<{tag} style="{CELL}">{escape(cell)}</{tag}>' for cell in row) + "</tr>"


def _column_row(column: Column, role: str) -> Row:
    return column.name, role, _format_number(column.values.min()), _format_number(column.values.max()), column.unit


def _observation_row(observation: Observation, std: np.ndarray) -> Row:
    present = ~np.isnan(observation.values)
    values, noise_std = observation.values[present], std[present]
    low, high = _format_number(noise_std.min()), _format_number(noise_std.max())
    noise = low if np.ptp(noise_std) == 0 else f"{low} to {high}"
    missing = f"{int((~present).sum()):,}"
    labels = _join(observation.labels or ())
    return (
        observation.name,
        labels,
        _format_number(values.min()),
        _format_number(values.max()),
        noise,
        missing,
        observation.unit,
    )


def _latent_row(latent: Latent) -> Row:
    return (
        latent.name,
        _join(latent.labels or ()),
        _join(map(_format_number, latent.mean)),
        _join(map(_format_number, latent.std)),
        latent.kernel.formula,
        _join(
            _format_number(number)
            for number in np.exp(latent.kernel.parameters[_parameter_mask(latent, "length_scale")])
        ),
        latent.link.name,
        latent.unit,
    )


def _parameter_mask(latent: Latent, name: str) -> NDArray[np.bool_]:
    return np.asarray([own == name for own in latent.kernel.parameter_names], dtype=bool)


def _format_number(value: float) -> str:
    return f"{value:.6g}"


def _join(items: Iterable[object]) -> str:
    shown = [str(item) for item in items]
    return ", ".join([*shown[:4], "…", shown[-1]] if len(shown) > 6 else shown)
