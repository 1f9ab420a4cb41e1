"""Downloads against a server that breaks off, lies, and changes its mind."""

from __future__ import annotations

import gzip
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from fivesigma._tools.files import name_beside
from fivesigma.errors import InputError, MissingExtraError
from fivesigma.higgsml import download
from fivesigma.higgsml.data import Census
from fivesigma.higgsml.download import FILE, URL, fetch
from tests.higgsml.server import Behaviour, serving

pytest.importorskip("pooch")
BY_HAND = "download atlas-higgs-challenge-2014-v2.csv.gz by hand from https://opendata.cern.ch/record/328"


def get(url: str, target: Path, **options: Any) -> Path:
    quick: dict[str, Any] = {"sample": True, "attempts": 3}
    return fetch(target, url=url, **quick | options)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)


@pytest.fixture
def body(toy_file: Path) -> bytes:
    return toy_file.read_bytes()


def names(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


def test_a_file_that_comes_at_once(body: bytes, tmp_path: Path) -> None:
    how = Behaviour(body)
    with serving(how) as url:
        path = get(url, tmp_path)
        assert path == tmp_path / FILE
        assert path.read_bytes() == body
        assert names(tmp_path) == [FILE]
        assert how.asked[0]["User-Agent"].startswith("fivesigma/")
        # A complete file is left alone and the server is not asked.
        before = path.stat().st_mtime_ns
        assert get(url, path) == path
        assert (len(how.asked), path.stat().st_mtime_ns) == (1, before)


def test_the_full_file_is_checked_as_such(body: bytes, tmp_path: Path, small_census: Census) -> None:
    with serving(Behaviour(body)) as url:
        assert get(url, tmp_path, sample=False).read_bytes() == body


def test_a_part_of_the_file_is_not_the_file(body: bytes, tmp_path: Path) -> None:
    sentence = r"was removed, because .* it has 4,000 events .*, not 818,238"
    with serving(Behaviour(body)) as url, pytest.raises(InputError, match=sentence):
        get(url, tmp_path, sample=False)
    assert names(tmp_path) == []


@pytest.mark.parametrize("reset", [False, True])
def test_a_download_that_breaks_off_starts_again(body: bytes, tmp_path: Path, reset: bool) -> None:
    how = Behaviour(body, break_after=[60_000, 0], reset=reset)
    with serving(how) as url:
        assert get(url, tmp_path).read_bytes() == body
    assert len(how.asked) == 3
    assert names(tmp_path) == [FILE]


def test_what_a_killed_run_left_is_removed(body: bytes, tmp_path: Path) -> None:
    killed = 2**31 - 1  # no system has so many processes
    left = tmp_path / name_beside(tmp_path / FILE).name.replace(str(os.getpid()), str(killed), 1)
    left.mkdir()
    (left / "tmp123").write_bytes(body[:500])
    with serving(Behaviour(body)) as url:
        assert get(url, tmp_path).read_bytes() == body
    assert names(tmp_path) == [FILE]


@pytest.mark.parametrize(
    ("garbage", "sentence"),
    [
        (b"<!DOCTYPE html><html><body>Sign in", "not gzip and begins with b'<!DOCTYPE html>"),
        (b"", "not gzip and begins with b''"),
        (b"\x1f\x8b" + bytes(500), "cannot be unpacked"),
        (gzip.compress(b"hello\n" * 100, mtime=0), "no column"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (gzip.compress(bytes(range(256)) * 40, mtime=0), "challenge's file: "),
    ],
)
def test_garbage_is_refused_and_not_kept(tmp_path: Path, garbage: bytes, sentence: str) -> None:
    with serving(Behaviour(garbage)) as url, pytest.raises(InputError) as caught:
        get(url, tmp_path)
    assert sentence in str(caught.value)
    assert url in str(caught.value)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == []


def test_a_file_cut_off_whose_end_nobody_announced(body: bytes, tmp_path: Path) -> None:
    with serving(Behaviour(body, no_length=True)) as url:
        assert get(url, tmp_path).read_bytes() == body
    (tmp_path / FILE).unlink()
    how = Behaviour(body, no_length=True, break_after=[10_000])
    with serving(how) as url, pytest.raises(InputError, match="cannot be unpacked"):
        get(url, tmp_path)
    assert names(tmp_path) == []


def test_a_length_that_is_never_reached(body: bytes, tmp_path: Path) -> None:
    how = Behaviour(body, length=len(body) + 1)
    with serving(how) as url, pytest.raises(InputError, match=r"could not be downloaded: .*broken") as caught:
        get(url, tmp_path)
    assert BY_HAND in str(caught.value)
    assert "10.7483/OPENDATA.ATLAS.ZBP2.M5T8" in str(caught.value)
    assert names(tmp_path) == []


def test_a_length_that_is_too_short(body: bytes, tmp_path: Path) -> None:
    how = Behaviour(body, length=len(body) - 100)
    with serving(how) as url, pytest.raises(InputError, match="cannot be unpacked"):
        get(url, tmp_path)
    assert names(tmp_path) == []


def test_answers_that_pass_and_answers_that_stay(body: bytes, tmp_path: Path) -> None:
    how = Behaviour(body, statuses=[503, 429])
    with serving(how) as url:
        assert get(url, tmp_path / "x.csv.gz").read_bytes() == body
    assert len(how.asked) == 3
    how = Behaviour(body, statuses=[404, 404, 404])
    with serving(how) as url, pytest.raises(InputError, match=r"404 Client Error: Not Found .*; without") as caught:
        get(url, tmp_path)
    assert BY_HAND in str(caught.value)
    how = Behaviour(body, statuses=[500] * 9)
    with serving(how) as url, pytest.raises(InputError, match="500 Server Error"):
        get(url, tmp_path)
    assert len(how.asked) == 3


def test_offline(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/x.csv.gz"
        with pytest.raises(InputError, match="refused") as caught:
            get(url, tmp_path)
    assert BY_HAND in str(caught.value)
    assert names(tmp_path) == []


def test_a_silent_server_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(InputError, match="timed out"):
        get(f"http://127.0.0.1:{silent.getsockname()[1]}/x.csv.gz", tmp_path, attempts=2)


def test_a_full_disk_is_not_a_broken_network(body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", full)
    with serving(Behaviour(body)) as url, pytest.raises(InputError, match="cannot be written: No space"):
        get(url, tmp_path)
    assert names(tmp_path) == []


def test_targets(body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"x\.zip does not end in \.csv\.gz"):
        fetch(tmp_path / "x.zip")
    with pytest.raises(InputError, match="there is no folder"):
        fetch(tmp_path / "no" / "x.csv.gz")
    for address in ("file:///etc/passwd", "ftp://example.org/x.csv.gz", "http://example.org/x.csv.gz"):
        with pytest.raises(InputError, match=r"not an address that begins with https://"):
            get(address, tmp_path)
    (tmp_path / FILE).write_text("mine")
    with pytest.raises(
        InputError, match=r"is there and is something else, so remove it or name another file: it is not gzip"
    ):
        fetch(tmp_path)
    assert (tmp_path / FILE).read_text() == "mine"
    monkeypatch.setitem(sys.modules, "polars", None)
    with serving(how := Behaviour(body)) as url, pytest.raises(MissingExtraError):
        get(url, tmp_path / "x.csv.gz")
    assert how.asked == []


def test_the_bar(body: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Behaviour(body)) as url:
        get(url, tmp_path, progress=True)
    shown = capsys.readouterr()
    assert "100%" in shown.err
    assert shown.out == ""


def test_the_default_address_is_the_record() -> None:
    assert URL == "https://opendata.cern.ch/record/328/files/atlas-higgs-challenge-2014-v2.csv.gz"
