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
    for heading in ("error of mean", "± sampler's", "ratio of spreads", "± sampler's", "R-hat", "effective"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in comparison_rows(comparison):
        name = f"{row.latent}, {row.label}" if row.label else row.latent
        errors = f"{row.error:.3f}", f"{row.error_mcse:.3f}", f"{row.ratio:.3f}", f"{row.ratio_mcse:.3f}"
        table.add_row(name, *errors, f"{row.r_hat:.3f}", f"{row.ess:,.0f}")
    if prints_text():
        Console(highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH).print(table)
    attributes: dict[str, Any] = comparison.attrs
    print_line(
        "Error of the posterior mean in standard deviations of the reference, root mean square over the sites.\n"
        "Posterior standard deviation divided by that of the reference, median over the sites.\n"
        "Each with the Monte Carlo error of the reference. Worst R-hat and effective sample size over the sites."
    )
    print_line(
        f"Runs: posterior {attributes['invgp_runs']:,}; reference {attributes['invgp_reference_runs']:,} "
        f"({attributes['invgp_reference_chains']} chains of {attributes['invgp_reference_draws']:,} draws, "
        f"{count_noun(runs, 'run')} and {format_duration(seconds)} now)."
    )
    if chains_have_converged(comparison):
        print_line(f"Reference: {describe_convergence(comparison)}.")
    else:
        print_warning(
            f"{describe_convergence(comparison)}; a larger --draws continues from here; if it does not help, "
            "remove the file of the chains and increase --burn-in"
        )
