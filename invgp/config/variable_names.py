"""Names of variables and dimensions of the posterior file, and labels."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from invgp.errors import ConfigError
from invgp.formatting import suggest
from invgp.problem import Floats, Labels
from invgp.settings.configuration import Config

RESERVED = (
    "site",
    "quantile",
    "realization",
    "iteration",
    "elbo",
    "runs",
    "crs",
    "shape_error",
    "gaussian_error",
    "chain",
    "mode",
    "emulator_error",
    "emulator_run",
    "emulator_run_latent",
    "emulator_run_output",
    "emulator_run_site",
    "emulator_run_stage",
    "output_number",
    "direct_evaluation",
    "source",
    "bounds",
    "node",
    "mesh",
    "mesh_x",
    "mesh_y",
    "mesh_z",
    "mesh_cells",
    "mesh_cell_type",
    "mesh_vertex",
    "mesh_corner",
    "correlation",
    "process",
    "process_mixing",
    "other_process",
    "process_label",
    "other_process_label",
    "inducing",
    "other_site",
    "site_precision",
    "site_shift",
    "whitened_mean",
    "whitened_factor",
    "whitened_root",
    "whitened",
    "other_whitened",
    "whitened_sample",
    "draw",
    "draw_mode",
)

OF_OBSERVATIONS = (
    "_observed",
    "_noise_std",
    "_predicted",
    "_predicted_std",
    "_residual",
    "_chi_square",
    "_noise_factor_sample",
)
# Variables and dimensions of an earlier posterior as the prior.
EARLIER = ("prior_site", "prior_direction", "prior_data", *(f"prior_data{suffix}" for suffix in OF_OBSERVATIONS))

OF_LATENTS = (
    "_std",
    "_quantile",
    "_sample",
    "_prior",
    "_prior_std",
    "_information",
    "_exceedance",
    "_threshold",
    "_few_runs_std",
    "_map_mean",
    "_map_scale",
    "_process",
    "_r_hat",
    "_effective_sample_size",
    "_std_factor_sample",
)
DISCREPANCY = "_discrepancy"  # after the name of an observation, the name of its discrepancy

# What the posterior file calls the variables that it derives from others.
SUFFIXES = {
    "dimensions": ("_label",),
    "survey.coordinates": ("_inducing", "_bounds"),
    "grid.coordinates": ("_inducing",),
    "latents": OF_LATENTS,
    "noise.discrepancy": tuple(DISCREPANCY + suffix for suffix in ("", *OF_LATENTS)),
    "survey.observations": OF_OBSERVATIONS,
}


def check_names(config: Config) -> None:
    """Raise `ConfigError` if two things would be the same variable of the posterior file."""
    owners = dict.fromkeys(RESERVED, "that every posterior has")
    if config.prior is not None:
        owners |= dict.fromkeys(EARLIER, "of the data of the prior")
    wrong = []
    for key, name in ((key, name) for key, names in _name_variables(config).items() for name in names):
        if key == "grid.coordinates" and name in config.survey.coordinates:
            continue  # the file calls the survey's so, with "site_" before it
        variables = [*([] if key == "noise.discrepancy" else [name]), *(name + suffix for suffix in _suffixes(key))]
        taken = next((variable for variable in variables if variable in owners), None)
        if taken is not None:
            wrong.append(
                f"{key}.{name}: must have names of its own in the posterior file, was {taken!r}, a name {owners[taken]}"
            )
        owners |= {variable: f"of {key}.{name}" for variable in variables if variable not in owners}
    wrong += [
        "direct.survey: must have another name: 'survey' are the data of [survey]"
        for _ in {"survey"} & {*config.direct}
    ]
    if wrong:
        raise ConfigError(wrong)


def _name_variables(config: Config) -> dict[str, Iterable[str]]:
    return {
        "dimensions": config.dimensions,
        "survey.coordinates": config.survey.coordinates,
        "survey.observations": config.survey.observations,
        "survey.covariates": config.survey.covariates,
        "latents": config.latents,
        "noise.discrepancy": config.noise.discrepancy,
        "grid.coordinates": {} if config.grid is None else config.grid.coordinates,
        "direct": {} if config.grid is None else _places(config),
        **{f"direct.{name}.values": section.values for name, section in config.direct.items()},
    }


def _places(config: Config) -> list[str]:
    """Return the variables with the places of direct data in the posterior of a field model."""
    coordinates = [] if config.grid is None else [*config.grid.coordinates]
    return [f"{name}_{what}" for name in config.direct for what in ("place", *coordinates)]


def _suffixes(key: str) -> tuple[str, ...]:
    return OF_OBSERVATIONS if key.startswith("direct.") else SUFFIXES.get(key, ())


def labels_of(config: Config, dimension: str | None, key: str) -> Labels | None:
    """Return the labels of the dimension in ``key.dimension``; None without a dimension."""
    if dimension is None:
        return None
    if dimension not in config.dimensions:
        valid = list(config.dimensions)
        raise ConfigError(
            f"{key}.dimension: must be a key of [dimensions], was {dimension!r}{suggest(dimension, valid)}"
        )
    labels: Labels = tuple(config.dimensions[dimension])
    return labels


def per_label(value: object, labels: Labels | None, key: str) -> Floats:
    """Return a number, or one number per label, as an array (L,)."""
    count = 1 if labels is None else len(labels)
    if isinstance(value, list) and (labels is None or len(value) != count):
        wanted = "one number (it has no dimension)"
        if labels is not None:
            wanted = f"one number, or a list of {count}: one for each label of its dimension"
        raise ConfigError(f"{key}: must be {wanted}, was a list of {len(value)}")
    return np.broadcast_to(np.asarray(value, dtype=np.float64), (count,)).copy()
