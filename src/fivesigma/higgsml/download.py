"""The challenge's file from the CERN Open Data portal, whole or not at all."""

from __future__ import annotations

import gzip
import os
import shutil
import time
import zlib
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import fivesigma
from fivesigma._tools.extras import need
from fivesigma._tools.files import refuse_special
from fivesigma.errors import InputError, shortened
from fivesigma.higgsml.data import load

FILE = "atlas-higgs-challenge-2014-v2.csv.gz"
RECORD = "https://opendata.cern.ch/record/328"
DOI = "10.7483/OPENDATA.ATLAS.ZBP2.M5T8"
URL = f"{RECORD}/files/{FILE}"

_TIMEOUT = 30.0  # seconds without a byte
_LONGEST = 6 * 3600.0  # seconds in all: 66 MB at 3 kB/s
_MOST_BYTES = 250_000_000  # the challenge's file has 66 million
_MOST_UNPACKED = 1_000_000_000  # and 187 million without gzip
_ENDING = ".csv.gz"
_THIS_MACHINE = ("127.0.0.1", "::1", "localhost")


class _RefusedError(Exception):
    """What no further attempt can mend; pooch repeats what raises a ValueError, such as an InputError."""


def fetch(
    target: str | os.PathLike[str] = ".",
    *,
    url: str = URL,
    sample: bool = False,
    attempts: int = 5,
    progress: bool = False,
) -> Path:
    """Download the challenge's file, check it, and only then give it its name.

    A file that is there already and is complete is left alone.

    Parameters
    ----------
    target : path, default="."
        A file ending in .csv.gz, or a folder for ``atlas-higgs-challenge-2014-v2.csv.gz``.
    url : str
        Where to get it, by https; by default the CERN Open Data portal, record 328.
    sample : bool, default=False
        Accept a part of the file as `load` does.
    attempts : int, default=5
        Attempts before giving up, with a longer wait before each.
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
        try:
            _check(path, sample=sample)
        except InputError as err:
            raise InputError(
                f"{path} is there and is something else, so remove it or name another file: {err}"
            ) from err
        return path
    need("polars")  # before the download, which it reads
    folder = path.with_name(f".{path.name}.part")  # so that a later run finds and removes what a killed one left
    shutil.rmtree(folder, ignore_errors=True)
    try:
        part = _download(url, folder, attempts, progress=progress)
        try:
            _check(part, sample=sample)
        except InputError as err:
            raise InputError(f"what {url} sent was removed, because it is not the challenge's file: {err}") from err
        part.replace(path)
    except OSError as err:
        raise InputError(f"{path} cannot be written: {err.strerror or err}") from err
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return path


def _target(path: Path) -> Path:
    if path.is_dir():
        path /= FILE
    if not path.name.lower().endswith(_ENDING):
        raise InputError(f"{path.name} does not end in {_ENDING}, as the challenge's file does")
    refuse_special(path)
    return path


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


def _download(url: str, folder: Path, attempts: int, *, progress: bool) -> Path:
    """Download to a folder of its own, within bounds of time and size."""
    pooch, exceptions = need("pooch"), need("requests.exceptions")
    pooch.get_logger().setLevel("WARNING")  # it would tell of each attempt
    deadline = time.monotonic() + _LONGEST

    def download(url: str, output_file: str, caller: Any) -> None:
        get = pooch.HTTPDownloader(
            progressbar=progress,
            chunk_size=1 << 10,  # a piece comes when it is full: few bytes, so that the time is looked at
            timeout=_TIMEOUT,
            headers={"User-Agent": f"fivesigma/{fivesigma.__version__}", "Accept-Encoding": "identity"},
            hooks={"response": lambda response, **_: _check_address(response.url)},  # of every redirect too
        )
        with Path(output_file).open("wb") as file:
            get(url, _Bounded(file, url, deadline), caller)

    name = f"file{_ENDING}"
    try:
        _check_address(url)
        manager = pooch.create(folder, "", registry={name: None}, urls={name: url}, retry_if_failed=attempts - 1)
        return Path(manager.fetch(name, downloader=download))
    except _RefusedError as err:
        problem = str(err)
    except (exceptions.RequestException, ValueError) as err:
        problem = f"{url} could not be downloaded: {_why(err)}"
    raise InputError(
        f"{problem}; without a network here, download {FILE} by hand from {RECORD} (DOI {DOI}) and name that file to "
        "the commands"
    )


def _check_address(url: str) -> None:
    """Refuse what is not encrypted, unless it does not leave this machine."""
    address = urlsplit(url)
    if address.scheme != "https" and not (address.scheme == "http" and address.hostname in _THIS_MACHINE):
        raise _RefusedError(f"{shortened(url)!r} is not an address that begins with https://")


class _Bounded:
    """A file that refuses more bytes, and more time, than the challenge's file needs."""

    def __init__(self, file: IO[bytes], url: str, deadline: float) -> None:
        self._file, self._url, self._deadline, self._written = file, url, deadline, 0
        self.flush = file.flush

    def write(self, piece: bytes) -> None:
        """Write a piece."""
        self._written += len(piece)
        if self._written > _MOST_BYTES:
            raise _RefusedError(f"{self._url} sent more than {_MOST_BYTES:,} bytes, and what came was removed")
        if time.monotonic() > self._deadline:
            raise _RefusedError(f"{self._url} took more than {_LONGEST:g} seconds, and what came was removed")
        self._file.write(piece)


def _why(err: BaseException) -> str:
    """One short line about a failure; requests and urllib3 wrap what the system said several times."""
    response = getattr(err, "response", None)
    if response is not None:
        return f"the server answered {response.status_code} ({shortened(' '.join(str(response.reason).split()), 200)})"
    inner = err.args[0] if err.args and isinstance(err.args[0], BaseException) else None
    inner = getattr(inner, "reason", inner)
    return shortened(" ".join(str(inner or err).split()), 200)
