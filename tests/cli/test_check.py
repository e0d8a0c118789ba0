from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from helpers.command_line import (
    CONFIG,
    FULL_GAUSSIAN,
    MODULE,
    SCRIPT,
    SITES,
    Command,
    invgp,
    with_inference,
    with_program,
    write_files,
)
from invgp.adapters import Evaluations, Status
from invgp.cli import app
from invgp.cli.check import describe_misfit, prior_mean_inputs, time_run
from invgp.config import load
from invgp.errors import ConfigError
from invgp.inference.search_options import SearchOptions

EMULATED = (
    r"A run takes less than 1 ms\. The emulator [^:\n]*: about \d\d runs, [\d.]+ ms of simulation with 1 "
    r"worker\.\n"
    r"A bent posterior, or one with several modes, can take \d+\.\n"
    r"Never more than inference\.max_runs = 2,000 runs, its default\. "
    r"Kinks and jumps of the simulator can take more\.\n"
)
FACTORISED = (
    r"A run takes less than 1 ms\. Without an emulator, the posterior takes about 300 runs per site: about 1,800 runs, "
    r"[\d.]+ s of simulation with 1 worker\.\nA bent posterior, or one with several modes, can take 3,600\.\n"
    r"Never more than inference\.max_runs = 5,000 runs\. Kinks and jumps of the simulator can take more\.\n"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "config", "cost"),
    [
        pytest.param(MODULE, CONFIG, EMULATED, id="python -m invgp"),
        pytest.param([str(SCRIPT)], with_inference(FULL_GAUSSIAN, "max_runs = 5000"), FACTORISED, id="invgp"),
    ],
)
def test_that_check_prints_inputs_outputs_and_cost(program: list[str], config: str, cost: str, tmp_path: Path) -> None:
    write_files(tmp_path, config)
    result = invgp("check", "survey.toml", cwd=tmp_path, program=program)
    assert (result.returncode, result.stderr) == (0, "")
    for line in (
        "A short line: 6 sites, position 0 to 2000 m",
        "5 observations, 1 missing",
        "1 latent process: depth",
        "   in  depth = 500 m",
        "  out  time = 0.5 s",
        "No unit is declared for these outputs of the simulator; that of the observation is assumed: time in s.",
        "  time: gaussian noise, standard deviation 0.02 s; root mean square misfit 0.87 standard deviations, "
        "largest 1.5 at site 4",
    ):
        assert line in result.stdout.split("\n")
    assert re.search(rf"\n{cost}$", result.stdout)


def test_that_check_prints_what_the_simulator_itself_costs(invgp_here: Command, tmp_path: Path) -> None:
    write_files(tmp_path, with_inference("emulator = false"))
    result = invgp_here("check", "survey.toml", cwd=tmp_path)
    assert re.search(
        r"Without an emulator, the posterior takes [^:\n]* runs per site[^:\n]*: about [\d,]+ runs, ", result.stdout
    )


def test_that_what_a_server_does_before_its_first_run_is_not_taken_for_a_run(tmp_path: Path) -> None:
    class Servers:
        rows_per_task, runs_at_once = 16, 4

        def evaluate(self, values, context):
            """Runs of two seconds each, as it says itself; the call takes no time here, and could take any."""
            return Evaluations(
                np.full((len(values), 1), 0.5), (Status.OK,) * len(values), ("",) * len(values), seconds=2.0
            )

    problem = load(write_files(tmp_path))
    object.__setattr__(problem, "forward", Servers())
    _, seconds, pace = time_run(problem, prior_mean_inputs(problem), tmp_path)
    assert (seconds, pace) == (2.0, 0.5)


def test_that_check_names_the_kind_of_noise(invgp_here: Command, tmp_path: Path) -> None:
    write_files(tmp_path, CONFIG.replace("[noise]", '[noise]\nkind = "student-t"'))
    result = invgp_here("check", "survey.toml", cwd=tmp_path)
    assert "  time: student-t noise, standard deviation 0.02 s; " in result.stdout


@pytest.mark.parametrize(("cell", "warns"), [("-999", True), ("0.999", False)])
@pytest.mark.parametrize("command", ["check", "run"])
def test_that_a_number_that_marks_missing_data_is_reported(
    command: str, cell: str, warns: bool, invgp_here: Command, tmp_path: Path
) -> None:
    write_files(tmp_path)
    table = tmp_path / "sites.csv"
    table.write_text(table.read_text().replace("0.52", cell))
    result = invgp_here(command, "survey.toml", cwd=tmp_path)
    sentence = "the observation 'time' contains -999 once, far outside its other values. If this marks a missing"
    assert (sentence in result.stderr) == warns


def test_that_check_runs_a_program(invgp_here: Command, tmp_path: Path) -> None:
    config = with_program(body='awk "BEGIN { print $1 }"', directory=tmp_path).replace(
        '["time"]', '[{ name = "time", unit = "ms" }]'
    )
    write_files(tmp_path, config.replace("seed = 3", "seed = 3\nworkers = 2"))
    result = invgp_here("check", "survey.toml", "--workers", "4", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "One run of 'simulator.sh' at the prior mean, site 1:" in result.stdout
    assert "  out  time = 500 ms" in result.stdout
    assert "No unit is declared" not in result.stdout
    assert re.search(r"A run takes [\d.]+ m?s\.", result.stdout)
    assert "with 4 workers." in result.stdout
    assert not list((tmp_path / "tmp").iterdir())


def test_that_run_uses_the_runs_of_the_pilot(invgp_here: Command, tmp_path: Path) -> None:
    write_files(tmp_path, with_program(directory=tmp_path))
    none = invgp_here("check", "survey.toml", "--no-pilot", "--json", cwd=tmp_path)
    assert json.loads(none.stdout)["pilot_runs"] == 0
    assert not (tmp_path / "posterior.ledger.sqlite").exists()
    check = invgp_here("check", "survey.toml", "--pilot", "--json", cwd=tmp_path)
    forecast = json.loads(check.stdout)
    assert forecast["pilot_runs"] > 0
    assert forecast["max_runs"] == 2000
    run = json.loads(invgp_here("run", "survey.toml", "--json", cwd=tmp_path).stdout)
    assert run["runs_from_ledger"] == forecast["pilot_runs"] < run["runs"]
    assert run["runs"] / 2 <= forecast["runs"] <= 2 * run["runs"]


@pytest.mark.parametrize("command", ["check", "run"])
def test_that_data_in_the_wrong_unit_give_an_exit_code(command: str, invgp_here: Command, tmp_path: Path) -> None:
    write_files(tmp_path, with_program(directory=tmp_path).replace('["time"]', '[{ name = "time", unit = "ms" }]'))
    result = invgp_here(command, "survey.toml", cwd=tmp_path)
    assert result.returncode == 6
    assert "invgp: the data of time are far outside the outputs of the simulator under the prior" in result.stderr
    assert re.search(r"a factor of about (990|1,000|1,100)\. Check the units of time, of the outputs", result.stderr)
    assert not (tmp_path / "posterior.nc").exists()


def test_that_the_compilation_of_a_function_is_not_taken_for_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that takes 5 s when it is first called with a batch of some size, and then 1 ms per run."""
    clock, compiled = [0.0], set()

    def time(depth: np.ndarray) -> np.ndarray:
        size = np.size(depth)
        clock[0] += 1e-3 * size + (0.0 if size in compiled else 5.0)
        compiled.add(size)
        return depth / 1000.0

    problem = load(write_files(tmp_path))
    object.__setattr__(problem.forward, "_call", time)
    monkeypatch.setattr("invgp.cli.check.time.perf_counter", lambda: clock[0])
    _, seconds, pace = time_run(problem, prior_mean_inputs(problem), tmp_path)
    assert seconds == pytest.approx(1e-3)
    assert pace == pytest.approx(1e-3)
    assert clock[0] > 10.0


def test_that_check_keeps_the_directory_of_the_run_that_failed(invgp_here: Command, tmp_path: Path) -> None:
    write_files(tmp_path, with_program(body="echo out of licences >&2; exit 7", directory=tmp_path))
    result = invgp_here("check", "survey.toml", cwd=tmp_path)
    assert result.returncode == 3
    assert result.stdout == ""
    assert result.stderr.startswith("invgp: the simulator failed at the prior mean, site 1: run site-1: exit code 7; ")
    assert "out of licences" in result.stderr
    directory = Path(result.stderr.rpartition("directory: ")[2].strip())
    assert (directory / "standard_error.txt").read_text() == "out of licences\n"


def test_that_check_prints_what_a_function_raised(invgp_here: Command, tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "model.py").write_text("def time(depth):\n    return depth + 'm'\n")
    result = invgp_here("check", "survey.toml", cwd=tmp_path)
    assert result.returncode == 3
    assert result.stderr.startswith("invgp: the simulator failed at the prior mean, site 1: run site-1: UFuncTypeError")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("pilot", ["--pilot", "--no-pilot"])
def test_that_check_reports_runs_that_fail_in_a_part_of_the_prior(
    pilot: str, invgp_here: Command, tmp_path: Path
) -> None:
    write_files(tmp_path)
    (tmp_path / "model.py").write_text(
        "import numpy as np\n\ndef time(depth):\n    return np.where(depth > 530, np.nan, depth / 1000)\n"
    )
    result = invgp_here("check", "survey.toml", pilot, "--json", cwd=tmp_path)
    assert result.returncode == 0
    found = json.loads(result.stdout)
    assert 0 < found["failed_runs"] < found["tried_runs"]
    [warning] = found["warnings"]
    share = found["failed_runs"] / found["tried_runs"]
    assert (
        f"{found['failed_runs']} of {found['tried_runs']} runs at draws from the prior failed: {share:.0%}" in warning
    )
    assert "than inference.max_failed_share = 0.1; causes: not a finite number (" in warning
    assert "output time is nan" in warning


def test_that_check_states_that_no_run_failed(invgp_here: Command, tmp_path: Path) -> None:
    write_files(tmp_path)
    result = invgp_here("check", "survey.toml", cwd=tmp_path)
    assert re.search(r"\nNone of \d+ runs at draws from the prior failed\.\n", result.stdout)


@pytest.mark.parametrize("command", ["check", "run"])
def test_that_a_function_of_one_row_is_not_taken_for_vectorised(
    command: str, invgp_here: Command, tmp_path: Path
) -> None:
    """It accepts an array with one number, but not one with more."""
    write_files(tmp_path)
    (tmp_path / "model.py").write_text("def time(depth):\n    return 0.0 if depth < 480 else depth / 1000\n")
    result = invgp_here(command, "survey.toml", cwd=tmp_path)
    assert result.returncode == 3
    assert "ValueError: The truth value of an array" in result.stderr
    assert "if the function takes one row at a time, set `vectorised` to false" in result.stderr


def test_that_check_compares_a_batch_with_its_rows(invgp_here: Command, tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "model.py").write_text("import numpy as np\n\ndef time(depth):\n    return np.sort(depth) / 1000\n")
    result = invgp_here("check", "survey.toml", cwd=tmp_path)
    assert result.returncode == 3
    assert (
        "the function 'time' computes other outputs for a batch of 5 rows than for the rows one by one" in result.stderr
    )


def test_that_check_prints_which_names_a_function_knows(invgp_here: Command, tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "model.py").write_text("def time(deep):\n    return deep\n")
    result = invgp_here("check", "survey.toml", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(
        "invgp: forward.inputs: must have the names that the function 'time' knows: it takes 'deep', was given 'depth'"
    )


@pytest.mark.parametrize("timeout", [None, 20])
def test_that_check_warns_of_a_program_without_a_timeout(
    timeout: int | None, invgp_here: Command, tmp_path: Path
) -> None:
    config = with_program(directory=tmp_path)
    write_files(tmp_path, config if timeout is None else config.replace("[forward]", f"[forward]\ntimeout = {timeout}"))
    result = invgp_here("check", "survey.toml", cwd=tmp_path)
    warning = "invgp: warning: forward.timeout is not set: invgp waits forever for a run that hangs\n"
    assert (result.returncode, result.stderr) == (0, warning if timeout is None else "")


def test_that_check_warns_of_a_batch_without_a_timeout(invgp_here: Command, tmp_path: Path) -> None:
    body = "awk 'NR > 1 { print 2 * $1 / 2000 }' inputs.csv > outputs.csv"
    config = with_program(body=body, directory=tmp_path).replace('"executable"', '"batched"').replace(', "{depth}"', "")
    write_files(tmp_path, config)
    result = invgp_here("check", "survey.toml", cwd=tmp_path)
    warning = "invgp: warning: forward.timeout is not set: invgp waits forever for a batch that hangs\n"
    assert (result.returncode, result.stderr) == (0, warning)


def test_that_check_prints_where_a_forgotten_fill_value_is(invgp_here: Command, tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "sites.csv").write_text(SITES.replace("0.47", "-9999"))
    result = invgp_here("check", "survey.toml", cwd=tmp_path)
    assert "largest 499,975 at site 4\n" in result.stdout


def test_that_check_compares_each_site_with_its_own_run(invgp_here: Command, tmp_path: Path) -> None:
    """The function returns the observed times if it gets the position, and fails at the last site."""
    config = CONFIG.replace('["depth"]', '["depth", "position"]')
    write_files(tmp_path, config.replace('"model:time"', '"model:time"\nvectorised = false'))
    times = dict(line.split(",") for line in SITES.split()[1:])
    (tmp_path / "model.py").write_text(
        f"TIMES = {times}\n\n\ndef time(depth, position):\n"
        "    return float('nan') if position == 2000 else float(TIMES[f'{position:g}'] or 1)\n"
    )
    result = invgp_here("check", "survey.toml", cwd=tmp_path)
    assert result.returncode == 0
    assert "root mean square misfit 0 standard deviations at 4 sites, largest 0 at site 1" in result.stdout
    assert result.stderr.startswith(
        "invgp: warning: the simulator failed at the prior mean at 1 of 6 sites: run site-6: output time is nan"
    )


def test_that_noise_and_misfit_are_described_for_any_observations() -> None:
    nan = np.nan
    assert describe_misfit(np.array([]), np.array([nan, nan]), "gaussian", "s") == "nothing was observed"
    assert describe_misfit(np.array([1.0, 2.0]), np.array([nan, nan]), "gaussian", "s") == (
        "gaussian noise, standard deviation 1 to 2 s; misfit not known"
    )
    assert describe_misfit(np.array([1.0, 1.0]), np.array([3.0, nan]), "gaussian", "s") == (
        "gaussian noise, standard deviation 1 s; root mean square misfit 3 standard deviations at 1 site, "
        "largest 3 at site 1"
    )
    assert describe_misfit(np.array([1.0, 1.0]), np.array([nan, 1.0, -1031.7]), "gaussian", "s") == (
        "gaussian noise, standard deviation 1 s; root mean square misfit 730 standard deviations, "
        "largest 1,032 at site 3"
    )


def test_that_noise_that_cannot_be_learnt_from_so_many_sites_is_reported_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, CONFIG.replace("[noise]", "[noise]\nlearn = { time = true }"))
    monkeypatch.chdir(tmp_path)
    app.main(["check", "survey.toml"], standalone_mode=False)
    (tmp_path / "was_called").unlink()
    monkeypatch.setattr("invgp.inference.sample_sizes.DEFAULTS", SearchOptions(numbers_at_once=1000))
    for command in ("check", "run"):
        with pytest.raises(ConfigError, match=r"noise\.learn: must be left out for 6 sites, which are processed in"):
            app.main([command, "survey.toml"], standalone_mode=False)
    assert not (tmp_path / "was_called").exists()
