"""Run directories with directories that their owner may not change: copies of read-only data, and chmod by programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
WITHOUT_RIGHTS_OF_ROOT = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
PROGRAM = """
import logging, sys
from pathlib import Path
import numpy as np
from invgp.adapters import ExecutableModel, LocalFile, Quantity, RunContext

logging.basicConfig()
home = Path(sys.argv[1])
model = ExecutableModel(
    ("/bin/sh", "-c", sys.argv[2], "name", "{x}"),
    (Quantity("x", "m"),),
    (Quantity("y", "s"),),
    files=(LocalFile(Path("data")),),
    search_path=home,
)
outcome = model.evaluate(np.asarray([[1.0], [2.0]]), RunContext(["a", "b"], home / "runs", more=True))
print(outcome.outputs[:, 0].tolist(), sorted(path.name for path in (home / "runs").glob("[!.]*")))
"""


@pytest.mark.parametrize(
    "program",
    ["echo $1", "mkdir -p d/e; touch d/e/f; chmod 0 d/e d; echo $1", "chmod 555 .; echo $1", "chmod 0 .; echo $1"],
    ids=["copied", "chmod 0", "own, read-only", "own, without access"],
)
def test_that_read_only_directories_are_removed_after_a_run(program: str, tmp_path: Path) -> None:
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("access is never denied to root")
    tables = tmp_path / "data" / "tables"
    tables.mkdir(parents=True)
    (tables / "table.txt").write_text("1 2\n")
    for directory in (tables, tables.parent):
        directory.chmod(0o555)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), program]
    ended = subprocess.run(
        [*WITHOUT_RIGHTS_OF_ROOT, *command] if os.geteuid() == 0 else command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    for directory in (tables.parent, tables):  # so that pytest can remove them
        directory.chmod(0o755)
    read = "[1.0, 2.0] []\n" if "0 .;" not in program else "[nan, nan] ['a', 'b']\n"  # nothing can be read there
    assert ended.stdout == read
