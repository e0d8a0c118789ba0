"""A problem in words: for a terminal and for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from invgp.wording import counted

if TYPE_CHECKING:
    from invgp.problem import Column, Latent, Observation, Problem

Row = tuple[str, ...]
STYLE = "border-collapse: collapse; margin: 0.3em 0"
CELL = "text-align: left; padding: 0.15em 0.8em 0.15em 0; vertical-align: top"


def heading(problem: Problem) -> str:
    """What it is, in a line."""
    present = int((~np.isnan(problem.survey.Y)).sum())
    counts = (
        counted(problem.survey.size, "site"),
        counted(present, "observation"),
        counted(problem.latent_count, "latent process", "latent processes"),
    )
    return f"{problem.title or 'Problem'}: {', '.join(counts)}, simulator {problem.forward.name!r}"


def tables(problem: Problem) -> dict[str, tuple[Row, list[Row]]]:
    """What it holds: for each kind of thing the names of the columns, and the rows."""
    survey, noise = problem.survey, problem.noise
    sites = [_column(c, "coordinate") for c in survey.coordinates] + [
        _column(c, "covariate") for c in survey.covariates
    ]
    data = [_observation(o, noise.std[o.name]) for o in survey.observations]
    return {
        "Sites": (("name", "role", "from", "to", "unit"), sites),
        "Observations": (("name", "labels", "from", "to", f"{noise.kind} noise", "missing", "unit"), data),
        "Latents": (
            ("name", "labels", "prior mean", "prior std", "kernel", "length-scale", "link", "unit"),
            [_latent(latent) for latent in problem.latents],
        ),
    }


def text(problem: Problem) -> str:
    """For a terminal."""
    lines = [heading(problem)]
    for title, (header, rows) in tables(problem).items():
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        lines += ["", title]
        lines += [
            "  " + "  ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in (header, *rows)
        ]
    return "\n".join(lines)


def html(problem: Problem) -> str:
    """For a notebook; it has no colours of its own, so that it reads in the dark as well."""
    parts = [f"<strong>{escape(heading(problem))}</strong>"]
    for title, (header, rows) in tables(problem).items():
        head = _cells(header, "th")
        body = "".join(_cells(row, "td") for row in rows)
        parts.append(
            f'<table style="{STYLE}"><caption style="text-align: left"><em>{title}</em></caption>'
            f"<thead>{head}</thead><tbody>{body}</tbody></table>"
        )
    return f"<div>{''.join(parts)}</div>"


def _cells(row: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f'<{tag} style="{CELL}">{escape(cell)}</{tag}>' for cell in row) + "</tr>"


def _column(column: Column, role: str) -> Row:
    return column.name, role, _number(column.values.min()), _number(column.values.max()), column.unit


def _observation(observation: Observation, std: np.ndarray) -> Row:
    there = ~np.isnan(observation.values)
    values, spread = observation.values[there], std[there]
    noise = _number(spread.min()) if np.ptp(spread) == 0 else f"{_number(spread.min())} to {_number(spread.max())}"
    missing = f"{int((~there).sum()):,}"
    labels = _listed(observation.labels or ())
    return observation.name, labels, _number(values.min()), _number(values.max()), noise, missing, observation.unit


def _latent(latent: Latent) -> Row:
    return (
        latent.name,
        _listed(latent.labels or ()),
        _listed(map(_number, latent.mean)),
        _listed(map(_number, latent.std)),
        latent.kernel,
        _listed(map(_number, latent.length_scale)),
        latent.link.name,
        latent.unit,
    )


def _number(value: float) -> str:
    return f"{value:.6g}"


def _listed(items: Iterable[object]) -> str:
    shown = [str(item) for item in items]
    return ", ".join([*shown[:4], "…", shown[-1]] if len(shown) > 6 else shown)
