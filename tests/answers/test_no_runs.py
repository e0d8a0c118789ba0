"""No command that answers a question runs the simulator or changes the ledger."""

import json

import pytest

import invgp
from helpers.command_line import CONFIG, run_in_process, write_files
from invgp.ledger import Ledger

COMMANDS = (
    "revise posterior.nc --set noise.std.time=0.018 -o revised.nc",
    "difference posterior.nc revised.nc -o difference.nc",
    "weigh bare.nc revised.nc -o weigh.nc",
    "crossvalidate posterior.nc --by block --blocks 3 -o crossvalidate.nc",
    "influence posterior.nc -o influence.nc",
    "design posterior.nc --candidates places.csv --best 1 -o design.nc",
    "report posterior.nc --with revised.nc --with difference.nc --with weigh.nc --with crossvalidate.nc "
    "--with influence.nc --with design.nc",
)


@pytest.mark.slow
def test_that_commands_after_an_inversion_leave_the_ledger_as_it_is(tmp_path):
    write_files(tmp_path, f"{CONFIG}\n[output]\nledger = true\n")
    assert run_in_process("run", "survey.toml", cwd=tmp_path).returncode == 0
    (tmp_path / "was_called").unlink()
    posterior = invgp.open_posterior(tmp_path / "posterior.nc")
    for name in ("invgp_log_evidence", "invgp_log_evidence_error"):  # so that it is computed on the emulator
        posterior.attrs.pop(name, None)
    invgp.write(posterior, tmp_path / "bare.nc")
    (tmp_path / "places.csv").write_text("position,quantity,std\n1000,,\n1500,depth,5\n")
    ledger = tmp_path / "posterior.ledger.sqlite"
    with Ledger(ledger) as opened:
        runs = len(list(opened.runs()))
    assert runs == int(posterior.attrs["invgp_runs"]) > 0
    before = ledger.read_bytes()
    for line in COMMANDS:
        done = run_in_process(*line.split(), "--json", cwd=tmp_path)
        assert done.returncode == 0, line
        assert json.loads(done.stdout).get("runs", 0) == 0
        assert not (tmp_path / "was_called").exists(), line
        assert ledger.read_bytes() == before, line
    models = json.loads(run_in_process("weigh", "bare.nc", "revised.nc", "--json", cwd=tmp_path).stdout)["models"]
    assert [row["origin"] for row in models] == ["computed on the emulator", "stored"]
    page = (tmp_path / "posterior.html").read_text()
    assert page.count('<h3 id="answer-') == 6
