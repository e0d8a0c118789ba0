"""What becomes of each feature of a PEST control file in an inversion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .control import Control

# What stands in for the sections of a control file that are not used.
_SECTIONS = {
    "automatic user intervention": "not used: nothing is held during the inversion",
    "singular value decomposition": "not used: the prior makes the problem well-posed",
    "lsqr": "not used: the prior makes the problem well-posed",
    "svd assist": "not used: the modes of the prior take the place of super parameters",
    "sensitivity reuse": "not used: all earlier runs are in the ledger",
    "derivatives command line": "not used: no derivatives are computed",
    "predictive analysis": "not used: the posterior draws give the distribution of a prediction",
    "pareto": "not used: noise and prior have fixed weights",
    "regularisation": "not used: the prior regularises; the weights of its terms are not adjusted",
    "parameter groups": "settings of finite differences, not used: no derivatives are computed",
}
# Prefixes of options of PEST++, in order; the first that fits is used.
_OPTIONS = {
    "additional_ins_delimiters": "used",
    "par_sigma_range": "part of the prior that `invgp init --from-pest` writes",
    "parcov": "part of the prior that `invgp init --from-pest` writes",
    "ies_parameter_ensemble": "not used: prior samples are drawn from the prior in the configuration",
    "ies_par_en": "not used: prior samples are drawn from the prior in the configuration",
    "ies_observation_ensemble": "not used: the noise enters the likelihood, no observations are perturbed",
    "ies_obs_en": "not used: the noise enters the likelihood, no observations are perturbed",
    "obscov": "not used: the noise is independent; see noise.covariance",
    "ies_localizer": "not used: see inference.localisation",
    "ies_autoadaloc": "not used: see inference.localisation",
    "ies_num_reals": "not used: the number of runs adapts, up to inference.max_runs",
    "ies": "not used: a setting of the ensemble smoother",
    "da_": "not used: a setting of data assimilation in cycles",
    "opt_": "not used: a setting of optimisation under uncertainty",
    "mou_": "not used: a setting of optimisation with several objectives",
    "sweep": "not used: a setting of parameter sweeps",
    "gsa_": "not used: a setting of sensitivity analysis",
    "glm_": "not used: a setting of the Gauss-Levenberg-Marquardt method",
    "tikhonov": "not used: the prior regularises",
    "forecasts": "not used: name predictions as observations with weight 0, or compute them from the posterior draws",
    "panther": "not used: see --workers and docs/cluster.md",
    "overdue": "not used: see forward.timeout",
    "max_run_fail": "not used: see inference.retries",
    "noptmax": "not used: the inversion ends when it has converged, or at inference.max_runs",
    "pestmode": "not used: every mode becomes an inversion with prior and noise",
}
_CONTROL_KEYWORD = "not used: a setting of the search of PEST"
_MOST_NAMED = 6


def count_things(things: Sequence[object], noun: str, more: str = "") -> str:
    """Return the number of some things, such as ``2 parameters in no template``."""
    return f"{len(things)} {noun}{'s' * (len(things) != 1)}{more}"


def list_names(names: list[str]) -> str:
    """Return some names as text, with the number of those that are left out."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def describe_features(case: Control, *, adjusted: set[str], observed: set[str]) -> Iterator[tuple[str, str]]:
    """Yield each feature of a case and what became of it.

    Parameters
    ----------
    case : Control
    adjusted : set of str
        Names, in lower case, of the parameters that are inferred or come from the survey.
    observed : set of str
        Names of the observations that are outputs.
    """
    kinds: dict[str, list[str]] = {"adjusted": [], "fixed": [], "tied": [], "left": []}
    for name, parameter in case.parameters.items():
        follows = parameter.tied_to in adjusted
        kind = "adjusted" if name in adjusted else "tied" if follows else parameter.transform
        kinds[kind if kind in ("adjusted", "tied", "fixed") else "left"].append(name)
    if kinds["adjusted"]:
        yield count_things(kinds["adjusted"], "parameter"), f"inputs of the model: {list_names(kinds['adjusted'])}"
    if kinds["tied"]:
        yield (
            count_things(kinds["tied"], "tied parameter"),
            f"keep their ratio to the parent: {list_names(kinds['tied'])}",
        )
    if kinds["fixed"]:
        yield count_things(kinds["fixed"], "fixed parameter"), f"keep their value: {list_names(kinds['fixed'])}"
    if kinds["left"]:
        yield count_things(kinds["left"], "other parameter"), f"keep their initial value: {list_names(kinds['left'])}"
    yield from _describe_observations(case, observed)
    if len(case.commands) > 1:
        yield f"{len(case.commands)} model command lines", "run one after the other"
    if case.unused_commands:
        yield f"{len(case.unused_commands)} command lines for derivatives", "not used: no derivatives are computed"
    for section in case.sections:
        if section in _SECTIONS:
            yield f"section '* {section}'", _SECTIONS[section]
    for option, value in case.options.items():
        shown = f"option {option}({value})" if value else f"option {option}"
        fate = next((text for prefix, text in _OPTIONS.items() if option.startswith(prefix)), _CONTROL_KEYWORD)
        yield shown, fate


def _describe_observations(case: Control, observed: set[str]) -> Iterator[tuple[str, str]]:
    yield count_things(sorted(observed), "observation"), f"outputs of the model: {list_names(sorted(observed))}"
    others = [name for name in case.observations if name not in observed]
    unweighted = [name for name in others if case.observations[name].weight == 0.0]
    if unweighted:
        yield count_things(unweighted, "observation", " with weight 0"), f"left out: {list_names(unweighted)}"
    rest = [name for name in others if case.observations[name].weight != 0.0]
    if rest:
        yield count_things(rest, "other observation"), f"left out: {list_names(rest)}"
    for name, file in case.observation_groups.items():
        if file:
            yield f"covariance matrix {file!r} of group {name!r}", "not used: see noise.covariance"
