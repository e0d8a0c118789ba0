"""Values that cannot be, or do not fit each other: one sentence each."""

from __future__ import annotations

from helpers.config_files import WriteSurvey
from helpers.config_mistakes import Case, by_mistake, sentence_of


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
        "latents.velocity.std: must be a positive number, a map file, a list of them, or a percentage such as '15%', "
        "was -200",
    ),
    Case(
        "zero std in a list",
        {'std = "15%"': "std = [10, 0]"},
        "latents.depth.std: must be a positive number, a map file, a list of them, or a percentage such as '15%', "
        "was [10, 0]",
    ),
    Case(
        "bad percentage",
        {'std = "15%"': 'std = "15 percent"'},
        "latents.depth.std: must be a positive number, a map file, a list of them, or a percentage such as '15%', "
        "was '15 percent'",
    ),
    Case(
        "negative percentage",
        {'std = "15%"': 'std = "-15%"'},
        "latents.depth.std: must be a positive number, a map file, a list of them, or a percentage such as '15%', "
        "was '-15%'",
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


@by_mistake(WRONG_VALUES, WRONG_LINKS)
def test_that_a_wrong_value_gives_one_error_message(case: Case, write_survey: WriteSurvey) -> None:
    assert sentence_of(write_survey(case.config)) == case.sentence
