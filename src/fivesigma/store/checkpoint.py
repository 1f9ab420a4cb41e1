"""Checkpoints: a run that was killed resumes where it last wrote."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np

from fivesigma import __version__
from fivesigma._tools.extras import versions_of_trainers
from fivesigma._tools.files import is_running, remove, written_whole
from fivesigma.errors import InputError
from fivesigma.store import load_value, save_value
from fivesigma.store.archive import file_entry, is_plain_name
from fivesigma.store.packing import one_line

T = TypeVar("T")

_NAME = "checkpoint.json"
_LOCK = "checkpoint.lock"
_MOST = 1 << 28  # bytes; more is no state
FORMAT = 4  # to be raised whenever what an estimator writes changes


# Settings that make no other run.
_FREE = ("checkpoint", "checkpoint_every", "verbose", "n_jobs", "cache", "client", "timeout")


def fingerprint(estimator: Any, *data: Any) -> dict[str, str]:
    """Hashes of what a run depends on: its settings, its events, and the libraries, whose versions grow other trees."""
    settings = {k: v for k, v in estimator.get_params(deep=False).items() if k not in _FREE}
    versions = {"fivesigma": __version__, **versions_of_trainers()}
    return {
        "settings": hashlib.sha256(_described([type(estimator), settings]).encode()).hexdigest(),
        "events": joblib.hash(data, hash_name="sha1"),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }


def _described(value: Any) -> str:
    """Text that is equal in all processes exactly if the values are: no address, nothing left out as repr does."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}[{','.join(map(_described, value))}]"
    if isinstance(value, (set, frozenset)):
        return f"set[{','.join(sorted(map(_described, value)))}]"
    if isinstance(value, Mapping):
        return f"map[{','.join(sorted(f'{_described(k)}:{_described(v)}' for k, v in value.items()))}]"
    if isinstance(value, os.PathLike):
        return repr(os.fspath(value))
    if isinstance(value, np.ndarray) and value.dtype == object:
        return f"array{value.shape}{_described(value.ravel().tolist())}"
    if isinstance(value, np.ndarray):
        return str(joblib.hash(np.ascontiguousarray(value), hash_name="sha1"))
    if isinstance(value, types.FunctionType):
        # What a function reads from its module is not followed.
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        inside = [value.__code__, value.__defaults__, value.__kwdefaults__, cells]
        return f"{value.__module__}.{value.__qualname__}{_described(inside)}"
    if isinstance(value, types.CodeType):
        return _described([value.co_code, value.co_names, value.co_consts])
    if isinstance(value, (type, np.ufunc)):
        return f"{getattr(value, '__module__', 'numpy')}.{getattr(value, '__qualname__', value.__name__)}"
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if hasattr(value, "get_params"):
        return kind + _described(value.get_params(deep=False))
    if hasattr(value, "__array__"):
        return kind + str(joblib.hash(value, hash_name="sha1"))
    try:
        made_of = value.__reduce_ex__(4)
    except TypeError:
        raise InputError(
            f"a checkpoint needs settings that can be compared with those of a later run, which a {kind} cannot be"
        ) from None
    if isinstance(made_of, str):
        return f"{getattr(value, '__module__', None)}.{made_of}"
    return kind + _described([list(part) if isinstance(part, Iterator) else part for part in made_of])


class Checkpoint:
    """A folder that holds the state of a run: one small JSON file that names the others.

    Files are written under new names; then the JSON file is replaced in one step. So at any moment the folder holds
    a whole state, the old one or the new one.
    """

    def __init__(self, folder: str | os.PathLike[str], run: Mapping[str, str], interval: int) -> None:
        self.folder = Path(folder)
        self.lock = threading.Lock()
        self._run = {**run, "interval": str(interval)}

    @classmethod
    @contextmanager
    def of(cls, estimator: Any, interval: int, *data: Any) -> Iterator[Checkpoint | None]:
        """Hold the checkpoint that an estimator asks for, if it does, for the time of a run."""
        if estimator.checkpoint is None:
            del data  # a run may let go of its events
            yield None
            return
        if not isinstance(estimator.random_state, (int, np.integer)):
            raise InputError(
                "a checkpoint needs an integer random_state, or a resumed run could not continue in the same way"
            )
        out = cls(estimator.checkpoint, fingerprint(estimator, *data), interval)
        del data
        out.claim()
        try:
            yield out
        finally:
            out.release()

    def claim(self) -> None:
        """Keep other processes out of the folder, until `release` or the end of this object."""
        path, owner = self.folder / _LOCK, f"{os.getpid()} {socket.gethostname()} {uuid.uuid4().hex}"
        with _writable(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                with path.open("x") as stream:
                    stream.write(owner)
            except FileExistsError:
                _refuse_if_running(path)
                path.write_text(owner)
            self.release = weakref.finalize(self, _release, path, owner)
            for left in self.folder.glob(".[0-9]*-*"):  # of a process that was killed while it wrote
                remove(left)

    def read(self) -> tuple[dict[str, Any], dict[str, bytes]] | None:
        """Return state and files as last written, or None if there are none."""
        path = self.folder / _NAME
        if not path.exists() and not path.is_symlink():
            return None
        with self.resuming():
            text = _content(path, _MOST)
            manifest = json.loads(text)
            number = manifest["format"]
        if number != FORMAT:
            raise InputError(
                f"the checkpoint in {self.folder} has format {str(number)[:20]}, and fivesigma {__version__} resumes "
                f"format {FORMAT}: finish the run with the version that began it, or remove the folder to start anew"
            )
        with self.resuming():
            run, state, entries = _check_digest(manifest, text)
        versions = f"by other versions of the libraries ({run.get('versions')}; now {self._run.get('versions')})"
        for part, what in (
            ("settings", "of another configuration"),
            ("events", "of other events"),
            ("versions", versions),
            ("interval", "of another interval"),
        ):
            if run.get(part) != self._run.get(part):
                raise InputError(f"the checkpoint in {self.folder} is {what}; give another folder or remove it")
        with self.resuming():
            return state, {name: self._part(name, entry) for name, entry in entries.items()}

    def _part(self, name: str, entry: dict[str, Any]) -> bytes:
        """Read one file that the state names, and compare its checksum."""
        wanted = _file_name(name, entry)
        if not is_plain_name(wanted):
            raise ValueError(f"{wanted[:60]!r} is not the name of a file of a checkpoint")
        content = _content(self.folder / wanted, entry["bytes"])
        if file_entry(content) != entry:
            raise ValueError(f"{name} does not match its checksum")
        return content

    @contextmanager
    def resuming(self) -> Iterator[None]:
        """Say in a sentence that what was read is no state of this run."""
        try:
            yield
        except Exception as err:
            raise InputError(
                f"the checkpoint in {self.folder} cannot be resumed ({one_line(err)}); remove the folder to start anew"
            ) from err

    def write(self, state: dict[str, Any], files: Mapping[str, bytes]) -> None:
        """Replace the state in one step; if the disk is full, the state before stays."""
        with _writable(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            entries = {name: file_entry(content) for name, content in files.items()}
            for name, content in files.items():
                _write(self.folder / _file_name(name, entries[name]), content)
            body = {"format": FORMAT, "run": self._run, "state": state, "files": entries}
            _write(self.folder / _NAME, _rendered(body))
            current = {_file_name(name, entry) for name, entry in entries.items()}
            stems = {name.partition(".")[0] for name in files}
            for path in self.folder.iterdir():
                if path.name not in current and path.name.partition(".")[0] in stems:
                    path.unlink()

    def finished(self) -> set[str]:
        """Parts of the run that are done, each of which is kept in a folder of its own."""
        state = self.state()
        with self.resuming():
            return {key for key in state.get("fits", []) if Path(self.folder / key).exists()}

    def keep(self, key: str, value: Any) -> None:
        """Write what a part of the run has made, and that it is done."""
        save_value(value, self.folder / key, force=True)
        with self.lock:
            self.write({**self.state(), "fits": sorted(self.finished() | {key})}, {})

    def kept(self, key: str) -> Any:
        """Read what a part of the run has made."""
        with self.resuming():
            return load_value(self.folder / key)

    def state(self) -> dict[str, Any]:
        """State as last written, empty if none was."""
        return (self.read() or ({}, {}))[0]

    def say_interrupted(self, reached: int, kept: int, unit: str) -> None:
        """Tell an interrupted user what is left of the run."""
        print(
            f"interrupted after {unit} {reached}; the same call resumes from {unit} {kept}, kept in {self.folder}",
            file=sys.stderr,
        )


def once(checkpoint: Checkpoint | None, key: str, make: Callable[[], T]) -> T:
    """Take a part of a run that an earlier call has finished, or make it and keep it."""
    if checkpoint is None:
        return make()
    with checkpoint.lock:
        done = key in checkpoint.finished()
    if done:
        kept: T = checkpoint.kept(key)
        return kept
    made = make()
    checkpoint.keep(key, made)
    return made


def _file_name(name: str, entry: dict[str, Any]) -> str:
    return f"{name}.{entry['sha256'][:16]}"


def _rendered(body: dict[str, Any]) -> bytes:
    """Text of a state, with the digest of all the rest."""
    digest = hashlib.sha256(json.dumps(body).encode()).hexdigest()
    return json.dumps({**body, "digest": digest}).encode()


def _check_digest(manifest: dict[str, Any], text: bytes) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Run, state and files of a manifest; rendering it again must give the same bytes."""
    if _rendered({key: value for key, value in manifest.items() if key != "digest"}) != text:
        raise ValueError(f"{_NAME} does not match its own digest: it was changed after it was written")
    parts = manifest["run"], manifest["state"], manifest["files"]
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError(f"{_NAME} holds no state of a run")
    return parts


def _content(path: Path, most: int) -> bytes:
    """Content of a plain file of limited size; a pipe or a device would never end."""
    info = path.lstat()
    if not stat.S_ISREG(info.st_mode) or info.st_size > most:
        raise ValueError(f"{path.name} is no plain file of at most {most:,} bytes")
    return path.read_bytes()


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Say in a sentence why a checkpoint cannot be written."""
    try:
        yield
    except OSError as err:
        raise InputError(
            f"the checkpoint in {folder} cannot be written: {err.strerror or err}; what was written before is kept"
        ) from err


def _refuse_if_running(path: Path) -> None:
    """Refuse a lock unless its process is this one or is gone; an empty one was left by a kill while it was made."""
    try:
        text = _content(path, 1000).decode()
    except ValueError:
        text = "?"
    pid, _, rest = text.partition(" ")
    host = rest.partition(" ")[0]
    if not text:
        return
    if not (pid.isascii() and pid.isdigit() and len(pid) <= 10 and rest.isprintable()):
        raise InputError(f"{path} is not the lock of a run; remove it if no run uses the folder")
    if host == socket.gethostname() and (int(pid) == os.getpid() or not is_running(pid)):
        return
    raise InputError(
        f"process {pid} on {host} uses the checkpoint in {path.parent}; wait for it, give another folder, or remove "
        f"{path.name} if that run is over"
    )


def _release(path: Path, owner: str) -> None:
    """Remove a lock if it is still the owner's, and the folder if nothing was written to it."""
    with suppress(OSError):
        if path.read_bytes() == owner.encode():
            path.unlink()
            path.parent.rmdir()


def _write(path: Path, content: bytes) -> None:
    try:
        with written_whole(path) as beside:
            beside.write_bytes(content)
    except InputError as err:
        raise InputError(f"{err}; what was written before is kept") from err
