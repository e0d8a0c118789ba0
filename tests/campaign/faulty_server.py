"""A UM-Bridge server that fails in one of many ways: x in, 2 x and x * x out; the whole part of x chooses the fault.

It writes to the socket itself, because no library for servers can send what must be refused.
"""

from __future__ import annotations

import json
import os
import socketserver
import sys
import time
from pathlib import Path

KINDS = 128
LONG = 600  # s: longer than any time limit
OK = ("ok",)
RAISED = ("raised an exception",)
UNREADABLE = ("unreadable output",)
NOT_FINITE = ("not a finite number", "unreadable output")
BROKEN_OFF = ("killed", "unreadable output")
TIMEOUT = ("timeout",)


def reply(body: str | bytes, status: str = "200 OK", *headers: str) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(data)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + data


def chunked_reply(chunks: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks


def outputs(text: str) -> bytes:
    return reply(f'{{"output": {text}}}')


def answer(x: float) -> bytes:
    return outputs(f"[[{2 * x!r}, {x * x!r}]]")


def sized_reply(length: str, body: bytes = b"{}") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: " + length.encode() + b"\r\n\r\n" + body


# What is sent for /Evaluate, and what may become of the run. None hangs; a tuple is sent in parts, slowly.
FAULTS = {
    "ok": (answer, OK),
    "chunks": (lambda x: chunked_reply(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body(x)), body(x))), OK),
    "an error": (lambda x: reply('{"error": {"type": "no", "message": "no"}}', "500 Error"), RAISED),
    "an error without words": (lambda x: reply("", "500 Error"), RAISED),
    "an error that is a page": (lambda x: reply("<html>\x1b[2J</html>", "404 Not Found"), RAISED),
    "an error that is well": (lambda x: reply('{"error": {"type": "no", "message": "no"}}'), RAISED),
    "an error that is a list": (lambda x: reply('{"error": [1, 2]}'), (*RAISED, *UNREADABLE)),
    "elsewhere": (lambda x: reply("", "301 Moved", "Location: http://127.0.0.1:1/"), RAISED),
    "NaN": (lambda x: outputs("[[NaN, 1.0]]"), NOT_FINITE),
    "null": (lambda x: outputs("[[null, 1.0]]"), NOT_FINITE),
    "overflow": (lambda x: outputs("[[1e999, 1.0]]"), NOT_FINITE),
    "text": (lambda x: outputs('[["1", "2"]]'), UNREADABLE),
    "one too few": (lambda x: outputs("[[1.0]]"), UNREADABLE),
    "a block too many": (lambda x: outputs("[[1.0, 2.0], [3.0]]"), UNREADABLE),
    "no blocks": (lambda x: outputs("[]"), UNREADABLE),
    "numbers for blocks": (lambda x: outputs("[1.0, 2.0]"), UNREADABLE),
    "an object for blocks": (lambda x: outputs('{"0": [1, 2]}'), UNREADABLE),
    "no output": (lambda x: reply("{}"), UNREADABLE),
    "no JSON": (lambda x: reply("hello"), UNREADABLE),
    "nothing": (lambda x: reply(""), BROKEN_OFF),
    "bytes": (lambda x: reply(b"\xff\xfe\x00"), UNREADABLE),
    "deep brackets": (lambda x: reply("[" * 30_000), UNREADABLE),
    "deep braces": (lambda x: reply('{"output":' * 5_000), UNREADABLE),
    "a huge integer": (lambda x: outputs(f"[[{'1' * 30_000}, 1.0]]"), NOT_FINITE),
    "megabytes": (lambda x: reply("[" + "1," * 10**6 + "1]"), (*UNREADABLE, *BROKEN_OFF)),
    "another length": (lambda x: sized_reply("1000000"), BROKEN_OFF),
    "a negative length": (lambda x: sized_reply("-5"), BROKEN_OFF),
    "a length of words": (lambda x: sized_reply("many"), BROKEN_OFF),
    "a huge length": (lambda x: sized_reply("9" * 400), BROKEN_OFF),
    "a chunk of negative size": (lambda x: chunked_reply(b"-5\r\nhello\r\n0\r\n\r\n"), BROKEN_OFF),
    "a chunk of no size": (lambda x: chunked_reply(b"\r\n\r\n"), BROKEN_OFF),
    "a chunk of words": (lambda x: chunked_reply(b"zebra\r\nhello\r\n"), BROKEN_OFF),
    "a chunk of huge size": (lambda x: chunked_reply(b"f" * 16 + b"\r\nhello\r\n"), BROKEN_OFF),
    "no HTTP": (lambda x: b"SSH-2.0-OpenSSH\r\n\r\n", BROKEN_OFF),
    "a status of words": (lambda x: b"HTTP/1.1 fine OK\r\n\r\n", BROKEN_OFF),
    "a status of a million": (lambda x: b"HTTP/1.1 1000000 OK\r\n\r\n", BROKEN_OFF),
    "another version": (lambda x: b"HTTP/9.9 200 OK\r\n\r\n", BROKEN_OFF),
    "ten thousand headers": (lambda x: b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 10_000 + b"\r\n", BROKEN_OFF),
    "a long header": (lambda x: b"HTTP/1.1 200 OK\r\na: " + b"b" * 10**6 + b"\r\n\r\n", BROKEN_OFF),
    "a header of bytes": (lambda x: b"HTTP/1.1 200 OK\r\n\xff\xfe\r\nContent-Length: 2\r\n\r\n{}", BROKEN_OFF),
    "continue": (lambda x: b"HTTP/1.1 100 Continue\r\n\r\n" * 5, BROKEN_OFF),
    "compressed": (lambda x: reply(b"\x1f\x8b\x08", "200 OK", "Content-Encoding: gzip"), UNREADABLE),
    "the end": (lambda x: b"", BROKEN_OFF),
    "half": (lambda x: answer(x)[:-8], BROKEN_OFF),
    "an answer twice": (lambda x: answer(x) + answer(x + 1.0), OK),
    "hang": (lambda x: None, TIMEOUT),
    "drops": (lambda x: (answer(x)[:20], answer(x)[20:]), TIMEOUT),
}
NAMES = list(FAULTS)
MODEL_INFO = '{"support": {"Evaluate": true}}'
FRIENDLY = {
    "/Info": '{"protocolVersion": 1.0, "models": ["model"]}',
    "/ModelInfo": MODEL_INFO,
    "/InputSizes": '{"inputSizes": [1]}',
    "/OutputSizes": '{"outputSizes": [2]}',
}


def body(x: float) -> bytes:
    return answer(x).partition(b"\r\n\r\n")[2]


def kind(x: float) -> str:
    """The fault that an input chooses."""
    number = int(x) % KINDS
    return NAMES[number] if number < len(NAMES) else "ok"


class Handler(socketserver.StreamRequestHandler):
    """One connection: requests until the first fault."""

    home: Path

    def handle(self) -> None:
        while request := self.rfile.readline():
            length = 0
            while (line := self.rfile.readline().strip()) != b"":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            message = self.rfile.read(length)
            path = request.split()[1].decode()
            if path in FRIENDLY:
                self.wfile.write(reply(FRIENDLY[path]))
                continue
            x = json.loads(message)["input"][0][0]
            started = os.open(self.home / "started", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(started, f"{x!r}\n".encode())
            os.close(started)
            sent = FAULTS[kind(x)][0](x)
            if sent is None:
                time.sleep(LONG)
            for part in sent if isinstance(sent, tuple) else (sent,):
                self.wfile.write(part)
                if isinstance(sent, tuple):
                    time.sleep(LONG)
            if kind(x) not in ("ok", "chunks"):
                return  # and close


class Server(socketserver.ThreadingTCPServer):
    daemon_threads, allow_reuse_address = True, True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no matter."""


def main() -> None:
    Handler.home = Path(sys.argv[1])
    with Server(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
