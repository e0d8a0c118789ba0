"""The accessor ``posterior.invgp`` of xarray datasets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray as xr

from invgp.api.posterior_files import read_posterior
from invgp.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@xr.register_dataset_accessor("invgp")  # type: ignore[no-untyped-call]
class PosteriorAccessor:
    """Methods of posteriors and maps: ``posterior.invgp.plot()``.

    The accessor exists after both invgp and xarray were imported, in any order.

    Examples
    --------
    >>> posterior.invgp.latents, posterior.invgp.converged
    (['depth'], True)
    >>> posterior.invgp.draws("depth").dims
    ('realization', 'site')
    >>> posterior.invgp.exceedance("depth > 105 m", grid=100).dims
    ('x',)
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    @property
    def latents(self) -> list[str]:
        """Names of the latents."""
        return str(read_posterior(self._dataset).attrs["invgp_latents"]).split()

    @property
    def converged(self) -> bool:
        """Whether the inversion has converged."""
        from invgp.posterior.attributes import has_converged  # noqa: PLC0415 - an accessor is cheap to import

        return has_converged(read_posterior(self._dataset))

    def plot(self, **options: Any) -> Figure:
        """Draw the posterior: a section along a line, otherwise a map; scalars, if no latent is a field.

        Parameters
        ----------
        **options
            As of `invgp.plots.plot_section`, `invgp.plots.plot_map` or `invgp.plots.plot_scalars`.
        """
        from invgp import plots  # noqa: PLC0415
        from invgp.posterior.contents import field_names  # noqa: PLC0415

        dataset = read_posterior(self._dataset)
        if not field_names(dataset):
            return plots.plot_scalars(dataset, **options)
        one = len(str(dataset.attrs["invgp_coordinates"]).split()) == 1
        return plots.plot_section(dataset, **options) if one else plots.plot_map(dataset, **options)

    def section(self, **options: Any) -> Figure:
        """Draw the posterior along a line; options as of `invgp.plots.plot_section`."""
        from invgp import plots  # noqa: PLC0415

        return plots.plot_section(read_posterior(self._dataset), **options)

    def map(self, **options: Any) -> Figure:
        """Draw the posterior as a map; options as of `invgp.plots.plot_map`."""
        from invgp import plots  # noqa: PLC0415

        return plots.plot_map(read_posterior(self._dataset), **options)

    def fit(self, **options: Any) -> Figure:
        """Draw the fit of the data; options as of `invgp.plots.plot_fit`."""
        from invgp import plots  # noqa: PLC0415

        return plots.plot_fit(read_posterior(self._dataset), **options)

    def scalars(self, **options: Any) -> Figure:
        """Draw the densities of the latents that are scalars; options as of `invgp.plots.plot_scalars`."""
        from invgp import plots  # noqa: PLC0415

        return plots.plot_scalars(read_posterior(self._dataset), **options)

    def draws(self, latent: str | None = None) -> xr.DataArray | xr.Dataset:
        """Return the stored draws of a latent, or of all latents as a dataset.

        Parameters
        ----------
        latent : str, optional
            Name of a latent; by default all.

        Raises
        ------
        ArgumentError
            There is no such latent, or no draws are stored.
        """
        dataset = read_posterior(self._dataset)
        names = self.latents if latent is None else [latent]
        for name in names:
            if name not in self.latents:
                raise ArgumentError(f"latent: must be one of {', '.join(self.latents)}, was {name!r}")
            if f"{name}_sample" not in dataset:
                raise ArgumentError(f"latent: must have draws in the dataset, {name!r} had none")
        found = dataset[[f"{name}_sample" for name in names]]
        if latent is not None:
            return found[f"{latent}_sample"]
        return found.rename({f"{name}_sample": name for name in names})

    def predict(self, grid: float | str | Path | None = None, **options: Any) -> xr.Dataset:
        """Predict the posterior on a grid or at points; options as of `invgp.predict`.

        Parameters
        ----------
        grid : float, str or Path, optional
        **options
        """
        from invgp.maps.predict import predict  # noqa: PLC0415

        return predict(read_posterior(self._dataset), grid, **options)

    def exceedance(
        self, threshold: str, grid: float | str | Path | None = None, *, derive: Sequence[str] = ()
    ) -> xr.DataArray:
        """Return the probability that a threshold is exceeded.

        Parameters
        ----------
        threshold : str
            Such as ``"depth > 900 m"``.
        grid : float, str or Path, optional
            As of `invgp.predict`; by default a grid over the sites.
        derive : sequence of str
            Derived quantities, as of `invgp.predict`.
        """
        found = self.predict(grid, exceed=[threshold], derive=derive, quantiles=[])
        (name,) = [str(name) for name in found.data_vars if str(name).endswith("_exceedance")]
        array = found[name]
        extra = [d for d in array.dims if str(d).endswith("threshold")]
        return array.isel(dict.fromkeys(extra, 0), drop=True)

    def difference(self, other: xr.Dataset | str | Path, *, level: float = 2.0) -> xr.Dataset:
        """Return the change from this posterior to another one; see `invgp.difference`.

        Parameters
        ----------
        other : Dataset, str or Path
        level : float
        """
        from invgp.api import difference  # noqa: PLC0415

        return difference(self._dataset, other, level=level)
