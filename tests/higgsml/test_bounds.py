"""A download stays encrypted, and redirects end."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fivesigma.errors import InputError
from fivesigma.higgsml import fetch

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

    refused(answer, tmp_path, "Exceeded 30 redirects")
    assert len(asked) <= 62
    assert not list(tmp_path.iterdir())
