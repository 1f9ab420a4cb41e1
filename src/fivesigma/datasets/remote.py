"""Files elsewhere: whatever fsspec opens is copied once to a temporary folder and read from there."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from fivesigma._tools.extras import need
from fivesigma.errors import FivesigmaError, InputError, shortened

__all__ = ["fetched", "is_remote"]

_TRIES, _WAIT, _PIECE = 3, 0.5, 1 << 22  # attempts, seconds between the first two, bytes read at a time


def is_remote(path: str) -> bool:
    """Whether a name is a URL such as ``root://host//file.root`` or ``https://host/file.root``."""
    return "://" in path


def fetched(url: str) -> list[Path]:
    """Copies of the files that a URL or a pattern of one means.

    Parameters
    ----------
    url : str
        Of any protocol that fsspec knows; ``root://`` needs the extra ``xrootd``, others ``remote``. A pattern works
        where the protocol lists its files.
    """
    try:
        filesystem, path = need("fsspec").core.url_to_fs(url)
    except ImportError as err:
        extra = "xrootd" if url.startswith("root:") else "remote"
        raise InputError(f"{url} cannot be opened ({err}); install fivesigma[{extra}]") from err
    except ValueError as err:
        raise InputError(f"{url} cannot be opened: {shortened(str(err), 200)}") from err
    if not any(mark in path for mark in "*?["):
        return [_copy(url)]
    found = sorted(_tried(url, lambda: filesystem.glob(path)))
    if not found:
        raise InputError(f"no file matches {url!r}")
    return [_copy(filesystem.unstrip_protocol(name)) for name in found]


@cache
def _copy(url: str) -> Path:
    """Copy a file whole, once in this process; each has a folder of its own, so that it keeps its name."""
    filesystem, path = need("fsspec").core.url_to_fs(url)
    folder = _folder() / hashlib.sha256(url.encode()).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    target = folder / Path(path.partition("?")[0]).name

    def copy() -> Path:
        size = filesystem.info(path).get("size")
        with filesystem.open(path, "rb") as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, _PIECE)
        got = target.stat().st_size
        if size is not None and got != size:
            raise OSError(f"{got:,} bytes came of the {size:,} that it should have")
        return target

    return Path(_tried(url, copy))


def _tried(url: str, action: Any) -> Any:
    """Do something with a URL; a connection that breaks is tried again."""
    for attempt in range(1, _TRIES + 1):
        try:
            return action()
        except FivesigmaError:
            raise
        except FileNotFoundError as err:
            raise InputError(f"there is no file {url}") from err
        except Exception as err:  # each protocol raises kinds of its own
            if attempt == _TRIES:
                why = shortened(" ".join(str(err).split()) or type(err).__name__, 200)
                raise InputError(f"{url} cannot be read after {_TRIES} attempts: {why}") from err
            time.sleep(_WAIT * 2 ** (attempt - 1))
    raise AssertionError


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fivesigma-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
