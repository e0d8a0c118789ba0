"""Keys that are unknown or missing: one sentence each."""

from __future__ import annotations

from helpers.config_files import WriteSurvey
from helpers.config_mistakes import Case, by_mistake, sentence_of
from invgp.formatting import join_names
from invgp.settings.simulators import ADAPTERS

UNKNOWN_KEYS = [
    Case(
        "top level",
        {"title =": "titel ="},
        "titel: unknown key; valid: 'version', 'title', 'dimensions', 'survey', 'grid', 'latents', 'prior', "
        "'sources', 'direct', 'forward', 'noise' and 2 more; did you mean 'title'?",
    ),
    Case(
        "survey",
        {'crs = "EPSG': 'CRS_ = "EPSG'},
        "survey.CRS_: unknown key; valid: 'file', 'crs', 'coordinates', 'observations' and 'covariates'; did you "
        "mean 'crs'?",
    ),
    Case(
        "coordinate",
        {'easting]\nunit = "m"': 'easting]\nunit = "m"\ncolumns = ["x"]'},
        "survey.coordinates.easting.columns: unknown key; valid: 'column', 'unit', 'long_name', "
        "'standard_name' and 'positive'; did you mean 'column'?",
    ),
    Case(
        "observation",
        {"columns =": "colums ="},
        "survey.observations.time.colums: unknown key; valid: 'columns', 'unit', 'dimension', 'long_name' and "
        "'standard_name'; did you mean 'columns'?",
    ),
    Case(
        "latent",
        {"mean = 2000": "means = 2000"},
        "latents.velocity.means: unknown key; valid: 'unit', 'domain', 'dimension', 'mean', 'std', 'trend', "
        "'trend_std', 'label_correlation', 'correlated_with', 'kernel', 'length_scale_map' and 7 more; did you mean "
        "'mean'?",
    ),
    Case(
        "kernel",
        {"kind =": "kernel ="},
        "latents.depth.kernel.kernel: unknown key; valid: 'kind', "
        "'length_scale', 'angle', 'dip', 'period', 'shape', 'centre', 'coordinates', 'zones', "
        "'share' and 'parts'",
    ),
    Case(
        "callable",
        {"function =": "funktion ="},
        "forward.funktion: unknown key; valid: 'adapter', 'function', 'vectorised', 'partial', 'jacobian', "
        "'jacobian_cost', 'arrays', 'kind', 'inputs', 'outputs' and 'coarse'; did you mean 'function'?",
    ),
    Case(
        "callable, far from any",
        {"function =": "xyz = 1\nfunction ="},
        "forward.xyz: unknown key; valid: 'adapter', 'function', 'vectorised', 'partial', 'jacobian', "
        "'jacobian_cost', 'arrays', 'kind', 'inputs', 'outputs' and 'coarse'",
    ),
    Case(
        "input",
        {'"elevation"]': '{ name = "elevation", units = "m" }]'},
        "forward.inputs[2].units: unknown key; valid: 'name', 'source', 'unit' and 'names'; did you mean 'unit'?",
    ),
    Case(
        "learn",
        {'link = "log"': 'link = "log"\nlearn = { length_scales = true }'},
        "latents.velocity.learn.length_scales: unknown key; valid: 'length_scale', 'std', 'period', 'shape' and "
        "'share'; did you mean "
        "'length_scale'?",
    ),
    Case(
        "noise",
        {"std.time": "stdev.time"},
        "noise.stdev: unknown key; valid: 'kind', 'std', 'correlation', 'correlation_length', 'covariance', 'degrees', "
        "'learn', 'scale_degrees' and 'discrepancy'; did you mean 'std'?",
    ),
    Case(
        "inference",
        {"samples =": "sample ="},
        "inference.sample: unknown key; valid: 'posterior', 'estimator', 'emulator', 'runs_per_site', "
        "'emulator_error', 'max_runs', 'max_coarse_runs', 'kept_variance', 'localisation', 'inducing', "
        "'learn_inducing' and 11 more; did you mean 'samples'?",
    ),
    Case(
        "output",
        {"[output]": "[output]\nquantile = [0.5]"},
        "output.quantile: unknown key; valid: 'file', 'quantiles', 'realizations' and 'ledger'; did you mean "
        "'quantiles'?",
    ),
]
UNKNOWN_KEYS_OF_A_PROGRAM = [
    Case(
        "executable",
        {"timeout = 10": "time_out = 10"},
        "forward.time_out: unknown key; valid: 'adapter', 'command', 'input_files', 'output_files', 'target_file', "
        "'fallback', 'files', 'bounds', 'keep', 'timeout', 'partial' and 6 more; did you mean 'timeout'?",
    ),
    Case(
        "input file",
        {"template =": "templat ="},
        "forward.input_files[0].templat: unknown key; valid: 'template', 'path' and 'format'; did you mean 'template'?",
    ),
    Case(
        "output file",
        {'[{ path = "times.txt" }]': '[{ path = "times.txt", skip = 1 }]'},
        "forward.output_files[0].skip: unknown key; valid: 'format', 'skip_lines', 'path' and 'outputs'",
    ),
]
MISSING_KEYS = [
    Case(
        "no survey file",
        {'file = "sites.csv"\n': ""},
        "survey.file: is missing; it must be a netCDF file (.nc, .nc4, .cdf) or, with any other ending, a CSV file; "
        "with one row per site",
    ),
    Case(
        "no unit",
        {'[latents.depth]\nunit = "m"\n': "[latents.depth]\n"},
        "latents.depth.unit: is missing; it must be a unit that UDUNITS knows, such as 'm' or 'm s-1'",
    ),
    Case(
        "no length-scale",
        {", length_scale = 1000 }": " }"},
        "latents.depth.kernel.length_scale: is missing; it must be a positive number in the coordinates' unit, "
        "or one for each coordinate, each in its unit; a list where the units differ",
    ),
    Case(
        "no adapter",
        {'adapter = "callable"\n': ""},
        f"forward.adapter: is missing; it must be {join_names(ADAPTERS, 'or')}",
    ),
    Case("no noise", {"[noise]\nstd.time = 0.05\n": ""}, "noise: is missing; it must be the table [noise]"),
    Case(
        "no noise for an observation",
        {"std.time = 0.05": "std = {}"},
        "noise.std.time: is missing; it must be the standard deviation of the noise in 's'",
    ),
    Case(
        "no outputs",
        {'outputs = ["time"]\n': ""},
        "forward.outputs: is missing; it must be a list of the observations that come out, in the simulator's order",
    ),
]


@by_mistake(UNKNOWN_KEYS, MISSING_KEYS)
def test_that_a_wrong_key_gives_one_error_message(case: Case, write_survey: WriteSurvey) -> None:
    assert sentence_of(write_survey(case.config)) == case.sentence


@by_mistake(UNKNOWN_KEYS_OF_A_PROGRAM)
def test_that_a_wrong_key_of_a_program_gives_one_error_message(case: Case, write_survey: WriteSurvey) -> None:
    assert sentence_of(write_survey(case.config, executable=True)) == case.sentence
