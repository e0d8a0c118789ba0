"""What becomes of each feature of a PEST control file in an inversion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .command_line import SHELL, needs_shell
from .control import Control

_PRIOR = "part of the prior that `invgp init --from-pest` writes"
_NOISE = "part of the noise that `invgp init --from-pest` writes"
# What stands in for the sections of a control file that are not used.
_SECTIONS = {
    "control data": "settings of the search (also PARCHGLIM) and of derivatives, not used; numbers in input files have "
    "as many digits as fit, whatever PRECIS",
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
_USED_SECTIONS = (
    "control data keyword",
    "parameter data",
    "observation groups",
    "observation data",
    "model command line",
    "model input/output",
    "model input",
    "model output",
    "prior information",
)
_USED_COLUMNS = ("standard_deviation", "mean", "x", "y", "easting", "northing")  # of tables of parameters
# Prefixes of options of PEST++, in order; the first that fits is used.
_OPTIONS = {
    "additional_ins_delimiters": "used",
    "par_sigma_range": _PRIOR,
    "parcov": _PRIOR,
    "ies_parameter_ensemble": "not used: prior samples are drawn from the prior in the configuration",
    "ies_par_en": "not used: prior samples are drawn from the prior in the configuration",
    "ies_observation_ensemble": "not used: the noise enters the likelihood, no observations are perturbed",
    "ies_obs_en": "not used: the noise enters the likelihood, no observations are perturbed",
    "obscov": _NOISE,
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
    "forecasts": "not used: run the model with the exported posterior draws to predict them",
    "tie_by_group": "not used: the parameters of a group stay apart",
    "panther": "not used: see --workers and docs/cluster.md",
    "overdue": "not used: see forward.timeout",
    "max_run_fail": "not used: see inference.retries",
    "noptmax": "not used: the inversion ends when it has converged, or at inference.max_runs",
    "pestmode": "not used: every mode becomes an inversion with prior and noise",
}
# Keywords of the control data, and options of PEST++-GLM, that have no counterpart.
_SEARCH = frozenset(
    """
    rstfle npar nobs npargp nprior nobsgp maxcompdim derzerolim ntplfle ninsfle precis dpoint numcom jacfile messfile
    obsreref rlambda1 rlamfac phiratsuf phiredlam numlam jacupdate lamforgive derforgive uptestmin relparmax facparmax
    facorig iboundstick upvecbend absparmax phiredswh noptswitch splitswh doaui dosenreuse boundscale phiredstp nphistp
    nphinored relparstp nrelpar phistopthresh lastrun phiabandon icov icor ieig ires jcosave verboserec jcosaveitn
    reisaveitn parsaveitn parsaverun svdmode maxsing eigthresh eigwrite phimlim phimaccept fracphim wfinit wfmin wfmax
    wffac wftol iregadj memsave linreg regcontinue n_iter_base n_iter_super lambdas lambda_scale_fac max_n_super
    super_eigthresh svd_pack mat_inv der_forgive jac_scale upgrade_augment upgrade_bounds auto_norm super_relparmax
    max_super_frz_iter base_jacobian hotstart_resfile uncertainty enforce_tied_bounds debug_parse_only
    iteration_summary max_reg_iter reg_frac rand_seed random_seed check_tplins num_tpl_ins_threads save_binary
    save_dense forgive_unknown_args condor_submit_file ensemble_output_precision
    """.split()  # noqa: SIM905 - a long list of words
)
_SEARCH_SETTING = "not used: a setting of the search of PEST"
_UNKNOWN = "not used: unknown to invgp"
_EMPTY = "not used: it has no value"
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
    for kind, what, outcome in (
        ("tied", "tied parameter", "ratio to the parent kept"),
        ("fixed", "fixed parameter", "value kept"),
        ("left", "other parameter", "initial value kept"),
    ):
        if kinds[kind]:
            yield count_things(kinds[kind], what), f"{outcome}: {list_names(kinds[kind])}"
    scaled = [name for name, own in case.parameters.items() if (own.scale, own.offset) != (1.0, 0.0)]
    if scaled:
        yield (
            count_things(scaled, "parameter", " with SCALE or OFFSET"),
            f"the model reads value * SCALE + OFFSET: {list_names(scaled)}",
        )
    columns = {column for own in case.parameters.values() for column in own.columns if column not in _USED_COLUMNS}
    if columns:
        yield f"columns of parameters: {list_names(sorted(columns))}", "not used"
    yield from _describe_observations(case, observed)
    yield from _describe_commands(case)
    for stated in case.surplus:
        yield "control data", f"{stated}: all are read, as by PEST++"
    for section in case.sections:
        if section not in _USED_SECTIONS:
            yield f"section '* {section}'", _SECTIONS.get(section, _UNKNOWN)
    for option, value in case.options.items():
        shown = f"option {option}({value})" if value else f"option {option}"
        fate = next((text for prefix, text in _OPTIONS.items() if option.startswith(prefix)), "")
        yield shown, (fate or (_SEARCH_SETTING if option in _SEARCH else _UNKNOWN)) if value else _EMPTY
    yield from case.unread


def _describe_commands(case: Control) -> Iterator[tuple[str, str]]:
    if len(case.commands) > 1:
        yield f"{len(case.commands)} model command lines", "run one after the other"
    shell = [line for line in case.commands if needs_shell(line)]
    if shell:
        yield count_things(shell, "model command line", " with characters of a shell"), f"run by {SHELL}, as by PEST"
    if case.unused_commands:
        yield f"{len(case.unused_commands)} command lines for derivatives", "not used: no derivatives are computed"


def _describe_observations(case: Control, observed: set[str]) -> Iterator[tuple[str, str]]:
    yield count_things(sorted(observed), "observation"), f"outputs of the model: {list_names(sorted(observed))}"
    others = [name for name in case.observations if name not in observed]
    unweighted = [name for name in others if case.observations[name].weight == 0.0]
    if unweighted:
        yield count_things(unweighted, "observation", " with weight 0"), f"left out: {list_names(unweighted)}"
    rest = [name for name in others if case.observations[name].weight != 0.0]
    if rest:
        yield count_things(rest, "other observation"), f"left out: {list_names(rest)}"
    columns = {column for own in case.observations.values() for column in own.columns}
    if columns:
        yield f"columns of observations: {list_names(sorted(columns))}", "not used"
    for name, file in case.observation_groups.items():
        if file:
            yield f"covariance matrix {file!r} of group {name!r}", _NOISE
