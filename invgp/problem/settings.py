"""Settings of the inference and of the output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from invgp.problem.survey import Floats

FEWEST_FIELD_RUNS = 8  # minimum for a posterior of a field model


@dataclass(frozen=True)
class InferenceSettings:
    """Settings of the inference; docs/config.md describes each of them in the section ``[inference]``."""

    posterior: str = "coupled gaussian"
    estimator: str = "auto"
    emulator: bool = True
    runs_per_site: int = 10
    max_runs: int | None = None
    emulator_error: float = 0.2
    kept_variance: float = 0.9999
    localisation: Floats | None = None
    inducing: int | None = None
    learn_inducing: bool = False
    batch: int | None = None
    samples: int | None = None
    max_evaluations: int = 200
    tolerance: float = 1e-7
    max_failed_share: float = 0.1
    retries: int = 0
    seed: int = 0
    workers: int = 1
    backend: str = "loky"
    scheduler: str | None = None
    worker_timeout: float = 600.0
    device: str = "cpu"


@dataclass(frozen=True)
class OutputSettings:
    """Settings of the output; docs/config.md describes each of them in the section ``[output]``."""

    file: Path = Path("posterior.nc")
    quantiles: tuple[float, ...] = (0.025, 0.25, 0.5, 0.75, 0.975)
    realizations: int = 20
    ledger: bool | None = None


def fewest_samples(settings: InferenceSettings, processes: int) -> int:
    """Return the smallest number of samples per site for which the estimators are well posed.

    Parameters
    ----------
    settings : InferenceSettings
    processes : int
        Number of latent processes, Q.

    Returns
    -------
    int
    """
    Q = processes
    if settings.posterior == "full gaussian":
        return 2 * (2 * Q + 1)
    features = Q + 1 if settings.estimator == "linearisation" else (Q + 1) * (Q + 2) // 2
    return features + (features + 1) // 2
