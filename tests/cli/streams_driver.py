"""Commands in forks of one process that has imported them, each with standard streams of its own.

Started by `test_standard_streams.py`; it gives one line of JSON per case: the exit code, and standard error.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from importlib import import_module
from pathlib import Path

from invgp.cli import COMMANDS, main

LIBRARIES = (
    "invgp.config.build_problem",
    "invgp.inference.invert",
    "invgp.plots",
    "invgp.reports",
    "invgp.maps.predict",
)


def arrange(streams: str, reported: Path) -> None:
    """Put the streams of this process into a state."""
    os.dup2(os.open(reported, os.O_WRONLY | os.O_CREAT), 2)
    match streams:
        case "full":
            os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        case "full without a reader":
            arrange("no reader", reported)
            os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        case "closed":
            for number in (0, 1, 2):
                os.close(number)
        case "no reader":
            reader, writer = os.pipe()
            os.close(reader)
            os.dup2(writer, 1)
            os.dup2(writer, 2)


def run(arguments: list[str], streams: str, folder: Path) -> None:
    """One command, in a fork; it does not return."""
    code = 99
    try:
        os.chdir(folder)
        arrange(streams, folder / "standard_error")
        sys.argv = ["invgp", *arguments]
        main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        (folder / "traceback").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def drive() -> None:
    """Run all cases of standard input: arguments, streams, and the folder that each gets a copy of."""
    for name in (*(f"invgp.cli.{name}" for name in COMMANDS), *LIBRARIES):
        import_module(name)
    for number, (arguments, streams, source) in enumerate(json.load(sys.stdin)):
        folder = Path.cwd() / str(number)
        shutil.copytree(source, folder)
        child = os.fork()
        if not child:
            run(arguments, streams, folder)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        reported = (folder / "standard_error").read_text() if (folder / "standard_error").exists() else ""
        raised = (folder / "traceback").read_text() if (folder / "traceback").exists() else ""
        print(json.dumps({"code": code, "reported": reported, "raised": raised, "folder": str(folder)}), flush=True)


if __name__ == "__main__":
    drive()
