"""Accuracy against simulator runs, beside methods of other packages: mean, spread and joint predictions.

    python tests/benchmarks/peers_curves.py [--record] [--only sine diffusion] [--methods invgp emcee]

Seven problems of `shapes.py`: the Otway line with logarithms of the velocities, two field problems and four others, and
one site of one of them, for methods for few unknowns. One run is one run of a field model, or one run at each site. A
run of the simulator costs nothing here, so that only runs are compared. `--record` adds to peers_curves.json, from
which `python docs/make_peers.py` draws the figure and writes the table of docs/peers.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import environments
import numpy as np
from _curves_side import SIZES
from shape_fields import FIELDS, FieldTarget
from shape_problems import CASES, Survey
from shape_references import METHODS as REFERENCES
from shape_references import _kept, _kind, target_of
from shapes import default_cache, summaries

import invgp

RECORD = Path(__file__).with_name("peers_curves.json")
SIDE = Path(__file__).with_name("_curves_side.py")
BUDGETS = (50, 100, 200, 400, 800, 1600, 3200)
SAMPLER_BUDGETS = (400, 1600, 6400, 25600)
SITE_PROBLEMS = ("otway-log-velocity", "product-30-separate", "square", "sine", "step")
ONE_SITE = "product-30, one site"
FIELD_PROBLEMS = ("diffusion", "cubic")
PROBLEMS = (*SITE_PROBLEMS, ONE_SITE, *FIELD_PROBLEMS)
PEERS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], tuple[int, ...], bool]] = {
    # method: environment, requirements, modules, numbers of runs, whether only for few unknowns
    "ES-MDA": ("smoothers", ("iterative_ensemble_smoother",), ("iterative_ensemble_smoother",), BUDGETS, False),
    "ES-MDA, localised": (
        "smoothers", ("iterative_ensemble_smoother",), ("iterative_ensemble_smoother",), BUDGETS, False
    ),
    "ES-MDA, adaptive": (
        "smoothers", ("iterative_ensemble_smoother",), ("iterative_ensemble_smoother",), BUDGETS, False
    ),
    "IES": (  # later versions have no iterative smoother
        "iterative", ("iterative_ensemble_smoother==0.6.0",), ("iterative_ensemble_smoother.sies",), BUDGETS, False
    ),
    "EnIF": ("graphite", ("graphite-maps",), ("graphite_maps.enif",), BUDGETS[:4], False),  # a regression takes minutes
    "emcee": ("emcee", ("emcee",), ("emcee",), SAMPLER_BUDGETS, False),
    "zeus": ("zeus", ("zeus-mcmc",), ("zeus",), SAMPLER_BUDGETS, False),
    "PyVBMC": ("pyvbmc", ("pyvbmc",), ("pyvbmc",), (100, 200), True),
    "sbi": ("sbi", ("torch==2.13.0", "sbi"), ("torch", "sbi"), (400, 1600), True),
}  # fmt: skip


Inverted = tuple[float, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Trial:
    """A problem for all methods.

    Attributes
    ----------
    mean, factor : prior of the D unknowns, mean + factor z
    data : (P,), in units of the noise
    taper : (D, P), which the localised smoother multiplies its gain by
    run : outputs (S, P), in units of the noise, of unknowns (S, D)
    values : physical values (S, N, Q) of unknowns (S, D)
    exact : draws (R, N, Q) of the reference
    invert : runs of invgp, the mean and standard deviation (N, Q) in its file, and its draws (S, N, Q), for a limit
        of runs or 0
    limits : numbers of runs for invgp; 0 for the default
    """

    name: str
    mean: np.ndarray
    factor: np.ndarray
    data: np.ndarray
    taper: np.ndarray
    run: Callable[[np.ndarray], np.ndarray]
    values: Callable[[np.ndarray], np.ndarray]
    exact: np.ndarray
    invert: Callable[[int], Inverted]
    limits: tuple[int, ...]


def taper(distance: np.ndarray, half_width: float) -> np.ndarray:
    """Gaspari and Cohn (1999), equation 4.10: 1 at no distance, 0 beyond two half-widths."""
    r = np.abs(distance) / half_width
    near = 1 - 5 / 3 * r**2 + 5 / 8 * r**3 + r**4 / 2 - r**5 / 4
    with np.errstate(divide="ignore"):
        far = 4 - 5 * r + 5 / 3 * r**2 + 5 / 8 * r**3 - r**4 / 2 + r**5 / 12 - 2 / (3 * r)
    return np.where(r <= 1, near, np.where(r < 2, far, 0.0))


def reference(survey: Any) -> np.ndarray:
    """Draws (R, N, Q) of the first reference of `shapes.py`, which keeps them."""
    return _kept(survey, REFERENCES[_kind(survey.case)][0], default_cache(), 1).draws.astype(float)


def site_trial(name: str) -> Trial:
    """Unknowns are the processes of the first site, then of the second, and so on."""
    case = CASES["product-30-separate" if name == ONE_SITE else name]
    survey = case.survey(1)
    if name == ONE_SITE:
        case = replace(case, sites=1, name="product-30-one-site")
        survey = Survey(case, 1, survey.truth[:1], survey.data[:1], survey.noise[:1])
    target, sites = target_of(survey), case.sites
    mean, std = case.processes
    latents, outputs = len(mean), survey.data.shape[1]

    def run(unknowns: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            found = case.outputs(unknowns.reshape(-1, latents), np.tile(case.x, len(unknowns)))
        return np.asarray(found.reshape(len(unknowns), sites, outputs) / survey.noise).reshape(len(unknowns), -1)

    def invert(limit: int) -> Inverted:
        posterior = invgp.invert(survey.problem(**({"max_runs": limit * sites} if limit else {})))
        mean, std, *_ = summaries(posterior, list(case.unknowns))
        draws = [posterior[f"{n}_sample"].values.astype(float) for n in case.unknowns]
        shaped = np.concatenate([d.reshape(*d.shape[:2], -1) for d in draws], axis=-1)
        return float(posterior.attrs["invgp_runs"]) / sites, mean, std, shaped

    distance = np.abs(np.repeat(case.x, latents)[:, None] - np.repeat(case.x, outputs)[None])
    return Trial(
        name=name,
        mean=np.tile(mean, sites),
        factor=np.kron(target.factor, np.diag(std)),
        data=np.ravel(survey.data / survey.noise),
        taper=taper(distance, 2.0 * case.length_scale),
        run=run,
        values=lambda unknowns: case.physical(unknowns.reshape(len(unknowns), sites, latents)),
        exact=reference(survey),
        invert=invert,
        limits=(0,),
    )


def field_trial(name: str) -> Trial:
    """Unknowns are the values at the nodes."""
    survey = FIELDS[name].survey(1)
    target = FieldTarget(survey)
    problem = survey.problem()
    nodes = (np.arange(len(target.factor)) + 0.5) / len(target.factor)
    sensors = np.asarray(problem.survey.X, dtype=float)[:, 0]

    def invert(limit: int) -> Inverted:
        posterior = invgp.invert(survey.problem(max_runs=limit))
        draws = posterior["field_sample"].values.astype(float)[..., None]
        mean, std, *_ = summaries(posterior, ["field"])
        return float(posterior.attrs["invgp_runs"]), mean, std, draws

    return Trial(
        name=name,
        mean=np.full(len(nodes), survey.case.mean),
        factor=target.factor,
        data=survey.data / survey.noise,
        taper=taper(nodes[:, None] - sensors[None], 0.4),
        run=lambda unknowns: survey.case.physics(unknowns) / survey.noise,
        values=lambda unknowns: unknowns[..., None],
        exact=reference(survey),
        invert=invert,
        limits=(50, 100, 200),
    )


def predictions(values: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Joint predictions (S, K) of draws (S, N, Q), which depend on correlations between unknowns.

    Of each latent, in exact standard deviations: the sum over all sites or nodes, and differences of neighbours; and at
    each site the sum over latents.
    """
    scaled = (values - exact.mean(axis=0)) / exact.std(axis=0)
    parts = [scaled.mean(axis=1), np.diff(scaled, axis=1).reshape(len(scaled), -1)]
    if scaled.shape[2] > 1:
        parts.append(scaled.sum(axis=2))
    return np.concatenate(parts, axis=1)


def measure(trial: Trial, mean: np.ndarray, std: np.ndarray, values: np.ndarray) -> dict[str, float]:
    """Errors of mean and std (N, Q), and of draws (S, N, Q): of spreads as logarithms of ratios."""
    exact = trial.exact
    error = np.sqrt(np.mean(((mean - exact.mean(axis=0)) / exact.std(axis=0)) ** 2))
    spread = np.median(np.abs(np.log(np.maximum(std, 1e-9) / exact.std(axis=0))))
    ours, theirs = predictions(values, exact).std(axis=0), predictions(exact, exact).std(axis=0)
    joint = np.median(np.abs(np.log(np.maximum(ours, 1e-9) / theirs)))
    return {"mean": float(error), "spread": float(spread), "joint": float(joint)}


def run_peer(trial: Trial, method: str) -> tuple[list[dict[str, Any]], str]:
    """One row for each number of runs, and the version of the package."""
    folder, requirements, modules, budgets, _ = PEERS[method]
    steps = [[requirement] for requirement in requirements]
    python = environments.environment(environments.cache_folder(folder), steps, modules, method)
    rows, version = [], ""
    with tempfile.TemporaryDirectory() as name:
        stored = Path(name) / "problem.npz"
        np.savez(stored, mean=trial.mean, factor=trial.factor, data=trial.data, taper=trial.taper)
        printed = Path(name) / "printed.txt"
        command = [python, SIDE, method, stored, name, *map(str, budgets)]
        with (
            printed.open("w", encoding="utf-8") as messages,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages) as process,
        ):
            while header := process.stdout.read(SIZES.size):
                shape = SIZES.unpack(header)
                unknowns = np.frombuffer(process.stdout.read(8 * shape[0] * shape[1]), "<f8").reshape(shape)
                outputs = np.ascontiguousarray(trial.run(unknowns), dtype="<f8")
                process.stdin.write(SIZES.pack(*outputs.shape) + outputs.tobytes())
                process.stdin.flush()
        if process.returncode:
            raise environments.process_error(method, process.returncode, printed)
        for runs in budgets:
            file = Path(name) / f"{runs}.npz"
            if file.exists():
                with np.load(file) as kept:
                    version, values = str(kept["version"]), trial.values(kept["draws"])
                    found = measure(trial, values.mean(axis=0), values.std(axis=0), values)
                    rows.append({"problem": trial.name, "method": method, "runs": float(kept["runs"]), **found})
    return rows, version


def run_invgp(trial: Trial) -> list[dict[str, Any]]:
    """One row for each limit of runs."""
    rows = []
    for limit in trial.limits:
        runs, *found = trial.invert(limit)
        rows.append({"problem": trial.name, "method": "invgp", "runs": runs, **measure(trial, *found)})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=PROBLEMS, help="problems")
    parser.add_argument("--methods", nargs="+", choices=("invgp", *PEERS), default=("invgp", *PEERS))
    parser.add_argument("--record", nargs="?", type=Path, const=RECORD, metavar="FILE", help="(default: %(const)s)")
    chosen = parser.parse_args(arguments)
    print("problem                method               runs    mean  spread   joint")
    for name in chosen.only:
        trial = field_trial(name) if name in FIELD_PROBLEMS else site_trial(name)
        for method in chosen.methods:
            if method != "invgp" and PEERS[method][4] and name != ONE_SITE:
                continue
            rows, version = (run_invgp(trial), invgp.__version__) if method == "invgp" else run_peer(trial, method)
            for row in rows:
                print(
                    f"{name:22s} {method:18s} {row['runs']:7,.0f} {row['mean']:7.3f} {row['spread']:7.3f} "
                    f"{row['joint']:7.3f}",
                    flush=True,
                )
            if chosen.record:
                record(chosen.record, rows, method, version)


def record(path: Path, rows: Sequence[dict[str, Any]], method: str, version: str) -> None:
    """Add rows to a file, with the day and the commit; they replace those of the same problem and method."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=path.parent, capture_output=True, text=True, check=False
    )
    made = {"day": datetime.now(UTC).date().isoformat(), "commit": commit.stdout.strip() or "unknown"}
    rows = [row | made for row in rows]
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"versions": {}, "rows": []}
    new = {(row["problem"], row["method"]) for row in rows}
    kept["rows"] = [row for row in kept["rows"] if (row["problem"], row["method"]) not in new] + list(rows)
    kept["versions"][method] = version
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
