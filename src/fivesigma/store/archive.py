"""A saved model on disk: a folder or a zip of a few files, written whole or not at all, read without trust.

Its manifest lists them with their hashes. It is rendered in one way only, so that any change shows.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import shutil
import stat
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fivesigma
from fivesigma._tools.files import name_beside, refuse_special
from fivesigma.errors import StoreError
from fivesigma.store.migrations import FORMAT

MANIFEST = "manifest.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_DATE = (1980, 1, 1, 0, 0, 0)  # so that equal models are equal files
_VERSION = re.compile(r"[0-9][0-9a-z.+]{0,29}")
_KEYS = {"format", "fivesigma", "versions", "model", "files", "digest"}
_OPTIONAL = {"probe"}  # since format 2
_MOST = 1 << 28  # bytes; more is no manifest


class Archive(ABC):
    """The files of a saved model with their sizes in bytes; each is read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.sizes: dict[str, int] = {}

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Content of one file."""


class _Folder(Archive):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with _readable(path), os.scandir(path) as entries:
            for entry in entries:
                info = entry.stat(follow_symlinks=False)
                if not stat.S_ISREG(info.st_mode):
                    raise StoreError(f"{path} holds {entry.name!r}, which is no plain file; a saved model has no other")
                self.sizes[entry.name] = info.st_size

    def read(self, name: str) -> bytes:
        with _readable(self._path):
            return (self._path / name).read_bytes()


class _Zip(Archive):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with _readable(path), zipfile.ZipFile(path) as file:
            for info in file.infolist():
                if info.filename in self.sizes:
                    raise StoreError(f"{path} holds {info.filename[:60]!r} twice")
                # Stored files cannot swell when they are read.
                if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                    raise StoreError(f"{path} holds {info.filename[:60]!r} compressed, as fivesigma.save does not")
                self.sizes[info.filename] = info.file_size
            # Members that overlap would be read again and again.
            if sum(self.sizes.values()) > path.stat().st_size:
                raise StoreError(f"{path} says that it holds more bytes than it has; copy it again")

    def read(self, name: str) -> bytes:
        with _readable(self._path), zipfile.ZipFile(self._path) as file:
            return file.read(name)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say in a sentence why files cannot be read."""
    try:
        yield
    except StoreError:
        raise
    except OSError as err:
        raise StoreError(f"{path} cannot be read: {err.strerror or err}") from err
    except Exception as err:  # damaged zips raise many kinds
        raise StoreError(f"{path} is no whole zip file ({err}); copy it again") from err


def open_archive(path: Path) -> Archive:
    """Open a saved model and look at the names of its files; what could leave the folder is refused."""
    with _readable(path):
        is_folder, is_file = path.is_dir(), path.is_file()
    if not is_folder and not is_file:
        raise StoreError(f"there is no saved model {path}")
    archive = _Folder(path) if is_folder else _Zip(path)
    for name in archive.sizes:
        if not is_plain_name(name):
            raise StoreError(f"{path} holds {name[:60]!r}, a name that no file of a saved model has")
    if MANIFEST not in archive.sizes:
        raise StoreError(f"{path} holds no {MANIFEST}, so it is no saved model")
    return archive


def is_plain_name(name: str) -> bool:
    """Whether a file of this name stays in the folder, on every system."""
    return _NAME.fullmatch(name) is not None and ".." not in name


def check_target(path: Path, *, force: bool) -> None:
    """Refuse to write where something is that must not be lost."""
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent} to save {path.name} in")
    if not path.exists() and not path.is_symlink():
        return
    refuse_special(path)
    if not force:
        raise StoreError(f"{path} is there already; choose another name, or replace it with force=True or --force")
    try:
        open_archive(path)
    except StoreError as err:
        if path.is_dir() and not any(path.iterdir()):
            return
        raise StoreError(f"{path} is there already and is no saved model; remove it yourself") from err


def write_archive(path: Path, files: Mapping[str, bytes]) -> None:
    """Write beside, then rename; at no moment is half a model there."""
    beside = name_beside(path)
    try:
        beside.mkdir()
        if path.suffix.lower() == ".zip":
            new = beside / "new.zip"
            with zipfile.ZipFile(new, "x") as zipped:
                for name, content in files.items():
                    zipped.writestr(zipfile.ZipInfo(name, _DATE), content)
        else:
            new = beside / "new"
            new.mkdir()
            for name, content in files.items():
                (new / name).write_bytes(content)
        _flush(new)
        if not (path.is_dir() and _exchange(new, path)):
            if path.is_dir():  # for a moment there is no model: name_beside keeps the only copy
                path.rename(beside / "old")
            try:
                new.replace(path)
            except OSError:
                if (beside / "old").exists():
                    (beside / "old").rename(path)
                raise
    except OSError as err:
        raise StoreError(f"{path} cannot be written: {err.strerror or err}") from err
    finally:
        if path.exists() or not (beside / "old").exists():  # else it holds the only copy
            shutil.rmtree(beside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change their names in one step, as Linux can; False where it cannot be done."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


def _flush(new: Path) -> None:
    """Force the content to disk before the name points to it."""
    for file in new.iterdir() if new.is_dir() else [new]:
        with file.open("rb") as stream:
            os.fsync(stream.fileno())


def render(content: dict[str, Any]) -> bytes:
    """Text of a manifest, with the digest of all the rest."""
    body = {key: value for key, value in content.items() if key != "digest"}
    return _text({**body, "digest": hashlib.sha256(_text(body)).hexdigest()})


def _text(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True, allow_nan=False).encode()


def file_entry(content: bytes) -> dict[str, Any]:
    """What the manifest says of a file."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def read_manifest(archive: Archive, where: str) -> dict[str, Any]:
    """Read and check the manifest; the model in it is not looked at yet."""
    if archive.sizes[MANIFEST] > _MOST:
        raise StoreError(f"{MANIFEST} in {where} has {archive.sizes[MANIFEST]:,} bytes, too many for a manifest")
    text = archive.read(MANIFEST)
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError) as err:
        reason = "it is nested too deep" if isinstance(err, RecursionError) else str(err)
        raise StoreError(f"{MANIFEST} in {where} is not JSON: {reason}") from err
    number = content.get("format") if isinstance(content, dict) else None
    if not isinstance(number, int) or isinstance(number, bool):
        raise StoreError(f"{MANIFEST} in {where} is not the manifest of a saved model: it has no format number")
    if number > FORMAT:
        writer = content.get("fivesigma")
        needed = f"fivesigma {writer}" if isinstance(writer, str) and _VERSION.fullmatch(writer) else "a newer version"
        raise StoreError(
            f"{where} has format {number}, and fivesigma {fivesigma.__version__} reads formats up to {FORMAT}; it was "
            f"saved by {needed}: install that or a later one"
        )
    if number < 1:
        raise StoreError(f"{where} has format {number}, which never was")
    # Rendering it again must give the same bytes: then not even a blank was changed.
    try:
        same = render(content) == text
    except (ValueError, RecursionError):
        same = False
    if not same:
        raise StoreError(f"{MANIFEST} in {where} does not match its own digest: it was changed after it was written")
    if set(content) - _OPTIONAL != _KEYS or not all(isinstance(content[key], dict) for key in ("files", "model")):
        raise StoreError(f"{MANIFEST} in {where} has not the parts {', '.join(sorted(_KEYS))}")
    versions = content["versions"]
    said = [content["fivesigma"], *versions.values()] if isinstance(versions, dict) else [None]
    if not all(isinstance(v, str) for v in said):
        raise StoreError(f"{MANIFEST} in {where} does not say by which versions it was written")
    return dict(content)


def read_files(archive: Archive, manifest: dict[str, Any], where: str) -> dict[str, bytes]:
    """Read the files that the manifest lists, which must be all there are, and compare their hashes."""
    listed = manifest["files"]
    for name in listed:
        if not is_plain_name(name) or name == MANIFEST:
            raise StoreError(f"{MANIFEST} in {where} lists {name[:60]!r}, a name that leaves the model")
    present = set(archive.sizes) - {MANIFEST}
    for name in sorted(set(listed) - present):
        raise StoreError(f"{name} is missing in {where}; copy the model again")
    for name in sorted(present - set(listed)):
        raise StoreError(f"{where} holds {name}, which its manifest does not list; remove it if you trust the rest")
    files = {}
    for name, entry in listed.items():
        if not isinstance(entry, dict) or set(entry) != {"bytes", "sha256"}:
            raise StoreError(f"{MANIFEST} in {where} says neither size nor hash of {name}")
        if archive.sizes[name] != entry["bytes"]:
            raise StoreError(f"{name} in {where} has {archive.sizes[name]:,} bytes, but was saved with another size")
        files[name] = archive.read(name)
        if file_entry(files[name]) != entry:
            raise StoreError(f"{name} in {where} was changed after it was saved: its hash does not match")
    return files
