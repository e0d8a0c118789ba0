"""Sentences and tables of a report: convergence, latents, data fit and diagnostics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.formatting import append_unit, convergence_advice, count_noun
from invgp.inference.diagnostics import DEFAULTS
from invgp.maps.nodes import as_points
from invgp.maps.select_mode import select_mode
from invgp.plots.axis_labels import MINUS, quantity_name, unit_label
from invgp.plots.hyperparameter_figure import hyperparameter_words, read_hyperparameters
from invgp.plots.plot_data import TWO_SIGMA, Curve, Floats, read_curves, read_names, read_values
from invgp.posterior.attributes import convergence_warning, has_converged
from invgp.posterior.contents import mode_probabilities, scalar_names, sites_of_observation, summarise_sources
from invgp.reports.provenance import read_config

AGREEING = 1.05  # largest R-hat of chains that agree
RELIABLE = 0.7  # largest Pareto k of a Gaussian that is close to the posterior
MOST_MODES = 6  # modes with a table
NO_VALUE = "\N{EN DASH}"
_MOST_DECIMALS, _LARGE = 6, 1e7  # powers of ten are used beyond them
INFORMATION = (  # the posterior is narrower than the prior by the square root of 1 minus the information
    (0.99, "determined by the data"),  # at most a tenth as wide
    (0.75, "strongly constrained"),  # at most half as wide
    (0.5, "constrained"),
    (0.2, "weakly constrained"),
    (-np.inf, "mostly the prior"),
)


class Verdict(NamedTuple):
    """Assessment of a posterior.

    Attributes
    ----------
    level : str
        ``"good"``, ``"doubt"`` or ``"bad"``.
    words : str
        The reason.
    """

    level: str
    words: str


def assess_convergence(ds: xr.Dataset) -> Verdict:
    """Return whether the posterior has converged and whether its diagnostics contain remarks."""
    doubts = _diagnostic_sentences(ds)
    if not has_converged(ds):
        return Verdict("bad", f"{convergence_warning(ds)} {convergence_advice(ds).capitalize()}.")
    if doubts:
        return Verdict(
            "doubt", f"The posterior has converged. Read the {count_noun(len(doubts), 'remark')} below first."
        )
    return Verdict("good", "The posterior has converged, and its diagnostics contain no warning.")


def summary_sentence(ds: xr.Dataset) -> str:
    """Return a sentence about the latents, the data and the simulator."""
    scalars = scalar_names(ds)
    latents = [
        count_noun(len(read_curves(ds, name)), f"field of {name}", f"fields of {name}")
        for name in _latent_names(ds)
        if name not in scalars
    ]
    numbers = sum(len(read_curves(ds, name)) for name in scalars)
    data = sum(int(np.isfinite(ds[f"{name}_observed"].values).sum()) for name in _observation_names(ds))
    where = (
        f"on {count_noun(ds.sizes['node'], 'node')}"
        if "node" in ds.dims
        else f"below {count_noun(ds.sizes['site'], 'site')}"
    )
    unknowns = [f"{_join_words(latents)} {where}"] if latents else []
    unknowns += [count_noun(numbers, "scalar")] if numbers else []
    return (
        f"{' and '.join(unknowns)}, from {count_noun(data, 'observation')} and "
        f"{count_noun(int(ds.attrs.get('invgp_runs', 0)), 'run')} of the simulator "
        f"{ds.attrs.get('invgp_simulator', '')}."
    )


def latent_tables(ds: xr.Dataset) -> list[dict[str, Any]]:
    """Return one entry per latent, with a description of its prior and one row per label."""
    return [
        {
            "name": name,
            "words": quantity_name(ds[name]),
            "scalar": name in scalar_names(ds),
            "unit": unit_label(ds[name]),
            "prior": _describe_prior(ds, name),
            "rows": [_latent_row(ds, name, curve) for curve in read_curves(ds, name)],
        }
        for name in _latent_names(ds)
    ]


def _latent_row(ds: xr.Dataset, name: str, curve: Curve) -> dict[str, str]:
    mean, std = read_values(ds, name, curve), read_values(ds, f"{name}_std", curve)
    row = {
        "label": curve.label or "everywhere",
        "mean": _format_range(mean),
        "std": _format_range(std),
        "prior": "",
        "information": "",
    }
    if f"{name}_prior" in ds and f"{name}_prior_std" in ds:
        prior, spread = (read_values(ds, f"{name}_prior{suffix}", curve) for suffix in ("", "_std"))
        row["prior"] = f"{format_number(float(np.median(prior)))} ± {format_number(float(np.median(spread)))}"
    row["words"] = ""
    if f"{name}_information" in ds:
        known = read_values(ds, f"{name}_information", curve)
        information = float(np.mean(known[np.isfinite(known)])) if np.isfinite(known).any() else np.nan
        row["information"] = f"{information:.2f}".replace("-", MINUS) if np.isfinite(information) else NO_VALUE
        row["words"] = next((words for least, words in INFORMATION if information >= least), "")
    return row


def _describe_prior(ds: xr.Dataset, name: str) -> str:
    """Return the kernel, length-scale and link, as learnt or as in the configuration."""
    section = read_config(ds).get("latents", {})
    settings = section.get(name, {}) if isinstance(section, dict) else {}
    kernel = settings.get("kernel", {}) if isinstance(settings, dict) else {}
    kind = ds[name].attrs.get("kernel") or (kernel.get("kind") if isinstance(kernel, dict) else None)
    learnt = ds[name].attrs.get("length_scale")
    scale = learnt if learnt is not None else (kernel.get("length_scale") if isinstance(kernel, dict) else None)
    link = ds[name].attrs.get("link") or (settings.get("link") if isinstance(settings, dict) else None)
    words = ["the same everywhere" if kind == "scalar" else f"{kind} kernel" if kind else ""]
    if scale is not None and not isinstance(scale, str | dict):
        words.append("length-scale " + _describe_length_scale(ds, np.atleast_1d(scale)))
    words.append(f"{link} link{_describe_bounds(ds[name])}" if link and link != "identity" else "")
    return "; ".join(filter(None, words))


def _describe_length_scale(ds: xr.Dataset, scale: NDArray[np.float64]) -> str:
    """Return the length-scale, or one per coordinate, with the units of the coordinates."""
    units = [unit_label(ds[name]) or "1" for name in read_names(ds, "coordinates")]
    numbers = [format_number(float(s)) for s in scale]
    if len(numbers) == len(units) and len(set(zip(numbers, units, strict=True))) > 1:
        return ", ".join(append_unit(*pair) for pair in zip(numbers, units, strict=True))
    return append_unit(", ".join(dict.fromkeys(numbers)), units[0] if len(set(units)) == 1 else "1")


def _describe_bounds(latent: xr.DataArray) -> str:
    """Return the bounds of a latent in words; empty without bounds."""
    if "link_lower" not in latent.attrs:
        return ""
    ends = [np.atleast_1d(latent.attrs[f"link_{end}"]) for end in ("lower", "upper")]
    texts = [", ".join(format_number(float(number)) for number in end) for end in ends if np.isfinite(end).all()]
    names = [name for name, end in zip(("above", "below"), ends, strict=True) if np.isfinite(end).all()]
    return " " + " and ".join(f"{name} {text}" for name, text in zip(names, texts, strict=True)) if texts else ""


def observation_tables(ds: xr.Dataset) -> list[dict[str, Any]]:
    """Return one entry per observation, with one row per label."""
    return [
        {
            "name": name,
            "words": quantity_name(ds[f"{name}_observed"]),
            "unit": unit_label(ds[f"{name}_observed"]),
            "rows": [
                _data_row(ds.isel(site=sites_of_observation(ds, name)), name, curve)
                for curve in read_curves(ds, f"{name}_observed")
            ],
        }
        for name in _observation_names(ds)
    ]


def source_rows(ds: xr.Dataset) -> list[dict[str, str]]:
    """Return one row per source of a joint inversion; empty for a single survey."""
    return [
        {
            "name": one.name,
            "sites": count_noun(one.sites, "place" if one.direct else "site"),
            "runs": "none, direct data" if one.direct else f"{one.runs:,}",
            "failed": NO_VALUE if one.direct else f"{one.failed:,}",
            "emulator": NO_VALUE if one.emulator_error is None else f"{one.emulator_error:.2g}",
            "fit": ", ".join(f"{name} {value:.2f}" for name, value in one.chi_square.items()),
        }
        for one in summarise_sources(ds)
    ]


def hyperparameter_rows(ds: xr.Dataset) -> list[dict[str, str]]:
    """Return one row per learnt hyperparameter that the posterior is averaged over."""
    rows = []
    for draws in read_hyperparameters(ds):
        median, factor = (float(draws.attrs[f"prior_{name}"]) for name in ("median", "factor"))
        low, middle, high = (format_number(float(q)) for q in np.quantile(draws.values, [0.025, 0.5, 0.975]))
        words, unit = hyperparameter_words(draws), unit_label(draws)
        rows.append(
            {
                "name": f"{words[:1].upper()}{words[1:]}{f' ({unit})' if unit else ''}",
                "prior": f"{format_number(median)}, times or divided by {format_number(factor)}",
                "median": middle,
                "interval": f"{low} to {high}",
                "most_probable": format_number(float(draws.attrs["most_probable"])),
            }
        )
    return rows


def _data_row(ds: xr.Dataset, name: str, curve: Curve) -> dict[str, str]:
    observed, noise = (read_values(ds, f"{name}_{what}", curve) for what in ("observed", "noise_std"))
    seen = np.isfinite(observed)
    misfit = (read_values(ds, f"{name}_residual", curve) / noise)[seen]
    chi_square = float(np.mean(misfit**2)) if misfit.size else np.nan
    beyond = float(np.mean(np.abs(misfit) > TWO_SIGMA)) if misfit.size else np.nan
    return {
        "label": curve.label or "all",
        "count": f"{int(seen.sum()):,}",
        "missing": f"{int((~seen).sum()):,}",
        "noise": _format_range(noise[seen]),
        "chi_square": f"{chi_square:.2f}" if misfit.size else NO_VALUE,
        "beyond": f"{beyond:.1%}" if misfit.size else NO_VALUE,
        "words": _describe_fit(chi_square),
    }


def _describe_fit(chi_square: float) -> str:
    if not np.isfinite(chi_square):
        return "no observation"
    if chi_square > DEFAULTS.poor_fit:
        return "residuals larger than the noise"
    return "residuals smaller than the noise" if chi_square < DEFAULTS.close_fit else "residuals as large as the noise"


def diagnostic_remarks(ds: xr.Dataset) -> list[str]:
    """Return the diagnostics as sentences."""
    return [*_diagnostic_sentences(ds), *_shape_remarks(ds), *_emulator_remarks(ds), *_run_remarks(ds)]


def sampling_rows(ds: xr.Dataset) -> list[dict[str, str]]:
    """Return the diagnostics of the draws as rows of a table; empty for a Gaussian posterior."""
    attributes, names = ds.attrs, _latent_names(ds)
    if "invgp_draws_total" not in attributes:
        return []
    stored = ds.sizes.get("realization", 0)
    rows = [
        _row("Sampler", str(attributes.get("invgp_draws", "not stated in the file")), ""),
        _row(
            "Draws",
            f"{int(attributes['invgp_draws_total']):,}",
            f"means, standard deviations and quantiles are computed from them; {stored:,} are stored",
        ),
    ]
    r_hat = _extreme(ds, [f"{name}_r_hat" for name in names], np.nanmax)
    if np.isfinite(r_hat):
        words = "the chains agree" if r_hat <= AGREEING else "the chains do not agree: means and spreads are doubtful"
        rows.append(_row("Largest R-hat", f"{r_hat:.3f}", words))
    effective = _extreme(ds, [f"{name}_effective_sample_size" for name in names], np.nanmin)
    if np.isfinite(effective):
        words = (
            f"independent draws in the bulk or in the tails, whichever are fewer; a mean is off by about "
            f"{1.0 / math.sqrt(max(effective, 1.0)):.2g} standard deviations"
        )
        rows.append(_row("Smallest effective sample size", f"{effective:,.0f}", words))
    k_hat = float(attributes.get("invgp_gaussian_k_hat", np.nan))
    if np.isfinite(k_hat):
        rows.append(_row("Pareto k of the Gaussian", f"{k_hat:.2f}".replace("-", MINUS), _describe_k_hat(k_hat)))
    if "gaussian_error" in ds:
        largest = _extreme(ds, ["gaussian_error"], np.nanmax)
        words = "standard deviations between the draws and the Gaussian approximation, at the worst point"
        rows.append(_row("Difference from the Gaussian", f"{largest:.2f}", words))
    if "invgp_log_evidence" in attributes:
        error = float(attributes.get("invgp_log_evidence_error", np.nan))
        text = f"{float(attributes['invgp_log_evidence']):.2f}".replace("-", MINUS)
        rows.append(_row("Log evidence", text, f"nats, with a standard error of {error:.2g}"))
    verified = float(attributes.get("invgp_emulator_verification_error", np.nan))
    if np.isfinite(verified):
        words = "noise standard deviations, at new runs at the draws"
        rows.append(_row("Error of the emulator", f"{verified:.2g}", words))
    return rows


def _row(name: str, value: str, words: str) -> dict[str, str]:
    return {"name": name, "value": value, "words": words}


def _extreme(ds: xr.Dataset, variables: list[str], function: Callable[[Floats], Any]) -> float:
    """Return the largest or smallest value of some variables; NaN if there are none."""
    values = [np.asarray(ds[name].values, dtype=np.float64).ravel() for name in variables if name in ds]
    known = np.concatenate([v[np.isfinite(v)] for v in values]) if values else np.empty(0)
    return float(function(known)) if known.size else np.nan


def _describe_k_hat(k_hat: float) -> str:
    if k_hat <= RELIABLE:
        return "the Gaussian approximation is close to the posterior"
    return "the posterior is not Gaussian" + ("" if k_hat <= 1.0 else ", far from it")


def mode_tables(ds: xr.Dataset) -> list[dict[str, Any]]:
    """Return one entry per mode, if there are several: its number, its probability and a table of the latents."""
    probabilities = mode_probabilities(ds)
    if len(probabilities) == 1 or not all(name in ds for name in ("whitened_sample", "draw_mode", "mode")):
        return []
    found = []
    for number in range(1, min(len(probabilities), MOST_MODES) + 1):
        if number not in ds["draw_mode"].values or number not in ds["mode"].values:
            continue
        own = select_mode(ds, number)
        found.append(
            {
                "number": number,
                "probability": f"{probabilities[number - 1]:.1%}",
                "latents": latent_tables(as_points(own)),
                "fit": [row for table in observation_tables(own) for row in table["rows"]],
            }
        )
    return found


def _diagnostic_sentences(ds: xr.Dataset) -> list[str]:
    return [line for line in str(ds.attrs.get("invgp_diagnostics", "")).splitlines() if line.strip()]


def _shape_remarks(ds: xr.Dataset) -> list[str]:
    if "shape_error" not in ds:
        return []
    known = ds["shape_error"].values[np.isfinite(ds["shape_error"].values)]
    if not known.size:
        return ["The Gaussian shape of the posterior was not checked. `invgp compare` checks it by sampling."]
    return [
        f"The Gaussian shape was checked at {count_noun(known.size, 'site')}: the largest error is {known.max():.2f} "
        "standard deviations, relative to the exact posterior of a site given the other sites."
    ]


def _emulator_remarks(ds: xr.Dataset) -> list[str]:
    name = str(ds.attrs.get("invgp_emulator", "none"))
    if "node" in ds.dims:
        return [
            "The posterior is based on a regression of the data on the runs; its standard deviations include the "
            "uncertainty of the regression."
        ]
    if name == "none":
        return ["No emulator was used; all results are from runs of the simulator."]
    error = float(ds.attrs.get("invgp_emulator_verification_error", np.nan))
    words = [f"An emulator ({name}) replaced the simulator"]
    if np.isfinite(error):
        words.append(f"; at new runs after its fit, its error was {error:.2g} standard deviations of the noise")
    if "direct_evaluation" in ds:
        direct = int(ds["direct_evaluation"].sum())
        words.append(f"; at {count_noun(direct, 'site')} the simulator was used instead" if direct else "")
    return ["".join(words) + "."]


def _run_remarks(ds: xr.Dataset) -> list[str]:
    failed, runs = (int(ds.attrs.get(f"invgp_runs{suffix}", 0)) for suffix in ("_failed", ""))
    if not failed:
        return []
    return [
        f"{failed:,} of {count_noun(runs, 'run')} failed and were ignored. Random failures do no harm. If the "
        "simulator fails for certain values of the latents, the information about these values is missing."
    ]


def format_number(number: float) -> str:
    """Return a number for a table: four digits, without a power of ten if possible."""
    if not np.isfinite(number):
        return NO_VALUE
    text = f"{number:,.0f}" if 1e3 <= abs(number) < 1e7 else f"{number:.4g}"
    return text.replace("-", MINUS)


def _format_range(values: Floats) -> str:
    known = values[np.isfinite(values)]
    if not known.size:
        return NO_VALUE
    low, high = float(known.min()), float(known.max())
    digits = max(0, 3 - math.floor(math.log10(max(abs(low), abs(high))))) if low < high else 0
    if low == high or digits > _MOST_DECIMALS or max(abs(low), abs(high)) >= _LARGE:
        ends = [format_number(low), format_number(high)]
    else:
        ends = [f"{end:,.{digits}f}".replace("-", MINUS) for end in (low, high)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _latent_names(ds: xr.Dataset) -> list[str]:
    return read_names(ds, "latents")


def _observation_names(ds: xr.Dataset) -> list[str]:
    return read_names(ds, "observations") if str(ds.attrs.get("invgp_observations", "")).split() else []


def _join_words(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
