"""Noise, what is learnt, and the inference, set so that they cannot work: one sentence each."""

from __future__ import annotations

from helpers.config_files import WriteSurvey
from helpers.config_mistakes import Case, by_mistake, sentence_of

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
        "inference.posterior: must be 'sampled', 'coupled gaussian' or 'full gaussian', was 'full gausian'; did you "
        "mean 'full gaussian'?",
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
    Case("no runs a site", inference("runs_per_site = 0"), "inference.runs_per_site: must be greater than 0, was 0"),
    Case("no error", inference("emulator_error = 0"), "inference.emulator_error: must be greater than 0, was 0"),
    Case("no runs", inference("max_runs = 0"), "inference.max_runs: must be at least 1, was 0"),
    Case("a fraction of runs", inference("max_runs = 0.5"), "inference.max_runs: must be a whole number, was 0.5"),
    Case("no inducing points", inference("inducing = 0"), "inference.inducing: must be at least 1, was 0"),
    Case(
        "learnt inducing points of the full Gaussian",
        inference("inducing = 2", "learn_inducing = true", 'posterior = "full gaussian"'),
        "inference.learn_inducing: must be left out with inference.posterior = 'full gaussian', was given",
    ),
    Case("no site in a batch", inference("batch = 0"), "inference.batch: must be at least 1, was 0"),
    Case(
        "draws without an emulator",
        inference('posterior = "sampled"', "emulator = false"),
        "inference.emulator: must be true with inference.posterior = 'sampled', was false",
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


@by_mistake(WRONG_LEARNING, WRONG_NOISE)
def test_that_a_mistake_about_noise_or_what_is_learnt_gives_one_error_message(
    case: Case, write_survey: WriteSurvey
) -> None:
    assert sentence_of(write_survey(case.config)) == case.sentence


@by_mistake(WRONG_INFERENCE)
def test_that_a_mistake_about_the_inference_gives_one_error_message(case: Case, write_survey: WriteSurvey) -> None:
    assert sentence_of(write_survey(case.config)) == case.sentence
