"""A config, its survey and its simulator, and edits to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

CONFIG = """\
version = 1
title = "A short line"

[dimensions]
layer = [1, 2]

[survey]
file = "sites.csv"
crs = "EPSG:28354"

[survey.coordinates.easting]
unit = "m"

[survey.coordinates.northing]
unit = "m"

[survey.observations.time]
columns = ["t1", "t2"]
dimension = "layer"
unit = "s"

[survey.covariates.elevation]
column = "elev"
unit = "m"

[latents.depth]
unit = "m"
dimension = "layer"
mean = [200, 500]
std = "15%"
kernel = { kind = "matern 5/2", length_scale = 1000 }

[latents.velocity]
unit = "m s-1"
mean = 2000
std = 200
kernel = { length_scale = [1000, 2000] }
link = "log"

[forward]
adapter = "callable"
function = "simulator:times"
inputs = ["depth", "velocity", "elevation"]
outputs = ["time"]

[noise]
std.time = 0.05

[inference]
samples = 16

[output]
file = "results/posterior.nc"
"""

SITES = """\
easting,northing,elev,t1,t2,s1,s2
0,0,10,0.20,0.50,0.01,0.02
100,0,12,0.21,,0.01,
0,100,14,0.22,0.52,0.03,0.04
"""

SIMULATOR = """\
def times(depth, velocity, elevation):
    return 2.0 * (depth + elevation[:, None]) / velocity[:, None]


ANSWER = 42
"""

# In place of the [forward] table above: the same simulator as a program.
EXECUTABLE = """\
adapter = "executable"
command = ["./simulator.sh", "{elevation}"]
input_files = [{ template = "model.tpl", path = "model.txt" }]
output_files = [{ path = "times.txt" }]
timeout = 10
inputs = ["depth", "velocity", "elevation"]
"""
CALLABLE = CONFIG.split("[forward]\n")[1].split("outputs", maxsplit=1)[0]

Edits = Mapping[str, str]
WriteSurvey = Callable[..., Path]


def edit_text(text: str, edits: Edits) -> str:
    """`text` with each key of `edits`, which must occur in it, replaced once."""
    for old, new in edits.items():
        assert old in text, f"{old!r} is not in the text to edit"
        text = text.replace(old, new, 1)
    return text
