"""The challenge's file from the CERN Open Data portal, whole or not at all."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fivesigma
from fivesigma._tools.extras import need
from fivesigma._tools.files import name_beside, refuse_special, remove
from fivesigma.errors import InputError, shortened
from fivesigma.higgsml.data import load

FILE = "atlas-higgs-challenge-2014-v2.csv.gz"
RECORD = "https://opendata.cern.ch/record/328"
DOI = "10.7483/OPENDATA.ATLAS.ZBP2.M5T8"
URL = f"{RECORD}/files/{FILE}"

_TIMEOUT = 30.0  # seconds without a byte
_ENDING = ".csv.gz"
_THIS_MACHINE = ("127.0.0.1", "::1", "localhost")


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
    path = Path(target)
    path = path / FILE if path.is_dir() else path
    if not path.name.lower().endswith(_ENDING):
        raise InputError(f"{path.name} does not end in {_ENDING}, as the challenge's file does")
    refuse_special(path)
    if path.exists():
        try:
            _check(path, sample=sample)
        except InputError as err:
            raise InputError(
                f"{path} is there and is something else, so remove it or name another file: {err}"
            ) from err
        return path
    need("polars")  # before the download, which it reads
    folder = name_beside(path)  # which a later run removes if this one is killed
    try:
        part = _download(url, folder / path.name, attempts, progress=progress)
        try:
            _check(part, sample=sample)
        except InputError as err:
            raise InputError(f"what {url} sent was removed, because it is not the challenge's file: {err}") from err
        part.replace(path)
    except OSError as err:
        raise InputError(f"{path} cannot be written: {err.strerror or err}") from err
    finally:
        remove(folder)
    return path


def _check(path: Path, *, sample: bool) -> None:
    """Unpack the file to its checksum, then count its events and sum their weights."""
    with path.open("rb") as file:
        first = file.read(40)
    if not first.startswith(b"\x1f\x8b"):
        raise InputError(f"it is not gzip and begins with {first!r}")
    try:
        with gzip.open(path) as packed:
            while packed.read(1 << 20):
                pass
    except (EOFError, OSError, zlib.error) as err:
        raise InputError(f"it cannot be unpacked ({err})") from err
    load(path, sample=sample)


def _download(url: str, path: Path, attempts: int, *, progress: bool) -> Path:
    """Download a file whose content is checked later; pooch tries again what raises a ValueError or is of requests."""
    pooch, exceptions = need("pooch"), need("requests.exceptions")
    pooch.get_logger().setLevel("WARNING")  # it would tell of each attempt

    def refuse_unencrypted(response: Any, **_: Any) -> None:
        _check_address(response.url)

    try:
        _check_address(url)
        registry, urls = {path.name: None}, {path.name: url}
        get = pooch.HTTPDownloader(
            progressbar=progress,
            timeout=_TIMEOUT,
            headers={"User-Agent": f"fivesigma/{fivesigma.__version__}", "Accept-Encoding": "identity"},
            hooks={"response": refuse_unencrypted},  # of every redirect too
        )
        manager = pooch.create(path.parent, "", registry=registry, urls=urls, retry_if_failed=attempts - 1)
        return Path(manager.fetch(path.name, downloader=get))
    except (exceptions.RequestException, ValueError) as err:
        why = shortened(" ".join(str(err).split()), 300)
    raise InputError(
        f"{url} could not be downloaded: {why}; without a network here, download {FILE} by hand from {RECORD} (DOI "
        f"{DOI}) and name that file to the commands"
    )


def _check_address(url: str) -> None:
    """Refuse what is not encrypted, unless it does not leave this machine."""
    address = urlsplit(url)
    if address.scheme != "https" and not (address.scheme == "http" and address.hostname in _THIS_MACHINE):
        raise InputError(f"{shortened(url)!r} is not an address that begins with https://")
