"""The settings of an inversion and of its output: the tables [inference] and [output]."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from invgp.errors import ConfigError
from invgp.settings.section import Section, sentences
from invgp.settings.values import LONGEST, MOST, FilePath, Positives, Quantiles

FEWEST_FIELD_RUNS = 8  # runs of a field model without which there is no posterior
DEFAULT_DRAWS, FEWEST_DRAWS = 200, 20  # stored draws by default, and fewest of a very large survey
MOST_DRAWN_NUMBERS = 10**7  # numbers of all stored draws, above which fewer than the default are stored


class Settings(Section):
    """A table without required keys, so that all of its defaults are settings."""

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some values changed.

        Parameters
        ----------
        **changes
            New values by key.

        Raises
        ------
        ConfigError
            A key is unknown or a value is not valid.
        """
        plain = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in changes.items()}
        try:
            checked = type(self).model_validate(plain)
        except ValidationError as error:
            raise ConfigError(sentences(error)) from None
        return self.model_copy(update={key: getattr(checked, key) for key in changes})


class InferenceSettings(Settings):
    """How the posterior is computed; the description of each field is the reference of its key."""

    posterior: Literal["sampled", "coupled gaussian", "full gaussian"] = Field(
        default="sampled",
        description="'sampled' gives draws from the exact posterior, of any shape, with the emulator in the place of "
        "the simulator; where that is not possible, the result is a Gaussian, and the file states it; 'coupled "
        "gaussian' is a Gaussian with a covariance across all latents and sites; 'full gaussian' is the Gaussian of "
        "the paper, in which the latents are independent",
    )
    estimator: Literal["auto", "linearisation", "hermite", "score"] = Field(
        default="auto",
        description="estimator of the site factors: 'hermite' starts with 'linearisation'; "
        "both need Gaussian noise; 'score' needs only log densities; 'auto' is 'hermite' for Gaussian noise",
    )
    emulator: bool = Field(default=True, description="whether an emulator may replace the simulator")
    runs_per_site: float = Field(
        default=10,
        gt=0,
        le=10**5,
        description="runs that the emulator may use, on average per site, verification included; below 1 in surveys "
        "with many sites. If they are too few for an emulator, the simulator itself is used",
    )
    emulator_error: float = Field(
        default=0.2,
        gt=0,
        description="error of the emulator, in standard deviations of the noise, above which the simulator itself is "
        "used at a site; in a survey with more sites than runs, further runs are made there for the emulator instead",
    )
    max_runs: int | None = Field(
        default=None,
        ge=1,
        le=10**12,
        description="maximum number of simulator runs, never exceeded; none: for field models 1,000; for site models "
        "100 per site and at least 2,000 with an emulator, 5,000 per site and at least 50,000 without one; for 'full "
        "gaussian' no limit",
    )
    max_coarse_runs: int | None = Field(
        default=None,
        ge=1,
        le=10**12,
        description="maximum number of runs of the coarse model, [forward.coarse]; none: 1,000",
    )
    kept_variance: float = Field(
        default=0.9999,
        gt=0,
        lt=1,
        description="for field models, the fraction of the prior variance that the modes of the grid represent; the "
        "rest must be small compared with what the data can resolve. There are at most 1,000 modes per latent process",
    )
    localisation: Positives | None = Field(
        default=None,
        description="for field models, the distance from its site beyond which the field does not affect a datum, in "
        "the units of the grid's coordinates, one number or one for each; none: all data depend on the whole field. "
        "The sites must have the coordinates of the grid",
    )
    inducing: int | None = Field(
        default=None,
        ge=1,
        le=MOST,
        description="number of inducing points, placed by k-means; none: one at every site, and from 3,000 unknowns "
        "(sites times latent processes) as many as length-scales, extent and noise need, up to 4,000 in all processes",
    )
    learn_inducing: bool = Field(
        default=False, description="whether the positions of the inducing points are optimised"
    )
    batch: int | None = Field(
        default=None,
        ge=1,
        le=MOST,
        description="number of sites in a mini-batch of the coupled posterior, shuffled for each pass over the "
        "survey; none: as many as fit in about 400 MB with their samples, in a small survey all",
    )
    samples: int | None = Field(
        default=None,
        ge=1,
        le=10**6,
        description="samples per site at each evaluation of the bound; none: as many as the estimator needs. With Q "
        "latent processes (a latent with L labels has L of them), linearisation needs at least 3 (Q + 1) / 2, "
        "the others 3 (Q + 1) (Q + 2) / 4",
    )
    max_evaluations: int = Field(
        default=200,
        ge=1,
        le=MOST,
        description="maximum number of evaluations of the bound; with an emulator, in each of its steps",
    )
    max_failed_share: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="fraction of the runs that may fail where the posterior is; if more fail at its draws, it counts "
        "as not converged, and an evaluation of the bound by the simulator is rejected. Elsewhere in the prior up to "
        "half of the runs may fail, or this fraction if it is larger: an emulator is fitted to the others",
    )
    retries: int = Field(
        default=0,
        ge=0,
        le=MOST,
        description="how often a failed run is repeated before it counts as failed; it counts once for `max_runs`, "
        "however often it was repeated",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="random seed")
    workers: int = Field(
        default=1,
        ge=1,
        le=10**4,
        description="number of runs at the same time; 1 is a plain loop; with 'dask' the workers of the scheduler "
        "decide",
    )
    backend: Literal["loky", "threading", "dask"] = Field(
        default="loky",
        description="where the runs execute: in processes of this machine, in threads of this process, or on the "
        "workers of a Dask scheduler",
    )
    scheduler: str | None = Field(
        default=None,
        min_length=1,
        description="for 'dask': an address such as \"tcp://10.0.0.1:8786\", or a scheduler file that ends in .json, "
        "relative to the config",
    )
    worker_timeout: float = Field(
        default=600.0,
        gt=0,
        le=LONGEST,
        description="for 'dask': seconds without any worker after which the inversion stops",
    )
    device: Literal["cpu", "cuda", "auto"] = Field(default="cpu", description="device of the arrays")


class OutputSettings(Settings):
    """What the posterior contains, and where it is written."""

    file: FilePath = Field(default=Path("posterior.nc"), description="the netCDF file, relative to the config")
    quantiles: Quantiles = Field(
        default=(0.025, 0.25, 0.5, 0.75, 0.975), description="probabilities of the quantiles of each latent"
    )
    realizations: int | None = Field(
        default=None,
        ge=0,
        le=10**6,
        description="number of stored draws from the posterior, joint over points and latents; none: 200, or fewer for "
        "more than 50,000 unknowns (points times latents), but at least 20",
    )
    ledger: bool | None = Field(
        default=None,
        description="whether every run is recorded in a ledger next to the netCDF file, so that `invgp run` can "
        "resume; none: yes, unless the simulator is a vectorised function, which is faster to call again than to look "
        "up",
    )

    def stored_draws(self, unknowns: int) -> int:
        """Return the number of stored draws for a number of unknowns: points times latent processes.

        Parameters
        ----------
        unknowns : int
            Number of points times the number of latent processes.

        Returns
        -------
        int
        """
        if self.realizations is not None:
            return self.realizations
        return min(DEFAULT_DRAWS, max(MOST_DRAWN_NUMBERS // unknowns, FEWEST_DRAWS))


def fewest_samples(settings: InferenceSettings, processes: int) -> int:
    """Return the fewest samples per site for which the estimator is well posed.

    Parameters
    ----------
    settings : InferenceSettings
    processes : int
        Number of latent processes, Q.
    """
    Q = processes
    features = Q + 1 if settings.estimator == "linearisation" else (Q + 1) * (Q + 2) // 2
    return features + (features + 1) // 2
