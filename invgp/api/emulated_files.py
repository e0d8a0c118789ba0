"""Posteriors with the emulators of their runs, and files of results, for the functions that answer questions."""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from invgp import netcdf
from invgp.api.output_paths import check_writable
from invgp.api.posterior_files import ledger_path, origin_of, problem_of, read_posterior
from invgp.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import xarray as xr
    from matplotlib.figure import Figure

    from invgp.answers.emulated_problem import EmulatedProblem
    from invgp.problem import Problem


def check_result_paths(
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


def write_result(result: xr.Dataset, output: Path | None, plot: Path | None, figure: str) -> None:
    """Write the netCDF file and the figure of a result."""
    if output is not None:
        netcdf.write(result, output)
    if plot is not None:
        from invgp import plots  # noqa: PLC0415

        draw: Callable[[xr.Dataset], Figure] = getattr(plots, figure)
        plots.save_figure(draw(result), plot)


@contextmanager
def limit_threads(problem: Problem) -> Iterator[None]:
    """Use the number of BLAS threads that suits a problem."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    from invgp.inference.invert import blas_threads  # noqa: PLC0415

    with threadpool_limits(blas_threads(problem)):
        yield


def emulated_posterior(
    posterior: xr.Dataset | str | Path, config: str | Path | Problem | None
) -> tuple[xr.Dataset, EmulatedProblem]:
    """Return a posterior and its problem with the emulator; those of the latest files are kept for the next call."""
    if isinstance(posterior, str | Path) and not hasattr(config, "survey"):
        path = Path(posterior)
        own = None if config is None else Path(str(config)).absolute()
        return _emulated_file(path.absolute(), _modified(path), own)
    dataset = read_posterior(posterior)
    return dataset, open_emulated(dataset, origin_of(posterior), config)


def posterior_and_emulator(
    posterior: xr.Dataset | str | Path, config: str | Path | Problem | None
) -> tuple[xr.Dataset, EmulatedProblem | None]:
    """Return a posterior and its problem with the emulator; None instead of the latter for a field model."""
    if isinstance(posterior, str | Path):
        path = Path(posterior)
        dataset = _read_file(path, path.absolute(), _modified(path))
    else:
        dataset = read_posterior(posterior)
    return (dataset, None) if is_field_model(dataset) else emulated_posterior(posterior, config)


def is_field_model(posterior: xr.Dataset) -> bool:
    """Return whether a posterior is that of a field model, on a grid or of scalars only."""
    from invgp.posterior.contents import field_names  # noqa: PLC0415 - as above

    return "node" in posterior.dims or not (field_names(posterior) or "emulator_run_site" in posterior)


def field_problem(
    posterior: xr.Dataset, source: Path | None, config: str | Path | Problem | None
) -> tuple[Problem, Path]:
    """Return the problem of the posterior of a field model, and the ledger of its runs."""
    from invgp.answers.known_field import check_ledger  # noqa: PLC0415

    problem = problem_of(posterior, source, config)
    return problem, check_ledger(None if source is None else source.with_suffix(".ledger.sqlite"))


def _modified(path: Path) -> int:
    """Return the time of the last change of a file, in nanoseconds; 0 if there is none."""
    return path.stat().st_mtime_ns if path.is_file() else 0


@lru_cache(maxsize=2)
def _read_file(path: Path, absolute: Path, changed: int) -> xr.Dataset:  # noqa: ARG001
    return read_posterior(path)


@lru_cache(maxsize=2)
def _emulated_file(path: Path, changed: int, config: Path | None) -> tuple[xr.Dataset, EmulatedProblem]:  # noqa: ARG001
    dataset = read_posterior(path)
    return dataset, open_emulated(dataset, path, config)


def open_emulated(
    posterior: xr.Dataset, source: Path | None, config: str | Path | Problem | None, data: str | Path | None = None
) -> EmulatedProblem:
    """Return the problem of a posterior with the emulator of its runs.

    Parameters
    ----------
    posterior : Dataset
    source : Path or None
        Its file.
    config : str, Path, Problem or None
        Its problem or configuration; None to search for it.
    data : str, Path or None
        Its survey file, if it is not that of the configuration.
    """
    from invgp.answers.emulated_problem import check_site_model, emulate, runs_of, stored_factors  # noqa: PLC0415

    if "invgp_revision_method" in posterior.attrs:
        raise ArgumentError("posterior: must be a file of `invgp run`, was a revision; use the first posterior")
    problem = problem_of(posterior, source, config, data)
    check_site_model(problem)
    ledger = None if source is None else ledger_path(problem, source)
    runs = runs_of(posterior, problem, ledger)
    with limit_threads(problem):
        return emulate(problem, runs, int(posterior.attrs["invgp_seed"]), stored_factors(posterior))
