"""Questions about posteriors that are answered without new simulator runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from invgp import netcdf
from invgp.api.posterior_files import read_posterior
from invgp.errors import ArgumentError
from invgp.output_paths import check_writable

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr
    from matplotlib.figure import Figure


def difference(
    before: xr.Dataset | str | Path,
    after: xr.Dataset | str | Path,
    *,
    level: float = 2.0,
    output: str | Path | None = None,
    plot: str | Path | None = None,
) -> xr.Dataset:
    """Compute the change from one posterior to another of the same area, at the places of the first.

    The posteriors may differ in prior, noise, data or sources. If their places differ, the second is predicted at the
    places of the first.

    Parameters
    ----------
    before, after : xarray.Dataset, str or Path
        Posteriors from `invgp.invert`, maps at points, or their files.
    level : float
        Number of joint standard deviations from which a change counts as larger than the uncertainty.
    output : str or Path, optional
        netCDF file for the result; by default none.
    plot : str or Path, optional
        Figure, ``.png``, ``.svg`` or ``.pdf``; by default none.

    Returns
    -------
    xarray.Dataset
        For each latent of both posteriors, here depth: ``depth_change`` of the mean, in the unit of the latent;
        ``depth_joint_std``, the square root of the sum of both variances; ``depth_standardised_change``, their ratio;
        ``depth_std_ratio``, the second over the first standard deviation; ``depth_changed``, 1 where the change exceeds
        `level` joint standard deviations.

    Raises
    ------
    ConfigError
        The posteriors have different coordinates, units or labels, or no common latent.

    Notes
    -----
    The joint standard deviation is that of independent posteriors. If both use the same data, a change of the mean is
    less uncertain than this, so that fewer changes are marked than an exact test would mark.

    Examples
    --------
    >>> change = invgp.difference(posterior, posterior)
    >>> float(abs(change["depth_change"]).max()), float(change["depth_std_ratio"].max())
    (0.0, 1.0)
    """
    from invgp.answers.difference import compute_difference  # noqa: PLC0415 - help does not wait for xarray

    output, plot = _check_paths(output, plot, (before, after))
    found = compute_difference(read_posterior(before), read_posterior(after), level)
    _write(found, output, plot, "plot_difference")
    return found


def _check_paths(
    output: str | Path | None, plot: str | Path | None, sources: tuple[object, ...]
) -> tuple[Path | None, Path | None]:
    """Return the paths of a result, after checks that it can be written and overwrites no posterior."""
    output, plot = (None if path is None else Path(path) for path in (output, plot))
    if output is not None:
        if output.suffix != ".nc":
            raise ArgumentError(f"output: must end in .nc, was {str(output)!r}")
        for source in sources:
            if isinstance(source, str | Path) and output.absolute() == Path(source).absolute():
                raise ArgumentError(f"output: must be a file of its own, was {str(output)!r}, which is what is read")
        check_writable(output, "output")
    if plot is not None:
        from invgp.plots import check_format  # noqa: PLC0415

        check_format(plot, "plot")
        check_writable(plot, "plot")
    return output, plot


def _write(result: xr.Dataset, output: Path | None, plot: Path | None, figure: str) -> None:
    """Write the netCDF file and the figure of a result."""
    if output is not None:
        netcdf.write(result, output)
    if plot is not None:
        from invgp import plots  # noqa: PLC0415

        draw: Callable[[xr.Dataset], Figure] = getattr(plots, figure)
        plots.save_figure(draw(result), plot)
