"""Files elsewhere, through fsspec: ROOT files are read where they are, by ranges of bytes; others are copied once."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar

from fivesigma._tools.extras import need
from fivesigma.errors import FivesigmaError, InputError, shortened

T = TypeVar("T")
_TRIES, _WAIT, _PIECE = 3, 0.5, 1 << 22  # attempts, seconds between the first two, bytes copied at a time
_SILENCE = 60.0  # seconds without a byte
_VERSIONS = ("ETag", "etag", "LastModified", "Last-Modified", "mtime", "modified", "created")  # one tells a change


class _Status(NamedTuple):
    """What `os.stat` says of a local file; the time of change is that of the protocol, if it has one."""

    st_size: int
    st_mtime_ns: str
    st_ino: int = 0


@dataclass(frozen=True)
class RemoteFile:
    """A file of any protocol that fsspec knows, with what is needed of a `pathlib.Path`."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """What messages call it."""
        return PurePosixPath(self.url.partition("?")[0]).name

    @property
    def suffix(self) -> str:
        """Ending of the name."""
        return PurePosixPath(self.name).suffix

    def absolute(self) -> RemoteFile:
        """It has one name everywhere."""
        return self

    def stat(self) -> _Status:
        """Size and time of change, as the server says."""
        filesystem, path = _locate(self.url)
        filesystem.invalidate_cache()
        found = _try(self.url, lambda: filesystem.info(path))
        version = next((str(found[key]) for key in _VERSIONS if found.get(key) is not None), "")
        return _Status(found.get("size") or 0, version)

    def digest(self) -> str:
        """Digest of name, size and time of change: a digest of the content would mean to read it twice."""
        return hashlib.sha256(repr((self.url, *self.stat())).encode()).hexdigest()

    def read(self, first: int, last: int) -> bytes:
        """Some bytes of the file."""
        return _Parts(self.url).cat_file("", first, last)

    def open_root(self) -> Any:
        """Open a ROOT file where it is, or a copy of it if its server does not send parts of files."""
        uproot = need("uproot")
        if not _sends_parts(self.url):
            return uproot.open(self.copy())
        return uproot.open({self.url: None}, handler=_root_handler())

    def copy(self) -> Path:
        """A copy of the file, made once in this process, in a folder of its own, so that it keeps its name."""
        return _copy(self.url)


#: Where a file can be.
File = Path | RemoteFile


def is_remote(path: str) -> bool:
    """Whether a name is a URL such as ``root://host//file.root`` or ``https://host/file.root``."""
    return "://" in path


def find_remote(url: str) -> list[RemoteFile]:
    """The files that a URL, or a pattern where the protocol lists its files, means."""
    filesystem, path = _locate(url)
    if not any(mark in path for mark in "*?["):
        _ = RemoteFile(url).stat()  # it must be there
        return [RemoteFile(url)]
    found = sorted(_try(url, lambda: filesystem.glob(path)))
    if not found:
        raise InputError(f"no file matches {url!r}")
    return [RemoteFile(filesystem.unstrip_protocol(name)) for name in found]


def _locate(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    try:
        found: tuple[Any, str] = need("fsspec").core.url_to_fs(url, **_options(url))
    except ImportError as err:
        extra = "xrootd" if url.startswith("root:") else "remote"
        raise InputError(f"{url} cannot be opened ({err}); install fivesigma[{extra}]") from err
    except ValueError as err:
        raise InputError(f"{url} cannot be opened: {shortened(str(err), 200)}") from err
    return found


def _options(url: str) -> dict[str, Any]:
    """A server that falls silent is not waited for."""
    if not url.startswith(("http:", "https:")):
        return {}
    timeout = need("aiohttp").ClientTimeout(total=None, sock_connect=_SILENCE, sock_read=_SILENCE)
    return {"client_kwargs": {"timeout": timeout}}


class _Parts:
    """Reads ranges of bytes of one file for uproot: tried again, and never more or fewer bytes than were asked for."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._filesystem, self._path = _locate(url)
        self._size = RemoteFile(url).stat().st_size

    def size(self, _path: str) -> int:
        return self._size

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        return self.cat_ranges([path], [start], [end])[0]

    def cat_ranges(self, paths: list[str], starts: list[int], ends: list[int]) -> list[bytes]:
        def read() -> list[bytes]:
            found = self._filesystem.cat_ranges([self._path] * len(paths), starts, ends, on_error="return")
            for part, start, end in zip(found, starts, ends, strict=True):
                if isinstance(part, Exception):
                    raise part
                wanted = max(0, min(end, self._size) - start)
                if len(part) != wanted:
                    raise OSError(f"{len(part):,} bytes came where {wanted:,} were asked for")
            return list(found)

        return _try(self._url, read)


@cache
def _root_handler() -> type:
    """The class by which uproot reads a remote file."""
    base = need("uproot.source.fsspec").FSSpecSource

    class RemoteSource(base):  # type: ignore[misc, valid-type]
        def _open(self) -> None:
            self._fsspec_options = _options(self._file_path_orig)
            super()._open()
            self._fs, self._async_impl = _Parts(self._file_path_orig), False

    return RemoteSource


@cache
def _sends_parts(url: str) -> bool:
    """Whether a server sends the part of a file that is asked for, and not all of it."""
    found = RemoteFile(url)
    if not found.stat().st_size:
        return False
    filesystem, path = _locate(url)
    return len(_try(url, lambda: filesystem.cat_file(path, start=1, end=3))) == 2


@cache
def _copy(url: str) -> Path:
    filesystem, path = _locate(url)
    folder = _folder() / hashlib.sha256(url.encode()).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    target = folder / RemoteFile(url).name

    def copy() -> Path:
        size = filesystem.info(path).get("size")
        with filesystem.open(path, "rb") as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, _PIECE)
        got = target.stat().st_size
        if size is not None and got != size:
            raise OSError(f"{got:,} bytes came of the {size:,} that it should have")
        return target

    return _try(url, copy)


def _try(url: str, action: Callable[[], T]) -> T:
    """Do something with a URL; a connection that breaks is tried again."""
    for attempt in range(1, _TRIES + 1):
        try:
            return action()
        except FivesigmaError:
            raise
        except Exception as err:  # each protocol raises kinds of its own
            # fsspec also says so of a server that does not answer; the cause tells.
            if isinstance(err, FileNotFoundError) and getattr(err.__cause__, "status", 404) == 404:
                if err.__cause__ is None or hasattr(err.__cause__, "status"):
                    raise InputError(f"there is no file {url}") from err
                err = err.__cause__  # type: ignore[assignment]
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
