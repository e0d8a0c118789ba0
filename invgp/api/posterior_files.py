"""Reading and writing posteriors, and the ledger beside them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from invgp import netcdf
from invgp.api.output_paths import check_writable
from invgp.errors import ArgumentError

if TYPE_CHECKING:
    import xarray as xr

    from invgp.problem import Problem

_log = logging.getLogger(__name__)
T = TypeVar("T")
C = TypeVar("C")

CHEAP_ROWS = 1000  # rows per task from which a model is faster to run again than to look up


def open_posterior(path: str | Path) -> xr.Dataset:
    """Read a posterior, or a map, from a netCDF file.

    Unlike `xarray.open_dataset`, this function checks that the file is complete and contains what the other functions
    need.

    Parameters
    ----------
    path : str or Path
        File that `invgp.write`, `invgp run` or `invgp predict` wrote.

    Returns
    -------
    xarray.Dataset
        In memory; the file is closed.

    Raises
    ------
    ConfigError
        The file cannot be read, or is not a posterior or a map.

    Examples
    --------
    >>> path = invgp.write(posterior, "line.nc")
    >>> invgp.open_posterior("line.nc")["depth"].dims
    ('site',)
    """
    return netcdf.read(path)


def write(posterior: xr.Dataset, path: str | Path) -> Path:
    """Write a posterior, or a map, as CF netCDF.

    Parameters
    ----------
    posterior : xarray.Dataset
        From `invgp.invert` or `invgp.predict`.
    path : str or Path
        File name, with the suffix ``.nc``. The file is written completely or not at all.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ArgumentError
        The path has another suffix, or nothing can be written there.
    WriteError
        The file could not be written.

    Examples
    --------
    >>> invgp.write(posterior, "results/line.nc").name
    'line.nc'
    """
    path = Path(path)
    if path.suffix != ".nc":
        raise ArgumentError(f"path: must end in .nc, was {str(path)!r}")
    check_writable(path, "path")
    return netcdf.write(posterior, path)


def ledger_path(problem: Problem, posterior: Path) -> Path | None:
    """Return the ledger beside a posterior; None if the runs are faster to repeat than to look up."""
    wanted = problem.output.ledger
    simulators = [part.problem.forward for part in problem.parts if not part.direct]
    kept = any(forward.rows_per_task < CHEAP_ROWS for forward in simulators) if wanted is None else wanted
    return posterior.with_suffix(".ledger.sqlite") if kept else None


def source_of(posterior: object) -> Path | None:
    """Return the path of a posterior; None for a dataset."""
    if isinstance(posterior, str | Path):
        return Path(posterior)
    if hasattr(posterior, "attrs") and hasattr(posterior, "data_vars"):
        return None
    raise ArgumentError(f"posterior: must be an xarray.Dataset or a path, was a {type(posterior).__name__}")


def origin_of(posterior: object) -> Path | None:
    """Return the path of a posterior; for a dataset, the file from which it was read, if there is one."""
    source = source_of(posterior)
    if source is None and (read_from := getattr(posterior, "encoding", {}).get("source")):
        source = Path(read_from)
        return source if source.is_file() else None
    return source


def find_posterior(path: T, config: C | None = None) -> tuple[T | Path, C | Path | None]:
    """Return a posterior and its configuration, if the path of the configuration was given instead of the posterior.

    Parameters
    ----------
    path : Dataset, str or Path
        Posterior or its file, or a configuration, which ends in .toml.
    config : Problem, str or Path, optional
        Configuration that was given.

    Raises
    ------
    ArgumentError
        There is no posterior of the configuration yet.
    """
    if not isinstance(path, str | Path) or Path(path).suffix.lower() != ".toml":
        return path, config
    from invgp.config.toml_document import read_document  # noqa: PLC0415 - mistakes are reported at once
    from invgp.settings.inference_settings import OutputSettings  # noqa: PLC0415

    source = Path(path)
    output = read_document(source)[1].get("output", {})
    file = output.get("file") if isinstance(output, dict) else None
    default = OutputSettings().file
    found = source.parent / (file if isinstance(file, str) else default)
    if not found.is_file():
        raise ArgumentError(
            f"posterior: must exist, but the configuration {str(path)!r} has none yet: its output.file is "
            f"{str(found)!r}; run `invgp run {path}` first, or give the file of the posterior"
        )
    return found, source if config is None else config


def read_posterior(posterior: xr.Dataset | str | Path) -> xr.Dataset:
    """Read a posterior, or return the dataset, unless it is a calibration; warn if it has not converged."""
    source = Path(posterior) if isinstance(posterior, str | Path) else None
    dataset = netcdf.read(posterior) if isinstance(posterior, str | Path) else posterior
    refuse_calibration(dataset, source)
    warn_unless_converged(dataset, source)
    return dataset


def warn_unless_converged(posterior: xr.Dataset, source: Path | None) -> None:
    """Log a warning if a posterior, or a map of one, has not converged."""
    from invgp.posterior.attributes import has_converged  # noqa: PLC0415 - as above

    if not has_converged(posterior):
        of = "" if source is None else f"{source.name}: "
        _log.warning(
            "%sthe posterior has not converged (%s)", of, posterior.attrs.get("invgp_status", "it was stopped")
        )


def read_mode(posterior: xr.Dataset | str | Path, mode: int | None) -> xr.Dataset:
    """Read a posterior or a map, or the posterior of one of its modes."""
    return select_one_mode(read_posterior(posterior), mode)


def select_one_mode(dataset: xr.Dataset, mode: int | None) -> xr.Dataset:
    """Return a posterior or a map, or one of its modes."""
    if mode is None:
        return dataset
    from invgp.maps.select_mode import select_mode  # noqa: PLC0415 - as above

    return select_mode(dataset, mode)


def refuse_calibration(dataset: xr.Dataset, source: Path | None) -> None:
    """Raise `ArgumentError` for the result of another command, which contains latents but no posterior."""
    if "invgp_latents" not in dataset.attrs:
        raise ArgumentError("posterior: must be a posterior of invgp, was another dataset")
    if "invgp_answer" in dataset.attrs:
        was = f"a result of `invgp {dataset.attrs['invgp_answer']}`"
        raise ArgumentError(f"posterior: must be a file that `invgp run` or `invgp predict` wrote, was {was}")
    if "invgp_calibration" in dataset.attrs:
        was = "a calibration" if source is None else f"{str(source)!r}, a calibration"
        raise ArgumentError(
            f"posterior: must be a file that `invgp run` wrote, was {was}: `invgp calibrate` makes its table and figure"
        )


def problem_of(
    dataset: xr.Dataset, source: Path | None, config: str | Path | Problem | None, data: str | Path | None = None
) -> Problem:
    """Return the problem of a posterior, with learnt hyperparameters fixed at their values in the posterior.

    Parameters
    ----------
    dataset : Dataset
    source : Path or None
        File of the posterior.
    config : str, Path, Problem or None
        Its problem or configuration; None to search for the configuration beside and above the file.
    data : str, Path or None
        Its survey file, if it is not that of the configuration.

    Raises
    ------
    ConfigError
        The configuration was not found, or it or the survey is not that of the posterior.
    """
    from invgp.problem import Problem  # noqa: PLC0415 - mistakes are reported without waiting for SciPy
    from invgp.validation.posterior_problem import check_problem_of, find_config, load_problem_of  # noqa: PLC0415

    if isinstance(config, Problem):
        return check_problem_of(dataset, config)
    if config is None and source is None:
        raise ArgumentError(
            "config: must be the problem or the configuration of the posterior, was not given; or give the file of the "
            "posterior instead of a dataset"
        )
    file = find_config(source, dataset) if config is None and source is not None else Path(str(config))
    return load_problem_of(dataset, file, None if data is None else Path(data))
