"""Malformed replies by the thousand, from a seed: what a server may send in place of an UM-Bridge answer."""

from __future__ import annotations

import gzip
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

GOOD_BODY = b'{"output": [[1, 2.5], [3e0]]}'
NUMBERS = (
    "1", "1e999", "-1e999", "1" * 5000, "-" + "9" * 400, "0x10", "1_0", "+1", ".5", "1.", "01", "--1", "1e", "nan",
    "NaN", "-nan", "+nan", "nan(0x8)", "1.#QNAN", "NAN", "inf", "-inf", "+inf", "Inf", "Infinity", "-Infinity",
    "1.#INF", "infinite", "null", "true", "false", '"1"', '"nan"', "[1]", "{}", "[]", "1 2", "1,,2", "\\u0031", "",
    "None",
)  # fmt: skip
SHAPES = (
    "[[{0}, 2.5], [3]]", "[[{0}, 2.5], [3], []]", "[[{0}], [3]]", "[{0}, 2.5, 3]", "[[[{0}, 2.5]], [3]]", "{0}", "[]",
    "[[], []]", '{{"a": [{0}]}}', "[[1, 2.5], {0}]", "[[1, 2.5], [{0}]", '"[[{0}, 2.5], [3]]"', "[[1, 2.5], [3], {0}]",
)  # fmt: skip
KEYS = (
    '{{"output": {0}}}', '{{"Output": {0}}}', '{{"output": {0}, "output": {0}}}', '[{{"output": {0}}}]', "{0}",
    '{{"error": {0}}}', '{{"error": {{"type": {0}, "message": {0}}}}}', '{{"output": {0}, "error": {0}}}', "{{{0}}}",
    '{{"output": {0}}} {{}}', '{{"output": {0}', '{{output: {0}}}', '{{"\\ud800": {0}, "output": {0}}}',
)  # fmt: skip
STATUS_LINES = (
    b"HTTP/1.1 200 OK", b"HTTP/1.1 200", b"HTTP/1.0 200 OK", b"HTTP/1.1  200 OK", b"HTTP/2 200 OK", b"HTTP/9.9 200 OK",
    b"HTTP/1.1 -200 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1 20 OK", b"HTTP/1.1 abc OK", b"HTTP/1.1", b"200 OK", b"",
    b"http/1.1 200 OK", b"HTTP/1.1 200 " + b"x" * 70_000, b"HTTP/1.1 200 \xff\x00", b"SSH-2.0-OpenSSH_9.2",
    b"\x15\x03\x01", b"HTTP/1.1 204 No Content", b"HTTP/1.1 304 Not Modified", b"HTTP/1.1 500 Sorry",
    b"HTTP/1.1 503 Busy", b"HTTP/1.1 999 X", b"HTTP/1.1 101 Switching Protocols",
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/", b"HTTP/1.1 307 Again\r\nLocation: file:///etc/passwd",
    b"HTTP/1.1 308 Moved\r\nLocation: //example.org/Evaluate", b"HTTP/1.1 401 Who\r\nWWW-Authenticate: Basic",
    b"HTTP/1.1 200 OK\nX: y", b"\r\nHTTP/1.1 200 OK", b"GET / HTTP/1.1",
)  # fmt: skip
HEADERS = (
    b"", b"X: y\r\n", b"no colon\r\n", b": empty\r\n", b" folded: y\r\n", b"X : y\r\n", b"X: \x00\r\n",
    b"X: \xff\xfe\r\n", b"\xff: y\r\n", b"X: y\n", b"X: y\r", b"X: " + b"y" * 70_000 + b"\r\n", b"X: y\r\n" * 200,
    b"X: y\r\n" * 20_000, b"Content-Encoding: gzip\r\n", b"Content-Encoding: br\r\n",
    b"Content-Type: text/html; charset=utf-7\r\n", b"Connection: close\r\n",
    b"Connection: upgrade\r\nUpgrade: websocket\r\n", b"Keep-Alive: timeout=-1\r\n", b"Trailer: X\r\n",
    b"Content-Length: 3\r\nContent-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n",
)  # fmt: skip
LENGTHS = (
    "{0}", "{1}", "{2}", "-1", "-{0}", "+{0}", "0", "00{0}", "{0}.0", "{0},{0}", "{0},{1}", "0x{0:x}", "1_0", "",
    "abc", "9" * 19, "9" * 30, "9" * 5000, "\u0663", " {0} ", "{0};x",
)  # fmt: skip
CHUNK_SIZES = (
    "{0:x}", "{0:X};name=value", "-{0:x}", "-1", "+{0:x}", "0x{0:x}", "{0:x} ", " {0:x}", "", "g", "f" * 8, "f" * 16,
    "f" * 40, "f" * 5000, "0" * 15 + "{0:x}", "1_0", "{1:x}", "{2:x}", "{0:x};" + "x" * 70_000, "\x00", "{0}.0",
)  # fmt: skip
STARTS = (
    b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 5000,
    b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n", b"HTTP/1.1 199 What\r\n\r\n", b"HTTP/1.1 100 Continue\r\n",
    b"\r\n\r\n", b"\x00", b"HTTP/1.1 102 P\r\nContent-Length: 9\r\n\r\n",
)  # fmt: skip


@dataclass(frozen=True)
class Malformed:
    """A reply as raw bytes, and how a server sends it.

    Parameters
    ----------
    data : bytes
        What is sent.
    pieces : int
        How many parts it is cut into; 0 for one byte per 50 ms.
    ending : str
        What comes then: "close", "reset", "silence" or "endless".
    """

    data: bytes
    pieces: int
    ending: str

    def send(self, connection: socket.socket) -> None:
        """Send it, in its pieces, and end the connection as it says."""
        if self.pieces == 0:
            for byte in self.data:
                connection.sendall(bytes([byte]))
                time.sleep(0.05)
        else:
            step = len(self.data) // self.pieces + 1
            for i in range(0, len(self.data), step):
                connection.sendall(self.data[i : i + step])
        if self.ending == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif self.ending == "silence":
            connection.recv(65536)  # until the client gives up, or takes the reply for whole and asks again
        while self.ending == "endless":
            connection.sendall(b"X: y\r\n" * 1000)  # further headers, or more of the body


def malformed_replies(seed: int, count: int, *, patient: float = 0.03) -> Iterator[Malformed]:
    """Make `count` distinct replies; of them a share `patient` takes as long as the client lets it."""
    draw, seen = random.Random(seed), set()
    while len(seen) < count:
        data = draw.choice(MAKERS)(draw)
        if draw.random() < 0.3:
            data = _mutate(data, draw)
        if draw.random() < patient:
            pieces, ending = draw.choice([(0, "close"), (1, "silence"), (3, "silence")])
        else:
            pieces, ending = draw.choice([1, 1, 2, 7]), draw.choice(["close", "close", "reset", "endless"])
        reply = Malformed(data, pieces, ending if data else "close")
        if reply not in seen:
            seen.add(reply)
            yield reply


def _body(draw: random.Random) -> bytes:
    kind = draw.random()
    if kind < 0.15:
        return GOOD_BODY
    if kind < 0.25:
        depth = draw.choice([10, 16, 17, 500, 5000, 30_000])
        opening, closing = draw.choice([("[", "]"), ('{"a":', "}"), ('{"output": [[', "]]}")])
        return f'{{"output": {opening * depth}1{closing * draw.choice([0, depth])}}}'.encode()
    if kind < 0.35:
        return draw.choice([GOOD_BODY.decode().encode("utf-16"), b"\xef\xbb\xbf" + GOOD_BODY, b"\xff" + GOOD_BODY,
                            b"", b" " * 70_000, b"\x00" * 100, gzip.compress(b" " * 10**6), draw.randbytes(200),
                            b'{"output": "' + b'\\"' * 20_000, b'{"a": "' + b"\\u" * 1000])  # fmt: skip
    text = draw.choice(KEYS).format(draw.choice(SHAPES).format(draw.choice(NUMBERS)))
    return text.encode("utf-8", "surrogatepass")


def _with_length(draw: random.Random) -> bytes:
    body = _body(draw)
    length = draw.choice(LENGTHS).format(len(body), len(body) + draw.randint(1, 99), max(len(body) - 3, 0))
    return _head(draw) + f"Content-Length: {length}\r\n\r\n".encode() + body


def _in_chunks(draw: random.Random) -> bytes:
    body = _body(draw)
    coding = draw.choice([b"chunked", b"chunked", b"chunked", b"Chunked", b"gzip, chunked", b"identity", b"xchunked"])
    data = _head(draw) + b"Transfer-Encoding: " + coding + b"\r\n\r\n"
    for _ in range(draw.randint(1, 3)):
        size = draw.choice(CHUNK_SIZES).format(len(body), len(body) + draw.randint(1, 99), max(len(body) - 3, 0))
        data += size.encode() + draw.choice([b"\r\n", b"\r\n", b"\n", b""]) + body + draw.choice([b"\r\n", b"", b"\n"])
    return data + draw.choice([b"0\r\n\r\n", b"0\r\n", b"", b"0\r\nX: y\r\n\r\n", b"0\r\n" + b"X: y\r\n" * 20_000])


def _until_closed(draw: random.Random) -> bytes:
    return _head(draw) + b"\r\n" + _body(draw)


def _good_but_for_the_body(draw: random.Random) -> bytes:
    body = _body(draw)
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def _with_a_start(draw: random.Random) -> bytes:
    return draw.choice(STARTS) + draw.choice(MAKERS[:4])(draw)


MAKERS: tuple[Callable[[random.Random], bytes], ...] = (
    _with_length, _in_chunks, _until_closed, _good_but_for_the_body, _with_a_start, _good_but_for_the_body,
)  # fmt: skip


def _head(draw: random.Random) -> bytes:
    status = draw.choice(STATUS_LINES) if draw.random() < 0.3 else STATUS_LINES[0]
    return status + b"\r\n" + b"".join(draw.choice(HEADERS) for _ in range(draw.choice([0, 0, 1, 2])))


def _mutate(data: bytes, draw: random.Random) -> bytes:
    """Flip, insert, remove or repeat some bytes, or cut the end off."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        i = draw.randrange(min(len(changed), 400) + 1)
        kind = draw.randrange(5)
        if kind == 0 and i < len(changed):
            changed[i] ^= 1 << draw.randrange(8)
        elif kind == 1:
            changed[i:i] = draw.choice([b"\r\n", b"\x00", b"\xff", b"-", b"0", b" ", b"\r\n\r\n"])
        elif kind == 2:
            del changed[i : i + draw.randint(1, 20)]
        elif kind == 3:
            changed[i:i] = changed[i : i + 30]
        else:
            del changed[i:]
    return bytes(changed)
