"""What a posterior says, in plain words and tables."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from invgp.formatting import convergence_advice, count_noun
from invgp.inference.diagnostics import CLOSE_FIT, POOR_FIT
from invgp.plots.axis_labels import MINUS, quantity_name, unit_label
from invgp.plots.plot_data import TWO_SIGMA, Curve, Floats, read_curves, read_names, read_values
from invgp.posterior.attributes import has_converged
from invgp.reports.origin import config_of

NOTHING = "\N{EN DASH}"
_MOST_DECIMALS, _LARGE = 6, 1e7  # beyond them, powers of ten
INFORMATION = (
    (0.8, "the data fix it"),
    (0.5, "well informed"),
    (0.2, "partly informed"),
    (-np.inf, "mostly the prior"),
)


class Verdict(NamedTuple):
    """How far to trust a posterior: ``good``, ``doubt`` or ``bad``, and why."""

    level: str
    words: str


def verdict(ds: xr.Dataset) -> Verdict:
    """How far to trust it, in a sentence."""
    doubts = _sentences(ds)
    if not has_converged(ds):
        status = str(ds.attrs.get("invgp_status", "it was stopped"))
        return Verdict("bad", f"The posterior has not converged ({status}). {convergence_advice(ds).capitalize()}.")
    if doubts:
        return Verdict(
            "doubt", f"The posterior has converged. {count_noun(len(doubts), 'remark')} below should be read first."
        )
    return Verdict("good", "The posterior has converged, and its diagnostics give no cause for doubt.")


def summary(ds: xr.Dataset) -> str:
    """What was inverted, in a sentence."""
    latents = [count_noun(len(read_curves(ds, name)), f"field of {name}", f"fields of {name}") for name in _latents(ds)]
    data = sum(int(np.isfinite(ds[f"{name}_observed"].values).sum()) for name in _observations(ds))
    where = (
        f"on {count_noun(ds.sizes['node'], 'node')}"
        if "node" in ds.dims
        else f"below {count_noun(ds.sizes['site'], 'site')}"
    )
    return (
        f"{_listed(latents)} {where}, from {count_noun(data, 'observation')} and "
        f"{count_noun(int(ds.attrs.get('invgp_runs', 0)), 'run')} of the simulator "
        f"{ds.attrs.get('invgp_simulator', '')}."
    )


def latents(ds: xr.Dataset) -> list[dict[str, Any]]:
    """One entry a latent: its prior in words, and a row a label."""
    return [
        {
            "name": name,
            "words": quantity_name(ds[name]),
            "unit": unit_label(ds[name]),
            "prior": _prior_words(ds, name),
            "rows": [_latent_row(ds, name, curve) for curve in read_curves(ds, name)],
        }
        for name in _latents(ds)
    ]


def _latent_row(ds: xr.Dataset, name: str, curve: Curve) -> dict[str, str]:
    mean, std = read_values(ds, name, curve), read_values(ds, f"{name}_std", curve)
    row = {
        "label": curve.label or "everywhere",
        "mean": _range(mean),
        "std": _range(std),
        "prior": "",
        "information": "",
    }
    if f"{name}_prior" in ds and f"{name}_prior_std" in ds:
        prior, spread = (read_values(ds, f"{name}_prior{suffix}", curve) for suffix in ("", "_std"))
        row["prior"] = f"{figure(float(np.median(prior)))} ± {figure(float(np.median(spread)))}"
    row["words"] = ""
    if f"{name}_information" in ds:
        known = read_values(ds, f"{name}_information", curve)
        information = float(np.mean(known[np.isfinite(known)])) if np.isfinite(known).any() else np.nan
        row["information"] = f"{information:.2f}".replace("-", MINUS) if np.isfinite(information) else NOTHING
        row["words"] = next((words for least, words in INFORMATION if information >= least), "")
    return row


def _prior_words(ds: xr.Dataset, name: str) -> str:
    """Kernel, length-scale and link, as learnt or as in the config."""
    told = config_of(ds).get("latents", {})
    settings = told.get(name, {}) if isinstance(told, dict) else {}
    kernel = settings.get("kernel", {}) if isinstance(settings, dict) else {}
    kind = ds[name].attrs.get("kernel") or (kernel.get("kind") if isinstance(kernel, dict) else None)
    learnt = ds[name].attrs.get("length_scale")
    scale = learnt if learnt is not None else (kernel.get("length_scale") if isinstance(kernel, dict) else None)
    link = ds[name].attrs.get("link") or (settings.get("link") if isinstance(settings, dict) else None)
    words = [f"{kind} kernel" if kind else ""]
    if scale is not None and not isinstance(scale, str | dict):
        words.append("length-scale " + ", ".join(figure(float(s)) for s in np.atleast_1d(scale)))
    words.append(f"{link} link" if link and link != "identity" else "")
    return "; ".join(filter(None, words))


def observations(ds: xr.Dataset) -> list[dict[str, Any]]:
    """One entry an observation, with a row a label."""
    return [
        {
            "name": name,
            "words": quantity_name(ds[f"{name}_observed"]),
            "unit": unit_label(ds[f"{name}_observed"]),
            "rows": [_data_row(ds, name, curve) for curve in read_curves(ds, f"{name}_observed")],
        }
        for name in _observations(ds)
    ]


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
        "noise": _range(noise[seen]),
        "chi_square": f"{chi_square:.2f}" if misfit.size else NOTHING,
        "beyond": f"{beyond:.1%}" if misfit.size else NOTHING,
        "words": _fit_words(chi_square),
    }


def _fit_words(chi_square: float) -> str:
    if not np.isfinite(chi_square):
        return "nothing was observed"
    if chi_square > POOR_FIT:
        return "fitted worse than the noise allows"
    return "fitted more closely than the noise asks for" if chi_square < CLOSE_FIT else "fitted as the noise allows"


def remarks(ds: xr.Dataset) -> list[str]:
    """What the diagnostics say, a sentence each."""
    return [*_sentences(ds), *_shape_remarks(ds), *_emulator_remarks(ds), *_run_remarks(ds)]


def _sentences(ds: xr.Dataset) -> list[str]:
    return [line for line in str(ds.attrs.get("invgp_diagnostics", "")).splitlines() if line.strip()]


def _shape_remarks(ds: xr.Dataset) -> list[str]:
    if "shape_error" not in ds:
        return []
    known = ds["shape_error"].values[np.isfinite(ds["shape_error"].values)]
    if not known.size:
        return ["Whether the posterior is Gaussian in shape was not checked. `invgp compare` does it by sampling."]
    return [
        f"The Gaussian shape was checked at {count_noun(known.size, 'site')}: the worst is {known.max():.2f} standard "
        "deviations from the exact posterior of a site given the others."
    ]


def _emulator_remarks(ds: xr.Dataset) -> list[str]:
    name = str(ds.attrs.get("invgp_emulator", "none"))
    if "node" in ds.dims:
        return [
            "The posterior rests on a regression of the data on the runs; what that leaves open is part of its spread."
        ]
    if name == "none":
        return ["No emulator was used: every number rests on runs of the simulator itself."]
    error = float(ds.attrs.get("invgp_emulator_verification_error", np.nan))
    words = [f"An emulator ({name}) stood in for the simulator"]
    if np.isfinite(error):
        words.append(f"; at fresh runs, made after its fit, its error was {error:.2g} standard deviations of the noise")
    if "direct_evaluation" in ds:
        direct = int(ds["direct_evaluation"].sum())
        words.append(f"; at {count_noun(direct, 'site')} the simulator itself was run throughout" if direct else "")
    return ["".join(words) + "."]


def _run_remarks(ds: xr.Dataset) -> list[str]:
    failed, runs = (int(ds.attrs.get(f"invgp_runs{suffix}", 0)) for suffix in ("_failed", ""))
    if not failed:
        return []
    return [
        f"{failed:,} of {count_noun(runs, 'run')} failed and were left out. Failures at random do no harm; if the "
        "simulator fails for some latents rather than others, what it says of them is missing."
    ]


def figure(number: float) -> str:
    """A number as a table has it: four digits, and no power of ten where a person would write none."""
    if not np.isfinite(number):
        return NOTHING
    text = f"{number:,.0f}" if 1e4 <= abs(number) < 1e7 else f"{number:.4g}"
    return text.replace("-", MINUS)


def _range(values: Floats) -> str:
    known = values[np.isfinite(values)]
    if not known.size:
        return NOTHING
    low, high = float(known.min()), float(known.max())
    digits = max(0, 3 - math.floor(math.log10(max(abs(low), abs(high))))) if low < high else 0
    if low == high or digits > _MOST_DECIMALS or max(abs(low), abs(high)) >= _LARGE:
        ends = [figure(low), figure(high)]
    else:
        ends = [f"{end:,.{digits}f}".replace("-", MINUS) for end in (low, high)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _latents(ds: xr.Dataset) -> list[str]:
    return read_names(ds, "latents")


def _observations(ds: xr.Dataset) -> list[str]:
    return read_names(ds, "observations") if str(ds.attrs.get("invgp_observations", "")).split() else []


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
