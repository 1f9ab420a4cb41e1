"""A download is bounded in bytes, unpacked bytes, time and redirects, and stays encrypted."""

from __future__ import annotations

import gzip
import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fivesigma.errors import InputError
from fivesigma.higgsml import download, fetch

pytest.importorskip("pooch")

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Serve on this machine with one way to answer; gives the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            with suppress(OSError):  # the client has enough
                answer(self)

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/file.csv.gz"
    finally:
        server.shutdown()
        server.server_close()


def start(handler: http.server.BaseHTTPRequestHandler, **headers: str) -> None:
    handler.send_response(200)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)


def refused(answer: Answer, folder: Path, match: str) -> None:
    with answering(answer) as url, pytest.raises(InputError, match=match) as caught:
        fetch(folder, url=url, sample=True, attempts=2)
    assert "\n" not in str(caught.value)


def test_an_endless_stream_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_MOST_BYTES", 1_000_000)

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        start(handler)
        while True:
            handler.wfile.write(bytes(1 << 16))

    refused(answer, tmp_path, "sent more than 1,000,000 bytes")
    assert not list(tmp_path.iterdir())


def test_a_gzip_bomb_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_MOST_UNPACKED", 5_000_000)
    bomb = gzip.compress(bytes(50_000_000))
    read = []
    opened = gzip.open

    def counting(*args: Any) -> Any:
        file = opened(*args)
        inner = file.read

        def noting(n: int) -> Any:
            read.append(n)
            return inner(n)

        file.read = noting
        return file

    monkeypatch.setattr(gzip, "open", counting)

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        start(handler, Content_Length=str(len(bomb)))
        handler.wfile.write(bomb)

    refused(answer, tmp_path, "unpacks to more than 5,000,000 bytes")
    assert sum(read) < 10_000_000
    assert not list(tmp_path.iterdir())


def test_a_slow_drip_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_LONGEST", 0.2)
    over = threading.Event()

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        start(handler, Content_Length="1000000")
        while not over.wait(0.02):
            handler.wfile.write(bytes(200))

    try:
        refused(answer, tmp_path, r"took more than 0\.2 seconds, and what came was removed")
    finally:
        over.set()


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/x.csv.gz", "file:///etc/hostname", "data:text/plain,x"])
def test_redirects_lead_to_http_only(tmp_path: Path, target: str) -> None:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", target)
        handler.end_headers()

    refused(answer, tmp_path, "could not be downloaded: No connection adapters")
    assert not list(tmp_path.iterdir())


def test_redirects_stay_encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(lambda handler: start(handler, Content_Length="0")) as other:

        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.send_response(302)
            handler.send_header("Location", other.replace("127.0.0.1", "127.0.0.2"))
            handler.end_headers()

        refused(answer, tmp_path, r"127\.0\.0\.2.* is not an address that begins with https://|refused")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("grows", [False, True])
def test_a_loop_of_redirects_ends(tmp_path: Path, grows: bool) -> None:
    asked: list[str] = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        handler.send_response(302)
        handler.send_header("Location", f"/{len(asked)}.csv.gz" if grows else "/file.csv.gz")
        handler.end_headers()

    refused(answer, tmp_path, r"answered 302 \(Found\)")
    assert len(asked) <= 62
    assert not list(tmp_path.iterdir())
