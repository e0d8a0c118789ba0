"""`python simulator.py` compiles the program refraction.c and writes a survey with it."""

import subprocess
from pathlib import Path

import numpy as np

subprocess.run(["cc", "-O2", "-o", "refraction", "refraction.c", "-lm"], check=True)


def first_arrivals(thickness, soil, rock):
    """First arrivals (s) at six offsets; thickness in m, velocities in m/s."""
    Path("model.txt").write_text(f"{thickness} {soil} {rock}\n")
    subprocess.run(["./refraction", "model.txt", "times.txt"], check=True)
    return np.loadtxt("times.txt")


if __name__ == "__main__":
    rng, x = np.random.default_rng(1), np.arange(12) * 50.0
    truth = np.stack([6 + 4 * np.exp(-((x - 300) ** 2) / 2e4), 600 + 0.2 * x, 2300 + 0 * x], axis=-1)
    data = np.array([first_arrivals(*site) for site in truth]) + rng.normal(0.0, 0.0005, (12, 6))
    header = ",".join(["x", *(f"t{k}" for k in range(1, 7))])
    np.savetxt("sites.csv", np.column_stack([x, 1e3 * data]), "%.2f", ",", header=header, comments="")
