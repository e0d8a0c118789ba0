"""Questions about posteriors that are answered without new simulator runs."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from invgp import netcdf
from invgp.api.output_paths import check_writable
from invgp.api.posterior_files import ledger_path, problem_of, read_posterior, source_of
from invgp.errors import ArgumentError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import xarray as xr
    from matplotlib.figure import Figure

    from invgp.answers.emulated_problem import EmulatedProblem
    from invgp.answers.evidence import ModelEvidence
    from invgp.problem import Problem

logger = logging.getLogger("invgp")


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
        Figure of the fields, ``.png``, ``.svg`` or ``.pdf``; by default none. There is none if all latents are scalars.

    Returns
    -------
    xarray.Dataset
        For each latent of both posteriors, here depth: ``depth_change`` of the mean, in the unit of the latent;
        ``depth_joint_std``, the square root of the sum of both variances; ``depth_standardised_change``, their ratio;
        ``depth_std_ratio``, the second over the first standard deviation; ``depth_changed``, 1 where the change exceeds
        `level` joint standard deviations. Variables of scalars have no dimension of places.

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
    _write(found, output, plot if "site" in found.dims else None, "plot_difference")
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


def weigh(
    *posteriors: xr.Dataset | str | Path,
    config: Sequence[str | Path | Problem] = (),
    names: Sequence[str] = (),
    plot: str | Path | None = None,
) -> xr.Dataset:
    """Compare the evidence of alternative models of the same data: priors, kernels, numbers of layers, noise.

    Parameters
    ----------
    *posteriors : xarray.Dataset, str or Path
        Two or more posteriors from `invgp.invert`, or their files.
    config : sequence of str, Path or Problem
        The problem or configuration of each posterior, for those whose file contains no evidence; by default the
        configurations are searched for by their text, beside and above the files. The evidence is then computed on the
        emulator, without simulator runs.
    names : sequence of str
        Names of the models; by default those of the files.
    plot : str or Path, optional
        Figure, ``.png``, ``.svg`` or ``.pdf``; by default none.

    Returns
    -------
    xarray.Dataset
        By model: ``log_evidence`` and ``log_evidence_error`` in nats, ``log_bayes_factor`` relative to the best model,
        ``probability`` if all models are equally probable before, and ``origin`` of the evidence.

    Raises
    ------
    ConfigError
        The posteriors have different data, or fewer than two were given.

    Examples
    --------
    >>> table = invgp.weigh(posterior, posterior, names=["one", "two"])
    >>> table["probability"].values.round(3).tolist()
    [0.5, 0.5]
    """
    from invgp.answers.evidence import check_same_data, weigh_models  # noqa: PLC0415 - as above

    if len(posteriors) < 2:
        raise ArgumentError(f"posteriors: must be at least two, was {len(posteriors)}")
    for key, given in (("names", names), ("config", config)):
        if given and len(given) != len(posteriors):
            raise ArgumentError(f"{key}: must have one entry per posterior, {len(posteriors)}, had {len(given)}")
    _, plot = _check_paths(None, plot, ())
    chosen = list(names) or _model_names(posteriors)
    datasets = [read_posterior(one) for one in posteriors]
    check_same_data(datasets, chosen)
    models = [
        _evidence_of(name, dataset, source_of(one), config[k] if config else None)
        for k, (name, dataset, one) in enumerate(zip(chosen, datasets, posteriors, strict=True))
    ]
    found = weigh_models(models)
    _write(found, None, plot, "plot_evidence")
    return found


def revise(
    posterior: xr.Dataset | str | Path,
    changes: Mapping[str, object] | None = None,
    *,
    without: Sequence[str] = (),
    data: str | Path | None = None,
    problem: Problem | None = None,
    config: str | Path | Problem | None = None,
    output: str | Path | None = None,
) -> xr.Dataset:
    """Compute the posterior with another prior, noise or data on the emulator of the runs in the file.

    The simulator is not run. Learnt hyperparameters keep their most probable values, except for those of a latent that
    is changed.

    Parameters
    ----------
    posterior : xarray.Dataset, str or Path
        Posterior of a site model from `invgp.invert`, or its file.
    changes : mapping of str to object, optional
        New values of keys of the configuration, such as ``{"latents.depth.std": 50.0, "noise.std.time": 0.01}``.
    without : sequence of str
        Sources to leave out.
    data : str or Path, optional
        Survey file with the same columns, instead of that of the posterior.
    problem : Problem, optional
        The revised problem itself, instead of `changes`, `without` and `data`.
    config : str, Path or Problem, optional
        Problem or configuration of the posterior; by default it is searched for by its text, beside and above the file.
    output : str or Path, optional
        netCDF file for the revised posterior; by default none.

    Returns
    -------
    xarray.Dataset
        A posterior, as from `invgp.invert`. Its attributes ``invgp_revision_method``, ``invgp_revision_k_hat``,
        ``invgp_revision_doubtful_sites`` and ``invgp_revision_runs_needed`` state how it was computed and whether the
        runs suffice; `invgp.has_converged` is False if they do not.

    Raises
    ------
    ConfigError
        A change is not valid, or the posterior does not contain the runs of an emulator.

    Examples
    --------
    >>> import numpy as np
    >>> noisier = problem.with_scaled_noise(np.full((3, 1), 1.1))
    >>> revised = invgp.revise(posterior, problem=noisier, config=problem)
    >>> bool((revised["depth_std"] > posterior["depth_std"]).all())
    True
    """
    from invgp.answers.revised_problem import check_revised  # noqa: PLC0415 - as above
    from invgp.answers.revision import revise_posterior  # noqa: PLC0415

    given = {"changes": changes, "without": without, "data": data}
    if problem is not None and any(given.values()):
        raise ArgumentError("problem: must be left out with changes, without or data, was given")
    if problem is None and not any(given.values()):
        raise ArgumentError("changes: must have at least one key, had none")
    output, _ = _check_paths(output, None, (posterior,))
    source = source_of(posterior)
    dataset, base = emulated_posterior(posterior, config)
    if problem is None:
        problem = _revised_problem(dataset, source, config, base.problem, changes or {}, without, data)
    else:
        check_revised(base.problem, problem, "problem")
    with limit_threads(problem):
        found = revise_posterior(dataset, base, problem, int(dataset.attrs["invgp_seed"])).posterior
    found.attrs["invgp_revision"] = "; ".join(
        [f"{key} = {value}" for key, value in (changes or {}).items()]
        + [f"without {name}" for name in without]
        + ([] if data is None else [f"data {data}"])
    )
    if without:
        found.attrs["invgp_without"] = " ".join([*dataset.attrs.get("invgp_without", "").split(), *without])
    if output is not None:
        netcdf.write(found, output)
    return found


def crossvalidate(
    posterior: xr.Dataset | str | Path,
    *,
    by: str = "site",
    blocks: int = 10,
    config: str | Path | Problem | None = None,
    seed: int = 1,
    output: str | Path | None = None,
    plot: str | Path | None = None,
) -> xr.Dataset:
    """Predict data that are left out, without simulator runs, and compare them with the observations.

    Parameters
    ----------
    posterior : xarray.Dataset, str or Path
        Posterior of a site model from `invgp.invert`, or its file.
    by : str
        What is left out at a time: ``"site"``, ``"block"`` of neighbouring sites, or ``"source"``.
    blocks : int
        Number of blocks.
    config : str, Path or Problem, optional
        Problem or configuration of the posterior; by default it is searched for by its text, beside and above the file.
    seed : int
        Random seed of the predictions.
    output : str or Path, optional
        netCDF file for the result; by default none.
    plot : str or Path, optional
        Figure, ``.png``, ``.svg`` or ``.pdf``; by default none.

    Returns
    -------
    xarray.Dataset
        For each observation, here time: ``time_held_out_mean`` and ``_std`` of the prediction,
        ``time_held_out_probability`` that it is below the datum (PIT), ``time_held_out_residual``, the same as a
        standard normal score, and ``time_held_out_crps``; by site, ``held_out_log_score``, the Pareto k of the weights,
        and whether the posterior was computed again. The attributes contain the total log score and the coverage.

    Raises
    ------
    ConfigError
        An argument is not valid, or the posterior does not contain the runs of an emulator.

    Examples
    --------
    >>> result = invgp.crossvalidate(posterior, config=problem)
    >>> result["time_held_out_residual"].dims
    ('site',)
    """
    from invgp.answers.cross_validation import cross_validate  # noqa: PLC0415 - as above

    output, plot = _check_paths(output, plot, (posterior,))
    dataset, base = emulated_posterior(posterior, config)
    with limit_threads(base.problem):
        found = cross_validate(dataset, base, by, blocks, seed)
    _write(found, output, plot, "plot_cross_validation")
    return found


def design(
    posterior: xr.Dataset | str | Path,
    candidates: str | Path,
    *,
    target: Sequence[str] = (),
    region: str | None = None,
    best: int = 3,
    config: str | Path | Problem | None = None,
    seed: int = 1,
    output: str | Path | None = None,
    plot: str | Path | None = None,
) -> xr.Dataset:
    r"""Compute by how much candidate measurements would reduce the uncertainty of targets, without simulator runs.

    Parameters
    ----------
    posterior : xarray.Dataset, str or Path
        Posterior from `invgp.invert`, or its file. For a field model, candidates must be direct values.
    candidates : str or Path
        CSV or netCDF file with the coordinates of the survey as columns. A row is a new site of `source` (by default
        the first), with the noise of the nearest site times `noise_factor`; or, with a column `quantity`, a direct
        value of this expression of the latents with the standard deviation `std`; or, with the number of a `site`,
        better data there, with noise times `noise_factor`. A column `name` is optional.
    target : sequence of str
        Expressions of the latents, ``"depth[2] - depth[1]"``, or exceedances, ``"depth[2] > 900 m"``; by default each
        latent.
    region : str, optional
        Places of the targets, as `grid` of `invgp.predict`; by default the sites, or the nodes of a field model. The
        variance is averaged over at most 100 of them.
    best : int
        Number of candidates to choose, one after the other.
    config : str, Path or Problem, optional
        Problem or configuration of the posterior; by default it is searched for by its text, beside and above the file.
    seed : int
        Random seed of the draws and the noise.
    output : str or Path, optional
        netCDF file for the result; by default none.
    plot : str or Path, optional
        Figure, ``.png``, ``.svg`` or ``.pdf``; by default none.

    Returns
    -------
    xarray.Dataset
        For each candidate and target, ``expected_std`` and ``reduction``, the expected relative reduction of the
        standard deviation, with its standard error; ``covered``, 0 where the runs do not surround the draws; ``rank``
        of the chosen candidates, and ``chosen_std``, the expected standard deviation with all choices so far.

    Raises
    ------
    ConfigError
        An argument is not valid, or the posterior does not contain the runs of an emulator.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("wells.csv").write_text("x,quantity,std\n50,depth,1\n400,depth,1\n")
    >>> found = invgp.design(posterior, "wells.csv", best=1, config=problem)
    >>> bool(found["reduction"].values[0, 0] > found["reduction"].values[1, 0])
    True
    """
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - as above

    from invgp.answers.design import rank_candidates  # noqa: PLC0415

    output, plot = _check_paths(output, plot, (posterior, candidates))
    dataset, base = posterior_and_emulator(posterior, config)
    with threadpool_limits(1):  # many small matrices
        found = rank_candidates(dataset, base, Path(candidates), target, region, best, seed)
    _write(found, output, plot, "plot_design")
    return found


def _revised_problem(
    dataset: xr.Dataset,
    source: Path | None,
    config: str | Path | Problem | None,
    base: Problem,
    changes: Mapping[str, object],
    without: Sequence[str],
    data: str | Path | None,
) -> Problem:
    """Return the problem of a posterior with changes."""
    from invgp.answers.revised_problem import check_revised, fix_learnt  # noqa: PLC0415
    from invgp.config import load  # noqa: PLC0415
    from invgp.problem import Problem  # noqa: PLC0415
    from invgp.validation.posterior_problem import find_config  # noqa: PLC0415

    problem = base
    if changes or data is not None:
        if isinstance(config, Problem) or (config is None and source is None):
            raise ArgumentError("config: must be the configuration file for `changes` and `data`; or give `problem`")
        file = find_config(source, dataset) if config is None and source is not None else Path(str(config))
        usual = Path(str(dataset.attrs["invgp_survey"]))
        other_data = data is not None or "survey.file" in changes
        same = usual if usual.is_file() and not other_data else None
        problem = load(file, data=data or same, changes=changes)
        problem = problem.without(*dataset.attrs.get("invgp_without", "").split())
        check_revised(base, problem, "changes")
        problem = fix_learnt(problem, base, changes, other_data=other_data)
    return problem.without(*without)


@contextmanager
def limit_threads(problem: Problem) -> Iterator[None]:
    """Use the number of BLAS threads that suits a problem."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    from invgp.inference.invert import blas_threads  # noqa: PLC0415

    with threadpool_limits(blas_threads(problem)):
        yield


def _model_names(posteriors: Sequence[object]) -> list[str]:
    """Return the names of files without their ending, or their paths if two have the same name; otherwise numbers."""
    paths = [Path(one) for one in posteriors if isinstance(one, str | Path)]
    unique = len({path.stem for path in paths}) == len(paths)
    return [
        (Path(one).stem if unique else str(one)) if isinstance(one, str | Path) else f"model {number}"
        for number, one in enumerate(posteriors, start=1)
    ]


def _evidence_of(
    name: str, dataset: xr.Dataset, source: Path | None, config: str | Path | Problem | None
) -> ModelEvidence:
    """Return the evidence of a posterior: that in the file, or one that is computed on the emulator, or its bound."""
    from invgp.answers.evidence import (  # noqa: PLC0415
        BOUND,
        EMULATED,
        PLUGGED_IN,
        STORED,
        ModelEvidence,
        bound_of,
        emulated_evidence,
        is_averaged,
        stored_evidence,
    )

    stored = stored_evidence(dataset)
    if stored is not None:
        return ModelEvidence(name, stored, STORED if is_averaged(dataset) else PLUGGED_IN)
    try:
        found = emulated_evidence(open_emulated(dataset, source, config))
    except ConfigError as error:
        if config is not None:
            raise
        logger.warning("%s: the evidence is only a lower bound, since it could not be computed: %s", name, error)
        return ModelEvidence(name, bound_of(dataset), BOUND)
    return ModelEvidence(name, found, PLUGGED_IN if "invgp_learnt" in dataset.attrs else EMULATED)


def emulated_posterior(
    posterior: xr.Dataset | str | Path, config: str | Path | Problem | None
) -> tuple[xr.Dataset, EmulatedProblem]:
    """Return a posterior and its problem with the emulator; those of the latest files are kept for the next call."""
    if isinstance(posterior, str | Path) and not hasattr(config, "survey"):
        path = Path(posterior)
        changed = path.stat().st_mtime_ns if path.is_file() else 0
        return _emulated_file(path.absolute(), changed, None if config is None else Path(str(config)).absolute())
    dataset = read_posterior(posterior)
    return dataset, open_emulated(dataset, source_of(posterior), config)


def posterior_and_emulator(
    posterior: xr.Dataset | str | Path, config: str | Path | Problem | None
) -> tuple[xr.Dataset, EmulatedProblem | None]:
    """Return a posterior and its problem with the emulator; None instead of the latter for a field model."""
    dataset = read_posterior(posterior)
    return (dataset, None) if "node" in dataset.dims else emulated_posterior(posterior, config)


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
