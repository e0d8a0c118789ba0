"""Every mistake gives one sentence: which key, what it must be, what it was, what would be valid."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """Edits to the config of the fixture, and the sentence that they give; ``{here}`` is the config's folder."""

    mistake: str
    config: dict[str, str]
    sentence: str


UNKNOWN_KEYS = [
    Case("top level", {"title =": "titel ="}, ""),
    Case("survey", {'crs = "EPSG': 'CRS_ = "EPSG'}, ""),
    Case("coordinate", {'easting]\nunit = "m"': 'easting]\nunit = "m"\ncolumns = ["x"]'}, ""),
    Case("observation", {"columns =": "colums ="}, ""),
    Case("latent", {"mean = 2000": "means = 2000"}, ""),
    Case("kernel", {"kind =": "kernel ="}, ""),
    Case("callable", {"function =": "funktion ="}, ""),
    Case("callable, far from any", {"function =": "xyz = 1\nfunction ="}, ""),
    Case("input", {'"elevation"]': '{ name = "elevation", units = "m" }]'}, ""),
    Case("noise", {"std.time": "stdev.time"}, ""),
    Case("inference", {"samples =": "sample ="}, ""),
    Case("output", {"[output]": "[output]\nquantile = [0.5]"}, ""),
]
UNKNOWN_KEYS_OF_A_PROGRAM = [
    Case("executable", {"timeout = 10": "time_out = 10"}, ""),
    Case("input file", {"template =": "templat ="}, ""),
    Case("output file", {'[{ path = "times.txt" }]': '[{ path = "times.txt", skip = 1 }]'}, ""),
]
MISSING_KEYS = [
    Case("no survey file", {'file = "sites.csv"\n': ""}, ""),
    Case("no unit", {'[latents.depth]\nunit = "m"\n': "[latents.depth]\n"}, ""),
    Case("no length-scale", {", length_scale = 1000 }": " }"}, ""),
    Case("no adapter", {'adapter = "callable"\n': ""}, ""),
    Case("no noise", {"[noise]\nstd.time = 0.05\n": ""}, ""),
    Case("no noise for an observation", {"std.time = 0.05": "std = {}"}, ""),
    Case("no outputs", {'outputs = ["time"]\n': ""}, ""),
]
WRONG_TYPES = [
    Case("number for text", {'title = "A short line"': "title = 5"}, ""),
    Case("number for a CRS", {'"EPSG:28354"': "28354"}, ""),
    Case("text for a number", {"samples = 16": 'samples = "16"'}, ""),
    Case("fraction for a count", {"samples = 16": "samples = 16.5"}, ""),
    Case("Boolean for a count", {"samples = 16": "samples = true"}, ""),
    Case("text for a Boolean", {"outputs =": 'vectorised = "yes"\noutputs ='}, ""),
    Case("text for a list", {'["t1", "t2"]': '"t1"'}, ""),
    Case("number in a list of text", {'["t1", "t2"]': '["t1", 2]'}, ""),
    Case("empty list", {'["t1", "t2"]': "[]"}, ""),
    Case("number for a table", {'kernel = { kind = "matern 5/2", length_scale = 1000 }': "kernel = 1000"}, ""),
    Case("text for a table of tables", {"[dimensions]\nlayer = [1, 2]": "dimensions = 3"}, ""),
    Case("text for an input", {'"elevation"]': "3]"}, ""),
    Case("text for a mean", {"mean = 2000": 'mean = "fast"'}, ""),
    Case("infinite mean", {"mean = 2000": "mean = inf"}, ""),
    Case("date for a mean", {"mean = 2000": "mean = 2024-01-31"}, ""),
    Case("mixed labels", {"layer = [1, 2]": 'layer = [1, "b"]'}, ""),
    Case("labels that repeat", {"layer = [1, 2]": "layer = [1, 1]"}, ""),
    Case("no labels", {"layer = [1, 2]": "layer = []"}, ""),
    Case("text for a tolerance", {"samples = 16": 'samples = 16\ntolerance = "small"'}, ""),
    Case("tolerance of zero", {"samples = 16": "samples = 16\ntolerance = 0"}, ""),
    Case("NaN for a tolerance", {"samples = 16": "samples = 16\ntolerance = nan"}, ""),
    Case("no worker", {"samples = 16": "samples = 16\nworkers = 0"}, ""),
    Case("share of one", {"samples = 16": "samples = 16\nmax_failed_share = 1"}, ""),
    Case("seed too large", {"samples = 16": "samples = 16\nseed = 9223372036854775808"}, ""),
    Case("quantile of one", {"[output]": "[output]\nquantiles = [0.5, 1]"}, ""),
    Case("unknown device", {"samples = 16": 'samples = 16\ndevice = "cude"'}, ""),
    Case("unknown kernel", {"matern 5/2": "mattern 5/2"}, ""),
    Case("unknown link", {'link = "log"': 'link = "ln"'}, ""),
    Case("unknown adapter", {'"callable"': '"calable"'}, ""),
    Case("adapter of a wrong type", {'"callable"': "1"}, ""),
    Case("output file without .nc", {"posterior.nc": "posterior.hdf"}, ""),
    Case(
        "four coordinates",
        {"[survey.observations.time]": '[survey.coordinates]\na.unit = "m"\nb.unit = "m"\n[survey.observations.time]'},
        "",
    ),
    Case("an old version", {"version = 1": "version = 0"}, ""),
    Case("a newer version", {"version = 1": "version = 2"}, ""),
    Case("version as text", {"version = 1": 'version = "1"'}, ""),
]
WRONG_UNITS = [
    Case("not a unit", {'[latents.depth]\nunit = "m"': '[latents.depth]\nunit = "metrs"'}, ""),
    Case("empty unit", {'[latents.depth]\nunit = "m"': '[latents.depth]\nunit = ""'}, ""),
    Case("latent to simulator", {'["depth",': '[{ name = "depth", unit = "s" },'}, ""),
    Case("simulator to observation", {'["time"]': '[{ name = "time", unit = "m" }]'}, ""),
]
WRONG_VALUES = [
    Case("mean too long", {"mean = [200, 500]": "mean = [200, 500, 600]"}, ""),
    Case("mean a list without a dimension", {"mean = 2000": "mean = [2000]"}, ""),
    Case("std too short", {'std = "15%"': "std = [10]"}, ""),
    Case("columns too few", {'["t1", "t2"]': '["t1"]'}, ""),
    Case("columns without a dimension", {'dimension = "layer"\nunit = "s"': 'unit = "s"'}, ""),
    Case("length-scales", {"[1000, 2000]": "[1000, 2000, 3000]"}, ""),
    Case("length-scale of zero", {"[1000, 2000]": "0"}, ""),
    Case("noise too long", {"std.time = 0.05": "std.time = [1, 2, 3]"}, ""),
    Case("unknown dimension", {'dimension = "layer"\nmean': 'dimension = "layers"\nmean'}, ""),
    Case("negative std", {"std = 200": "std = -200"}, ""),
    Case("zero std in a list", {'std = "15%"': "std = [10, 0]"}, ""),
    Case("bad percentage", {'std = "15%"': 'std = "15 percent"'}, ""),
    Case("negative percentage", {'std = "15%"': 'std = "-15%"'}, ""),
    Case("percentage of zero", {"mean = [200, 500]": "mean = [0, 500]"}, ""),
    Case("log of zero", {"mean = 2000": "mean = 0"}, ""),
    Case("negative noise", {"std.time = 0.05": "std.time = -0.05"}, ""),
    Case("too few samples", {"samples = 16": "samples = 8"}, ""),
    Case("unknown CRS", {"EPSG:28354": "EPSG:2835444"}, ""),
    Case("name twice", {"[latents.velocity]": "[latents.easting]"}, ""),
    Case("reserved name", {"[latents.velocity]": "[latents.site]"}, ""),
    Case("dimension with the name of a latent", {"[dimensions]": "[dimensions]\ndepth = [1]"}, ""),
    Case("name of a derived variable", {"[latents.velocity]": "[latents.depth_std]"}, ""),
    Case("name with a space", {"[latents.velocity]": '[latents."the velocity"]'}, ""),
    Case("noise for an unknown observation", {"std.time = 0.05": "std.time = 0.05\nstd.tim = 0.1"}, ""),
    Case("noise column missing", {"std.time = 0.05": 'std.time = ["s1", "s3"]'}, ""),
    Case("too few noise columns", {"std.time = 0.05": 'std.time = "s1"'}, ""),
]
WRONG_WIRES = [
    Case("latent that is no input", {'"depth", "velocity", "elevation"': '"depth", "elevation"'}, ""),
    Case("input that is nothing", {'"velocity", "elevation"]': '"velosity", "elevation"]'}, ""),
    Case("observation that is no output", {'["time"]': '["times"]'}, ""),
    Case("output twice", {'["time"]': '["time", { name = "again", observation = "time" }]'}, ""),
    Case("input twice", {'"elevation"]': '"elevation", "elevation"]'}, ""),
    Case("misspelt function", {"simulator:times": "simulator:tims"}, ""),
    Case("misspelt module", {"simulator:times": "simulater:times"}, ""),
    Case("function without a module", {"simulator:times": "times"}, ""),
    Case("not a function", {"simulator:times": "simulator:ANSWER"}, ""),
]
WRONG_PROGRAMS = [
    Case("program missing", {"./simulator.sh": "./simulater.sh"}, ""),
    Case("program not on PATH", {"./simulator.sh": "no-such-program"}, ""),
    Case("program beside the config", {"./simulator.sh": "simulator.sh"}, ""),
    Case("template missing", {"model.tpl": "modl.tpl"}, ""),
    Case("argument with an unknown field", {"{elevation}": "{elevaton}"}, ""),
    Case("input that never reaches the program", {', "{elevation}"': ""}, ""),
    Case("command as one text", {'["./simulator.sh", "{elevation}"]': '"./simulator.sh {elevation}"'}, ""),
    Case("timeout of zero", {"timeout = 10": "timeout = 0"}, ""),
]
