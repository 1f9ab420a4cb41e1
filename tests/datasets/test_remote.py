"""Files on a server: read like local ones, tried again, and refused in one sentence."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma import InputError, load_events
from fivesigma.datasets import make_htautau, remote, write_events

pytest.importorskip("aiohttp")
pytest.importorskip("uproot")


class Server:
    """Serves the files of a folder with range requests; `fault` says what goes wrong, `left` how often."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.fault, self.left, self.asked = folder, "", 0, 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_HEAD(self) -> None:
                self.answer(body=False)

            def do_GET(self) -> None:
                self.answer(body=True)

            def answer(self, *, body: bool) -> None:
                file = server.folder / self.path.lstrip("/")
                if not file.is_file():
                    self.send_error(404)
                    return
                content = file.read_bytes()
                start, stop = 0, len(content)
                asked = self.headers.get("Range", "").removeprefix("bytes=")
                if asked:
                    first, _, last = asked.partition("-")
                    start, stop = int(first or 0), min(int(last) + 1 if last else len(content), len(content))
                faulty = server.left > 0
                if body:
                    server.asked += 1
                    server.left -= faulty
                length = stop - start + (1000 if faulty and server.fault == "lies" else 0)
                self.send_response(206 if asked else 200)
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("Content-Length", str(length))
                if asked:
                    self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
                self.end_headers()
                if body:
                    broken = faulty and server.fault == "breaks off"
                    self.wfile.write(content[start : (start + stop) // 2 if broken else stop])
                    self.close_connection = broken or faulty

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for ending in ("parquet", "csv", "root"):
        write_events(make_htautau(300), tmp_path / f"x.{ending}")
    monkeypatch.setattr(remote, "_WAIT", 0.0)
    server = Server(tmp_path)
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.root", "x.root:events"])
def test_a_remote_file_is_read_like_a_local_one(server: Server, name: str) -> None:
    found, wanted = load_events(f"{server.url}/{name}"), load_events(f"{server.folder}/{name}")
    np.testing.assert_array_equal(found.X, wanted.X)
    np.testing.assert_array_equal(found.weight, wanted.weight)
    asked = server.asked
    load_events(f"{server.url}/{name}")
    assert server.asked == asked  # it was copied once


@pytest.mark.parametrize("fault", ["breaks off", "lies"])
def test_a_bad_connection_is_tried_again(server: Server, fault: str) -> None:
    server.fault, server.left = fault, 1
    assert len(load_events(f"{server.url}/x.parquet")) == 300


@pytest.mark.parametrize("fault", ["breaks off", "lies"])
def test_a_connection_that_stays_bad_is_one_sentence(server: Server, fault: str) -> None:
    server.fault, server.left = fault, 1_000
    with pytest.raises(InputError, match=r"x\.parquet cannot be read after 3 attempts: ") as caught:
        load_events(f"{server.url}/x.parquet")
    assert "\n" not in str(caught.value)


def test_what_is_not_there(server: Server) -> None:
    with pytest.raises(InputError, match=r"there is no file http://.*/y\.parquet"):
        load_events(f"{server.url}/y.parquet")
    with pytest.raises(InputError, match=r"^zzz://x/y\.root cannot be opened: .*zzz"):
        load_events("zzz://x/y.root")
    with pytest.raises(InputError, match=r"root://host//y\.root cannot be opened .*install fivesigma\[xrootd\]"):
        load_events("root://host//y.root")


def test_patterns_where_the_protocol_lists_files(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for k in range(2):
        path = write_events(make_htautau(100, random_state=k), tmp_path / f"part-{k}.parquet")
        memory.pipe(f"/bucket/part-{k}.parquet", path.read_bytes())
    assert len(load_events("memory://bucket/part-*.parquet")) == 200
    with pytest.raises(InputError, match="no file matches 'memory://bucket/none"):
        load_events("memory://bucket/none-*.parquet")
