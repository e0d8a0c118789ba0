"""Variables of a posterior dataset about the latents: posterior, prior, draws and correlations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from invgp.bounded_links import link_attributes
from invgp.posterior.coordinates import label_array, make_array
from invgp.posterior.gaussian_processes import ProcessPosterior, kernel_attributes
from invgp.posterior.solution import Samples, Solution
from invgp.problem import Floats, Latent, Problem

_PROCESSES = ("process", "other_process")
WHITENED_NUMBERS = 10**6  # numbers of all stored draws for prediction
FEWEST_WHITENED, MOST_WHITENED = 200, 4000  # draws for prediction


def _prior_covariance(latent: Latent, variance: Floats) -> Floats:
    """Return the prior covariance (N, L, L) of the processes of a latent from their variances (N, L)."""
    correlation = np.eye(latent.size) if latent.label_correlation is None else latent.label_correlation
    std = np.sqrt(variance)
    return np.asarray(std[..., None] * correlation * std[..., None, :])


class PriorAtPoints(NamedTuple):
    """Prior of the L processes of a latent at the points of a posterior.

    Attributes
    ----------
    mean : array, shape (N, L)
    scale : array, shape (N, L)
        Standard deviation over the nominal one; 1 for a stationary kernel.
    """

    mean: Floats
    scale: Floats


def latent_variables(
    latent: Latent, solution: Solution, columns: slice, quantiles: tuple[float, ...], prior_at: PriorAtPoints
) -> dict[str, xr.DataArray]:
    """Return the variables of one latent.

    Parameters
    ----------
    latent : Latent
    solution : Solution
    columns : slice
        Columns of the latent among the Q processes.
    quantiles : tuple of float
        Probabilities of the quantiles.
    prior_at : PriorAtPoints
        Prior of the processes of the latent.

    Returns
    -------
    dict of str to DataArray
        Posterior and prior moments of the physical quantity, quantiles, draws and information.
    """
    link, mean, covariance = latent.link, solution.mean[:, columns], solution.covariance[:, columns, columns]
    if solution.samples is None:
        physical_mean, physical_std = link.moments(mean, covariance)
        physical_quantiles = link.quantiles(mean, covariance, np.asarray(quantiles))
    else:
        values = link(solution.samples.latents[..., columns])
        physical_mean, physical_std = values.mean(axis=0), values.std(axis=0, ddof=1)
        physical_quantiles = np.quantile(values, quantiles, axis=0)
    process_mean, process_std = link.prior_to_process(latent.mean, latent.std)
    prior_variance = prior_at.scale**2 * process_std**2
    prior_mean, prior_std = link.moments(prior_at.mean, _prior_covariance(latent, prior_variance))
    if link.elementwise:
        variance, prior, measured = np.diagonal(covariance, axis1=1, axis2=2), prior_variance, "the Gaussian process"
    else:
        variance, prior, measured = physical_std**2, prior_std**2, "the quantity itself"
    # The data add nothing where the prior fixes the value, such as at the centre of a linear kernel.
    variance_ratio = np.divide(variance, prior, out=np.ones(np.shape(variance)), where=prior > 0)
    points = mean.shape[0]
    name, what = latent.name, latent.long_name or latent.name
    unit = {"units": latent.unit}
    error = {"standard_name": f"{latent.standard_name} standard_error"} if latent.standard_name else {}
    named = {"standard_name": latent.standard_name} if latent.standard_name else {}
    positive = {"positive": latent.positive} if latent.positive else {}

    def field(values: Floats, attributes: Mapping[str, Any], leading: tuple[str, ...] = ()) -> xr.DataArray:
        return label_array(values, latent.dimension, attributes, leading, _points(latent, solution))

    few_runs = {}
    if solution.few_runs_std is not None:
        few_runs[f"{name}_few_runs_std"] = field(
            solution.few_runs_std[:, columns],
            {
                "long_name": f"standard deviation of {what} due to the small number of runs",
                "units": "1",
                "comment": "in prior standard deviations of the Gaussian process; its square is part of the "
                "posterior variance, and more runs would reduce it",
            },
        )
    return few_runs | {
        name: field(
            physical_mean,
            {
                "long_name": what,
                **unit,
                **named,
                **positive,
                **_prior_attributes(latent, process_mean, process_std),
                "ancillary_variables": f"{name}_std {name}_information",
                "comment": "posterior mean",
            },
        ),
        f"{name}_std": field(physical_std, {"long_name": f"posterior standard deviation of {what}", **unit, **error}),
        f"{name}_quantile": field(
            physical_quantiles,
            {"long_name": f"posterior quantile of {what}", **unit},
            ("quantile",),
        ),
        f"{name}_sample": field(
            link(solution.draws[..., columns]).astype(np.float32),
            {"long_name": f"posterior draw of {what}", **unit, "comment": f"joint over {solution.points}s and latents"},
            ("realization",),
        ),
        f"{name}_prior": field(
            np.broadcast_to(prior_mean, (points, latent.size)).copy(), {"long_name": f"prior mean of {what}", **unit}
        ),
        f"{name}_prior_std": field(
            np.broadcast_to(prior_std, (points, latent.size)).copy(),
            {"long_name": f"prior standard deviation of {what}", **unit},
        ),
        f"{name}_information": field(
            1.0 - variance_ratio,
            {
                "long_name": f"information gained on {what}",
                "units": "1",
                "comment": f"1 - posterior variance / prior variance of {measured} (link: {link.name}): "
                "0 where the data contain no information, 1 where they determine the value",
            },
        ),
    }


def sampling_variables(latent: Latent, solution: Solution, samples: Samples, columns: slice) -> dict[str, xr.DataArray]:
    """Return R-hat and effective sample size of one latent; parameters as of `latent_variables`."""
    name, what = latent.name, latent.long_name or latent.name
    scale = {"units": "1", "comment": "on the scale of the Gaussian process"}
    return {
        f"{name}_r_hat": label_array(
            samples.r_hat[:, columns].astype(np.float32),
            latent.dimension,
            {"long_name": f"R-hat of the draws of {what}", **scale},
            points=_points(latent, solution),
        ),
        f"{name}_effective_sample_size": label_array(
            samples.effective[:, columns].astype(np.float32),
            latent.dimension,
            {"long_name": f"effective number of draws of {what}", **scale},
            points=_points(latent, solution),
        ),
    }


def _points(latent: Latent, solution: Solution) -> str | None:
    """Return the dimension of the places of a latent; None for a scalar."""
    return None if latent.is_scalar else solution.points


def draw_variables(samples: Samples, count: int) -> dict[str, xr.DataArray]:
    """Return the chain and the mode of each of the `count` stored draws.

    Parameters
    ----------
    samples : Samples
        All draws.
    count : int
        Number of stored draws.

    Returns
    -------
    dict of str to DataArray
    """
    stored = samples.thin(count)
    return {
        "chain": make_array(
            ("realization",),
            samples.chain[stored].astype(np.int32) + 1,
            {"long_name": "chain of the draw", "units": "1"},
        ),
        "mode": make_array(
            ("realization",),
            samples.mode[stored].astype(np.int32) + 1,
            {"long_name": "mode of the draw, the most probable first", "units": "1"},
        ),
    }


def mode_variables(samples: Samples) -> dict[str, xr.DataArray]:
    """Return the number and the probability of each mode, if there are several.

    Parameters
    ----------
    samples : Samples

    Returns
    -------
    dict of str to DataArray
    """
    probabilities = samples.mode_probabilities
    if len(probabilities) == 1:
        return {}
    numbers = np.arange(1, len(probabilities) + 1)
    return {
        "posterior_mode": make_array(("posterior_mode",), numbers, {"long_name": "number of the mode", "units": "1"}),
        "mode_probability": make_array(
            ("posterior_mode",), probabilities, {"long_name": "probability of the mode", "units": "1"}
        ),
    }


def hyperparameter_variables(samples: Samples) -> dict[str, xr.DataArray]:
    """Return the draws of the learnt hyperparameters, joint with those of the whitened inducing variables.

    Parameters
    ----------
    samples : Samples

    Returns
    -------
    dict of str to DataArray
    """
    stored = samples.thin(_stored_draws(samples))
    variables = {}
    for learnt in samples.hyperparameters:
        about = {
            "long_name": f"posterior draw of the {learnt.long_name}",
            "units": learnt.unit,
            "most_probable": learnt.most_probable,
            "prior_median": learnt.median,
            "prior_factor": learnt.factor,
            "comment": "the prior is log-normal, with this median; a change by prior_factor is one standard deviation",
        }
        if learnt.degrees is not None:
            about["prior_degrees"] = learnt.degrees
            about["comment"] = (
                "its square has an inverse-gamma prior with shape and scale prior_degrees / 2; a change by "
                "prior_factor is one standard deviation of the logarithm"
            )
        if learnt.process_std is not None:
            std = learnt.process_std
            about["process_std"] = std if std.size > 1 else float(std[0])
        variables[f"{learnt.name}_sample"] = make_array(("draw",), learnt.values[stored], about)
    return variables


def _stored_draws(samples: Samples) -> int:
    """Return the number of draws for prediction and of hyperparameters that the file holds."""
    if samples.whitened is None:
        return MOST_WHITENED
    return int(np.clip(WHITENED_NUMBERS // samples.whitened[0].size, FEWEST_WHITENED, MOST_WHITENED))


def whitened_draws(samples: Samples, processes: ProcessPosterior) -> dict[str, xr.DataArray]:
    """Return the draws of the whitened inducing variables, as many as fit in `WHITENED_NUMBERS`, and their modes.

    Parameters
    ----------
    samples : Samples
    processes : ProcessPosterior
        Gaussian posterior of the processes.

    Returns
    -------
    dict of str to DataArray
    """
    if samples.whitened is None:
        return {}
    count = _stored_draws(samples)
    points = "inducing" if getattr(processes, "inducing", None) is not None else "site"
    about = {
        "long_name": "draws of the processes at the inducing points, whitened by the Cholesky factor of their prior "
        "covariance",
        "units": "1",
    }
    if samples.hyperparameters:
        about["comment"] = "the prior covariance of each draw is that of its hyperparameters"
    stored = samples.thin(count)
    values = samples.whitened[stored].astype(np.float32)
    return {
        "whitened_sample": make_array(("draw", "process", points), values, about),
        "draw_mode": make_array(
            ("draw",),
            samples.mode[stored].astype(np.int32) + 1,
            {"long_name": "mode of the draw for prediction, the most probable first", "units": "1"},
        ),
    }


def _prior_attributes(latent: Latent, process_mean: Floats, process_std: Floats) -> dict[str, Any]:
    """Return the prior of a latent with its learnt values; a list of one number becomes a number, as in netCDF."""
    kernel = kernel_attributes(latent.kernel)
    numbers = {name: value for name, value in kernel.items() if not isinstance(value, str)}
    link = link_attributes(latent.link)
    numbers |= {name: value for name, value in link.items() if not isinstance(value, str)}
    numbers |= {"process_mean": process_mean, "process_std": process_std}
    learnt = {"learnt": " ".join(latent.learn)} if latent.learn else {}
    kept = {name: value if value.size > 1 else float(value[0]) for name, value in numbers.items()}
    texts = {name: value for name, value in kernel.items() if isinstance(value, str)}
    return {**texts, "link": latent.link.name, **kept, **learnt}


def correlation_variable(problem: Problem, solution: Solution) -> xr.DataArray:
    """Return the posterior correlations (N, Q, Q) of the latent processes at each site or node.

    Parameters
    ----------
    problem : Problem
    solution : Solution
        Result of the inference.

    Returns
    -------
    DataArray
    """
    std = np.sqrt(np.diagonal(solution.covariance, axis1=1, axis2=2))
    values = (solution.covariance / (std[:, :, None] * std[:, None, :])).astype(np.float32)
    names = [latent.name for latent in problem.latents for _ in range(latent.size)]
    labels = [_label_text(latent, label) for latent in problem.latents for label in latent.labels or ("",)]
    texts = np.asarray([f"{name} {label}".strip() for name, label in zip(names, labels, strict=True)])
    about = {
        "long_name": f"posterior correlation between latents at a {solution.points}",
        "units": "1",
        "comment": "on the scale of the Gaussian processes",
    }
    coordinates = {f"{d}_label": make_array((d,), texts, {"long_name": "latent and label"}) for d in _PROCESSES}
    return xr.DataArray(values, coordinates, (solution.points, *_PROCESSES), attrs=about)


def _label_text(latent: Latent, label: str | int | float) -> str:
    """Return the text of a label, as figures show it: ``layer 2``, ``early``."""
    return label if isinstance(label, str) else f"{latent.dimension} {label}"
