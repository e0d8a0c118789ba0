"""Every mistake gives one sentence: which key, what it must be, what it was, what would be valid."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from invgp.config import load
from invgp.config.sentences import listed
from invgp.config.simulators import ADAPTERS
from invgp.errors import ConfigError

from .conftest import CALLABLE, WriteSurvey


class Case(NamedTuple):
    """Edits to the config of the fixture, and the sentence that they give; ``<here>`` is the config's folder."""

    mistake: str
    config: dict[str, str]
    sentence: str


UNKNOWN_KEYS = [
    Case(
        "top level",
        {"title =": "titel ="},
        "titel: unknown key; valid: 'version', 'title', 'dimensions', 'survey', 'grid', 'latents', 'forward', 'noise', "
        "'inference' and 'output'; did you mean 'title'?",
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
        "latents.velocity.means: unknown key; valid: 'unit', 'dimension', 'mean', 'std', 'kernel', 'link', "
        "'learn', 'positive', 'long_name' and 'standard_name'; did you mean 'mean'?",
    ),
    Case(
        "kernel", {"kind =": "kernel ="}, "latents.depth.kernel.kernel: unknown key; valid: 'kind' and 'length_scale'"
    ),
    Case(
        "callable",
        {"function =": "funktion ="},
        "forward.funktion: unknown key; valid: 'adapter', 'function', 'vectorised', 'kind', 'inputs' and 'outputs'; "
        "did you mean 'function'?",
    ),
    Case(
        "callable, far from any",
        {"function =": "xyz = 1\nfunction ="},
        "forward.xyz: unknown key; valid: 'adapter', 'function', 'vectorised', 'kind', 'inputs' and 'outputs'",
    ),
    Case(
        "input",
        {'"elevation"]': '{ name = "elevation", units = "m" }]'},
        "forward.inputs[2].units: unknown key; valid: 'name', 'source' and 'unit'; did you mean 'unit'?",
    ),
    Case(
        "learn",
        {'link = "log"': 'link = "log"\nlearn = { length_scales = true }'},
        "latents.velocity.learn.length_scales: unknown key; valid: 'length_scale' and 'std'; did you mean "
        "'length_scale'?",
    ),
    Case(
        "noise",
        {"std.time": "stdev.time"},
        "noise.stdev: unknown key; valid: 'kind', 'std', 'correlation', 'correlation_length', 'covariance', 'degrees' "
        "and 'learn'; did you mean 'std'?",
    ),
    Case(
        "inference",
        {"samples =": "sample ="},
        "inference.sample: unknown key; valid: 'posterior', 'estimator', 'emulator', 'runs_per_site', "
        "'emulator_error', 'max_runs', 'kept_variance', 'localisation', 'inducing', 'learn_inducing', 'batch' and "
        "11 more; did you mean 'samples'?",
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
        "'fallback', 'files', 'bounds', 'keep', 'timeout', 'partial' and 5 more; did you mean 'timeout'?",
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
        "survey.file: is missing; it must be a netCDF file (.nc, .nc4, .cdf) or, with any other ending, a CSV file; a "
        "row a site",
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
        f"forward.adapter: is missing; it must be {listed(ADAPTERS, 'or')}",
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
        "latents.velocity.mean: must be a finite number or a list of them, was 'fast'",
    ),
    Case(
        "infinite mean",
        {"mean = 2000": "mean = inf"},
        "latents.velocity.mean: must be a finite number or a list of them, was inf",
    ),
    Case(
        "date for a mean",
        {"mean = 2000": "mean = 2024-01-31"},
        "latents.velocity.mean: must be a finite number or a list of them, was 2024-01-31",
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
        "text for a tolerance",
        {"samples = 16": 'samples = 16\ntolerance = "small"'},
        "inference.tolerance: must be a number, was 'small'",
    ),
    Case(
        "tolerance of zero",
        {"samples = 16": "samples = 16\ntolerance = 0"},
        "inference.tolerance: must be greater than 0, was 0",
    ),
    Case(
        "NaN for a tolerance",
        {"samples = 16": "samples = 16\ntolerance = nan"},
        "inference.tolerance: must be a finite number, was nan",
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
        "inference.seed: must be less than 9223372036854775808, was 9223372036854775808",
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
        {"matern 5/2": "mattern 5/2"},
        "latents.depth.kernel.kind: must be 'squared exponential', 'matern 3/2' or 'matern 5/2', was 'mattern "
        "5/2'; did you mean 'matern 5/2'?",
    ),
    Case(
        "unknown link",
        {'link = "log"': 'link = "ln"'},
        "latents.velocity.link: must be 'identity', 'log' or 'increasing', was 'ln'",
    ),
    Case(
        "unknown adapter",
        {'"callable"': '"calable"'},
        f"forward.adapter: must be {listed(ADAPTERS, 'or')}, was 'calable'; did you mean 'callable'?",
    ),
    Case("adapter of a wrong type", {'"callable"': "1"}, f"forward.adapter: must be {listed(ADAPTERS, 'or')}, was 1"),
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
        "forward.model: is missing; it must be the name under which the servers offer the model",
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


def named_otherwise(name: str) -> dict[str, str]:
    """Edits that give the latent `velocity` another name, and nothing else."""
    wire = f'{{ name = "velocity", source = "{name}" }}'
    return {"[latents.velocity]": f"[latents.{name}]", '"velocity", "elevation"]': f'{wire}, "elevation"]'}


WRONG_VALUES = [
    Case(
        "mean too long",
        {"mean = [200, 500]": "mean = [200, 500, 600]"},
        "latents.depth.mean: must be one number, or a list of 2: one for each label of its dimension, was a list of 3",
    ),
    Case(
        "mean a list without a dimension",
        {"mean = 2000": "mean = [2000]"},
        "latents.velocity.mean: must be one number (it has no dimension), was a list of 1",
    ),
    Case(
        "std too short",
        {'std = "15%"': "std = [10]"},
        "latents.depth.std: must be one number, or a list of 2: one for each label of its dimension, was a list of 1",
    ),
    Case(
        "columns too few",
        {'["t1", "t2"]': '["t1"]'},
        "survey.observations.time.columns: must be 2 columns (one for each label of 'layer'), was 1",
    ),
    Case(
        "columns without a dimension",
        {'dimension = "layer"\nunit = "s"': 'unit = "s"'},
        "survey.observations.time.columns: must be 1 column (it has no dimension), was 2",
    ),
    Case(
        "length-scales",
        {"[1000, 2000]": "[1000, 2000, 3000]"},
        "latents.velocity.kernel.length_scale: must be one number, or a list of 2: one for each coordinate, was "
        "a list of 3",
    ),
    Case(
        "length-scale of zero",
        {"[1000, 2000]": "0"},
        "latents.velocity.kernel.length_scale: must be a positive number, or a list of one for each coordinate, was 0",
    ),
    Case(
        "noise too long",
        {"std.time = 0.05": "std.time = [1, 2, 3]"},
        "noise.std.time: must be one number, or a list of 2: one for each label of its dimension, was a list of 3",
    ),
    Case(
        "unknown dimension",
        {'dimension = "layer"\nmean': 'dimension = "layers"\nmean'},
        "latents.depth.dimension: must be a key of [dimensions], was 'layers'; valid: 'layer'; did you mean 'layer'?",
    ),
    Case(
        "negative std",
        {"std = 200": "std = -200"},
        "latents.velocity.std: must be a positive number, a list of them, or a percentage such as '15%', was -200",
    ),
    Case(
        "zero std in a list",
        {'std = "15%"': "std = [10, 0]"},
        "latents.depth.std: must be a positive number, a list of them, or a percentage such as '15%', was [10, 0]",
    ),
    Case(
        "bad percentage",
        {'std = "15%"': 'std = "15 percent"'},
        "latents.depth.std: must be a positive number, a list of them, or a percentage such as '15%', was '15 percent'",
    ),
    Case(
        "negative percentage",
        {'std = "15%"': 'std = "-15%"'},
        "latents.depth.std: must be a positive number, a list of them, or a percentage such as '15%', was '-15%'",
    ),
    Case(
        "percentage of zero",
        {"mean = [200, 500]": "mean = [0, 500]"},
        "latents.depth.std: must be a number in 'm' where a mean is zero, was 15% of [0, 500]",
    ),
    Case(
        "log of zero", {"mean = 2000": "mean = 0"}, "latents.velocity.mean: must be positive with link = 'log', was 0"
    ),
    Case(
        "negative noise",
        {"std.time = 0.05": "std.time = -0.05"},
        "noise.std.time: must be a positive number, a list of them, a percentage such as '5%', or the survey's "
        "column or columns, was -0.05",
    ),
    Case(
        "too few samples",
        {"samples = 16": "samples = 8"},
        "inference.samples: must be at least 15 for 3 latent processes, was 8",
    ),
    Case(
        "too few samples for the full Gaussian",
        {"samples = 16": 'samples = 13\nposterior = "full gaussian"'},
        "inference.samples: must be at least 14 for 3 latent processes, was 13",
    ),
    Case(
        "too few samples for linearisation",
        {"samples = 16": 'samples = 5\nestimator = "linearisation"'},
        "inference.samples: must be at least 6 for 3 latent processes, was 5",
    ),
    Case(
        "unknown CRS",
        {"EPSG:28354": "EPSG:2835444"},
        "survey.crs: must be a coordinate reference system that PROJ knows, such as 'EPSG:28354', was 'EPSG:2835444'",
    ),
    Case(
        "geographic CRS for metres",
        {"EPSG:28354": "EPSG:4326"},
        "survey.crs: must be one of coordinates in 'm', the unit of 'easting', was 'EPSG:4326' (WGS 84), which is "
        "geographic: its coordinates are in degrees, or a unit that converts to them",
    ),
    Case(
        "projected CRS for degrees",
        {'northing]\nunit = "m"': 'northing]\nunit = "degrees_north"', "scale = 1000": "scale = [1000, 1]"},
        "survey.crs: must be one of coordinates in 'degrees_north', the unit of 'northing', was 'EPSG:28354' (GDA94 / "
        "MGA zone 54), which is projected: its coordinates are in metres, or a unit that converts to them",
    ),
    Case(
        "one length-scale for two units",
        {'northing]\nunit = "m"': 'northing]\nunit = "km"'},
        "latents.depth.kernel.length_scale: must be a list of 2, one for each coordinate, since their units differ "
        "('m' and 'km'), was 1000",
    ),
    Case(
        "name twice",
        named_otherwise("easting"),
        "latents.easting: must have names of its own in the posterior file, was 'easting', a name of "
        "survey.coordinates.easting",
    ),
    Case(
        "reserved name",
        named_otherwise("site"),
        "latents.site: must have names of its own in the posterior file, was 'site', a name that every posterior has",
    ),
    Case(
        "dimension with the name of a latent",
        {"[dimensions]": "[dimensions]\ndepth = [1]"},
        "latents.depth: must have names of its own in the posterior file, was 'depth', a name of dimensions.depth",
    ),
    Case(
        "name of a derived variable",
        named_otherwise("depth_std"),
        "latents.depth_std: must have names of its own in the posterior file, was 'depth_std', a name of latents.depth",
    ),
    Case(
        "name with a space",
        {"[latents.velocity]": '[latents."the velocity"]'},
        'latents."the velocity": must have a name of letters, digits and underscores that starts with a letter '
        "(it names variables), was 'the velocity'",
    ),
    Case(
        "noise for an unknown observation",
        {"std.time = 0.05": "std.time = 0.05\nstd.tim = 0.1"},
        "noise.std.tim: must have the name of an observation; valid: 'time'; did you mean 'time'?",
    ),
    Case(
        "noise column missing",
        {"std.time = 0.05": 'std.time = ["s1", "s3"]'},
        "noise.std.time: must be a column of sites.csv, which has no column 's3'; valid: 'easting', 'northing', "
        "'elev', 't1', 't2', 's1' and 's2'",
    ),
    Case(
        "too few noise columns",
        {"std.time = 0.05": 'std.time = "s1"'},
        "noise.std.time: must be 2 columns (as many as the observation has), was 1",
    ),
]
THREE_LAYERS = {
    "layer = [1, 2]": "layer = [1, 2, 3]",
    '["t1", "t2"]': '["t1", "t2", "t2"]',
    "mean = [200, 500]": "mean = [200, 500, 600]",
    "samples = 16": "samples = 32",
}
FACTOR = "must be true, a number above 1 (a factor: one standard deviation of its prior) or left out"
NO_MATRIX = "must be a square matrix: a list of rows, each a list of numbers"
NO_CORRELATIONS = "must be a correlation matrix: symmetric, 1 on its diagonal and numbers between -1 and 1 elsewhere"


def learn(table: str) -> dict[str, str]:
    """Edits that give the velocity that `learn`."""
    return {'link = "log"': f'link = "log"\nlearn = {table}'}


def noise(*lines: str) -> dict[str, str]:
    """Edits that add lines to the noise."""
    return {"std.time = 0.05": "\n".join(["std.time = 0.05", *lines])}


def inference(*lines: str) -> dict[str, str]:
    """Edits that add lines to the inference."""
    return {"samples = 16": "\n".join(["samples = 16", *lines])}


WRONG_LINKS = [
    Case(
        "increasing, with means that decrease",
        {'std = "15%"': 'std = "15%"\nlink = "increasing"', "mean = [200, 500]": "mean = [500, 200]"},
        "latents.depth.mean: must be positive and grow from label to label with link = 'increasing', was [500, 200]",
    ),
    Case(
        "increasing, with one mean for all labels",
        {'std = "15%"': 'std = "15%"\nlink = "increasing"', "mean = [200, 500]": "mean = 200"},
        "latents.depth.mean: must be positive and grow from label to label with link = 'increasing', was 200",
    ),
    Case(
        "increasing, from zero",
        {'std = "15%"': 'std = 30\nlink = "increasing"', "mean = [200, 500]": "mean = [0, 500]"},
        "latents.depth.mean: must be positive and grow from label to label with link = 'increasing', was [0, 500]",
    ),
    Case(
        "increasing, without a dimension",
        {'link = "log"': 'link = "increasing"'},
        "latents.velocity.dimension: is missing; with link = 'increasing' it must be a key of [dimensions], along "
        "whose labels the latent grows",
    ),
    Case(
        "percentage of the log of zero",
        {"mean = 2000": "mean = 0", "std = 200": 'std = "10%"'},
        "latents.velocity.mean: must be positive with link = 'log', was 0",
    ),
]
WRONG_LEARNING = [
    Case(
        "learn, a number",
        learn("0.5"),
        "latents.velocity.learn: must be a table such as { length_scale = true, std = 2 }, was 0.5",
    ),
    Case(
        "learn, a Boolean",
        learn("false"),
        "latents.velocity.learn: must be a table such as { length_scale = true, std = 2 }, was false",
    ),
    Case("learn, a factor below 1", learn("{ std = 0.5 }"), f"latents.velocity.learn.std: {FACTOR}, was 0.5"),
    Case("learn, a factor of 1", learn("{ std = 1 }"), f"latents.velocity.learn.std: {FACTOR}, was 1"),
    Case("learn, no factor", learn("{ std = inf }"), f"latents.velocity.learn.std: {FACTOR}, was inf"),
    Case(
        "learn, not to",
        learn("{ length_scale = false }"),
        f"latents.velocity.learn.length_scale: {FACTOR}, was false",
    ),
    Case(
        "learn, a list",
        learn("{ length_scale = [2, 3] }"),
        f"latents.velocity.learn.length_scale: {FACTOR}, was [2, 3]",
    ),
    Case(
        "learn, with the full Gaussian",
        {**learn("{ std = true }"), **inference('posterior = "full gaussian"')},
        "latents.velocity.learn: must be left out with inference.posterior = 'full gaussian', was given",
    ),
    Case("noise.learn, a Boolean", noise("learn = true"), "noise.learn: must be a table, was true"),
    Case("noise.learn, a factor below 1", noise("learn.time = 0.5"), f"noise.learn.time: {FACTOR}, was 0.5"),
    Case(
        "noise.learn of an unknown observation",
        noise("learn.tim = true"),
        "noise.learn.tim: must have the name of an observation; valid: 'time'; did you mean 'time'?",
    ),
    Case(
        "noise.learn with Student-t noise",
        noise('kind = "student-t"', "learn.time = true"),
        "noise.learn: must be left out where noise.kind is not 'gaussian', was given",
    ),
    Case(
        "noise.learn with the score estimator",
        {**noise("learn.time = true"), **inference('estimator = "score"')},
        "noise.learn: must be left out with inference.estimator = 'score', was given",
    ),
    Case(
        "noise.learn with batches",
        {**noise("learn.time = true"), **inference("batch = 2")},
        "noise.learn: must be left out with inference.batch, was given",
    ),
    Case(
        "noise.learn with the full Gaussian",
        {**noise("learn.time = true"), **inference('posterior = "full gaussian"')},
        "noise.learn: must be left out with inference.posterior = 'full gaussian', was given",
    ),
]
WRONG_NOISE = [
    Case(
        "unknown kind of noise",
        noise('kind = "student"'),
        "noise.kind: must be 'gaussian', 'student-t' or 'laplace', was 'student'; did you mean 'student-t'?",
    ),
    Case(
        "two degrees of freedom",
        noise('kind = "student-t"', "degrees = 2"),
        "noise.degrees: must be greater than 2, was 2",
    ),
    Case("correlation, a number", noise("correlation = 0.5"), "noise.correlation: must be a table, was 0.5"),
    Case("correlation, one number", noise("correlation.time = 0.5"), f"noise.correlation.time: {NO_MATRIX}, was 0.5"),
    Case(
        "correlation, not square",
        noise("correlation.time = [[1, 0.5], [0.5]]"),
        f"noise.correlation.time: {NO_MATRIX}, was [[1, 0.5], [0.5]]",
    ),
    Case(
        "correlation, text",
        noise('correlation.time = [[1, "a"], [0.5, 1]]'),
        f"noise.correlation.time: {NO_MATRIX}, was [[1, 'a'], [0.5, 1]]",
    ),
    Case(
        "correlation, not symmetric",
        noise("correlation.time = [[1, 0.4], [0.5, 1]]"),
        f"noise.correlation.time: {NO_CORRELATIONS}, was [[1, 0.4], [0.5, 1]]",
    ),
    Case(
        "correlation, a covariance",
        noise("correlation.time = [[2, 0.5], [0.5, 2]]"),
        f"noise.correlation.time: {NO_CORRELATIONS}, was [[2, 0.5], [0.5, 2]]",
    ),
    Case(
        "correlation, complete",
        noise("correlation.time = [[1, 1], [1, 1]]"),
        f"noise.correlation.time: {NO_CORRELATIONS}, was [[1, 1], [1, 1]]",
    ),
    Case(
        "correlation, not positive definite",
        {**THREE_LAYERS, **noise("correlation.time = [[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]]")},
        "noise.correlation.time: must be positive definite, was not: some of its correlations contradict others",
    ),
    Case(
        "correlation, singular",
        {**THREE_LAYERS, **noise("correlation.time = [[1, 0.6, 0.8], [0.6, 1, 0], [0.8, 0, 1]]")},
        "noise.correlation.time: must be positive definite, was not: some of its correlations contradict others",
    ),
    Case(
        "correlation, of another size",
        noise("correlation.time = [[1]]"),
        "noise.correlation.time: must be 2 by 2, a row for each number observed at a site, was 1 by 1",
    ),
    Case(
        "correlation of an unknown observation",
        noise("correlation.tim = [[1, 0.5], [0.5, 1]]"),
        "noise.correlation.tim: must have the name of an observation; valid: 'time'; did you mean 'time'?",
    ),
    Case(
        "correlation with Student-t noise",
        noise('kind = "student-t"', "correlation.time = [[1, 0.5], [0.5, 1]]"),
        "noise.correlation: must be left out where noise.kind is not 'gaussian', was given",
    ),
]
WRONG_INFERENCE = [
    Case(
        "unknown posterior",
        inference('posterior = "full gausian"'),
        "inference.posterior: must be 'coupled gaussian' or 'full gaussian', was 'full gausian'; did you mean "
        "'full gaussian'?",
    ),
    Case(
        "unknown estimator",
        inference('estimator = "hermit"'),
        "inference.estimator: must be 'auto', 'linearisation', 'hermite' or 'score', was 'hermit'; did you mean "
        "'hermite'?",
    ),
    Case(
        "estimator that needs Gaussian noise",
        {**noise('kind = "laplace"'), **inference('estimator = "hermite"')},
        "inference.estimator: must be 'auto' or 'score' for laplace noise, was 'hermite'",
    ),
    Case(
        "text for the emulator", inference('emulator = "yes"'), "inference.emulator: must be true or false, was 'yes'"
    ),
    Case("no runs a site", inference("runs_per_site = 0"), "inference.runs_per_site: must be at least 1, was 0"),
    Case("no error", inference("emulator_error = 0"), "inference.emulator_error: must be greater than 0, was 0"),
    Case("no runs", inference("max_runs = 0"), "inference.max_runs: must be at least 1, was 0"),
    Case("a fraction of runs", inference("max_runs = 0.5"), "inference.max_runs: must be a whole number, was 0.5"),
    Case("no inducing points", inference("inducing = 0"), "inference.inducing: must be at least 1, was 0"),
    Case(
        "inducing points of the full Gaussian",
        inference("inducing = 2", 'posterior = "full gaussian"'),
        "inference.inducing: must be left out with inference.posterior = 'full gaussian', was given",
    ),
    Case("no site in a batch", inference("batch = 0"), "inference.batch: must be at least 1, was 0"),
    Case(
        "batches of the full Gaussian",
        inference("batch = 2", 'posterior = "full gaussian"'),
        "inference.batch: must be left out with inference.posterior = 'full gaussian', was given",
    ),
    Case(
        "keys of the coupled posterior, for the other",
        inference(
            'posterior = "full gaussian"',
            'estimator = "hermite"',
            "emulator = true",
            "runs_per_site = 5",
            "emulator_error = 0.1",
        ),
        "\n".join(
            f"inference.{key}: must be left out with inference.posterior = 'full gaussian', was given"
            for key in ("estimator", "emulator", "runs_per_site", "emulator_error")
        ),
    ),
    Case(
        "a key of the full Gaussian, for the coupled one",
        inference("tolerance = 1e-5"),
        "inference.tolerance: must be left out with inference.posterior = 'coupled gaussian', was given",
    ),
    Case(
        "a key of the emulator, without one",
        inference("emulator = false", "runs_per_site = 5"),
        "inference.runs_per_site: must be left out with inference.emulator = false, was given",
    ),
    Case(
        "degrees of freedom of Gaussian noise",
        noise("degrees = 3"),
        "noise.degrees: must be left out with noise.kind = 'gaussian', was given",
    ),
    Case(
        "inducing points that are sites",
        inference("learn_inducing = true"),
        "inference.learn_inducing: must be false without inference.inducing (every site is then an inducing point), "
        "was true",
    ),
]
WRONG_WIRES = [
    Case(
        "latent that is no input",
        {'"depth", "velocity", "elevation"': '"depth", "elevation"'},
        "forward.inputs: must name 'velocity' of [latents] once, was not named",
    ),
    Case(
        "input that is nothing",
        {'"velocity", "elevation"]': '"velosity", "elevation"]'},
        "forward.inputs[1]: must be a latent, a covariate or a coordinate, was 'velosity'; valid: 'depth', "
        "'velocity', 'elevation', 'easting' and 'northing'; did you mean 'velocity'?",
    ),
    Case(
        "observation that is no output",
        {'["time"]': '["times"]'},
        "forward.outputs[0]: must be an observation of the survey, was 'times'; valid: 'time'; did you mean 'time'?",
    ),
    Case(
        "output twice",
        {'["time"]': '["time", { name = "again", observation = "time" }]'},
        "forward.outputs: must name 'time' of [survey.observations] once, was named 2 times",
    ),
    Case(
        "input twice",
        {'"elevation"]': '"elevation", "elevation"]'},
        "forward.inputs: names must differ, but 'elevation' comes twice",
    ),
    Case(
        "misspelt function",
        {"simulator:times": "simulator:tims"},
        "forward.function: module 'simulator' has no 'tims'; did you mean 'times'?",
    ),
    Case(
        "misspelt module",
        {"simulator:times": "simulater:times"},
        "forward.function: there is no module 'simulater' on <here> and the rest of sys.path; did you mean "
        "'simulator'?",
    ),
    Case(
        "function without a module",
        {"simulator:times": "times"},
        "forward.function: 'times' must read 'package.module:function'",
    ),
    Case(
        "module far from any",
        {"simulator:times": "gravity:times"},
        "forward.function: there is no module 'gravity' on <here> and the rest of sys.path; <here> has 'simulator'",
    ),
    Case(
        "input by a name that the function does not know",
        {'"elevation"]': '{ name = "height", source = "elevation" }]'},
        "forward.inputs: must have the names that the function 'times' knows: it takes 'depth', 'velocity', "
        "'elevation', was given 'depth', 'velocity', 'height' (missing a required argument: 'elevation')",
    ),
    Case(
        "not a function",
        {"simulator:times": "simulator:ANSWER"},
        "forward.function: 'simulator:ANSWER' is an int, which cannot be called",
    ),
]
WRONG_PROGRAMS = [
    Case(
        "program missing",
        {"./simulator.sh": "./simulater.sh"},
        "forward.command: there is no file <here>/simulater.sh; did you mean 'simulator.sh'?",
    ),
    Case(
        "program not on PATH",
        {"./simulator.sh": "no-such-program"},
        "forward.command: no program 'no-such-program' on PATH",
    ),
    Case(
        "program beside the config",
        {"./simulator.sh": "simulator.sh"},
        "forward.command: no program 'simulator.sh' on PATH; for the file beside the config, write './simulator.sh'",
    ),
    Case(
        "program far from any",
        {"./simulator.sh": "./inverter.sh"},
        "forward.command: there is no file <here>/inverter.sh",
    ),
    Case(
        "template missing",
        {"model.tpl": "modl.tpl"},
        "forward.input_files[0].template: there is no file <here>/modl.tpl; did you mean 'model.tpl'?",
    ),
    Case(
        "argument with an unknown field",
        {"{elevation}": "{elevaton}"},
        "forward.command[1]: line 1: {elevaton} names no input; did you mean 'elevation'? (a brace that is meant "
        "literally is doubled, {{ or }})",
    ),
    Case(
        "input that never reaches the program",
        {', "{elevation}"': ""},
        "forward.inputs: elevation never reaches the program: write {elevation} in the template of an input "
        "file, or in an argument of the command",
    ),
    Case(
        "command as one text",
        {'["./simulator.sh", "{elevation}"]': '"./simulator.sh {elevation}"'},
        'forward.command: must be a list of words, such as ["./simulator.sh", "{elevation}"], was '
        "'./simulator.sh {elevation}'",
    ),
    Case("timeout of zero", {"timeout = 10": "timeout = 0"}, "forward.timeout: must be greater than 0, was 0"),
]


def sentence_of(path: Path, data: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, data=data)
    return str(caught.value).replace(str(path.parent), "<here>")


def by_mistake(*tables: list[Case]) -> pytest.MarkDecorator:
    cases = [case for table in tables for case in table]
    return pytest.mark.parametrize("case", cases, ids=[case.mistake for case in cases])


@by_mistake(
    UNKNOWN_KEYS,
    MISSING_KEYS,
    WRONG_TYPES,
    WRONG_UNITS,
    WRONG_VALUES,
    WRONG_LINKS,
    WRONG_LEARNING,
    WRONG_NOISE,
    WRONG_INFERENCE,
    WRONG_WIRES,
)
def test_that_a_mistake_gives_one_sentence(case: Case, write_survey: WriteSurvey) -> None:
    assert sentence_of(write_survey(case.config)) == case.sentence


@by_mistake(UNKNOWN_KEYS_OF_A_PROGRAM, WRONG_PROGRAMS)
def test_that_a_mistake_about_a_program_gives_one_sentence(case: Case, write_survey: WriteSurvey) -> None:
    assert sentence_of(write_survey(case.config, executable=True)) == case.sentence


PERSISTENT = """\
adapter = "persistent"
command = ["./simulator.sh"]
inputs = ["depth", "velocity", "elevation"]
"""
BATCHED = PERSISTENT.replace('"persistent"', '"batched"')


@pytest.mark.parametrize(
    ("table", "line", "sentence"),
    [
        (
            PERSISTENT,
            "rows = 5",
            "forward.rows: unknown key; valid: 'adapter', 'command', 'timeout', 'partial', 'threads', 'environment', "
            "'kind', 'inputs' and 'outputs'",
        ),
        (PERSISTENT, "timeout = 0", "forward.timeout: must be greater than 0, was 0"),
        (PERSISTENT, 'threads = "two"', "forward.threads: must be a whole number, was 'two'"),
        (
            PERSISTENT,
            'environment = { "A=B" = "1" }',
            "forward.environment: 'A=B' = '1' cannot be an environment variable",
        ),
        (BATCHED, "rows = 0", "forward.rows: must be at least 1, was 0"),
        (BATCHED, 'format = "csw"', "forward.format: must be 'csv' or 'table', was 'csw'; did you mean 'csv'?"),
        (BATCHED, "skip_lines = -1", "forward.skip_lines: must be at least 0, was -1"),
        (
            BATCHED,
            'input_file = "../a.csv"',
            "forward.input_file: '../a.csv' must be the name of a file, without a directory",
        ),
        (BATCHED, 'output_file = "inputs.csv"', "forward.output_file: 'inputs.csv' is taken by another file"),
    ],
)
def test_that_a_mistake_about_a_program_for_many_rows_gives_one_sentence(
    table: str, line: str, sentence: str, write_survey: WriteSurvey
) -> None:
    assert sentence_of(write_survey({CALLABLE: f"{table}{line}\n"})) == sentence


def test_that_each_of_several_mistakes_gives_a_sentence(write_survey: WriteSurvey) -> None:
    path = write_survey({"title =": "titel =", "samples = 16": "samples = 0", "mean = 2000": 'mean = "fast"'})
    with pytest.raises(ConfigError) as caught:
        load(path)
    keys = [sentence.partition(":")[0] for sentence in caught.value.sentences]
    assert keys == ["titel", "latents.velocity.mean", "inference.samples"]


def test_that_each_of_several_mistakes_across_tables_gives_a_sentence(write_survey: WriteSurvey) -> None:
    path = write_survey(
        {
            'crs = "EPSG:28354"': 'crs = "EPSG:1"',
            "mean = [200, 500]": "mean = [200, 500, 600]",
            "length_scale = [1000, 2000]": "length_scale = [1000]",
            "simulator:times": "simulator:tims",
            "std.time = 0.05": "std.time = 0.05\nstd.tim = 1",
            'file = "results/posterior.nc"': 'file = "posterior.txt"',
        },
        {"elev": "height", "0.20": "fast", "0,100,14": "0,0,14"},
    )
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert [sentence.partition(":")[0] for sentence in caught.value.sentences] == [
        "noise.std.tim",
        "survey.crs",
        "survey.covariates.elevation.column",
        "survey.coordinates",
        "survey.observations.time.columns",
        "latents.depth.mean",
        "latents.velocity.kernel.length_scale",
        "forward.function",
        "output.file",
    ]


def test_that_mistakes_of_one_key_do_not_hide_those_of_its_neighbours(write_survey: WriteSurvey) -> None:
    path = write_survey({"timeout = 10": "time_out = 10\nthreads = 0"}, executable=True)
    with pytest.raises(ConfigError) as caught:
        load(path)
    keys = [sentence.partition(":")[0] for sentence in caught.value.sentences]
    assert keys == ["forward.time_out", "forward.threads"]


def test_that_a_template_with_an_unknown_field_names_its_line(write_survey: WriteSurvey) -> None:
    path = write_survey(executable=True)
    (path.parent / "model.tpl").write_text("{depth[1]} {depth[2]}\n{velocty}\n")
    assert sentence_of(path).startswith(
        "forward.input_files[0].template: <here>/model.tpl, line 2: {velocty} names no input; did you mean 'velocity'?"
    )


def test_that_a_simulator_that_cannot_be_imported_gives_one_line(write_survey: WriteSurvey) -> None:
    path = write_survey()
    (path.parent / "simulator.py").write_text('raise RuntimeError("no licence:\\n  ask for one")\n')
    assert sentence_of(path) == ("forward.function: importing 'simulator' raised RuntimeError: no licence: ask for one")


def test_that_bad_toml_names_its_line(write_survey: WriteSurvey) -> None:
    path = write_survey({"samples = 16": "samples = "})
    assert sentence_of(path) == "the config '<here>/survey.toml' is not TOML: Invalid value (at line 50, column 11)"


def test_that_a_config_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    assert sentence_of(tmp_path / "none.toml") == (
        "the config '<here>/none.toml' cannot be read: No such file or directory"
    )
    (tmp_path / "folder.toml").mkdir()
    assert sentence_of(tmp_path / "folder.toml") == "the config '<here>/folder.toml' cannot be read: Is a directory"
    (tmp_path / "latin.toml").write_bytes('title = "Übersicht"'.encode("latin-1"))
    assert sentence_of(tmp_path / "latin.toml") == (
        "the config '<here>/latin.toml' cannot be read: it is not UTF-8 text"
    )


def test_that_an_empty_config_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "survey.toml").touch()
    sentences = sentence_of(tmp_path / "survey.toml").split("\n")
    assert [s.partition(":")[0] for s in sentences] == ["survey", "latents", "forward", "noise"]
