"""A program that stays, and fails in one of many ways: x in, 2 x and x * x out, on lines of JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

KINDS = 128
LONG = 600  # s: longer than any time limit
OK = ("ok",)
RAISED = ("raised an exception",)
UNREADABLE = ("unreadable output",)
NOT_FINITE = ("not a finite number",)
# A program that goes away is reported by how it went, or by the answer that is missing.
GONE = ("killed", "exit code", "unreadable output")
TIMEOUT = ("timeout",)


def say(text: str | bytes) -> None:
    os.write(1, text.encode() if isinstance(text, str) else text)


def sleep() -> None:
    while True:
        time.sleep(LONG)


def answer(number: int, x: float) -> None:
    say(json.dumps({"id": number, "outputs": {"y": [2 * x, x * x]}}) + "\n")


def outputs(number: int, text: str) -> None:
    say(f'{{"id": {number}, "outputs": {{"y": {text}}}}}\n')


def leave_daemon() -> None:
    """Leave a process behind: two forks, a session, no files; it still has this program's arguments."""
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 256)
    sleep()


def leave_child() -> None:
    """Leave a child that holds standard input and output."""
    if os.fork() == 0:
        sleep()


FAULTS = {
    "ok": (answer, OK),
    "an error": (lambda n, x: say(f'{{"id": {n}, "error": "no"}}\n'), RAISED),
    "an error that is no text": (lambda n, x: say(f'{{"id": {n}, "error": {{"deep": [1]}}}}\n'), RAISED),
    "null": (lambda n, x: outputs(n, "[null, 1.0]"), NOT_FINITE),
    "NaN": (lambda n, x: outputs(n, "[NaN, 1.0]"), NOT_FINITE),
    "overflow": (lambda n, x: outputs(n, "[1e999, 1.0]"), NOT_FINITE),
    "text": (lambda n, x: outputs(n, '["1", "2"]'), UNREADABLE),
    "true": (lambda n, x: outputs(n, "[true, false]"), UNREADABLE),
    "one too few": (lambda n, x: outputs(n, "[1.0]"), UNREADABLE),
    "one too many": (lambda n, x: outputs(n, "[1.0, 2.0, 3.0]"), UNREADABLE),
    "no outputs": (lambda n, x: say(f'{{"id": {n}}}\n'), UNREADABLE),
    "another name": (lambda n, x: say(f'{{"id": {n}, "outputs": {{"z": [1, 2]}}}}\n'), UNREADABLE),
    "another number": (lambda n, x: answer(n + 1000, x), UNREADABLE),
    "no JSON": (lambda n, x: say("hello\n"), UNREADABLE),
    "an empty line": (lambda n, x: say("\n"), UNREADABLE),
    "bytes": (lambda n, x: say(b"\xff\xfe\x00\n"), UNREADABLE),
    "a list": (lambda n, x: say("[1, 2]\n"), UNREADABLE),
    "deep brackets": (lambda n, x: say("[" * 100_000 + "\n"), UNREADABLE),
    "a huge integer": (lambda n, x: outputs(n, f"[{'1' * 100_000}, 1.0]"), (*NOT_FINITE, *UNREADABLE)),
    "a long line": (lambda n, x: [say("x" * 65536) for _ in range(64)] and say("\n"), (*UNREADABLE, "killed")),
    "exit": (lambda n, x: sys.exit(0), GONE),
    "exit code": (lambda n, x: sys.exit(3), GONE),
    "half an answer": (lambda n, x: (say(f'{{"id": {n}, "outp'), sys.exit(0)), GONE),
    "segmentation fault": (lambda n, x: os.kill(os.getpid(), signal.SIGSEGV), GONE),
    "closed output": (lambda n, x: (os.close(1), sys.exit(0)), GONE),
    "noise": (lambda n, x: ([os.write(2, b"x" * 4096) for _ in range(512)], answer(n, x)), OK),
    "a child": (lambda n, x: (leave_child(), answer(n, x)), OK),
    "a daemon": (lambda n, x: (leave_daemon(), answer(n, x)), OK),
    "a daemon and the end": (lambda n, x: (leave_daemon(), sys.exit(1)), GONE),
    "hang": (lambda n, x: sleep(), TIMEOUT),
    "stop itself": (lambda n, x: os.kill(os.getpid(), signal.SIGSTOP), TIMEOUT),
    "half an answer and hang": (lambda n, x: (say(f'{{"id": {n}, '), sleep()), TIMEOUT),
}
NAMES = list(FAULTS)


def kind(x: float) -> str:
    """The fault that an input chooses."""
    number = int(x) % KINDS
    return NAMES[number] if number < len(NAMES) else "ok"


def main() -> None:
    started = os.open(f"{sys.argv[1]}/started", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for line in sys.stdin:
        request = json.loads(line)
        x = request["inputs"]["x"]
        os.write(started, f"{x!r}\n".encode())
        FAULTS[kind(x)][0](request["id"], x)


if __name__ == "__main__":
    main()
