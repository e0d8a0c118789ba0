"""Print how many of the true depths and velocities lie inside the posterior's 95% bands, layer by layer.

Usage: coverage.py [results/otway.nc] [data/synthetic_truth.csv]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from invgp import netcdf

HERE = Path(__file__).resolve().parent
UNITS = {"depth": "m", "velocity": "m_s"}


def main() -> None:
    """Compare a posterior of the synthetic line with the truth it was made from."""
    arguments = [Path(a) for a in sys.argv[1:]]
    posterior = netcdf.read(arguments[0] if arguments else HERE / "results" / "otway.nc")
    truth = pd.read_csv(arguments[1] if len(arguments) > 1 else HERE / "data" / "synthetic_truth.csv")
    print(f"{'':>9} {'layer':>5} {'inside 95% band':>16} {'error / posterior std (rms)':>28}")
    for latent, unit in UNITS.items():
        for layer in posterior["layer"].values:
            here = posterior.sel(layer=layer)
            true = truth[f"{latent}_{layer}_{unit}"].to_numpy()
            band = here[f"{latent}_quantile"]
            inside = (true >= band.sel(quantile=0.025).values) & (true <= band.sel(quantile=0.975).values)
            scores = (true - here[latent].values) / here[f"{latent}_std"].values
            print(f"{latent:>9} {layer:>5} {inside.mean():>16.0%} {np.sqrt(np.mean(scores**2)):>28.2f}")


if __name__ == "__main__":
    main()
