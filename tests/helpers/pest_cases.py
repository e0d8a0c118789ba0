"""PEST cases of three styles, each with an independent reference of its posterior.

The references use the control files as PEST means them, and equations in NumPy; they share no code with invgp.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Reference:
    """Of the transformed parameters (log10 for log-transformed ones), by name.

    Attributes
    ----------
    moments : mean and standard deviation
    widths : distance between the 5% and 95% quantiles
    log : names of the log-transformed parameters
    """

    moments: dict[str, tuple[float, float]]
    widths: dict[str, float]
    log: frozenset[str]


def write_files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            path.chmod(0o755)


# A case of the older style: an aquifer of zones, with the finite-difference program in C.

ROWS, COLUMNS, CELL, THICKNESS = 6, 12, 50.0, 10.0
ZONES = ["sand"] * 4 + ["silt"] * 4 + ["gravel"] * 2 + ["till"] * 2  # by column; till is tied to silt
WELLS = [(1, 2), (3, 4), (5, 5), (2, 7), (4, 8), (6, 9), (3, 10), (5, 11)]
TRUTH = {"k_sand": 2e-4, "k_silt": 3e-5, "k_gravel": 8e-4, "recharge": 4e-8}
HEAD_NOISE = 0.02
UNWEIGHTED = 5
ZONES_CONTROL = r"""pcf
* control data
restart estimation
 7 {wells} 2 1 2
 2 1 double point 1 0 0
 10.0 2.0 0.3 0.03 10
 3.0 3.0 0.001
 0.1
 30 0.01 3 3 0.01 3
 1 1 1
* singular value decomposition
 1
 7 5e-7
 0
* parameter groups
 k relative 0.01 0.0 switch 2.0 parabolic
 flow relative 0.01 0.0 switch 2.0 parabolic
* parameter data
 k_sand    log   factor 1e-4 1e-6 1e-2 k    1.0 0.0 1
 k_silt    log   factor 1e-5 1e-7 1e-3 k    1.0 0.0 1
 k_gravel  log   factor 1e-3 1e-5 1e-1 k    1.0 0.0 1
 k_till    tied  factor 5e-6 1e-9 1e-3 k    1.0 0.0 1
 recharge  log   factor 3e-8 1e-9 9e-7 flow 1.0 0.0 1
 west      fixed none   20.0 0    99   flow 1.0 0.0 1
 east      fixed none   16.0 0    99   flow 1.0 0.0 1
 k_till k_silt
* observation groups
 heads
 expert
* observation data
{observations}
* model command line
 {program} aquifer.txt cells.txt heads.txt
* model input/output
 .\cells.tpl  .\cells.txt
 aquifer.tpl aquifer.txt
 heads.ins heads.txt
* prior information
 pi_recharge 1.0 * log(recharge) = -7.4 5.0 expert
"""


def zone_heads(values: Array) -> Array:
    """Heads (B, wells) in m for B rows of k_sand, k_silt, k_gravel and recharge; the flow is one-dimensional."""
    sand, silt, gravel, recharge = values.T
    by_zone = {"sand": sand, "silt": silt, "gravel": gravel, "till": 0.5 * silt}
    k = np.stack([by_zone[zone] for zone in ZONES], axis=1)
    # The west and east heads are at the outer faces of the cells, half a cell away.
    between = THICKNESS * 2.0 / (1.0 / k[:, 1:] + 1.0 / k[:, :-1])
    west, east = 2.0 * THICKNESS * k[:, 0], 2.0 * THICKNESS * k[:, -1]
    count = len(values)
    A, b = np.zeros((count, COLUMNS, COLUMNS)), np.tile((recharge * CELL**2)[:, None], (1, COLUMNS))
    for i in range(COLUMNS - 1):
        A[:, i, i] += between[:, i]
        A[:, i + 1, i + 1] += between[:, i]
        A[:, i, i + 1] -= between[:, i]
        A[:, i + 1, i] -= between[:, i]
    A[:, 0, 0] += west
    A[:, -1, -1] += east
    b[:, 0] += west * 20.0
    b[:, -1] += east * 16.0
    heads = np.linalg.solve(A, b[..., None])[..., 0]
    return heads[:, [column - 1 for _, column in WELLS]]


def write_zones(folder: Path, program: Path) -> Path:
    """The case; `program` is the compiled forward_models/steady_heads.c."""
    rng = np.random.default_rng(5)
    heads = zone_heads(np.array([list(TRUTH.values())]))[0] + HEAD_NOISE * rng.standard_normal(len(WELLS))
    cells = "\n".join(f"~ k_{zone:<18}~" for _ in range(ROWS) for zone in ZONES)
    wells = "\n".join(f"{row} {column}" for row, column in WELLS)
    weights = [0.0 if i == UNWEIGHTED else 1.0 / HEAD_NOISE for i in range(len(WELLS))]
    observations = "\n".join(
        f" h{i + 1} {head:.6f} {weight} heads" for i, (head, weight) in enumerate(zip(heads, weights, strict=True))
    )
    files = {
        "cells.tpl": f"ptf ~\n{cells}\n",
        "aquifer.tpl": f"ptf #\n{ROWS} {COLUMNS}\n{CELL} {THICKNESS}\n#recharge              #\n"
        f"# west           # # east           #\n{len(WELLS)}\n{wells}\n",
        "heads.ins": "pif @\n" + "".join(f"l1 w !h{i + 1}!\n" for i in range(len(WELLS))),
        "zones.pst": ZONES_CONTROL.format(observations=observations, wells=len(WELLS), program=program),
    }
    write_files(folder, files)
    return folder / "zones.pst"


def zones_reference(control: Path, draws: int = 200_000) -> Reference:
    """By importance sampling: a Student-t proposal is adapted in three rounds."""
    lines = control.read_text().splitlines()
    data = np.array([float(line.split()[1]) for line in lines if len(line.split()) == 4 and line.endswith(" heads")])
    used = np.array([i for i in range(len(WELLS)) if i != UNWEIGHTED])
    centre = np.log10([1e-4, 1e-5, 1e-3, 3e-8])
    spread = np.log10([1e4, 1e4, 1e4, 9e2]) / 4.0

    def log_density(z: Array) -> Array:
        residual = (zone_heads(10.0**z)[:, used] - data[used]) / HEAD_NOISE
        prior = (z - centre) / spread
        expert = 5.0 * (z[:, 3] + 7.4)
        return np.asarray(-0.5 * (np.sum(residual**2, axis=1) + np.sum(prior**2, axis=1) + expert**2))

    names = ("k_sand", "k_silt", "k_gravel", "recharge")
    moments, widths = sample_moments(names, log_density, centre, np.diag(spread**2), draws)
    return Reference(moments, widths, frozenset(names))


def sample_moments(
    names: Sequence[str], log_density: Any, centre: Array, covariance: Array, draws: int
) -> tuple[dict[str, tuple[float, float]], dict[str, float]]:
    """Moments and widths by importance sampling with Student-t proposals that are adapted.

    Every second draw has three times the spread, so that a tail far from the centre is not missed.
    """
    rng = np.random.default_rng(1)
    size, freedom = len(centre), 5.0
    mean = centre
    for power in (0.02, 0.1, 0.3, 0.6, 1.0, 1.0, 1.0):  # tempered first, since the posterior is narrow
        factor = np.linalg.cholesky(covariance * 1.3)
        count = draws if power == 1.0 else draws // 10
        normal = rng.standard_normal((count, size)) / np.sqrt(rng.chisquare(freedom, (count, 1)) / freedom)
        normal[::2] *= 3.0
        z = mean + normal @ factor.T
        squares = np.sum(normal**2, axis=1)
        narrow, wide = (-0.5 * (freedom + size) * np.log1p(squares / c**2 / freedom) - size * np.log(c) for c in (1, 3))
        weight = power * log_density(z) - np.logaddexp(narrow, wide)
        weight = np.exp(weight - weight.max())
        weight /= weight.sum()
        mean = weight @ z
        covariance = (z - mean).T @ ((z - mean) * weight[:, None])
    effective = 1.0 / np.sum(weight**2)
    assert effective > 0.1 * draws, f"only {effective:.0f} effective draws"
    std = np.sqrt(np.diag(covariance))
    widths = {}
    for name, column in zip(names, z.T, strict=True):
        order = np.argsort(column)
        low, high = np.interp([0.05, 0.95], np.cumsum(weight[order]), column[order])
        widths[name] = float(high - low)
    return {n: (m, s) for n, m, s in zip(names, mean.tolist(), std.tolist(), strict=True)}, widths


# Pilot points: a Python program that interpolates the logarithm linearly, so that the posterior has a closed form.

POINTS = np.array([[x, y] for y in (0.0, 500.0, 1000.0) for x in (0.0, 400.0, 900.0, 1300.0)])
LENGTH_SCALE = 600.0
PILOT_NOISE = 0.1
INTERPOLATE = """\
#!{python}
import math
from pathlib import Path
rows = [line.split() for line in Path("hk_pp.dat").read_text().splitlines()]
points = [(float(x), float(y), math.log10(float(value))) for _, x, y, _, value in rows]
out = ["station value"]
for line in Path("stations.txt").read_text().splitlines():
    name, x, y = line.split()
    weights = [1.0 / (1.0 + ((float(x) - px) ** 2 + (float(y) - py) ** 2) / 4e4) for px, py, _ in points]
    total = sum(w * value for w, (_, _, value) in zip(weights, points)) / sum(weights)
    out.append(f"{{name}} {{total!r}}")
Path("out.txt").write_text("\\n".join(out) + "\\n")
"""
PILOT_CONTROL = """pcf
* control data
restart regularisation
 {counts} 1 1 2
 1 1 double point 1 0 0
 10.0 2.0 0.3 0.03 10
 3.0 3.0 0.001
 0.1
 30 0.01 3 3 0.01 3
 1 1 1
* parameter groups
 hk relative 0.01 0.0 switch 2.0 parabolic
* parameter data
{parameters}
* observation groups
 flux
 regul
* observation data
{observations}
* model command line
 interpolate.py
* model input/output
 hk_pp.tpl hk_pp.dat
 out.ins out.txt
* prior information
 smooth 1.0 * log(ppt00:hk) - 1.0 * log(ppt01:hk) = 0.0 1.0 regul
* regularisation
 10.0 10.5 0.1
 1.0 1e-10 1e10
 1.3 1e-2 1
++ parcov(prior.cov)
++ies_num_reals(100)
"""
STATIONS = np.array([[100.0, 100.0], [500.0, 450.0], [1200.0, 900.0], [850.0, 50.0], [300.0, 950.0]])


def interpolation_matrix() -> Array:
    distances = np.sum((STATIONS[:, None] - POINTS[None]) ** 2, axis=-1)
    weights = 1.0 / (1.0 + distances / 4e4)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def pilot_prior() -> tuple[Array, Array]:
    """Mean (12,) and covariance of log10 of the values at the points: bounds of 2 standard deviations, Matern 3/2."""
    r = np.sqrt(3.0) * np.hypot(*(POINTS[:, None] - POINTS[None]).transpose(2, 0, 1)) / LENGTH_SCALE
    std = np.log10(100.0 / 0.1) / 4.0
    return np.full(len(POINTS), np.log10(3.0)), std**2 * (1.0 + r) * np.exp(-r)


def write_pilot_points(folder: Path) -> Path:
    """The case: a template of a file of pilot points, and a covariance matrix of the parameters."""
    rng = np.random.default_rng(8)
    mean, covariance = pilot_prior()
    truth = mean + np.linalg.cholesky(covariance) @ rng.standard_normal(len(mean))
    data = interpolation_matrix() @ truth + PILOT_NOISE * rng.standard_normal(len(STATIONS))
    names = [f"ppt{i:02d}:hk" for i in range(len(POINTS))]
    points = "\n".join(
        f"pp_{i:04d} {x:.1f} {y:.1f} 1 ~ {name:<20} ~"
        for i, (name, (x, y)) in enumerate(zip(names, POINTS, strict=True))
    )
    numbers = "\n".join(" ".join(f"{v:.12e}" for v in row) for row in covariance)
    files = {
        "hk_pp.tpl": f"ptf ~\n{points}\n",
        "out.ins": "pif @\n@station@\n" + "".join(f"l1 w !s{i + 1}!\n" for i in range(len(STATIONS))),
        "stations.txt": "".join(f"S{i + 1} {x} {y}\n" for i, (x, y) in enumerate(STATIONS)),
        "interpolate.py": INTERPOLATE.format(python=sys.executable),
        "prior.cov": f"{len(names)} {len(names)} 1\n{numbers}\n* row and column names\n" + "\n".join(names) + "\n",
        "pilots.pst": PILOT_CONTROL.format(
            parameters="\n".join(f" {name} log factor 3.0 0.1 100.0 hk 1.0 0.0 1" for name in names),
            observations="\n".join(f" s{i + 1} {v:.8f} {1.0 / PILOT_NOISE} flux" for i, v in enumerate(data)),
            counts=f"{len(names)} {len(STATIONS)}",
        ),
    }
    write_files(folder, files)
    return folder / "pilots.pst"


def pilot_reference(control: Path) -> Reference:
    """Gaussian process regression: the posterior of log10 is Gaussian."""
    lines = control.read_text().splitlines()
    data = np.array([float(line.split()[1]) for line in lines if len(line.split()) == 4 and line.endswith(" flux")])
    mean, covariance = pilot_prior()
    A = interpolation_matrix()
    gain = np.linalg.solve(A @ covariance @ A.T + PILOT_NOISE**2 * np.eye(len(A)), A @ covariance).T
    posterior, left = mean + gain @ (data - A @ mean), covariance - gain @ A @ covariance
    names = [f"ppt{i:02d}:hk" for i in range(len(POINTS))]
    std = np.sqrt(np.diag(left))
    moments = {n: (m, s) for n, m, s in zip(names, posterior, std, strict=True)}
    return Reference(moments, {n: 2.0 * 1.6448536 * s for n, (_, s) in moments.items()}, frozenset(names))


# The enhanced format, with external tables, two commands, an uncertainty file and parameters with bounds.

TREND_NOISE = np.array([0.3, 0.2, 0.4, 0.3, 0.25])
DECAY = """\
import math
from pathlib import Path
a, b, r = (float(line.split()[1]) for line in Path("p.txt").read_text().splitlines())
times = [0.5, 1.0, 2.0, 4.0, 8.0]
Path("raw.txt").write_text(" ".join(repr(a * math.exp(-r * t) + b) for t in times))
"""
REPORT = """\
from pathlib import Path
values = Path("raw.txt").read_text().split()
Path("c.csv").write_text("|".join(values) + "\\n")
"""
TIMES = np.array([0.5, 1.0, 2.0, 4.0, 8.0])


def write_tables(folder: Path) -> Path:
    """The case: exponential decay to a level."""
    rng = np.random.default_rng(2)
    data = 9.0 * np.exp(-0.45 * TIMES) + 1.2 + TREND_NOISE * rng.standard_normal(len(TIMES))
    rows = "".join(f"c{i + 1},{v:.6f},1.0,conc,{s}\n" for i, (v, s) in enumerate(zip(data, TREND_NOISE, strict=True)))
    files = {
        "decay.pst": "pcf version=2\n# comment\n* control data keyword\npestmode estimation\nnoptmax 0\n"
        "additional_ins_delimiters |\nparcov prior.unc\n"
        "* parameter data external\npar.csv\n* observation data external\nobs.csv\n"
        f"* model command line\n{sys.executable} decay.py\n{sys.executable} report.py\n"
        "* model input external\ntpl.csv\n* model output external\nins.csv\n",
        "par.csv": "name,transform,value,upper_bound,lower_bound,group\n"
        "a,none,8.0,16.0,0.0,level\nb,none,1.0,3.0,-1.0,level\nr,log,0.3,3.0,0.03,rate\n",
        "obs.csv": "obsnme,obsval,weight,obgnme,standard_deviation\n" + rows + "extra,5.0,0.0,conc,1.0\n",
        "tpl.csv": "pest_file,model_file\np.tpl,p.txt\n",
        "ins.csv": "pest_file,model_file\nc.ins,c.csv\n",
        "prior.unc": "START STANDARD_DEVIATION\n std_multiplier 1.0\n a 4.0\n b 1.0\n r 0.4\nEND STANDARD_DEVIATION\n",
        "p.tpl": "ptf ~\na ~a               ~\nb ~b               ~\nr ~r               ~\n",
        "c.ins": "pif @\nl1 " + " ".join(f"!c{i + 1}!" for i in range(len(TIMES))) + "\n",
        "decay.py": DECAY,
        "report.py": REPORT,
    }
    write_files(folder, files)
    return folder / "decay.pst"


def tables_reference(control: Path, draws: int = 200_000) -> Reference:
    """By importance sampling; a and b have normal priors that are cut off at their bounds."""
    rows = [line.split(",") for line in (control.parent / "obs.csv").read_text().splitlines()[1:]]
    data = np.array([float(row[1]) for row in rows if row[0] != "extra"])

    def log_density(z: Array) -> Array:
        a, b, r = z[:, 0], z[:, 1], 10.0 ** z[:, 2]
        model = a[:, None] * np.exp(-r[:, None] * TIMES) + b[:, None]
        prior = ((a - 8.0) / 4.0) ** 2 + (b - 1.0) ** 2 + ((z[:, 2] - np.log10(0.3)) / 0.4) ** 2
        inside = (a > 0.0) & (a < 16.0) & (b > -1.0) & (b < 3.0)
        return np.where(inside, -0.5 * (np.sum(((model - data) / TREND_NOISE) ** 2, axis=1) + prior), -np.inf)

    centre = np.array([8.0, 1.0, np.log10(0.3)])
    moments, widths = sample_moments("abr", log_density, centre, np.diag([16.0, 1.0, 0.16]), draws)
    return Reference(moments, widths, frozenset("r"))
