"""Results of the commands that answer questions, as tables and sentences for the terminal and for reports."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import xarray as xr

from invgp.answers.cross_validation import coverage_of, cross_validation_rows
from invgp.answers.design import best_rows
from invgp.answers.difference import difference_rows
from invgp.answers.evidence import STORED, evidence_rows
from invgp.answers.influence import group_rows
from invgp.answers.prior_check import prior_rows
from invgp.errors import ArgumentError
from invgp.formatting import count_noun


class Table(NamedTuple):
    """Rows of text below headings; the first column is a name."""

    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


class Summary(NamedTuple):
    """Result of a command.

    Attributes
    ----------
    tables : list of Table
    sentences : list of str
    warnings : list of str
        What a reader must know before using the result.
    """

    tables: list[Table]
    sentences: list[str]
    warnings: list[str]


def summarise_prior(found: xr.Dataset) -> Summary:
    """Summarise a result of `invgp.prior`."""
    headings = ("", "data", "median", "simulated 5 to 95%", "hard to produce", "farthest / std", "site")
    rows = [
        (
            _join(row.observation, row.label),
            f"{row.compared:,}",
            f"{row.observed:.4g} {row.unit}".removesuffix(" 1"),
            f"{row.low:.4g} to {row.high:.4g}",
            f"{row.hard:,}",
            f"{row.largest:+.1f}",
            str(row.hardest_site),
        )
        for row in prior_rows(found)
    ]
    made, reused = int(found.attrs["invgp_runs"]), int(found.attrs["invgp_runs_from_ledger"])
    sentence = f"{count_noun(made, 'run')}, {reused:,} of them from the ledger."
    conflicts = list(filter(None, str(found.attrs["invgp_conflicts"]).splitlines()))
    return Summary([Table(headings, rows)] if rows else [], [sentence], conflicts)


def summarise_difference(found: xr.Dataset) -> Summary:
    """Summarise a result of `invgp.difference`."""
    headings = ("", "mean change", "largest / joint std", "ratio of std", "places changed")
    rows = [
        (
            _join(row.latent, row.label),
            f"{row.change:+.4g} {row.unit}".removesuffix(" 1"),
            f"{row.largest:.2f}",
            f"{row.std_ratio:.3f}",
            f"{row.changed:.0%}",
        )
        for row in difference_rows(found)
    ]
    return Summary([Table(headings, rows)], [], [])


def summarise_evidence(found: xr.Dataset) -> Summary:
    """Summarise a result of `invgp.weigh`."""
    headings = ("", "log evidence", "± error", "log Bayes factor", "probability", "in words")
    models = sorted(evidence_rows(found), key=lambda row: (math.isnan(row["log_evidence"]), -row["log_evidence"]))
    rows = [
        (
            str(row["name"]),
            f"{row['log_evidence']:.2f}",
            f"{row['error']:.2f}",
            f"{row['log_bayes_factor']:.2f}",
            "" if math.isnan(row["probability"]) else f"{row['probability']:.3g}",
            str(row["in_words"]),
        )
        for row in models
    ]
    return Summary(
        [Table(headings, rows)], [f"{row['name']}: {row['origin']}" for row in models if row["origin"] != STORED], []
    )


def summarise_cross_validation(found: xr.Dataset) -> Summary:
    """Summarise a result of `invgp.crossvalidate`."""
    headings = ("", "data", "mean CRPS", "rms of residuals", "beyond 2 std")
    rows = [
        (
            str(row["observation"]),
            f"{row['data']:,}",
            f"{row['crps']:.3g} {row['unit']}".removesuffix(" 1"),
            f"{row['residual_rms']:.2f}",
            f"{row['beyond_two']:.1%}",
        )
        for row in cross_validation_rows(found)
    ]
    attributes = found.attrs
    sentence = (
        f"Log score {attributes['invgp_log_score']:.2f}; "
        + ", ".join(f"{share:.0%} inside the {level}% intervals" for level, share in coverage_of(found).items())
        + f"; {attributes['invgp_groups']} groups left out, {attributes['invgp_groups_refitted']} computed again on "
        "the emulator, no runs."
    )
    return Summary([Table(headings, rows)], [sentence], [])


def summarise_influence(found: xr.Dataset) -> Summary:
    """Summarise a result of `invgp.influence`."""
    groups = [
        (str(row["data"]), str(row["latent"]), f"{row['mean']:.1%}", f"{row['largest']:.1%}")
        for row in group_rows(found)
    ]
    pulls = [
        (
            _join(row["observation"], row["label"]),
            str(row["site"]),
            f"{row['leverage']:.0%}",
            f"{row['pull']:+.2f}",
            _join(row["latent"], row["latent_label"]),
            ", ".join(f"{name} {value:.6g}" for name, value in row["place"].items()),
        )
        for row in json.loads(found.attrs["invgp_hardest"])
    ]
    tables = [Table(("pull hardest", "site", "own share", "shift / std", "of", "at"), pulls)]
    if groups:
        tables.insert(0, Table(("", "latent", "mean reduction of std", "largest"), groups))
    unknown = int(found.attrs.get("invgp_unknown_pulls", 0))
    doubts = [
        f"The pull of {count_noun(unknown, 'datum', 'data')} is not known, because the weights of the draws without "
        "them are not reliable. Others pull harder, or the posterior cannot be sampled without them."
    ]
    return Summary(tables, [], doubts if unknown else [])


def summarise_design(found: xr.Dataset) -> Summary:
    """Summarise a result of `invgp.design`."""
    headings = ("", "candidate", "measures", "target", "reduction alone", "with those above")
    rows = [
        (
            str(row["choice"]),
            str(row["candidate"]),
            str(row["measured"]),
            str(row["target"]),
            f"{row['reduction_alone']:.1%} ± {row['reduction_error']:.1%}",
            f"{row['reduction_together']:.1%}",
        )
        for row in best_rows(found)
    ]
    count, outside = found.sizes["candidate"], int((found["covered"].values == 0).sum())
    warnings = []
    if far := int(found.attrs["invgp_candidates_outside"]):
        warnings.append(
            f"{far:,} of {count:,} candidates are far outside of the survey: check their coordinates and units"
        )
    if outside:
        warnings.append(
            f"the runs do not cover the posterior at {outside:,} of {count:,} candidates: their reductions are "
            "uncertain"
        )
    return Summary(
        [Table(headings, rows)],
        [f"{count:,} candidates, {found.attrs['invgp_draws_used']:,} draws, no runs."],
        warnings,
    )


class Answer(NamedTuple):
    """A kind of result.

    Attributes
    ----------
    summarise : callable
    of_latents, of_data : tuple of str
        Suffixes of the variables that there must be for each latent and each observation.
    variables, attributes : tuple of str
        Other variables and attributes that there must be.
    """

    summarise: Callable[[xr.Dataset], Summary]
    of_latents: tuple[str, ...] = ()
    of_data: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


ANSWERS = {
    "prior": Answer(
        summarise_prior,
        ("_prior_sample",),
        ("_observed", "_simulated", "_prior_score"),
        attributes=("invgp_runs", "invgp_runs_from_ledger", "invgp_conflicts"),
    ),
    "influence": Answer(
        summarise_influence, (), ("_leverage", "_pull"), ("site_information",), attributes=("invgp_hardest",)
    ),
    "crossvalidate": Answer(
        summarise_cross_validation,
        (),
        ("_held_out_residual", "_held_out_crps"),
        attributes=("invgp_log_score", "invgp_groups", "invgp_groups_refitted"),
    ),
    "design": Answer(
        summarise_design,
        variables=(
            *("std", "expected_std", "reduction", "reduction_error", "kind", "measured", "covered", "rank"),
            *("chosen_std", "candidate_label", "target_label"),
        ),
        attributes=("invgp_draws_used", "invgp_candidates_outside"),
    ),
    "difference": Answer(
        summarise_difference,
        ("_change", "_standardised_change", "_std_ratio", "_changed"),
        attributes=("invgp_level",),
    ),
    "weigh": Answer(
        summarise_evidence,
        variables=(
            *("log_evidence", "log_evidence_error", "log_bayes_factor", "log_bayes_factor_error", "probability"),
            *("origin", "model_label"),
        ),
    ),
}


def summarise(answer: xr.Dataset) -> Summary:
    """Return a result of any of the commands as tables and sentences."""
    return ANSWERS[str(answer.attrs["invgp_answer"])].summarise(answer)


def check_answer(answer: xr.Dataset, name: str) -> None:
    """Raise `ArgumentError` unless a dataset is a complete result of one of the commands; `name` is its file."""
    kind = answer.attrs.get("invgp_answer")
    if kind not in ANSWERS:
        commands = ", ".join(f"`invgp {one}`" for one in ANSWERS)
        raise ArgumentError(f"answers: must be results of {commands}, or a revised posterior, was {name}")
    need = ANSWERS[kind]
    latents, data = (str(answer.attrs.get(key, "")).split() for key in ("invgp_latents", "invgp_observations"))
    variables = [
        *(one + suffix for one in latents for suffix in need.of_latents),
        *(one + suffix for one in data for suffix in need.of_data),
        *need.variables,
    ]
    missing = [one for one in variables if one not in answer]
    missing += [one for one in (*need.attributes, "invgp_latents") if one not in answer.attrs]
    if missing:
        raise ArgumentError(f"answers: must be complete results, {name} lacks {missing[0]!r}")


def _join(name: object, label: object) -> str:
    return ", ".join(str(part) for part in (name, label) if part)
