"""Compare the posterior of a survey with the truth from which the survey was generated."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.netcdf import open_dataset

sys.path.append(str(Path(__file__).resolve().parents[1]))
from command_line import check_fields, read_columns, run

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Print one row per layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("posterior", type=Path, nargs="?", default=HERE / "results" / "em_survey.nc")
    parser.add_argument("--truth", type=Path, default=HERE / "data" / "em_survey_truth.csv")
    arguments = parser.parse_args()
    with open_dataset(arguments.posterior) as posterior:
        check_fields(posterior, ["resistivity", "layer_label"], arguments.posterior)
        names = [f"resistivity_{layer}_ohm_m" for layer in range(1, posterior.sizes["layer"] + 1)]
        print_table(posterior, read_columns(arguments.truth, names, posterior.sizes["site"]))


def print_table(posterior: xr.Dataset, truth: NDArray[np.float64]) -> None:
    """Compare the resistivities of a posterior with the true ones (N, L) in ohm m."""
    resistivity = posterior["resistivity"].transpose("site", "layer")
    error = resistivity.values / truth - 1.0
    spread = posterior["resistivity_std"].transpose("site", "layer").values / resistivity.values
    inside = find_covered(posterior, truth)
    print(f"{len(truth):,} soundings, {posterior.attrs['invgp_runs']:,} runs; {posterior.attrs['invgp_status']}")
    print(f"{'layer':12}{'truths inside 95%':>18}{'error':>10}{'spread':>10}   (root mean squares, of the value)")
    for j, layer in enumerate(posterior["layer_label"].values):
        rms, typical = np.sqrt(np.mean(error[:, j] ** 2)), np.sqrt(np.mean(spread[:, j] ** 2))
        print(f"{layer:12}{inside[:, j].mean():18.1%}{rms:10.2%}{typical:10.2%}")
    print(f"{'all':12}{inside.mean():18.1%}")


def find_covered(posterior: xr.Dataset, truth: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which true resistivities (N, L) in ohm m are inside the 95% intervals."""
    quantiles = posterior["resistivity_quantile"].transpose("site", "layer", "quantile")
    low, high = (quantiles.sel(quantile=q).values for q in (0.025, 0.975))
    return np.asarray((low <= truth) & (truth <= high))


if __name__ == "__main__":
    run(main)
