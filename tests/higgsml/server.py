"""A web server with one file and the faults of real ones."""

from __future__ import annotations

import http.server
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Behaviour:
    """How the server answers; requests are noted."""

    body: bytes = b""
    etag: str | None = '"one"'
    modified: str | None = None
    ranges: bool = True
    break_after: list[int | None] = field(default_factory=list)  # bytes sent per request, then the rest as None
    statuses: list[int] = field(default_factory=list)  # errors that come first
    length: int | None = None  # what Content-Length claims, if not the truth
    no_length: bool = False
    reset: bool = False  # whether it breaks off without a goodbye
    nameless: bool = False  # whether it leaves out which part it sends
    shift: int = 0  # of the range that is sent, as a broken server does
    change_to: tuple[bytes, str] | None = None  # body and ETag after the first request
    asked: list[dict[str, str]] = field(default_factory=list)

    def same_file(self, if_range: str | None) -> bool:
        return if_range is None or if_range in (self.etag, self.modified)


class Server(http.server.ThreadingHTTPServer):
    behaviour: Behaviour

    def handle_error(self, *_: object) -> None:
        """A client that goes away is no failure."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        how = self.server.behaviour
        how.asked.append(dict(self.headers))
        if how.statuses:
            self.send_error(how.statuses.pop(0))
            return
        start = 0
        wanted = self.headers.get("Range")
        if wanted and how.ranges and how.same_file(self.headers.get("If-Range")):
            start = int(wanted.removeprefix("bytes=").rstrip("-")) + how.shift
            if start >= len(how.body):
                self.send_error(416)
                return
            self.send_response(206)
            if not how.nameless:
                self.send_header("Content-Range", f"bytes {start}-{len(how.body) - 1}/{len(how.body)}")
        else:
            self.send_response(200)
        rest = how.body[start:]
        if not how.no_length:
            self.send_header("Content-Length", str(len(rest) if how.length is None else how.length))
        if how.etag:
            self.send_header("ETag", how.etag)
        if how.modified:
            self.send_header("Last-Modified", how.modified)
        self.end_headers()
        stop = how.break_after.pop(0) if how.break_after else None
        self.wfile.write(rest if stop is None else rest[:stop])
        if stop is not None and how.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        if how.change_to is not None:
            how.body, how.etag = how.change_to
            how.change_to = None


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """Serve for a while; gives the address."""
    server = Server(("127.0.0.1", 0), Handler)
    server.behaviour = behaviour
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/atlas-higgs-challenge-2014-v2.csv.gz"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
