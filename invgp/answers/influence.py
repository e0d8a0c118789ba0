"""Which data constrain which field where, and which data pull hardest.

If the posterior is Gaussian, its covariances give what it would be without a datum y. With its prediction g and noise
variance s2, the leverage h = var(g) / s2 is the share of the prediction that the datum itself determines, and without
it the mean of a field f would move by -cov(f, g) (y - mean(g)) / (s2 (1 - h)). The division by 1 - h magnifies errors
of the moments, so that these are computed without draws. For other posteriors, these formulas are wrong where 1 - h is
small: their draws are weighted instead (`influence_draws`). What whole sources contribute is found by posteriors
without them, on the emulator or the runs in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from invgp.problem import Floats, Problem

SMALLEST_REST = 1e-6  # of 1 - h, for exact moments of linear outputs
LARGEST_REST = 0.02  # below which 1 - h cannot be resolved by other moments
PLACES = 200  # at most, at which the shift of a field is computed


class DataGroup(NamedTuple):
    """A source or an observation.

    Attributes
    ----------
    name : str
    mask : array of bool, shape (N, P)
        Its data; none of them for direct data of a field model, which are not at sites.
    """

    name: str
    mask: NDArray[np.bool_]


class DatumInfluence(NamedTuple):
    """Influence of each datum.

    Attributes
    ----------
    leverage : array, shape (N, P)
        Share of its own prediction that the datum determines, between 0 and 1; NaN if missing.
    pull : array, shape (N, P)
        Largest shift of a process at a place that the datum causes, in standard deviations of the process; NaN if it
        is missing, or if the posterior without it is not known.
    place, process : array of int, shape (N, P)
        Where, and of which process, this shift is.
    information : array, shape (N,)
        Information that only the data of the site give, in nats; NaN if it is not known.
    """

    leverage: Floats
    pull: Floats
    place: NDArray[np.intp]
    process: NDArray[np.intp]
    information: Floats


def data_groups(problem: Problem) -> list[DataGroup]:
    """Return the sources of a problem, or its observations if it has one source; those with data."""
    observed = np.isfinite(problem.survey.Y)
    groups = []
    if len(problem.parts) > 1:
        for part in problem.parts:
            mask = np.zeros_like(observed)
            if len(part.sites):
                mask[np.ix_(part.sites, part.columns)] = True
            groups.append(DataGroup(part.name, mask & observed))
    elif len(problem.survey.observations) > 1:
        for name, columns in problem.observation_slices.items():
            mask = np.zeros_like(observed)
            mask[:, columns] = True
            groups.append(DataGroup(name, mask & observed))
    direct = [part.name for part in problem.parts if part.direct and not len(part.sites)]
    return [
        group
        for group in groups
        if group.name in direct or (group.mask.any() and (direct or (observed & ~group.mask).any()))
    ]


class DataMoments(NamedTuple):
    """Posterior moments of predicted outputs, and their covariances with the processes at some places.

    Attributes
    ----------
    mean : array, shape (N, P)
        Of the outputs.
    covariance : array, shape (N, P, P)
        Of the outputs of each site.
    places : array of int, shape (B,)
        Places of the processes.
    spread : array, shape (B, Q)
        Standard deviations of the processes.
    cross : callable
        Returns the covariances (B, Q, P) of the processes with the outputs of a site n.
    largest : array, shape (N, P)
        Largest leverage that the moments can resolve.
    """

    mean: Floats
    covariance: Floats
    places: NDArray[np.intp]
    spread: Floats
    cross: Callable[[int], Floats]
    largest: Floats


def choose_places(count: int) -> NDArray[np.intp]:
    """Return at most `PLACES` of a number of places, evenly distributed."""
    return np.unique(np.linspace(0, count - 1, min(PLACES, count)).round().astype(np.intp))


def largest_leverage(curvature: Floats) -> Floats:
    """Return the largest leverage that Gaussian moments can resolve; that of `curvature` = 0 is nearly 1.

    Parameters
    ----------
    curvature : array
        Variance of an output that is not linear in the latents, relative to that of its noise.
    """
    return np.asarray(1.0 - np.clip(np.sqrt(curvature), SMALLEST_REST, LARGEST_REST))


def moments_of_draws(f: Floats, g: Floats, largest: Floats | None = None) -> DataMoments:
    """Estimate the moments from draws.

    Parameters
    ----------
    f : array, shape (R, G, Q)
        Draws of the processes at G places.
    g : array, shape (R, N, P)
        Predicted outputs for the same draws.
    largest : array, shape (N, P), optional
        Largest leverage that the moments can resolve; by default that of random draws.
    """
    mean, places = g.mean(axis=0), choose_places(f.shape[1])
    centred, z = g - mean, f[:, places] - f[:, places].mean(axis=0)
    return DataMoments(
        mean,
        np.einsum("rnp,rnq->npq", centred, centred) / len(g),
        places,
        z.std(axis=0),
        lambda n: np.tensordot(z, centred[:, n], axes=(0, 0)) / len(g),
        np.full(mean.shape, 1.0 - LARGEST_REST) if largest is None else largest,
    )


def datum_influence(moments: DataMoments, y: Floats, noise: Floats) -> DatumInfluence:
    """Compute the influence of each datum from posterior moments.

    Parameters
    ----------
    moments : DataMoments
    y : array, shape (N, P)
        Data; NaN where missing.
    noise : array, shape (N, P, P)
        Covariance of their noise at each site.
    """
    N, P = y.shape
    processes = moments.spread.shape[1]
    scale = np.where(moments.spread > 0.0, moments.spread, np.inf)[..., None]
    leverage, pull = np.full((N, P), np.nan), np.full((N, P), np.nan)
    place, process = np.zeros((N, P), dtype=np.intp), np.zeros((N, P), dtype=np.intp)
    information = np.zeros(N)
    for n in range(N):
        own = np.flatnonzero(np.isfinite(y[n]))
        if not len(own):
            continue
        S, C = noise[n][np.ix_(own, own)], moments.covariance[n][np.ix_(own, own)]
        precision = np.linalg.inv(S)
        size = np.diagonal(precision)
        h = np.clip(np.diagonal(precision @ C @ precision) / size, 0.0, moments.largest[n, own])
        cross = (moments.cross(n)[..., own] / scale).reshape(-1, len(own)) @ precision
        shift = cross * (precision @ (y[n, own] - moments.mean[n, own]) / (size * (1.0 - h)))
        largest = np.argmax(np.abs(shift), axis=0)
        leverage[n, own] = h
        pull[n, own] = shift[largest, np.arange(len(own))]
        place[n, own], process[n, own] = moments.places[largest // processes], largest % processes
        root = np.linalg.inv(np.linalg.cholesky(S))
        shares = np.linalg.eigvalsh(root @ C @ root.T)
        information[n] = -0.5 * float(np.sum(np.log1p(-np.clip(shares, 0.0, moments.largest[n, own].min()))))
    return DatumInfluence(leverage, pull, place, process, information)


def group_reductions(
    groups: Sequence[DataGroup], std: dict[str, Floats], std_without: Callable[[DataGroup], dict[str, Floats]]
) -> dict[str, Floats]:
    """Return how much each group reduces the standard deviation of each latent: 1 - std / std without the group.

    Parameters
    ----------
    groups : sequence of DataGroup
    std : dict of str to array
        Posterior standard deviation of each latent.
    std_without : callable
        Standard deviations without a group.

    Returns
    -------
    dict of str to array, shape (groups, ...)
    """
    found: dict[str, list[Floats]] = {name: [] for name in std}
    for group in groups:
        for name, wider in std_without(group).items():
            found[name].append(1.0 - std[name] / np.maximum(wider, std[name]))
    return {name: np.stack(parts) for name, parts in found.items() if parts}


def influence_dataset(
    posterior: xr.Dataset,
    problem: Problem,
    points: xr.Dataset,
    found: DatumInfluence,
    groups: Sequence[DataGroup],
    reductions: dict[str, Floats],
) -> xr.Dataset:
    """Return the influence of data as a dataset.

    Parameters
    ----------
    posterior : Dataset
    problem : Problem
    points : Dataset
        The posterior after `as_points`, whose places those of `found` are.
    found : DatumInfluence
    groups : sequence of DataGroup
    reductions : dict of str to array
        From `group_reductions`.
    """
    variables: dict[str, xr.DataArray] = {}
    one = {"units": "1"}
    for observation in problem.survey.observations:
        columns, name = problem.observation_slices[observation.name], observation.name
        if f"{name}_observed" not in posterior:
            continue
        like = posterior[f"{name}_observed"].transpose("site", ...)
        text = observation.long_name or name
        for suffix, values, about in (
            ("leverage", found.leverage, "share of its prediction that the datum itself determines"),
            ("pull", np.abs(found.pull), "largest shift of a field by the datum, in posterior standard deviations"),
        ):
            variables[f"{name}_{suffix}"] = xr.DataArray(
                values[:, columns].reshape(like.shape), dims=like.dims, attrs={"long_name": f"{text}: {about}", **one}
            )
    variables["site_information"] = xr.DataArray(
        found.information,
        dims=("site",),
        attrs={"long_name": "information that only the data of the site give, in nats", **one},
    )
    latents = [name for name in str(posterior.attrs["invgp_latents"]).split() if name in reductions]
    for name in latents:
        like = points[name].transpose("site", ..., missing_dims="ignore")
        dims = tuple("node" if d == "site" and "node" in posterior.dims else d for d in like.dims)
        variables[f"{name}_reduction"] = xr.DataArray(
            reductions[name].reshape(len(groups), *like.shape),
            dims=("data", *dims),
            attrs={
                "long_name": f"reduction of the standard deviation of {like.attrs.get('long_name', name)} by the data",
                **one,
            },
        )
    kept = [f"{o.name}_observed" for o in problem.survey.observations if f"{o.name}_observed" in posterior]
    base = posterior[[*kept, *latents]]
    dataset = base.drop_vars(list(base.data_vars)).assign(variables)
    if latents:
        labels = np.asarray([group.name for group in groups])
        dataset = dataset.assign_coords(data_label=("data", labels, {"long_name": "source or observation"}))
    coordinates = posterior.attrs.get("invgp_site_coordinates", posterior.attrs["invgp_coordinates"])
    dataset.attrs = {
        "title": "Influence of the data",
        "invgp_answer": "influence",
        "invgp_coordinates": coordinates,
        "invgp_latents": posterior.attrs["invgp_latents"],
        "invgp_observations": " ".join(name.removesuffix("_observed") for name in kept),
        "invgp_unknown_pulls": int(np.sum(np.isfinite(problem.survey.Y) & np.isnan(found.pull))),
        "invgp_runs": 0,
    }
    if "node" in dataset.dims:
        dataset.attrs["invgp_node_coordinates"] = posterior.attrs["invgp_coordinates"]
    return dataset


def hardest_pulls(problem: Problem, points: xr.Dataset, found: DatumInfluence, count: int) -> list[dict[str, object]]:
    """Return the data that pull hardest: what they are, and the field and place that they move most."""
    names = [
        (latent, "" if latent.labels is None else str(latent.labels[k]))
        for latent in problem.latents
        for k in range(latent.size)
    ]
    columns = [
        (o.name, "" if o.labels is None else str(o.labels[k]))
        for o in problem.survey.observations
        for k in range(o.values.shape[1])
    ]
    size = np.nan_to_num(np.abs(found.pull)).ravel()
    coordinates = str(points.attrs["invgp_coordinates"]).split()
    rows: list[dict[str, object]] = []
    for i in np.argsort(-size, kind="stable")[:count]:
        n, p = divmod(int(i), found.pull.shape[1])
        if not size[i] > 0.0:
            break
        (latent, label), place = names[int(found.process[n, p])], int(found.place[n, p])
        rows.append(
            {
                "observation": columns[p][0],
                "label": columns[p][1],
                "site": n + 1,
                "leverage": float(found.leverage[n, p]),
                "pull": float(found.pull[n, p]),
                "latent": latent.name,
                "latent_label": label,
                "place": {} if latent.is_scalar else {c: float(points[c].values[place]) for c in coordinates},
            }
        )
    return rows


def group_rows(found: xr.Dataset) -> list[dict[str, object]]:
    """Return how much each source or observation reduces the standard deviation of each latent."""
    rows: list[dict[str, object]] = []
    for name in str(found.attrs["invgp_latents"]).split():
        if f"{name}_reduction" in found:
            for k, data in enumerate(found["data_label"].values.tolist()):
                values = found[f"{name}_reduction"].values[k]
                rows.append(
                    {"data": data, "latent": name, "mean": float(values.mean()), "largest": float(values.max())}
                )
    return rows
