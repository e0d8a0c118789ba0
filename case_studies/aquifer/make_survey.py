"""Draw conductivities from the prior, compute the heads, and write the PEST case that runs the program.

python make_survey.py PROGRAM
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from command_line import run

DATA = Path(__file__).resolve().parent / "data"
SIDE, CELL = 16, 50.0  # cells in each direction, and their size in m
WELLS, NOISE = 30, 0.05  # m
MEAN, STD, LENGTH_SCALE = 1e-4, 1e-4, 200.0  # m s-1, m s-1, m


def conductivities(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    """Draw a log-normal field (G,) in m s-1 at cells (G, 2) in m, with Matern 5/2 smoothness."""
    r = np.sqrt(5.0 * np.sum((X[:, None] - X[None]) ** 2, axis=-1)) / LENGTH_SCALE
    factor = np.linalg.cholesky((1.0 + r + r**2 / 3.0) * np.exp(-r) + 1e-10 * np.eye(len(X)))
    variance = np.log1p((STD / MEAN) ** 2)
    drawn = factor @ rng.standard_normal(len(X))
    return np.asarray(MEAN * np.exp(np.sqrt(variance) * drawn - 0.5 * variance))


def write_pest_case(program: Path) -> None:
    """Write the control file with its template and instructions, as for a user of PEST."""
    cells = [f"k{i + 1}" for i in range(SIDE**2)]
    (DATA / "conductivity.tpl").write_text(
        "\n".join(["ptf ~", *(f"~ {name:<16} ~" for name in cells)]) + "\n", encoding="utf-8"
    )
    (DATA / "heads.ins").write_text(
        "\n".join(["pif @", *(f"l1 w !head{i + 1}!" for i in range(WELLS))]) + "\n", encoding="utf-8"
    )
    control = [
        "pcf", "* control data", "restart estimation", f" {len(cells)} {WELLS} 1 0 1", " 1 1 double point 1 0 0",
        " 10.0 2.0 0.3 0.03 10", "* parameter groups", " k relative 0.01 0.0 switch 2.0 parabolic", "* parameter data",
        *(f" {name} log factor {MEAN:g} 1e-7 1e-1 k 1.0 0.0 1" for name in cells),
        "* observation groups", " heads", "* observation data",
        *(f" head{i + 1} 0.0 {1 / NOISE:g} heads" for i in range(WELLS)),
        "* model command line", f" {program} aquifer.txt conductivity.txt heads.txt",
        "* model input/output", " conductivity.tpl conductivity.txt", " heads.ins heads.txt",
    ]  # fmt: skip
    (DATA / "aquifer.pst").write_text("\n".join(control) + "\n", encoding="utf-8")


def main() -> None:
    """Write the survey, the truth, and all files of the PEST case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path, help="the program that setup.sh builds")
    program: Path = parser.parse_args().program.resolve()
    rng = np.random.default_rng(8)
    DATA.mkdir(exist_ok=True)
    axis = CELL * (np.arange(SIDE) + 0.5)
    X = np.stack([part.ravel() for part in np.meshgrid(axis, axis, indexing="ij")], axis=-1)  # northing, easting
    K = conductivities(rng, X)
    wells = np.sort(rng.choice(len(X), WELLS, replace=False))
    lines = "\n".join(f"{w // SIDE + 1} {w % SIDE + 1}" for w in wells)
    (DATA / "aquifer.txt").write_text(f"{SIDE} {SIDE}\n{CELL} 10\n2e-8\n20 16\n{WELLS}\n{lines}\n", encoding="utf-8")
    np.savetxt(DATA / "conductivity.txt", K)
    subprocess.run([program, "aquifer.txt", "conductivity.txt", "heads.txt"], cwd=DATA, check=True)
    heads = np.loadtxt(DATA / "heads.txt")[:, 1] + NOISE * rng.standard_normal(WELLS)
    for name, header, columns in (
        ("wells.csv", "northing_m,easting_m,head_m", [*X[wells].T, heads]),
        ("truth.csv", "northing_m,easting_m,conductivity_m_s", [*X.T, K]),
    ):
        np.savetxt(DATA / name, np.column_stack(columns), delimiter=",", header=header, comments="", fmt="%.6g")
    write_pest_case(program)


if __name__ == "__main__":
    run(main)
