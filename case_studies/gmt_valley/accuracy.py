"""Compare the posterior of the valley with the truth from which the survey was generated.

With --record the table goes to results.json too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from invgp.netcdf import open_dataset

sys.path.append(str(Path(__file__).resolve().parents[1]))
from command_line import check_fields, read_columns, run
from recording import record

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Print one row per field."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("posterior", type=Path, nargs="?", default=HERE / "results" / "valley.nc")
    parser.add_argument("--record", action="store_true", help="also write the table to results.json")
    parser.add_argument("--truth", type=Path, default=HERE / "data" / "profiles_truth.csv")
    arguments = parser.parse_args()
    with open_dataset(arguments.posterior) as posterior:
        check_fields(posterior, ["thickness", "half_width", "contrast"], arguments.posterior)
        edges = posterior["edge_label"].values.tolist()
        fields = {
            "thickness_m": ("thickness", {}),
            "half_width_top_m": ("half_width", {"edge": edges.index("top")}),
            "half_width_floor_m": ("half_width", {"edge": edges.index("floor")}),
            "contrast_kg_m3": ("contrast", {}),
        }
        columns = read_columns(arguments.truth, list(fields), posterior.sizes["site"])
        truth = dict(zip(fields, columns.T, strict=True))
        print(f"{len(columns)} profiles, {posterior.attrs['invgp_runs']} runs; {posterior.attrs['invgp_status']}")
        print(f"{'':20}{'truths inside 95%':>18}{'error':>8}{'spread':>8}{'prior':>8}   (root mean squares)")
        rows: list[dict[str, object]] = []
        for column, (name, which) in fields.items():
            found, std, prior, quantiles = (
                posterior[name + suffix].isel(which) for suffix in ("", "_std", "_prior_std", "_quantile")
            )
            low, high = (quantiles.sel(quantile=q).values for q in (0.025, 0.975))
            inside = np.mean((low <= truth[column]) & (truth[column] <= high))
            sizes = [np.sqrt(np.mean(np.square(v))) for v in (found.values - truth[column], std.values, prior.values)]
            print(f"{column:20}{inside:18.1%}" + "".join(f"{size:8.1f}" for size in sizes))
            rows += result_rows(column, 100.0 * float(inside), *sizes)
        if arguments.record:
            runs = {"measure": "runs per profile", "setting": "all fields"}
            record(HERE, entry([*rows, runs | {"ours": posterior.attrs["invgp_runs"] / len(columns)}]))


def result_rows(column: str, inside: float, error: float, spread: float, prior: float) -> list[dict[str, object]]:
    """Return the rows of results.json for one field: percentage inside, and errors relative to the prior spread."""
    setting = column.removesuffix("_kg_m3").removesuffix("_m").replace("half_width_", "half-width, ")
    reported = {
        "truths inside 95%, %": inside,
        "error over prior spread": error / prior,
        "spread over prior spread": spread / prior,
    }
    return [{"measure": measure, "setting": setting, "ours": value} for measure, value in reported.items()]


def entry(rows: list[dict[str, object]]) -> dict[str, object]:
    """Return the entry for results.json."""
    return {
        "experiment": "gmt_valley",
        "title": "Buried valley with talwani2d of GMT",
        "command": "bash case_studies/gmt_valley/run.sh",
        "page": "gmt_valley.md",
        "figure": "gmt_valley.png",
        "caption": "Thickness, half-widths and density contrast along the valley: posterior and truth",
        "remark": "Forty profiles correspond to about seven independent ones, so the coverage in one survey is mostly "
        "chance. The case study has the coverage over a hundred surveys.",
        "rows": rows,
    }


if __name__ == "__main__":
    run(main)
