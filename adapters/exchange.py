"""Exchange JSON with a server over HTTP, within bounds on time, bytes and depth."""

from __future__ import annotations

import json
import re
import select
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import h11

DEEPEST = 16  # brackets within brackets; UM-Bridge needs three, a model's config perhaps more
SECONDS_TO_CONNECT = 10.0
BYTES_AT_ONCE = 2**16
SAID = 300  # characters of a server's own words that a message repeats

HTTP = b"HTTP/"  # start of every reply
CLOSED_EARLY = "the connection was closed before the answer was whole"
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
    """A connection that stays open from one exchange to the next; for one thread.

    Redirections are not followed, and proxies of the environment are not used.

    Parameters
    ----------
    url : str
        Address of the server, ``http://host:port``; a path in it comes before the path of each exchange.
    timeout : float
        Seconds that an exchange may take from its first byte to its last.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self.url = url
        self._parts = urlsplit(url)
        self._timeout = timeout
        self._socket: socket.socket | None = None
        self._http = h11.Connection(h11.CLIENT)
        self._in_use_before = False  # by an exchange before this one, whose reply has not begun

    def exchange(self, path: str, message: object | None, limit: int) -> Reply:
        """POST a message, or GET if there is none.

        Parameters
        ----------
        path : str
            Where to send it.
        message : object
            What JSON can hold; None for a GET.
        limit : int
            Bytes that the reply may have, headers included.

        Raises
        ------
        NoConnectionError, BrokenOffError, TooSlowError, UnreadableReplyError
            If there is no reply. The connection is then closed; the next exchange opens it again.
        """
        deadline = time.monotonic() + self._timeout
        kept = False
        try:
            opened = self._opened(deadline)
            self._send(opened, path, message, deadline)
            reply = self._receive(opened, limit, deadline)
            kept = self._http.their_state is h11.DONE and not self._http.trailing_data[0]
        except TimeoutError as error:
            raise TooSlowError(f"no whole answer within {self._timeout:g} s") from error
        except (OSError, EOFError) as error:
            raise BrokenOffError(CLOSED_EARLY) from error
        except h11.RemoteProtocolError as error:
            if self._http.trailing_data[1]:  # the server closed the connection
                raise BrokenOffError(CLOSED_EARLY) from error
            reason = re.sub(r"bytearray\(b(.*)\)", r"\1", str(error))
            sentence = f"the reply is not HTTP: {said(reason)}"
            if self._in_use_before:  # the rest of an earlier reply, perhaps: a new connection shows
                raise BrokenOffError(sentence) from error
            raise UnreadableReplyError(sentence) from error
        finally:
            if kept:
                self._http.start_next_cycle()
            else:
                self.close()
        if reply.status in BUSY:
            raise BrokenOffError(f"HTTP status {reply.status}: {said(reply.data)}")
        return reply

    def close(self) -> None:
        """Close it; the next exchange opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def abort(self) -> None:
        """Break off the exchange of another thread."""
        opened = self._socket
        if opened is not None:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def _opened(self, deadline: float) -> socket.socket:
        """Return the connection, opened anew if the server has closed it or has sent more than its answers."""
        if self._socket is not None and not _is_quiet(self._socket):
            self.close()
        self._in_use_before = self._socket is not None
        if self._socket is None:
            self._socket = self._connect(min(_until(deadline), SECONDS_TO_CONNECT))
            self._http = h11.Connection(h11.CLIENT)
        return self._socket

    def _connect(self, seconds: float) -> socket.socket:
        host, secure = self._parts.hostname or "", self._parts.scheme == "https"
        try:
            plain = socket.create_connection((host, self._parts.port or (443 if secure else 80)), seconds)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return ssl.create_default_context().wrap_socket(plain, server_hostname=host) if secure else plain
        except (OSError, UnicodeError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or str(error)
            raise NoConnectionError(f"cannot be reached: {reason}; is it running, and is that its address?") from error

    def _send(self, opened: socket.socket, path: str, message: object | None, deadline: float) -> None:
        body = b"" if message is None else json.dumps(message, allow_nan=False).encode()
        headers = [("Host", self._parts.netloc), ("Accept-Encoding", "identity")]
        if message is not None:
            headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        target = self._parts.path.rstrip("/") + path
        request = h11.Request(method="GET" if message is None else "POST", target=target, headers=headers)
        data = b"".join(self._http.send(event) or b"" for event in (request, h11.Data(body), h11.EndOfMessage()))
        opened.settimeout(_until(deadline))
        opened.sendall(data)

    def _receive(self, opened: socket.socket, limit: int, deadline: float) -> Reply:
        too_large = UnreadableReplyError(f"the reply is larger than {limit:,} bytes")
        start, status, data = b"", 0, bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                opened.settimeout(_until(deadline))
                received = opened.recv(min(BYTES_AT_ONCE, limit + 1))
                limit -= len(received)
                if limit < 0:
                    raise too_large
                start += received[: len(HTTP) - len(start)]
                if not HTTP.startswith(start):  # h11 would wait for the end of the headers
                    raise h11.RemoteProtocolError(said(received))
                self._http.receive_data(received)
            elif isinstance(event, h11.Response):
                self._in_use_before = False
                if event.http_version not in (b"1.0", b"1.1"):
                    raise h11.RemoteProtocolError(f"version {event.http_version.decode()}")
                status, headers = event.status_code, dict(event.headers)
                if int(headers.get(b"content-length", b"0")) > limit:
                    raise too_large
                encoding = headers.get(b"content-encoding", b"identity")
                if encoding.lower() != b"identity":
                    raise UnreadableReplyError(f"the reply is compressed ({said(encoding)}), which was not asked for")
            elif isinstance(event, h11.Data):
                data += event.data
            elif isinstance(event, h11.EndOfMessage):
                if not data and status == 200:  # closed before the body, if the end of the connection ends the body
                    raise EOFError
                return Reply(status, bytes(data))
            elif not isinstance(event, h11.InformationalResponse):
                raise EOFError


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
    """Parse JSON, with all numbers as floats.

    Numbers that are not finite are read as Python and C write them: ``nan``, ``-inf``.

    Raises
    ------
    ValueError
        If it is not JSON, is nested more than `DEEPEST` deep, or has a key twice in one object.
    """
    depth = 0

    def check_token(match: re.Match[str]) -> str:
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

    text = _TOKEN.sub(check_token, data.decode("utf-8-sig"))
    return json.loads(text, parse_int=float, object_pairs_hook=_unique)


def said(data: bytes | str) -> str:
    """A server's own words: the start of them, printable, on one line."""
    start = data[: 4 * SAID]
    text = " ".join((start.decode(errors="replace") if isinstance(start, bytes) else start).split())
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return printable[:SAID] or "nothing"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of JSON; two values for one key would leave open which counts."""
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return unique


def _is_quiet(opened: socket.socket) -> bool:
    """Whether nothing has come since the last answer, as the end of the connection would have."""
    poll = select.poll()
    poll.register(opened, select.POLLIN)
    return not poll.poll(0)


def _until(deadline: float) -> float:
    """Seconds that are left; raise `TimeoutError` if there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
