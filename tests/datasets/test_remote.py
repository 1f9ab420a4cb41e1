"""Files on a server: read like local ones, tried again, and refused in one sentence."""

import shutil
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fivesigma import InputError, load_events
from fivesigma.cli import main
from fivesigma.datasets import EventStream, make_htautau, remote, write_events

pytest.importorskip("aiohttp")
pytest.importorskip("uproot")


class Server:
    """Serves the files of a folder with range requests; `fault` says what goes wrong, `left` how often."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.fault, self.left, self.asked, self.sent = folder, "", 0, 0, 0
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
                asked = "" if server.fault == "whole" else self.headers.get("Range", "").removeprefix("bytes=")
                if asked:
                    first, _, last = asked.partition("-")
                    start, stop = int(first or 0), min(int(last) + 1 if last else len(content), len(content))
                faulty = server.left > 0
                if body:
                    server.asked += 1
                    server.left -= faulty
                    server.sent += stop - start
                length = stop - start + (1000 if body and faulty and server.fault == "lies" else 0)
                if not body and server.fault in ("too long", "too short"):
                    length += 1000 if server.fault == "too long" else -1000
                self.send_response(206 if asked else 200)
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("Content-Length", str(length))
                if asked:
                    self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
                self.end_headers()
                if body and faulty and server.fault == "silent":
                    time.sleep(2.0)
                if body:
                    broken = faulty and server.fault == "breaks off"
                    self.wfile.write(content[start : (start + stop) // 2 if broken else stop])
                    self.close_connection = broken or faulty

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for ending in ("parquet", "csv", "root"):
        write_events(make_htautau(300), folder / f"x.{ending}")
    write_events(make_htautau(3_000), folder / "large.root")
    return folder


@pytest.fixture
def server(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
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
    assert (server.asked == asked) == ("root" not in name)  # tables are copied once


def test_of_a_root_file_only_the_branches_are_read_that_are_used(server: Server) -> None:
    path = server.folder / "large.root"
    found = load_events(f"{server.url}/large.root", features=["PRI_met"])
    np.testing.assert_array_equal(found.X, load_events(path, features=["PRI_met"]).X)
    assert server.sent < 0.4 * path.stat().st_size


@pytest.mark.parametrize("name", ["x.parquet", "x.root"])
@pytest.mark.parametrize("fault", ["breaks off", "lies", "silent"])
def test_a_bad_connection_is_tried_again(
    server: Server, fault: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_SILENCE", 0.5)
    server.fault, server.left = fault, 1
    found = load_events(f"{server.url}/{name}")
    np.testing.assert_array_equal(found.X, load_events(server.folder / name).X)


@pytest.mark.parametrize("name", ["x.parquet", "x.root"])
@pytest.mark.parametrize("fault", ["breaks off", "lies", "silent"])
def test_a_connection_that_stays_bad_is_one_sentence(
    server: Server, fault: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_SILENCE", 0.5)
    server.fault, server.left = fault, 1_000
    with pytest.raises(InputError, match=rf"{name} cannot be read after 3 attempts: ") as caught:
        load_events(f"{server.url}/{name}")
    assert "\n" not in str(caught.value)


def test_a_server_that_lies_about_the_length_of_a_file(server: Server) -> None:
    for fault in ("too long", "too short"):
        server.fault = fault
        found = load_events(f"{server.url}/x.root")  # the end of the file holds nothing that is read
        np.testing.assert_array_equal(found.X, load_events(server.folder / "x.root").X)
        with pytest.raises(InputError, match=r"x.parquet cannot be read after 3 attempts|cannot read x.parquet"):
            load_events(f"{server.url}/x.parquet")


def test_a_server_without_range_requests_sends_the_whole_file_once(server: Server) -> None:
    server.fault = "whole"
    found = load_events(f"{server.url}/x.root")
    np.testing.assert_array_equal(found.X, load_events(server.folder / "x.root").X)
    assert server.asked < 4


def test_a_file_that_changes_between_two_passes_is_noticed(server: Server) -> None:
    stream = EventStream(f"{server.url}/x.root", rows=100)
    assert sum(len(chunk.events) for chunk in stream) == 300
    write_events(make_htautau(310), server.folder / "x.root")
    with pytest.raises(InputError, match=r"x\.root has changed since the first pass"):
        list(stream)


def test_the_same_file_twice_is_refused(server: Server) -> None:
    url = f"{server.url}/x.root"
    with pytest.raises(InputError, match="given twice"):
        load_events([url, url])
    with pytest.raises(InputError, match="is the same as"):
        load_events([url, server.folder / "x.root"])


def test_commands_read_remote_files(server: Server) -> None:
    url, model, scores = f"{server.url}/large.root", server.folder / "model", server.folder / "scores.csv"
    run = CliRunner()
    trained = run.invoke(main, ["train", url, "-o", str(model), "--model", "plain", "--trees", "5"])
    assert trained.exit_code == 0, trained.output
    predicted = run.invoke(main, ["predict", str(model), url, "-o", str(scores)])
    assert "3,000 events scored" in predicted.output
    friend = run.invoke(main, ["predict", str(model), url, "-o", str(server.folder / "friend.root"), "--friend"])
    assert "3,000 entries of events scored" in friend.output
    refused = run.invoke(main, ["predict", str(model), url, "--in-place"])
    assert "is no file of this machine" in refused.output


def test_sums_of_weights_of_remote_files(server: Server) -> None:
    uproot = pytest.importorskip("uproot")
    with uproot.recreate(server.folder / "sums.root") as file:
        file["events"] = {"x": np.arange(4.0), "w": np.ones(4)}
        file["Runs"] = {"genEventSumw": np.array([3.0, 5.0])}
    given: dict[str, Any] = {"cross_section": {"VH": 2.0, "b": None}, "sum_of_weights": {"VH": "Runs/genEventSumw"}}
    events = load_events(
        {"VH": f"{server.url}/sums.root", "b": f"{server.url}/x.root:events"},
        features=["x = 1.0"],
        weight="1.0",
        signal="VH",
        tree="events",
        luminosity=1.0,
        **given,
    )
    assert events.weight[events.is_signal].sum() == pytest.approx(4 * 1000 * 2 / 8)


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
    path = write_events(make_htautau(100, random_state=2), tmp_path / "part.root")
    memory.pipe("/bucket/part.root", path.read_bytes())
    np.testing.assert_array_equal(load_events("memory://bucket/pa*.root").X, load_events(path).X)
    with pytest.raises(InputError, match="no file matches 'memory://bucket/none"):
        load_events("memory://bucket/none-*.parquet")
