"""What the IOOS compliance checker says of a file."""

import subprocess
import sys
from pathlib import Path

# It takes every X axis without a reference system for a longitude; CF, section 4, has X for any horizontal one.
LOCAL_AXES = ("§4.1 Latitude Coordinate", "§4.2 Longitude Coordinate")


def complaints(path: Path, but: tuple[str, ...] = ()) -> list[str]:
    """Sections of CF that the file is at odds with, and why, but for some sections."""
    checker = Path(sys.executable).with_name("compliance-checker")
    command = [checker, "--test=cf:1.11", "--criteria=strict", "--verbose", path]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "exceptions occurred" not in outcome.stderr, outcome.stderr
    if "All tests passed!" in outcome.stdout:
        return []
    lines = outcome.stdout.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("§")]
    assert starts, outcome.stdout
    reported = [" ".join(lines[i:j]).strip() for i, j in zip(starts, [*starts[1:], len(lines)], strict=True)]
    return [text for text in reported if not text.startswith(but)]
