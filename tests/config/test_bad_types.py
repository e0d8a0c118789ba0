"""Values of the wrong type or in the wrong unit: one sentence each."""

from __future__ import annotations

from helpers.config_files import WriteSurvey
from helpers.config_mistakes import Case, by_mistake, sentence_of
from invgp.formatting import join_names
from invgp.settings.simulators import ADAPTERS

WRONG_TYPES = [
    Case("number for text", {'title = "A short line"': "title = 5"}, "title: must be text in quotes, was 5"),
    Case("number for a CRS", {'"EPSG:28354"': "28354"}, "survey.crs: must be text in quotes, was 28354"),
    Case(
        "text for a number", {"samples = 16": 'samples = "16"'}, "inference.samples: must be a whole number, was '16'"
    ),
    Case(
        "fraction for a count",
        {"samples = 16": "samples = 16.5"},
        "inference.samples: must be a whole number, was 16.5",
    ),
    Case(
        "Boolean for a count", {"samples = 16": "samples = true"}, "inference.samples: must be a whole number, was true"
    ),
    Case(
        "text for a Boolean",
        {"outputs =": 'vectorised = "yes"\noutputs ='},
        "forward.vectorised: must be true or false, was 'yes'",
    ),
    Case("text for a list", {'["t1", "t2"]': '"t1"'}, "survey.observations.time.columns: must be a list, was 't1'"),
    Case(
        "number in a list of text",
        {'["t1", "t2"]': '["t1", 2]'},
        "survey.observations.time.columns[1]: must be text in quotes, was 2",
    ),
    Case("empty list", {'["t1", "t2"]': "[]"}, "survey.observations.time.columns: must hold 1 at least, was []"),
    Case(
        "number for a table",
        {'kernel = { kind = "matern 5/2", length_scale = 1000 }': "kernel = 1000"},
        'latents.depth.kernel: must be a table such as { kind = "matern 5/2", length_scale = 500 }, was 1000',
    ),
    Case(
        "text for a table of tables",
        {"[dimensions]\nlayer = [1, 2]": "dimensions = 3"},
        "dimensions: must be a table, was 3",
    ),
    Case(
        "text for an input",
        {'"elevation"]': "3]"},
        'forward.inputs[2]: must be a name in quotes or a table such as { name = "depth", unit = "m" }, was 3',
    ),
    Case(
        "text for a mean",
        {"mean = 2000": 'mean = "fast"'},
        "latents.velocity.mean: must be a finite number, a map file, or a list of them, was 'fast'",
    ),
    Case(
        "infinite mean",
        {"mean = 2000": "mean = inf"},
        "latents.velocity.mean: must be a finite number, a map file, or a list of them, was inf",
    ),
    Case(
        "date for a mean",
        {"mean = 2000": "mean = 2024-01-31"},
        "latents.velocity.mean: must be a finite number, a map file, or a list of them, was 2024-01-31",
    ),
    Case(
        "mixed labels",
        {"layer = [1, 2]": 'layer = [1, "b"]'},
        "dimensions.layer: must be a list of labels, all whole numbers or all text, was [1, 'b']",
    ),
    Case(
        "labels that repeat",
        {"layer = [1, 2]": "layer = [1, 1]"},
        "dimensions.layer: must be labels that all differ, was [1, 1]",
    ),
    Case(
        "no labels",
        {"layer = [1, 2]": "layer = []"},
        "dimensions.layer: must be a list of labels, all whole numbers or all text, was []",
    ),
    Case(
        "text for an error",
        {"samples = 16": 'samples = 16\nemulator_error = "small"'},
        "inference.emulator_error: must be a number, was 'small'",
    ),
    Case(
        "NaN for an error",
        {"samples = 16": "samples = 16\nemulator_error = nan"},
        "inference.emulator_error: must be a finite number, was nan",
    ),
    Case("no worker", {"samples = 16": "samples = 16\nworkers = 0"}, "inference.workers: must be at least 1, was 0"),
    Case(
        "share of one",
        {"samples = 16": "samples = 16\nmax_failed_share = 1"},
        "inference.max_failed_share: must be less than 1, was 1",
    ),
    Case(
        "seed too large",
        {"samples = 16": "samples = 16\nseed = 9223372036854775808"},
        "inference.seed: must be a whole number between -9223372036854775807 and 9223372036854775807",
    ),
    Case(
        "number of very many digits",
        {"samples = 16": f"samples = 1{'0' * 400}"},
        "inference.samples: must be a whole number between -9223372036854775807 and 9223372036854775807",
    ),
    Case(
        "number whose square is none",
        {"mean = 2000": "mean = 1e155"},
        "latents.velocity.mean: must be 0, or a number between 1e-100 and 1e+100 but for its sign, was 1e+155",
    ),
    Case(
        "more workers than any machine has",
        {"samples = 16": "samples = 16\nworkers = 1_000_000_000_000"},
        "inference.workers: must be at most 10,000, was 1000000000000",
    ),
    Case(
        "name with NUL",
        {'title = "': 'title = "\\u0000'},
        "title: must not hold the character NUL",
    ),
    Case(
        "quantile of one",
        {"[output]": "[output]\nquantiles = [0.5, 1]"},
        "output.quantiles: must be a list of numbers between 0 and 1 that all differ, was [0.5, 1]",
    ),
    Case(
        "unknown device",
        {"samples = 16": 'samples = 16\ndevice = "cude"'},
        "inference.device: must be 'cpu', 'cuda' or 'auto', was 'cude'; did you mean 'cuda'?",
    ),
    Case(
        "unknown kernel",
        {"matern 5/2": "Gaussian"},
        "latents.depth.kernel.kind: must be 'squared exponential', 'exponential', 'matern 3/2', 'matern 5/2', "
        "'rational quadratic', 'periodic', 'linear', 'constant', 'white', 'sum' or 'product', was 'Gaussian'; did you "
        "mean 'squared exponential'?",
    ),
    Case(
        "kind of kernel",
        {"matern 5/2": "mattern 5/2"},
        "latents.depth.kernel.kind: must be 'squared exponential', 'exponential', 'matern 3/2', 'matern 5/2', "
        "'rational quadratic', 'periodic', 'linear', 'constant', 'white', 'sum' or 'product', was 'mattern 5/2'; did "
        "you mean 'matern 5/2'?",
    ),
    Case(
        "unknown link",
        {'link = "log"': 'link = "ln"'},
        "latents.velocity.link: must be 'identity', 'log', 'increasing', 'uniform' or 'truncated normal', was 'ln'; "
        "did you mean 'log'?",
    ),
    Case(
        "unknown adapter",
        {'"callable"': '"calable"'},
        f"forward.adapter: must be {join_names(ADAPTERS, 'or')}, was 'calable'; did you mean 'callable'?",
    ),
    Case(
        "adapter of a wrong type", {'"callable"': "1"}, f"forward.adapter: must be {join_names(ADAPTERS, 'or')}, was 1"
    ),
    Case(
        "no server",
        {'adapter = "callable"\nfunction = "simulator:times"': 'adapter = "umbridge"\nmodel = "m"\nurls = []'},
        "forward.urls: must hold 1 at least, was []",
    ),
    Case(
        "no address of a server",
        {'adapter = "callable"\nfunction = "simulator:times"': 'adapter = "umbridge"\nmodel = "m"\nurls = ["host:1"]'},
        "forward.urls[0]: must be like 'http://localhost:4242', but 'host:1' is no address",
    ),
    Case(
        "no name of a model",
        {'adapter = "callable"\nfunction = "simulator:times"': 'adapter = "umbridge"\nurls = ["http://h"]'},
        "forward.model: is missing; it must be the name of the model on the servers",
    ),
    Case(
        "a date in the model's config",
        {
            'adapter = "callable"\nfunction = "simulator:times"': 'adapter = "umbridge"\nmodel = "m"\n'
            'urls = ["http://h"]\nconfig = { day = 2026-01-01 }'
        },
        "forward.config: must be what JSON can hold, but: Object of type date is not JSON serializable",
    ),
    Case(
        "output file without .nc",
        {"posterior.nc": "posterior.hdf"},
        "output.file: must end in .nc, was 'results/posterior.hdf'",
    ),
    Case(
        "four coordinates",
        {"[survey.obs": '[survey.coordinates]\na.unit = "m"\nb.unit = "m"\n[survey.obs'},
        "survey.coordinates: must hold 3 at most, was 'easting', 'northing', 'a' and 'b'",
    ),
    Case("an old version", {"version = 1": "version = 0"}, "version: must be 1, was 0"),
    Case(
        "a newer version",
        {"version = 1": "version = 2"},
        "version: must be 1 for this release of invgp, was 2; a newer release may read it",
    ),
    Case("version as text", {"version = 1": 'version = "1"'}, "version: must be 1, was '1'"),
]
WRONG_UNITS = [
    Case(
        "not a unit",
        {'[latents.depth]\nunit = "m"': '[latents.depth]\nunit = "metrs"'},
        "latents.depth.unit: must be a unit that UDUNITS knows, such as 'm', 'm s-1', 'ohm m' or '1', was 'metrs'",
    ),
    Case(
        "empty unit",
        {'[latents.depth]\nunit = "m"': '[latents.depth]\nunit = ""'},
        "latents.depth.unit: must be a unit that UDUNITS knows, such as 'm', 'm s-1', 'ohm m' or '1', was ''",
    ),
    Case(
        "latent to simulator",
        {'["depth",': '[{ name = "depth", unit = "s" },'},
        "forward.inputs[0].unit: must be a unit that 'depth' (in 'm') can be converted to, was 's'",
    ),
    Case(
        "simulator to observation",
        {'["time"]': '[{ name = "time", unit = "m" }]'},
        "forward.outputs[0].unit: must be a unit that can be converted to that of 'time' ('s'), was 'm'",
    ),
]


@by_mistake(WRONG_TYPES, WRONG_UNITS)
def test_that_a_wrong_type_or_unit_gives_one_error_message(case: Case, write_survey: WriteSurvey) -> None:
    assert sentence_of(write_survey(case.config)) == case.sentence
