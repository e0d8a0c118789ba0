"""Questions about posteriors that are answered without new simulator runs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from invgp import netcdf
from invgp.api.emulated_files import (
    check_result_paths,
    field_problem,
    is_field_model,
    limit_threads,
    open_emulated,
    posterior_and_emulator,
    write_result,
)
from invgp.api.posterior_files import find_posterior, origin_of, read_posterior
from invgp.errors import ArgumentError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

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

    (before, _), (after, _) = find_posterior(before), find_posterior(after)
    output, plot = check_result_paths(output, plot, (before, after))
    found = compute_difference(read_posterior(before), read_posterior(after), level)
    write_result(found, output, plot if "site" in found.dims else None, "plot_difference")
    return found


def weigh(
    *posteriors: xr.Dataset | str | Path,
    config: Sequence[str | Path | Problem] = (),
    names: Sequence[str] = (),
    output: str | Path | None = None,
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
    output : str or Path, optional
        netCDF file for the result; by default none.
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
    configs: list[str | Path | Problem | None] = list(config) if config else [None] * len(posteriors)
    found_files: list[tuple[xr.Dataset | str | Path, str | Path | Problem | None]] = [
        find_posterior(one, own) for one, own in zip(posteriors, configs, strict=True)
    ]
    posteriors = tuple(one for one, _ in found_files)
    output, plot = check_result_paths(output, plot, posteriors)
    chosen = list(names) or _model_names(posteriors)
    datasets = [read_posterior(one) for one in posteriors]
    check_same_data(datasets, chosen)
    models = [
        _evidence_of(name, dataset, origin_of(one), own)
        for name, dataset, (one, own) in zip(chosen, datasets, found_files, strict=True)
    ]
    found = weigh_models(models)
    write_result(found, output, plot, "plot_evidence")
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
        Posterior from `invgp.invert`, or its file; for a field model the file, with its ledger beside it.
    changes : mapping of str to object, optional
        New values of keys of the configuration, such as ``{"latents.depth.std": 50.0, "noise.std.time": 0.01}``. The
        standard deviation of the noise of an observation is also ``noise.time``.
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
    from invgp.answers.known_field import revise_field  # noqa: PLC0415 - as above
    from invgp.answers.revised_problem import check_revised  # noqa: PLC0415
    from invgp.answers.revision import revise_posterior  # noqa: PLC0415

    given = {"changes": changes, "without": without, "data": data}
    if problem is not None and any(given.values()):
        raise ArgumentError("problem: must be left out with changes, without or data, was given")
    if problem is None and not any(given.values()):
        raise ArgumentError("changes: must have at least one key, had none")
    posterior, config = find_posterior(posterior, config)
    output, _ = check_result_paths(output, None, (posterior,))
    source = origin_of(posterior)
    dataset, base = posterior_and_emulator(posterior, config)
    if base is None:
        first, ledger = field_problem(dataset, source, config)
    else:
        first = base.problem
    if problem is None:
        problem = _revised_problem(dataset, source, config, first, changes or {}, without, data)
    else:
        check_revised(first, problem, "problem")
    seed = int(dataset.attrs["invgp_seed"])
    with limit_threads(problem):
        if base is None:
            found = revise_field(problem, ledger, seed, str(dataset.attrs.get("invgp_learnt", "")))
        else:
            found = revise_posterior(dataset, base, problem, seed).posterior
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
        Posterior from `invgp.invert`, or its file; for a field model the file, with its ledger beside it.
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
    from invgp.answers.cross_validation import cross_validate, predict_field, predict_sites  # noqa: PLC0415 - as above

    posterior, config = find_posterior(posterior, config)
    output, plot = check_result_paths(output, plot, (posterior,))
    dataset, base = posterior_and_emulator(posterior, config)
    if base is None:
        problem, ledger = field_problem(dataset, origin_of(posterior), config)
    with limit_threads(problem if base is None else base.problem):
        data = predict_field(dataset, problem, ledger) if base is None else predict_sites(dataset, base)
        found = cross_validate(dataset, data, by, blocks, seed)
    write_result(found, output, plot, "plot_cross_validation")
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

    problem, changes = base, {_spell_out(key, base): value for key, value in changes.items()}
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


def _spell_out(key: str, problem: Problem) -> str:
    """Return the key of the noise of an observation, ``noise.std.time``, also if it is written ``noise.time``."""
    *tables, name = key.split(".")
    if tables[-1:] == ["noise"] and name in {one.name for one in problem.survey.observations}:
        from invgp.settings.configuration import NoiseSection  # noqa: PLC0415 - as above

        if name not in NoiseSection.model_fields:
            return ".".join([*tables, "std", name])
    return key


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
    from invgp.answers.known_field import field_evidence  # noqa: PLC0415

    stored = stored_evidence(dataset)
    if stored is not None:
        return ModelEvidence(name, stored, STORED if is_averaged(dataset) else PLUGGED_IN)
    try:
        if is_field_model(dataset) and "invgp_revision_method" not in dataset.attrs:
            problem, ledger = field_problem(dataset, source, config)
            found = field_evidence(problem, ledger, int(dataset.attrs["invgp_seed"]))
        else:
            found = emulated_evidence(open_emulated(dataset, source, config))
    except ConfigError as error:
        if config is not None:
            raise
        logger.warning("%s: the evidence is only a lower bound, since it could not be computed: %s", name, error)
        return ModelEvidence(name, bound_of(dataset), BOUND)
    return ModelEvidence(name, found, PLUGGED_IN if "invgp_learnt" in dataset.attrs else EMULATED)
