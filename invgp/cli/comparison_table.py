"""The result of a comparison as a table and as a dictionary."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from invgp.cli.console import print_line, print_warning, prints_text
from invgp.formatting import count_noun, format_duration

if TYPE_CHECKING:
    import xarray as xr

FILE_WIDTH = 120  # columns, where the table goes to a file


def as_dictionary(comparison: xr.Dataset) -> dict[str, Any]:
    """Return the comparison for JSON."""
    from invgp.validation.comparison import chains_have_converged, comparison_rows, describe_convergence  # noqa: PLC0415

    attributes = comparison.attrs
    return {
        "latents": [row._asdict() for row in comparison_rows(comparison)],
        "converged": chains_have_converged(comparison),
        "verdict": describe_convergence(comparison),
        "runs": attributes["invgp_runs"],
        "reference_runs": attributes["invgp_reference_runs"],
        "reference_chains": attributes["invgp_reference_chains"],
        "reference_draws": attributes["invgp_reference_draws"],
        "interval": attributes.get("invgp_interval"),
    }


def print_comparison(comparison: xr.Dataset, runs: int, seconds: float) -> None:
    """Print the table, the numbers of runs and whether the chains have converged.

    Parameters
    ----------
    comparison : xarray.Dataset
    runs : int
        Runs of this call.
    seconds : float
        Duration of this call.
    """
    from rich.box import SIMPLE  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from invgp.validation.comparison import chains_have_converged, comparison_rows, describe_convergence  # noqa: PLC0415

    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("", no_wrap=True)
    attributes: dict[str, Any] = comparison.attrs
    interval = attributes.get("invgp_interval")
    share = [] if interval is None else [f"inside {interval:.0%}"]
    for heading in ("error of mean", "± sampler's", "ratio of spreads", "± sampler's", *share, "R-hat", "effective"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in comparison_rows(comparison):
        name = f"{row.latent}, {row.label}" if row.label else row.latent
        errors = f"{row.error:.3f}", f"{row.error_mcse:.3f}", f"{row.ratio:.3f}", f"{row.ratio_mcse:.3f}"
        inside = [f"{row.inside:.1%}"] if share else []
        table.add_row(name, *errors, *inside, f"{row.r_hat:.3f}", f"{row.ess:,.0f}")
    if prints_text():
        Console(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH).print(table)
    where = "nodes" if "node" in comparison.dims else "sites"
    print_line(
        f"Error of the posterior mean in standard deviations of the reference, root mean square over the {where}.\n"
        f"Posterior standard deviation divided by that of the reference, median over the {where}.\n"
        "Each with the Monte Carlo error of the reference."
        + (f" Share of the reference inside the posterior {interval:.0%} intervals.\n" if share else "\n")
        + f"Worst R-hat and effective sample size over the {where}."
    )
    print_line(
        f"Runs: posterior {attributes['invgp_runs']:,}; reference {attributes['invgp_reference_runs']:,} "
        f"({attributes['invgp_reference_chains']} chains of {attributes['invgp_reference_draws']:,} draws, "
        f"{count_noun(runs, 'run')} and {format_duration(seconds)} now)."
    )
    if "invgp_reference_fixed" in attributes:
        print_line(
            "The reference has the learnt hyperparameters fixed at their values in the posterior: a posterior that is "
            "averaged over them is wider."
        )
    if chains_have_converged(comparison):
        print_line(f"Reference: {describe_convergence(comparison)}.")
    else:
        print_warning(
            f"{describe_convergence(comparison)}; a larger --runs draws more; if R-hat stays large, increase --chains"
        )
