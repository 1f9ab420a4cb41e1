"""The challenge's file from the CERN Open Data portal, whole or not at all."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import fivesigma
from fivesigma._tools.extras import need
from fivesigma._tools.files import written_whole
from fivesigma.errors import InputError, shortened
from fivesigma.higgsml.data import load

__all__ = ["FILE", "URL", "fetch"]

FILE = "atlas-higgs-challenge-2014-v2.csv.gz"
RECORD = "https://opendata.cern.ch/record/328"
DOI = "10.7483/OPENDATA.ATLAS.ZBP2.M5T8"
URL = f"{RECORD}/files/{FILE}"

_TIMEOUT = 30.0  # seconds without a byte
_LONGEST = 6 * 3600.0  # seconds in all: 66 MB at 3 kB/s
_MOST_BYTES = 250_000_000  # the challenge's file has 66 million
_MOST_UNPACKED = 1_000_000_000  # and 187 million without gzip
_PIECE = 1 << 18
_ENDING = ".csv.gz"
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # answers that may be others a little later

Advance = Callable[[int, int | None], None]
"""Called with the bytes that are there and how many there will be, if that is known."""


class _BrokenOffError(Exception):
    """The connection failed in a way that another attempt may mend."""


@dataclass(frozen=True)
class _Remote:
    """What the server said of the file when the download began, to resume only the same file."""

    url: str
    validator: str | None  # an ETag or a date for If-Range
    size: int | None


def fetch(
    target: str | os.PathLike[str] = ".",
    *,
    url: str = URL,
    sample: bool = False,
    attempts: int = 5,
    wait: float = 1.0,
    progress: bool = False,
) -> Path:
    """Download the challenge's file, check it, and only then give it its name.

    A download that broke off is kept beside the target (ending in ``.part.csv.gz``) and is resumed if the
    server still has the same file. A file that is there already and is complete is left alone.

    Parameters
    ----------
    target : path, default="."
        A file ending in .csv.gz, or a folder for ``atlas-higgs-challenge-2014-v2.csv.gz``.
    url : str
        Where to get it; by default the CERN Open Data portal, record 328.
    sample : bool, default=False
        Accept a part of the file as `load` does.
    attempts : int, default=5
        Attempts in a row that bring nothing new before giving up.
    wait : float, default=1.0
        Seconds before the second attempt; twice as many before each further one.
    progress : bool, default=False
        Show a bar on stderr.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    InputError
        If the file cannot be had, with what to do by hand, or if what came is not the file; that is removed.

    Examples
    --------
    >>> from fivesigma.higgsml import fetch, load
    >>> events = load(fetch("data"))  # doctest: +SKIP
    """
    path = _target(Path(target))
    if path.exists():
        _refuse_other(path, sample=sample)
        return path
    need("polars")  # before the download, which it reads
    part = path.with_name(f"{path.name[: -len(_ENDING)]}.part{_ENDING}")
    state = part.with_name(f"{part.name}.json")
    with _bar(path.name, visible=progress) as advance:
        _download(url, part, state, attempts=attempts, wait=wait, advance=advance)
    try:
        _check(part, sample=sample)
    except InputError as err:
        part.unlink(missing_ok=True)
        state.unlink(missing_ok=True)
        raise InputError(f"what {url} sent was removed, because it is not the challenge's file: {err}") from err
    part.replace(path)
    state.unlink(missing_ok=True)
    return path


def _target(path: Path) -> Path:
    if path.is_dir():
        path /= FILE
    if not path.name.lower().endswith(_ENDING):
        raise InputError(f"{path.name} does not end in {_ENDING}, as the challenge's file does")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} to")
    return path


def _refuse_other(path: Path, *, sample: bool) -> None:
    try:
        _check(path, sample=sample)
    except InputError as err:
        raise InputError(f"{path} is there and is something else, so remove it or name another file: {err}") from err


def _check(path: Path, *, sample: bool) -> None:
    """Unpack the file to its checksum, then count its events and sum their weights."""
    with path.open("rb") as file:
        first = file.read(64)
    if not first.startswith(b"\x1f\x8b"):
        raise InputError(f"it is not gzip and begins with {first[:40]!r}")
    try:
        with gzip.open(path) as packed:
            unpacked = 0
            while piece := packed.read(1 << 20):
                unpacked += len(piece)
                if unpacked > _MOST_UNPACKED:
                    break
    except (EOFError, OSError, zlib.error) as err:
        raise InputError(f"it cannot be unpacked ({err})") from err
    if unpacked > _MOST_UNPACKED:
        raise InputError(f"it unpacks to more than {_MOST_UNPACKED:,} bytes")
    load(path, sample=sample)


def _download(url: str, part: Path, state: Path, *, attempts: int, wait: float, advance: Advance) -> None:
    """Complete the part until it has the size that the server announced."""
    if not url.lower().startswith(("https://", "http://")):
        raise InputError(f"{url!r} is not an address that begins with https:// or http://")
    furthest, failed = _size(part), 0
    deadline = time.monotonic() + _LONGEST
    while True:
        try:
            _attempt(url, part, state, advance, deadline)
        except _BrokenOffError as err:
            size = _size(part)
            failed = 1 if size > furthest else failed + 1
            furthest = max(furthest, size)
            if failed >= attempts:
                kept = f"{size:,} bytes are kept in {part}; the same command resumes there" if size else ""
                raise InputError(_by_hand(f"{url} could not be downloaded: {err}", kept)) from err
            time.sleep(wait * 2 ** (failed - 1))
        else:
            return


def _by_hand(problem: str, kept: str = "") -> str:
    kept = f" ({kept})" if kept else ""
    return (
        f"{problem}{kept}; without a network here, download {FILE} by hand from {RECORD} (DOI {DOI}) and name that "
        "file to the commands"
    )


def _attempt(url: str, part: Path, state: Path, advance: Advance, deadline: float) -> None:
    """Ask once for what is missing and write what comes."""
    remote, start = _known(url, part, state), _size(part)
    if remote is None:
        start = 0
    elif start == remote.size:
        return
    headers = {"User-Agent": f"fivesigma/{fivesigma.__version__}", "Accept-Encoding": "identity"}
    if remote is not None and remote.validator is not None and start:
        headers |= {"Range": f"bytes={start}-", "If-Range": remote.validator}
    with _opened(urllib.request.Request(url, headers=headers), state) as response:
        begin, size = _extent(response)
        if size is not None and size > _MOST_BYTES:
            raise InputError(_by_hand(f"{url} announces {size:,} bytes, more than {_MOST_BYTES:,}"))
        if begin != start or (remote is not None and begin and size != remote.size):
            if begin:
                state.unlink(missing_ok=True)  # the next attempt begins at the beginning
                raise _BrokenOffError(f"the server sent bytes from {begin:,} of {size}, not from {start:,}")
            start = 0
        if start == 0:
            part.write_bytes(b"")
            _remember(_Remote(url, _validator(response), size), state)
        with part.open("ab") as file:
            while piece := _read(response):
                _append(file, piece, part)
                start += len(piece)
                advance(start, size)
                if start > _MOST_BYTES or time.monotonic() > deadline:
                    break
    if start > _MOST_BYTES:
        part.unlink(missing_ok=True)
        state.unlink(missing_ok=True)
        raise InputError(_by_hand(f"{url} sent more than {_MOST_BYTES:,} bytes, and what came was removed"))
    if start != size and time.monotonic() > deadline:
        kept = f"{start:,} bytes are kept in {part}; the same command resumes there"
        raise InputError(_by_hand(f"{url} took more than {_LONGEST:g} seconds", kept))
    if size is not None and start != size:
        raise _BrokenOffError(f"the connection broke off after {start:,} of {size:,} bytes")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow a few redirects, and only to http and https."""

    max_redirections = 5

    def redirect_request(  # noqa: PLR0917 - as urllib calls it
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        """Refuse other schemes, of which urllib would take ftp."""
        if not newurl.lower().startswith(("https://", "http://")):
            fp.close()
            raise InputError(
                _by_hand(f"{req.full_url} sends to {shortened(newurl)!r}, which is neither http nor https")
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _opened(request: urllib.request.Request, state: Path) -> Iterator[Any]:
    try:
        response = urllib.request.build_opener(_Redirects).open(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as err:
        err.close()
        said = f"the server answered {err.code} ({shortened(' '.join(str(err.reason).split()), 200)})"
        if err.code == 416:  # there is nothing from here on: the part is not of this file
            state.unlink(missing_ok=True)
        if err.code == 416 or err.code in _PASSING:
            raise _BrokenOffError(said) from err
        raise InputError(_by_hand(f"{request.full_url} could not be downloaded: {said}")) from err
    except (OSError, http.client.HTTPException) as err:
        raise _BrokenOffError(_why(err)) from err
    with response:
        yield response


def _append(file: Any, piece: bytes, part: Path) -> None:
    try:
        file.write(piece)
        file.flush()  # a full disk is noticed here, where the file has a name
    except OSError as err:
        raise InputError(f"{part} cannot be written: {err.strerror or err}") from err


def _read(response: Any) -> bytes:
    try:
        return bytes(response.read1(_PIECE))  # what is there: one byte at a time must not last for ever
    except (OSError, http.client.HTTPException) as err:
        raise _BrokenOffError(f"the connection broke off ({_why(err)})") from err


def _why(err: Exception) -> str:
    reason = getattr(err, "reason", err)  # urllib wraps what the system said
    return str(getattr(reason, "strerror", None) or reason) or type(err).__name__


def _extent(response: Any) -> tuple[int, int | None]:
    """Where the answer begins in the file, and the size of the file."""
    if response.status == 206:
        span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        begin = span.partition("-")[0]
        if not begin.isdecimal():
            raise _BrokenOffError("the server sent a part of the file without saying which")
        return int(begin), int(total) if total.isdecimal() else None
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _validator(response: Any) -> str | None:
    """What If-Range may hold: a strong ETag, else the date of the file."""
    tag: str | None = response.headers.get("ETag")
    if tag is not None and tag.startswith('"'):
        return tag
    date: str | None = response.headers.get("Last-Modified")
    return date


def _known(url: str, part: Path, state: Path) -> _Remote | None:
    """What was noted when the part was begun, if it was the same address."""
    if not part.exists():
        return None
    try:
        remote = _Remote(**json.loads(state.read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError):
        return None
    return remote if remote.url == url else None


def _remember(remote: _Remote, state: Path) -> None:
    with written_whole(state) as beside:
        beside.write_text(json.dumps(asdict(remote)), encoding="utf-8")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def _bar(what: str, *, visible: bool) -> Iterator[Advance]:
    if not visible:
        yield lambda _, __: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, size: bar.update(task, completed=done, total=size)
