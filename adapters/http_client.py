"""An HTTP client for JSON, with limits on time, size and depth."""

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
MOST_QUOTED = 300  # characters of a reply that a message quotes

HTTP = b"HTTP/"  # start of every reply
CLOSED_EARLY = "the connection was closed before the answer was whole"
OK = 200
BUSY = (429, 502, 503, 504)  # replies of a load balancer without an available server

# Outside of strings: brackets, and numbers that are not finite as Python and C write them.
_TOKEN = re.compile(r'"(?:[^"\\]+|\\.)*+"?|[\[\]{}]|-?\b(?:nan|inf(?:inity)?)\b', re.IGNORECASE | re.DOTALL)


class NoConnectionError(Exception):
    """The server cannot be reached."""


class BrokenOffError(Exception):
    """The server accepted the request but did not answer it. A repetition may succeed."""


class TooSlowError(Exception):
    """The answer was not complete in time."""


class UnreadableReplyError(Exception):
    """The reply is not an answer. A repetition would fail, too."""


@dataclass(frozen=True)
class Reply:
    """A reply of a server.

    Parameters
    ----------
    status : int
        HTTP status.
    data : bytes
        The body.
    """

    status: int
    data: bytes

    def json(self) -> Any:
        """Parse the body; raise `UnreadableReplyError` if it is not JSON or nested too deeply."""
        try:
            return parse_json(self.data)
        except ValueError as error:
            raise UnreadableReplyError(f"the reply is not JSON ({error}): {quote_text(self.data)}") from error


class Connection:
    """A connection that is kept open between exchanges; for one thread.

    Redirections are not followed, and proxies of the environment are not used.

    Parameters
    ----------
    url : str
        Address of the server, such as ``http://host:port``. A path in it is put before the path of each exchange.
    timeout : float
        Time limit for an exchange in s, from its first byte to its last.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self.url = url
        self._parts = urlsplit(url)
        self._timeout = timeout
        self._socket: socket.socket | None = None
        self._http = h11.Connection(h11.CLIENT)
        self._is_reused = False  # and the reply of the present exchange has not started

    def exchange(self, path: str, message: object | None, limit: int) -> Reply:
        """POST a message, or GET if there is none.

        Parameters
        ----------
        path : str
        message : object
            Content that JSON can represent; None for a GET.
        limit : int
            Largest size of the reply in bytes, including headers. Only the start of a larger reply is returned if it
            reports an error.

        Raises
        ------
        NoConnectionError, BrokenOffError, TooSlowError, UnreadableReplyError
            There is no reply. The connection is closed; the next exchange opens it again.
        """
        deadline = time.monotonic() + self._timeout
        kept = False
        try:
            opened = self._open(deadline)
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
            sentence = f"the reply is not HTTP: {quote_text(reason)}"
            if self._is_reused:  # it may be the rest of an earlier reply: a new connection shows
                raise BrokenOffError(sentence) from error
            raise UnreadableReplyError(sentence) from error
        finally:
            if kept:
                self._http.start_next_cycle()
            else:
                self.close()
        if reply.status in BUSY:
            raise BrokenOffError(f"HTTP status {reply.status}: {quote_text(reply.data)}")
        return reply

    def close(self) -> None:
        """Close the connection; the next exchange opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def abort(self) -> None:
        """End the exchange of another thread."""
        opened = self._socket
        if opened is not None:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def _open(self, deadline: float) -> socket.socket:
        """Return the socket; connect if the server has closed the connection or sent unexpected data."""
        if self._socket is not None and not _has_no_data(self._socket):
            self.close()
        self._is_reused = self._socket is not None
        if self._socket is None:
            self._socket = self._connect(min(_seconds_left(deadline), SECONDS_TO_CONNECT))
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
        opened.settimeout(_seconds_left(deadline))
        opened.sendall(data)

    def _receive(self, opened: socket.socket, limit: int, deadline: float) -> Reply:
        allowed, start, status, data = limit, b"", 0, bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                opened.settimeout(_seconds_left(deadline))
                received = opened.recv(min(BYTES_AT_ONCE, limit + 1))
                limit -= len(received)
                if limit < 0:
                    if status in (0, OK):
                        raise UnreadableReplyError(f"the reply is larger than {allowed:,} bytes")
                    return Reply(status, bytes(data))  # its start describes the error
                start += received[: len(HTTP) - len(start)]
                if not HTTP.startswith(start):  # h11 would wait for the end of the headers
                    raise h11.RemoteProtocolError(quote_text(received))
                self._http.receive_data(received)
            elif isinstance(event, h11.Response):
                self._is_reused = False
                status = _check_response(event, limit, allowed)
            elif isinstance(event, h11.Data):
                data += event.data
            elif isinstance(event, h11.EndOfMessage):
                if not data and status == OK:  # closed before the body, if the end of the connection ends the body
                    raise EOFError
                return Reply(status, bytes(data))
            elif not isinstance(event, h11.InformationalResponse):
                raise EOFError


def find_url_fault(url: str) -> str | None:
    """Return what is wrong with the address of a server, as the end of a sentence; None if it is valid."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # for example a port that is not a number
        return "is no address"
    if not sound:
        return "is no address"
    if parts.username or parts.password or parts.query or parts.fragment or re.search(r"[^!-~]", url):
        return "holds more than scheme, host, port and path"
    return None


def parse_json(data: bytes) -> Any:
    """Parse JSON, with all numbers as floats.

    Numbers that are not finite may be written as in Python and C, for example ``nan`` and ``-inf``.

    Parameters
    ----------
    data : bytes

    Raises
    ------
    ValueError
        The data are not JSON, are nested more than `DEEPEST` deep, or have a key twice in one object.
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
    return json.loads(text, parse_int=float, object_pairs_hook=_make_object)


def quote_text(data: bytes | str) -> str:
    """Return the start of a text on one line, without unprintable characters."""
    start = data[: 4 * MOST_QUOTED]
    text = " ".join((start.decode(errors="replace") if isinstance(start, bytes) else start).split())
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return printable[:MOST_QUOTED] or "nothing"


def _check_response(response: h11.Response, left: int, allowed: int) -> int:
    """Return the status of a response whose head has been read; raise if its body cannot be."""
    if response.http_version not in (b"1.0", b"1.1"):
        raise h11.RemoteProtocolError(f"version {response.http_version.decode()}")
    headers = dict(response.headers)
    if response.status_code == OK and int(headers.get(b"content-length", b"0")) > left:
        raise UnreadableReplyError(f"the reply is larger than {allowed:,} bytes")
    encoding = headers.get(b"content-encoding", b"identity")
    if encoding.lower() != b"identity":
        raise UnreadableReplyError(f"the reply is compressed ({quote_text(encoding)}), which was not asked for")
    return int(response.status_code)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; raise `ValueError` if a key has two values."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return values


def _has_no_data(opened: socket.socket) -> bool:
    """Whether no data, and no end of the connection, have arrived since the last answer."""
    poll = select.poll()
    poll.register(opened, select.POLLIN)
    return not poll.poll(0)


def _seconds_left(deadline: float) -> float:
    """Return the remaining time in s; raise `TimeoutError` if there is none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
