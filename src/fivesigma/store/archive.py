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
import zipfile
from collections.abc import Mapping
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
_KEYS = {"digest": str, "files": dict, "fivesigma": str, "format": int, "model": dict, "versions": dict}
_OPTIONAL = {"probe"}  # since format 2


def read_archive(path: Path) -> dict[str, bytes]:
    """Files of a saved model; whatever could lead out of it, or swell when it is read, is refused."""
    try:
        if path.is_dir():
            for name in _plain_files(path):
                _check_name(name, path)
            files = {name: (path / name).read_bytes() for name in _plain_files(path)}
        else:
            files = _read_zip(path)
    except StoreError:
        raise
    except OSError as err:
        raise StoreError(f"{path} cannot be read: {err.strerror or err}") from err
    except Exception as err:  # damaged zips raise many kinds
        raise StoreError(f"{path} is no whole zip file ({err}); copy it again") from err
    if MANIFEST not in files:
        raise StoreError(f"{path} holds no {MANIFEST}, so it is no saved model")
    return files


def _plain_files(folder: Path) -> list[str]:
    """Names of the files of a folder, which holds nothing else."""
    with os.scandir(folder) as entries:
        found = {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
    for name in (name for name, plain in found.items() if not plain):
        raise StoreError(f"{folder} holds {name!r}, which is no plain file; a saved model has no other")
    return list(found)


def _read_zip(path: Path) -> dict[str, bytes]:
    if not path.is_file():
        raise StoreError(f"there is no saved model {path}")
    with zipfile.ZipFile(path) as file:
        members = file.infolist()
        for at, info in enumerate(members):
            _check_name(info.filename, path)
            if info.filename in {other.filename for other in members[:at]}:
                raise StoreError(f"{path} holds {info.filename!r} twice")
            # Stored files cannot swell when they are read.
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                raise StoreError(f"{path} holds {info.filename!r} compressed, as fivesigma.save does not")
        # Members that overlap would be read again and again.
        if sum(info.file_size for info in members) > path.stat().st_size:
            raise StoreError(f"{path} says that it holds more bytes than it has; copy it again")
        return {info.filename: file.read(info) for info in members}


def _check_name(name: str, path: Path) -> None:
    if not is_plain_name(name):
        raise StoreError(f"{path} holds {name[:60]!r}, a name that no file of a saved model has")


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
        read_archive(path)
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
        for file in new.iterdir() if new.is_dir() else [new]:  # on disk, before the name points to it
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
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


def render(content: dict[str, Any]) -> bytes:
    """Text of a manifest, with the digest of all the rest."""
    body = {key: value for key, value in content.items() if key != "digest"}
    return _text({**body, "digest": hashlib.sha256(_text(body)).hexdigest()})


def _text(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True, allow_nan=False).encode()


def file_entry(content: bytes) -> dict[str, Any]:
    """What the manifest says of a file."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def read_manifest(files: Mapping[str, bytes], where: str) -> dict[str, Any]:
    """Check the manifest and, against it, the files; the model in it is not looked at yet."""
    try:
        content = json.loads(files[MANIFEST])
    except (ValueError, RecursionError) as err:
        reason = "it is nested too deep" if isinstance(err, RecursionError) else str(err)
        raise StoreError(f"{MANIFEST} in {where} is not JSON: {reason}") from err
    number = content.get("format") if isinstance(content, dict) else None
    if type(number) is not int or number < 1:
        raise StoreError(f"{MANIFEST} in {where} is not the manifest of a saved model: it has no format number")
    if number > FORMAT:
        writer = content.get("fivesigma")
        needed = f"fivesigma {writer}" if isinstance(writer, str) and _VERSION.fullmatch(writer) else "a newer version"
        raise StoreError(
            f"{where} has format {number}, and fivesigma {fivesigma.__version__} reads formats up to {FORMAT}; it was "
            f"saved by {needed}: install that or a later one"
        )
    # Rendering it again must give the same bytes: then not even a blank was changed.
    try:
        same = render(content) == files[MANIFEST]
    except (ValueError, RecursionError):
        same = False
    if not same:
        raise StoreError(f"{MANIFEST} in {where} does not match its own digest: it was changed after it was written")
    if set(content) - _OPTIONAL != set(_KEYS) or not all(isinstance(content[k], kind) for k, kind in _KEYS.items()):
        raise StoreError(f"{MANIFEST} in {where} has not the parts {', '.join(_KEYS)}")
    listed, present = content["files"], set(files) - {MANIFEST}
    for name in sorted(set(listed) - present):
        raise StoreError(f"{name[:60]} is missing in {where}; copy the model again")
    for name in sorted(present - set(listed)):
        raise StoreError(f"{where} holds {name}, which its manifest does not list; remove it if you trust the rest")
    for name, entry in listed.items():
        if file_entry(files[name]) != entry:
            raise StoreError(f"{name} in {where} was changed after it was saved: its hash does not match")
    return dict(content)
