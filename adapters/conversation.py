"""The rows of a batch, asked of a program that stays: one at a time, or several ahead if it answers at once.

A program and whoever asks it wait for each other in turns, and each wait wakes a process. A program that answers
within `QUICK` seconds therefore gets up to `AHEAD` requests before it has answered the first, so that both always have
something to do. One that takes longer does not: there the wait is short beside the run, and such a program may have
started another one, which could swallow requests that lie in wait on its standard input.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from .failures import quoted
from .lines import LostError
from .outcomes import RunError
from .protocol import Status
from .servers import Key, Server, give_back, take

AHEAD = 32  # requests
QUICK = 5e-4  # s: too short for a program to start another
AT_ONCE = 2**14  # bytes: less than any pipe takes
_SHOWN = 500  # characters of a request that failed

_log = logging.getLogger(__name__)
_one_at_a_time: set[Key] = set()


class Request(NamedTuple):
    """A row that was asked; `alone` if the program had nothing else before it at the time."""

    row: int
    number: int
    line: bytes
    alone: bool


@dataclass
class Conversation:
    """A batch of rows and the program that is asked about them.

    A row is lost if the program crashes, hangs, or writes what is no answer to it; then the program is ended with all
    its children, and a fresh one goes on. The oldest row that was not answered is to blame, unless the program had
    answered before and was not too slow, or had got other rows as well: then the row is asked once more, of the fresh
    program and with nothing else beside it. Whether a row goes well does not depend on the rows before it.

    Parameters
    ----------
    key : by which programs are kept for the next batch.
    start : starts a program, or raises `RunError`.
    write : number and row -> a line that asks for it.
    read : line and number -> the numbers of the answer; it raises `RunError` for a run that failed, `LostError` for a
        line that is no answer.
    timeout : seconds for an answer, from when the one before it was there.
    limit : bytes of an answer.
    """

    key: Key
    start: Callable[[], Server]
    write: Callable[[int, int], bytes]
    read: Callable[[bytes, int], list[float]]
    timeout: float
    limit: int
    _asked: deque[Request] = field(default_factory=deque)

    def answers(self, rows: Iterable[int]) -> Generator[tuple[int, list[float] | RunError], None, None]:
        """Each row, in order, with its numbers or the reason why it has none."""
        waiting = deque(rows)
        server, suspect = take(self.key) if waiting else None, -1
        try:
            while waiting or self._asked:
                try:
                    server = server or self.start()
                except RunError as failure:
                    yield waiting.popleft(), failure
                    continue
                try:
                    self._ask(server, waiting)
                    answer = self._heard(server)
                except LostError as loss:
                    lost, in_company = self._asked[0], len(self._asked) > 1 or not self._asked[0].alone
                    said = server.last_words()
                    server.end()
                    server = None
                    waiting.extendleft(request.row for request in reversed(self._asked))
                    if in_company or (lost.number > 1 and loss.status is not Status.TIMEOUT):
                        suspect = lost.row if in_company else -1
                        _log.info("a row is asked again of a fresh program, since the last one was lost: %s", loss)
                    else:
                        yield waiting.popleft(), _about(loss, said, lost)
                    self._asked.clear()
                    continue
                done = self._asked.popleft().row
                if done == suspect:  # alone it goes well: this program cannot do with company
                    _one_at_a_time.add(self.key)
                    server.ahead = 1
                yield done, answer
        finally:
            if server is not None:
                if self._asked:  # interrupted
                    server.end()
                else:
                    give_back(self.key, server)

    def _ask(self, server: Server, waiting: deque[int]) -> None:
        """Send as many rows as the program may have; none if it has half of them still before it."""
        if len(self._asked) > server.ahead // 2:
            return
        fresh: list[Request] = []
        size = 0
        # One that has answered all may not have read all: it gets its next row all the same.
        while waiting and len(self._asked) < server.ahead and size < AT_ONCE and (server.all_sent or not self._asked):
            number = server.asked + len(fresh) + 1
            request = Request(waiting[0], number, self.write(number, waiting[0]), not self._asked)
            fresh.append(request)
            self._asked.append(request)
            waiting.popleft()
            size += len(request.line)
        if fresh:
            server.say(b"".join(request.line for request in fresh), len(fresh))

    def _heard(self, server: Server) -> list[float] | RunError:
        """The answer to the oldest row, and whether there may be more of them ahead."""
        request = self._asked[0]
        began = time.perf_counter()
        line = server.hear(self.timeout, self.limit)
        quick = time.perf_counter() - began < QUICK and self.key not in _one_at_a_time
        try:
            return self.read(line, request.number)
        except LostError:
            raise
        except RunError as failure:
            return _about(failure, "", request)
        finally:
            server.ahead = min(2 * server.ahead, AHEAD) if quick else 1


def _about(failure: RunError, said: str, request: Request) -> RunError:
    shown = quoted(request.line[:_SHOWN]) + ("..." if len(request.line) > _SHOWN else "")
    return RunError(failure.status, f"{failure}{said}; asked: {shown}")
