"""One exchange of JSON with a server over HTTP, bounded in time, in bytes and in depth."""

from __future__ import annotations

import http.client
import io
import json
import re
import select
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

DEEPEST = 16  # brackets within brackets; UM-Bridge needs three, a model's config perhaps more
SECONDS_TO_CONNECT = 10.0
SAID = 300  # characters of a server's own words that a message repeats

BUSY = (429, 502, 503, 504)  # what a load balancer says when no server behind it can be had

# Outside of strings: brackets, and numbers that are not finite as Python and C write them.
_TOKEN = re.compile(r'"(?:[^"\\]+|\\.)*+"?|[\[\]{}]|-?\b(?:nan|inf(?:inity)?)\b', re.IGNORECASE | re.DOTALL)


class NoConnectionError(Exception):
    """The server cannot be reached."""


class BrokenOffError(Exception):
    """The server took the request, but did not answer it; it may answer it the next time."""


class TooSlowError(Exception):
    """The answer was not whole in time."""


class UnreadableReplyError(Exception):
    """What came is no answer, and will be none the next time."""


class TooLargeError(Exception):
    """More bytes came than were allowed."""


class BoundedReader(io.RawIOBase):
    """What a socket receives, until a moment and up to a number of bytes, however it trickles."""

    def __init__(self, connection: socket.socket, size: int, deadline: float) -> None:
        super().__init__()
        self._socket = connection
        self._raw = connection.makefile("rb", buffering=0)
        self.allow(size, deadline)

    def allow(self, size: int, deadline: float) -> None:
        """`size` bytes more, until `deadline` on the monotonic clock."""
        self._left, self._deadline = size, deadline

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there; raise `TooLargeError` or `TimeoutError`."""
        if self._left <= 0:
            raise TooLargeError
        self._socket.settimeout(_until(self._deadline))
        count = self._raw.readinto(memoryview(buffer)[: self._left]) or 0
        self._left -= count
        return count

    def close(self) -> None:
        """Let go of the socket."""
        self._raw.close()
        super().close()


class _BoundedSocket:
    """What `http.client` asks of a socket, with the bounds of one exchange."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.limit, self.deadline = 0, 0.0

    def sendall(self, data: bytes) -> None:
        self.connection.settimeout(_until(self.deadline))
        self.connection.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(BoundedReader(self.connection, self.limit, self.deadline))

    def is_quiet(self) -> bool:
        """Whether nothing has come since the last answer, as the end of the connection would have."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        self.connection.close()


@dataclass(frozen=True)
class Reply:
    """What a server answered.

    Parameters
    ----------
    status : of HTTP.
    data : the body, as it came.
    """

    status: int
    data: bytes

    def json(self) -> Any:
        """The body, parsed; raise `UnreadableReplyError` if it is not JSON or too deep."""
        try:
            return parse_json(self.data)
        except ValueError as error:
            raise UnreadableReplyError(f"the reply is not JSON ({error}): {said(self.data)}") from error


class Connection:
    """A connection that is kept open from one exchange to the next; for one thread.

    Redirections are not followed, proxies of the environment not asked.

    Parameters
    ----------
    url : of the server, ``http://host:port``; a path is put before that of each exchange.
    timeout : seconds that an exchange may take from its first byte to its last.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self.url = url
        self._parts = urlsplit(url)
        self._timeout = timeout
        self._http: http.client.HTTPConnection | None = None
        self._wire: _BoundedSocket | None = None

    def exchange(self, path: str, message: object | None, limit: int) -> Reply:
        """POST `message` to `path`, or GET it if there is none; the reply has at most `limit` bytes."""
        deadline = time.monotonic() + self._timeout
        try:
            client = self._opened(deadline, limit)
            reply = self._ask(client, path, message, limit)
        except TimeoutError as error:
            self.close()
            raise TooSlowError(f"no whole answer within {self._timeout:g} s") from error
        except TooLargeError as error:
            self.close()
            raise UnreadableReplyError(f"the reply is larger than {limit:,} bytes") from error
        except (http.client.IncompleteRead, OSError) as error:  # RemoteDisconnected is an OSError
            self.close()
            raise BrokenOffError("the connection was closed before the answer was whole") from error
        except http.client.HTTPException as error:
            self.close()
            raise UnreadableReplyError(f"the reply is not HTTP ({type(error).__name__})") from error
        except BaseException:
            self.close()
            raise
        if reply.status in BUSY:
            raise BrokenOffError(f"HTTP status {reply.status}: {said(reply.data)}")
        return reply

    def close(self) -> None:
        """Close it; the next exchange opens it again."""
        if self._http is not None:
            self._http.close()
            self._http = self._wire = None

    def abort(self) -> None:
        """Break off the exchange of another thread."""
        wire = self._wire
        if wire is not None:
            with suppress(OSError):
                wire.connection.shutdown(socket.SHUT_RDWR)

    def _ask(self, client: http.client.HTTPConnection, path: str, message: object | None, limit: int) -> Reply:
        body = None if message is None else json.dumps(message, allow_nan=False).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        client.request("GET" if body is None else "POST", self._parts.path.rstrip("/") + path, body, headers)
        with client.getresponse() as response:
            if (response.length or 0) > limit:
                raise TooLargeError
            data = response.read(limit)
            if response.length or (not data and response.status == 200):  # closed within the body, or the headers
                raise http.client.IncompleteRead(b"")
            return Reply(response.status, data)

    def _opened(self, deadline: float, limit: int) -> http.client.HTTPConnection:
        """The client, connected, with these bounds; the open connection if it still holds."""
        if self._http is None or self._wire is None or self._http.sock is None or not self._wire.is_quiet():
            self.close()
            self._http = self._connected(min(_until(deadline), SECONDS_TO_CONNECT))
            self._wire = _BoundedSocket(self._http.sock)
            wire: Any = self._wire  # it is no socket, but has what the client needs of one
            self._http.sock = wire
            self._http.auto_open = 0  # it would open a socket without bounds
        self._wire.limit, self._wire.deadline = limit, deadline
        return self._http

    def _connected(self, seconds: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        client = kind(self._parts.hostname or "", self._parts.port, timeout=seconds)
        try:
            client.connect()
        except (OSError, UnicodeError) as error:
            client.close()
            reason = (isinstance(error, OSError) and error.strerror) or str(error)
            raise NoConnectionError(f"cannot be reached: {reason}; is it running, and is that its address?") from error
        return client


def check_url(url: str) -> str | None:
    """What is wrong with the address of a server, as the end of a sentence; None if nothing is."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # such as a port that is no number
        return "is no address"
    if not sound:
        return "is no address"
    if parts.username or parts.password or parts.query or parts.fragment or re.search(r"[^!-~]", url):
        return "holds more than scheme, host, port and path"
    return None


def parse_json(data: bytes) -> Any:
    """Parse JSON, with all numbers as floats; raise `ValueError` if it is none, or more than `DEEPEST` deep.

    Numbers that are not finite are read as Python and C write them: ``nan``, ``-inf``.
    """
    depth = 0

    def judged(match: re.Match[str]) -> str:
        nonlocal depth
        word = match[0]
        if word in "[{":
            depth += 1
            if depth > DEEPEST:
                raise ValueError(f"it is nested more than {DEEPEST} deep")
        elif word in "]}":
            depth -= 1
        elif word[0] != '"':
            return "NaN" if word.lower().endswith("nan") else "-" * (word[0] == "-") + "Infinity"
        return word

    text = _TOKEN.sub(judged, data.decode("utf-8-sig"))
    return json.loads(text, parse_int=float)


def said(data: bytes | str) -> str:
    """A server's own words: the start of them, printable, on one line."""
    start = data[: 4 * SAID]
    text = " ".join((start.decode(errors="replace") if isinstance(start, bytes) else start).split())
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return printable[:SAID] or "nothing"


def _until(deadline: float) -> float:
    """Seconds that are left; raise `TimeoutError` if there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
