"""A simulator that fails in one of many ways: x in, 2 x and x * x out, and the whole part of x chooses the fault.

It runs as a program, under each adapter of programs, and is imported for the table of what each fault must end in.
It imports no more than it needs, because a campaign starts it ten thousand times.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import time

KINDS = 128  # the whole part of x modulo this is the number of the fault
FLOOD = 65 * 2**20  # bytes: more than a log may hold
LONG = 600  # s: longer than any time limit

OK = ("ok",)
FAILED = ("unreadable output", "exit code", "killed", "could not be started", "not a finite number", "timeout")
UNREADABLE = ("unreadable output",)
NOT_FINITE = ("not a finite number", "unreadable output")
EXIT_CODE = ("exit code",)
KILLED = ("killed",)
TIMEOUT = ("timeout",)

# The files that programs write, by adapter. A directory that replaces a run's has decoys of these names.
OUTPUTS = {
    "executable": "times.txt",
    "standard output": "standard_output.txt",
    "batched": "outputs.csv",
    "pest": "out.txt",
    "dakota": "results.out",
}


class Run:
    """One start of the program.

    Attributes
    ----------
    adapter : which conventions it keeps.
    home : folder of the campaign's batch: `started` gets a line per run, `canaries` must not change.
    mark : a word in the arguments of all processes, by which those that are left are found.
    rows : the inputs.
    """

    def __init__(self, adapter: str, home: str, mark: str, rows: list[float]) -> None:
        self.adapter, self.home, self.mark, self.rows = adapter, home, mark, rows

    @property
    def output(self) -> str:
        return OUTPUTS[self.adapter]

    @property
    def x(self) -> float:
        return self.rows[0]

    def write(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        if self.adapter == "standard output":
            os.write(1, data)
            return
        with open(self.output, "wb") as file:
            file.write(data)

    def give(self, *numbers: str) -> None:
        """Write these words as the outputs of every row."""
        if self.adapter == "dakota":
            words = ", ".join(f'"y_{i}": {word}' for i, word in enumerate(numbers, start=1))
            self.write(f'{{"functions": {{{words}}}}}\n')
        else:
            self.write("".join(" ".join(numbers) + "\n" for _ in self.rows))

    def answer(self) -> None:
        """Write the right outputs."""
        if len(self.rows) == 1:
            self.give(repr(2 * self.x), repr(self.x * self.x))
        else:
            self.write("".join(f"{2 * x!r} {x * x!r}\n" for x in self.rows))

    def canary(self, name: str) -> str:
        return f"{self.home}/canaries/{name}"

    def aside(self) -> str:
        """A path outside of the run's directory where nothing is."""
        return f"{self.home}/aside/{self.x!r}-{os.getpid()}"

    def is_first(self) -> bool:
        """Whether nobody has asked this of the row before."""
        try:
            os.mkdir(f"{self.home}/once-{self.x!r}")
        except FileExistsError:
            return False
        return True


def sleep() -> None:
    while True:
        time.sleep(LONG)


def die(number: int) -> None:
    os.kill(os.getpid(), number)
    sleep()


def replace(path: str, make) -> None:
    """Put what `make` makes in the place of a file."""
    if os.path.lexists(path):
        os.unlink(path)
    make(path)


def make_socket(path: str) -> None:
    socket.socket(socket.AF_UNIX).bind(path)


def close_all() -> None:
    os.closerange(0, 256)


def daemon(run: Run, *, files: bool = True, environment: bool = True, again: int = 0) -> None:
    """Leave a process behind, as daemons do: two forks and a session, perhaps without files or environment."""
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    if not files:
        close_all()
    for _ in range(again):  # each lives for a moment only, and leaves another
        time.sleep(0.005)
        if os.fork():
            os._exit(0)
    arguments = [sys.executable, "-I", "-S", "-c", f"import time; time.sleep({LONG})", run.mark]
    os.execve(sys.executable, arguments, os.environ if environment else {})


def child(run: Run, *, apart: bool) -> None:
    """Leave a child, in a session of its own or not."""
    if os.fork() == 0:
        if apart:
            os.setsid()
        sleep()


def late(run: Run) -> None:
    """Leave the answer to a child that writes it after the end."""
    if os.fork() == 0:
        time.sleep(2.0)
        run.answer()
        os._exit(0)


def deep_tree(run: Run) -> None:
    """A tree of directories that is deeper than Python's stack, and whose path is longer than a path may be."""
    home = os.getcwd()
    for _ in range(1100):
        os.mkdir("deep")
        os.chdir("deep")
    os.chdir(home)
    run.answer()


def strange_names(run: Run) -> None:
    for name in (b"\xff\xfe", b"new\nline", b"-rf", b" ", b"x" * 255):
        with open(name, "wb"):
            pass
    run.answer()


def move_directory(run: Run) -> str:
    """Take the run's directory away; where it was."""
    here = os.getcwd()
    os.makedirs(f"{run.home}/aside", exist_ok=True)
    os.rename(here, run.aside())
    return here


def remove_directory(run: Run) -> None:
    here = os.getcwd()
    for name in os.listdir():
        os.unlink(name)
    os.rmdir(here)


def swap_directory(run: Run, target: str) -> None:
    """Put a link in the place of the run's directory."""
    os.symlink(target, move_directory(run))


def file_for_directory(run: Run) -> None:
    with open(move_directory(run), "w") as file:
        file.write("a file\n")


def spare_link(run: Run) -> None:
    """Leave a link where the parent keeps an empty directory for its next run."""
    place = f"../.spare-{os.getppid()}"
    if not os.path.lexists(place):
        os.symlink(run.canary("folder"), place)
    run.answer()


def links_inside(run: Run) -> None:
    """Links to what is not ours, inside the run's directory, which is about to be removed."""
    os.symlink(run.canary("folder"), "folder")
    os.symlink(run.canary("numbers.txt"), "file")
    os.symlink("..", "up")
    os.mkdir("below")
    os.symlink(run.canary("folder"), "below/folder")
    run.answer()


def unreadable_directory(run: Run) -> None:
    os.mkdir("below")
    with open("below/file", "w"):
        pass
    os.chmod("below", 0)
    run.answer()


def fail_with(run: Run, make) -> None:
    """Fail, with something that is no file in the place of standard error."""
    replace("standard_error.txt", make)
    sys.exit(3)


def noise(run: Run) -> None:
    for _ in range(512):
        os.write(2, b"x" * 4096)
    sys.exit(1)


def binary_noise(run: Run) -> None:
    os.write(2, bytes(range(256)) * 64 + b"\x1b[2J\x1b]0;title\x07\xff\xfe")
    sys.exit(1)


def fill_quota(run: Run) -> None:
    """Write more than a file may hold, as on a disk with a quota."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))
    run.write(b"1.0 " * 2**15)


def without_streams(run: Run) -> None:
    run.answer()
    for number in (0, 1, 2):
        os.close(number)
    os._exit(0)


def worker() -> int:
    """The process that asked for the run: the first above this one that is no supervisor of programs."""
    process = os.getppid()
    while True:
        with open(f"/proc/{process}/cmdline") as file:
            if "supervisor" not in file.read():
                return process
        with open(f"/proc/{process}/stat") as file:
            process = int(file.read().rpartition(")")[2].split()[1])


def signal_parent(number: int) -> None:
    """Signal what started this program, and wait for what comes of it."""
    os.kill(os.getppid(), number)
    sleep()


def kill_worker(run: Run) -> None:
    os.kill(worker(), signal.SIGKILL)
    sleep()


def once(run: Run, deed) -> None:
    """Do something the first time, and answer the next time."""
    if run.is_first():
        deed()
        sleep()
    run.answer()


# What a run does, and what may become of it. Programs that hang cost their whole time limit.
FAULTS = {
    "ok": (Run.answer, OK),
    "exit code": (lambda run: sys.exit(3), EXIT_CODE),
    "answer and exit code": (lambda run: (run.answer(), sys.exit(1)), EXIT_CODE),
    "segmentation fault": (lambda run: die(signal.SIGSEGV), KILLED),
    "abort": (lambda run: os.abort(), KILLED),
    "SIGKILL to itself": (lambda run: die(signal.SIGKILL), KILLED),
    "SIGTERM to itself": (lambda run: die(signal.SIGTERM), KILLED),
    "SIGHUP to itself": (lambda run: die(signal.SIGHUP), KILLED),
    "real-time signal": (lambda run: die(signal.SIGRTMIN + 3), KILLED),
    "SIGKILL to its group": (lambda run: (os.killpg(0, signal.SIGKILL), sleep()), KILLED),
    "NaN": (lambda run: run.give("NaN", "1.0"), NOT_FINITE),
    "infinity": (lambda run: run.give("1.0", "Infinity"), NOT_FINITE),
    "overflow": (lambda run: run.give("1e999", "1.0"), NOT_FINITE),
    "no output": (lambda run: None, UNREADABLE),
    "empty output": (lambda run: run.write(""), UNREADABLE),
    "half an output": (lambda run: run.write(f"{2 * run.x!r}"[:3]), UNREADABLE),
    "words": (lambda run: run.give("not", "numbers"), UNREADABLE),
    "one number too few": (lambda run: run.give("1.0"), UNREADABLE),
    "one number too many": (lambda run: run.give("1.0", "2.0", "3.0"), (*UNREADABLE, "ok")),
    "random bytes": (lambda run: run.write(os.urandom(4096)), UNREADABLE),
    "zero bytes": (lambda run: run.write(bytes(4096)), UNREADABLE),
    "a number of a million digits": (lambda run: run.give("1" * 1_000_000, "1.0"), (*UNREADABLE, *NOT_FINITE)),
    "deep brackets": (lambda run: run.write("[" * 100_000), UNREADABLE),
    "a terabyte": (lambda run: (run.write("1.0 2.0\n"), os.truncate(run.output, 2**40)), (*UNREADABLE, *KILLED)),
    "output is a pipe": (lambda run: replace(run.output, os.mkfifo), UNREADABLE),
    "output is a link to a file": (
        lambda run: replace(run.output, lambda p: os.symlink(run.canary("numbers.txt"), p)),
        UNREADABLE,
    ),
    "output is a link to a device": (lambda run: replace(run.output, lambda p: os.symlink("/dev/zero", p)), UNREADABLE),
    "output is a link to itself": (lambda run: replace(run.output, lambda p: os.symlink(p, p)), UNREADABLE),
    "output is a socket": (lambda run: replace(run.output, make_socket), UNREADABLE),
    "output is a directory": (lambda run: replace(run.output, os.mkdir), UNREADABLE),
    "standard error is a pipe": (lambda run: fail_with(run, os.mkfifo), EXIT_CODE),
    "standard error is a link to a file": (
        lambda run: fail_with(run, lambda p: os.symlink(run.canary("secret.txt"), p)),
        EXIT_CODE,
    ),
    "standard error is a link to a device": (
        lambda run: fail_with(run, lambda p: os.symlink("/dev/zero", p)),
        EXIT_CODE,
    ),
    "standard error is a socket": (lambda run: fail_with(run, make_socket), EXIT_CODE),
    "standard error is a directory": (lambda run: fail_with(run, os.mkdir), EXIT_CODE),
    "directory is a link to a folder": (lambda run: swap_directory(run, run.canary("folder")), FAILED),
    "directory is a link to all runs": (lambda run: swap_directory(run, os.path.dirname(os.getcwd())), FAILED),
    "directory is a link to itself": (lambda run: swap_directory(run, os.getcwd()), FAILED),
    "directory is a file": (file_for_directory, FAILED),
    "directory was moved": (move_directory, FAILED),
    "directory was removed": (remove_directory, FAILED),
    "a link for the next run": (spare_link, OK),
    "links inside the directory": (links_inside, OK),
    "a deep tree": (deep_tree, OK),
    "strange names": (strange_names, OK),
    "a folder without permissions": (unreadable_directory, OK),
    "2 MiB of standard error": (noise, EXIT_CODE),
    "control characters": (binary_noise, EXIT_CODE),
    "flood of standard error": (lambda run: (run.answer(), os.ftruncate(2, FLOOD)), KILLED),
    "flood of standard output": (lambda run: (run.answer(), os.ftruncate(1, FLOOD)), KILLED),
    "more than its quota": (fill_quota, (*EXIT_CODE, *UNREADABLE)),
    "closed streams": (without_streams, OK),
    "a child": (lambda run: (child(run, apart=False), run.answer()), OK),
    "a child in a session": (lambda run: (child(run, apart=True), run.answer()), OK),
    "twenty children": (lambda run: ([child(run, apart=i % 2 == 0) for i in range(20)], run.answer()), OK),
    "a daemon": (lambda run: (daemon(run), run.answer()), OK),
    "a daemon without files": (lambda run: (daemon(run, files=False), run.answer()), OK),
    "a daemon without environment": (lambda run: (daemon(run, environment=False), run.answer()), OK),
    "a daemon without both": (lambda run: (daemon(run, files=False, environment=False), run.answer()), OK),
    "a daemon that forks on": (lambda run: (daemon(run, files=False, again=40), run.answer()), OK),
    "a failure and a daemon": (lambda run: (daemon(run, files=False), sys.exit(2)), EXIT_CODE),
    "an answer after the end": (late, UNREADABLE),
    "SIGKILL to its parent": (lambda run: signal_parent(signal.SIGKILL), (*KILLED, *TIMEOUT)),
    "SIGTERM to its parent": (lambda run: signal_parent(signal.SIGTERM), (*TIMEOUT, *KILLED)),
    "SIGSTOP to its parent": (lambda run: signal_parent(signal.SIGSTOP), (*TIMEOUT, *KILLED)),
    "a daemon, and SIGKILL to its parent": (
        lambda run: (daemon(run, files=False), signal_parent(signal.SIGKILL)),
        (*KILLED, *TIMEOUT),
    ),
    "hang": (lambda run: sleep(), TIMEOUT),
    "hang without signals": (
        lambda run: ([signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)], sleep()),
        TIMEOUT,
    ),
    "stop itself": (lambda run: die(signal.SIGSTOP), TIMEOUT),
    "hang with a daemon": (lambda run: (daemon(run, files=False), sleep()), TIMEOUT),
    "kill its worker once": (lambda run: once(run, lambda: kill_worker(run)), OK),
    "kill its worker's group once": (
        lambda run: once(run, lambda: os.killpg(os.getpgid(worker()), signal.SIGKILL)),
        OK,
    ),
    "terminate its worker's group once": (
        lambda run: once(run, lambda: os.killpg(os.getpgid(worker()), signal.SIGTERM)),
        OK,
    ),
    "kill its worker always": (kill_worker, KILLED),
}
NAMES = list(FAULTS)


def kind(x: float) -> str:
    """The fault that an input chooses."""
    number = int(x) % KINDS
    return NAMES[number] if number < len(NAMES) else "ok"


def is_slow(name: str) -> bool:
    """Whether the fault costs the whole time limit."""
    endings = FAULTS[name][1]
    return "timeout" in endings and len(endings) < 3


def read_rows(adapter: str) -> list[float]:
    """The inputs, as the adapter hands them over."""
    if adapter in ("executable", "standard output"):
        return [float(sys.argv[4])]
    if adapter == "pest":
        with open("in.txt") as file:
            return [float(file.read().split()[-1])]
    if adapter == "dakota":
        with open("params.in") as file:
            return [float(file.read().split('"value": ')[1].split("}")[0])]
    with open("inputs.csv") as file:
        return [float(line) for line in file.read().split()[1:]]


def main() -> None:
    adapter, home, mark = sys.argv[1:4]
    rows = read_rows(adapter)
    file = os.open(f"{home}/started", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, "".join(f"{x!r}\n" for x in rows).encode())
    os.close(file)
    faults = [kind(x) for x in rows]
    fatal = [(x, name) for x, name in zip(rows, faults, strict=True) if FAULTS[name][1] != OK]
    if len(rows) == 1:
        FAULTS[faults[0]][0](Run(adapter, home, mark, rows))
    elif fatal:  # a batch with a row that fails: it fails in that row's way, and its rows come again singly
        x, name = fatal[0]
        if is_slow(name) or name == "kill its worker always":
            sys.exit(9)
        FAULTS[name][0](Run(adapter, home, mark, [x]))
    else:
        Run(adapter, home, mark, rows).answer()


if __name__ == "__main__":
    main()
