"""Files that appear whole or not at all, and a digest beside them that tells damage."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path

from fivesigma.errors import FivesigmaError, InputError, shortened

DIGEST = ".sha256"
_MOST_TEXT = 50_000_000  # bytes of a text that a person writes, or that describes categories


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a name beside the target, which is renamed to it when all went well and is on disk; else nothing changes.

    A target that is a device, a pipe or a link is refused: a rename would put a file in its place.
    """
    refuse_special(path)
    beside = name_beside(path)
    try:
        yield beside
        with beside.open("rb") as file:
            os.fsync(file.fileno())  # before the name points to it
        digest_path(path).unlink(missing_ok=True)  # it is of the file that was there
        beside.replace(path)
    except (BrokenPipeError, FivesigmaError):
        raise  # of a reader of the output, not of the file; or a sentence already
    except OSError as err:
        raise InputError(f"{path} cannot be written: {err.strerror or err}") from err
    except Exception as err:
        # polars wraps what the system said of a Parquet file.
        if "os error" not in str(err):
            raise
        raise InputError(f"{path} cannot be written: {shortened(str(err).splitlines()[0], 200)}") from err
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def explained(path: object, what: str) -> Iterator[None]:
    """Say in a sentence that something cannot be read, or written."""
    try:
        yield
    except OSError as err:
        raise InputError(f"{path} cannot be {what}: {err.strerror or err}") from err


def refuse_special(path: Path) -> None:
    """Refuse a target that no file can be written to: no folder, no possible name, or something special is there."""
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} to")
    if len(os.fsencode(path.name)) > 255:
        raise InputError(f"the name {shortened(path.name)} is longer than 255 bytes; choose a shorter one")
    if path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir()):
        kind = "a link" if path.is_symlink() else "a device, a pipe or a socket"
        raise InputError(f"{path} is {kind}, which a file of this name would replace; name a plain file")


def name_beside(path: Path) -> Path:
    """Temporary name beside a target; what killed processes of this machine left for it is removed."""
    machine = _machine()
    for left in path.parent.glob(f".[0-9]*-{machine}-{escape(path.name)}"):
        pid = left.name[1:].partition("-")[0]
        only_copy = (left / "old").exists() and not path.exists()
        if not only_copy and (pid == str(os.getpid()) or not is_running(pid)):  # a number may come again
            remove(left)
    return path.with_name(f".{os.getpid()}-{machine}-{path.name}")


def temporary_folder(name: str) -> Path:
    """Make a folder among the temporary ones; those that killed processes of this machine left are removed."""
    start = f"{name}-{_machine()}-"
    for left in Path(tempfile.gettempdir()).glob(f"{start}[0-9]*-*"):
        if not is_running(left.name.removeprefix(start).partition("-")[0]):
            remove(left)
    return Path(tempfile.mkdtemp(prefix=f"{start}{os.getpid()}-"))


def _machine() -> str:
    """Word for this machine: others may share a folder with it, whose processes cannot be asked for."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def is_running(pid: str) -> bool:
    """Whether a process of this machine lives; on systems that cannot be asked, every one does."""
    if os.name != "posix":
        return True
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    except PermissionError:
        pass  # it lives, as somebody else's
    return True


def write_text(path: Path, text: str) -> Path:
    """Write text; the file appears whole or not at all."""
    with written_whole(path) as beside:
        beside.write_text(text, encoding="utf-8")
    return path


@contextmanager
def written_with_digest(path: Path) -> Iterator[Path]:
    """Write a file whole or not at all, with its SHA-256 beside it in the form that ``sha256sum --check`` reads.

    The file gets its name before the digest does, and an older digest goes first: whatever happens in between, a file
    never has the digest of another.
    """
    refuse_special(path)
    with written_whole(digest_path(path)) as digest, written_whole(path) as beside:
        yield beside
        digest.write_text(f"{sha256_of(beside)}  {path.name}\n", encoding="utf-8")


def read_text(path: Path, most: int = _MOST_TEXT) -> str:
    """Read a text of at most so many bytes; a device or a pipe, which may never answer, is refused."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is no plain file")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise InputError(f"{path} has more than {most:,} bytes, which is too much for a file of its kind")
    return content.decode()


def digest_path(path: Path) -> Path:
    """Where the digest of a file is."""
    return path.with_name(f"{path.name}{DIGEST}")


def check_digest(path: Path) -> None:
    """Refuse a file that differs from the digest beside it; without a digest every file passes."""
    beside = digest_path(path)
    with explained(beside, "read"):
        if not beside.is_file():
            return
        with beside.open("rb") as file:
            noted = re.match(rb"\s*([0-9a-fA-F]{64})\b", file.read(4096))
        same = noted is not None and noted[1].decode().lower() == sha256_of(path)
    if not same:
        why = "differs from its digest" if noted is not None else "has a digest file that holds no SHA-256"
        raise InputError(
            f"{path} {why}: it was damaged, or changed on purpose; restore it, or remove {beside.name} to accept it as "
            "it is"
        )


def sha256_of(path: Path) -> str:
    """SHA-256 of a local file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
