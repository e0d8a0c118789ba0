"""Which measurements matter: those that were made, and those that could be made next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from invgp.api.emulated_files import check_result_paths, field_problem, posterior_and_emulator, write_result
from invgp.api.posterior_files import find_posterior, origin_of
from invgp.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from invgp.problem import Problem


def design(
    posterior: xr.Dataset | str | Path,
    candidates: str | Path,
    *,
    target: Sequence[str] = (),
    region: str | None = None,
    best: int | None = None,
    config: str | Path | Problem | None = None,
    seed: int = 1,
    output: str | Path | None = None,
    plot: str | Path | None = None,
) -> xr.Dataset:
    r"""Compute by how much candidate measurements would reduce the uncertainty of targets, without simulator runs.

    Parameters
    ----------
    posterior : xarray.Dataset, str or Path
        Posterior from `invgp.invert`, or its file. For a field model, candidates must be direct values; if all its
        latents are scalars, also better data at its own sites, and the file must have its ledger beside it.
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
    best : int, optional
        Number of candidates to choose, one after the other; by default 3, or all if there are fewer.
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
    from invgp.answers.known_field import draw_data  # noqa: PLC0415
    from invgp.posterior.contents import field_names  # noqa: PLC0415

    posterior, config = find_posterior(posterior, config)
    output, plot = check_result_paths(output, plot, (posterior, candidates))
    dataset, base = posterior_and_emulator(posterior, config)
    scalars = None
    with threadpool_limits(1):  # many small matrices
        if base is None and not field_names(dataset):
            problem, ledger = field_problem(dataset, origin_of(posterior), config)
            scalars = problem, draw_data(problem, ledger, seed)
        found = rank_candidates(dataset, base, Path(candidates), target, region, best, seed, scalars=scalars)
    write_result(found, output, plot, "plot_design")
    return found


def influence(
    posterior: xr.Dataset | str | Path,
    *,
    hardest: int = 5,
    config: str | Path | Problem | None = None,
    output: str | Path | None = None,
    plot: str | Path | None = None,
) -> xr.Dataset:
    """Compute which data constrain which field where, and which data pull hardest, without simulator runs.

    Parameters
    ----------
    posterior : xarray.Dataset, str or Path
        Posterior from `invgp.invert`, or its file; for a field model the file, with its ledger beside it.
    hardest : int
        Number of data to list.
    config : str, Path or Problem, optional
        Problem or configuration of the posterior; by default it is searched for by its text, beside and above the file.
    output : str or Path, optional
        netCDF file for the result; by default none.
    plot : str or Path, optional
        Figure, ``.png``, ``.svg`` or ``.pdf``; by default none.

    Returns
    -------
    xarray.Dataset
        For each observation, here time: ``time_leverage``, the share of its prediction that the datum itself
        determines, and ``time_pull``, the largest shift of a field that the datum causes, in standard deviations; by
        site, ``site_information`` in nats that only the data of the site give. With several sources or observations,
        ``depth_reduction`` for each latent: by how much each of them reduces its standard deviation. The attribute
        ``invgp_hardest`` is a JSON list of the data that pull hardest.

    Raises
    ------
    ConfigError
        An argument is not valid, or the runs of the posterior are not available.

    Examples
    --------
    >>> found = invgp.influence(posterior, config=problem)
    >>> bool((found["time_leverage"] < 1.0).all())
    True
    """
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - as above

    from invgp.answers.influence import hardest_pulls, influence_dataset  # noqa: PLC0415
    from invgp.answers.influence_draws import field_influence, site_influence  # noqa: PLC0415
    from invgp.answers.places import points_of  # noqa: PLC0415

    if hardest < 1:
        raise ArgumentError(f"hardest: must be at least 1, was {hardest}")
    posterior, config = find_posterior(posterior, config)
    output, plot = check_result_paths(output, plot, (posterior,))
    dataset, base = posterior_and_emulator(posterior, config)
    with threadpool_limits(1):
        if base is not None:
            problem, points = base.problem, dataset
            found, groups, reductions = site_influence(dataset, base)
        else:
            problem, ledger = field_problem(dataset, origin_of(posterior), config)
            points = points_of(dataset)
            found, groups, reductions = field_influence(dataset, problem, ledger)
    result = influence_dataset(dataset, problem, points, found, groups, reductions)
    result.attrs["invgp_hardest"] = json.dumps(hardest_pulls(problem, points, found, hardest))
    write_result(result, output, plot, "plot_influence")
    return result
