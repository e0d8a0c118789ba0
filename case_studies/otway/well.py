"""What a borehole adds to the Otway line: at which distance, and for which fields, it reduces the uncertainty."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

import invgp
from invgp.plots.style import COLOURS, PAGE, STYLE, add_legend, letter_panels

sys.path.append(str(Path(__file__).resolve().parents[1]))
from command_line import run

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
REDUCED = 0.9  # ratio of standard deviations below which the borehole has an effect
LATENTS = {"depth": "depth", "velocity": "velocity"}


def ratios(without: xr.Dataset, with_well: xr.Dataset, name: str) -> NDArray[np.float64]:
    """Compute the ratio (N, 4) of the posterior standard deviations with and without the borehole, at the sites."""
    sites = without.sizes["site"]
    return np.asarray(with_well[f"{name}_std"].values[:sites] / without[f"{name}_std"].values)


def reach(ratio: NDArray[np.float64], distance: NDArray[np.float64]) -> float:
    """Compute the distance in m from the borehole within which every ratio (N,) is below `REDUCED`; 0 if none is."""
    order = np.argsort(distance)
    felt = ratio[order] < REDUCED
    return float(distance[order][np.argmin(felt) - 1]) if felt[0] and not felt.all() else 0.0


def draw(path: Path, x: NDArray[np.float64], well: float, found: dict[str, NDArray[np.float64]]) -> None:
    """Write the figure: the ratios along the line, depths on the left and velocities on the right."""
    with rc_context(STYLE):
        figure = Figure((PAGE, 2.8), layout="constrained")
        axes = figure.subplots(1, 2, sharex=True, sharey=True)
        for ax, (_name, ratio) in zip(axes, found.items(), strict=True):
            for layer, colour in enumerate(COLOURS[:4]):
                dashes = (None, None) if layer == 0 else (5 - layer, layer)
                ax.plot(x / 1000.0, ratio[:, layer], color=colour, dashes=dashes, label=f"layer {layer + 1}")
            ax.axvline(well / 1000.0, color="black", linewidth=0.8, linestyle=":")
            ax.set_xlabel("distance along the line (km)")
            ax.set_ylim(0.0, 1.05)
        axes[0].set_ylabel("standard deviation with / without\nthe borehole")
        letter_panels(list(axes), [*LATENTS.values()])
        add_legend(figure, axes[0].get_legend_handles_labels()[0])
        figure.savefig(path)


def main() -> None:
    """Invert the line with and without the borehole, print how far it reaches, and draw the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path, default=HERE / "results" / "otway_well.png", help="figure to write")
    arguments = parser.parse_args()
    problems = [invgp.load(HERE / name) for name in ("otway.toml", "otway_well.toml")]
    # Ratios of Gaussian posteriors have no Monte Carlo noise.
    without, with_well = (invgp.invert(problem.with_inference(posterior="coupled gaussian")) for problem in problems)
    sites = without.sizes["site"]
    x, well = without["position"].values, float(with_well["position"].values[-1])
    found = {name: ratios(without, with_well, name) for name in LATENTS}
    print(f"runs: {without.attrs['invgp_runs']} without, {with_well.attrs['invgp_runs']} with the borehole")
    print(f"borehole at {well / 1000.0:g} km; standard deviation with / without it, and reach of a reduction by 10%")
    print("                     at the borehole   2 km away   5 km away   10 km away   reach, km")
    for name, ratio in found.items():
        for layer in range(ratio.shape[1]):
            away = [ratio[np.abs(np.abs(x - well) - d) < 201.0, layer].mean() for d in (0.0, 2000.0, 5000.0, 10_000.0)]
            numbers = "".join(f"{value:>{width}.2f}" for value, width in zip(away, (15, 12, 12, 13), strict=True))
            far = reach(ratio[:, layer], np.abs(x - well)) / 1000.0
            print(f"{name + ', layer ' + str(layer + 1):<21}{numbers}{far:>12.1f}")
    inside = np.abs(with_well["top_residual"].values[-1] / with_well["top_noise_std"].values[-1])
    print(f"misfit of the tops, in standard deviations of their noise: {', '.join(f'{v:.2f}' for v in inside)}")
    arguments.figure.parent.mkdir(parents=True, exist_ok=True)
    draw(arguments.figure, x[:sites], well, found)
    print(f"Wrote {arguments.figure}.")


if __name__ == "__main__":
    run(main)
