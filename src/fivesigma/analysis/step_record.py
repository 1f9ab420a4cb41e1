"""The record of an analysis: which step was done with which inputs, and what it found."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fivesigma
from fivesigma._tools.files import read_text, write_text
from fivesigma.analysis.schema import check_schema
from fivesigma.datasets.remote import File, RemoteFile
from fivesigma.errors import InputError, shortened

__all__ = ["STEPS", "Record", "StepRecord", "digest"]

STEPS = ("read", "train", "score", "categorise", "workspace", "report")
RECORD = "analysis.json"
FOLDERS = ("model", "ntuples", "histograms", "figures", "combine")  # within that of the analysis
_FORMAT = 3
_LEFT = re.compile(r"\.(\d+-.+|model-.+|train-.+)")  # what a killed run leaves behind


@dataclass
class StepRecord:
    """One step."""

    inputs: str
    outputs: dict[str, str] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)
    ran: bool = False


@dataclass(repr=False)
class Record:
    """A record of every step of an analysis.

    Attributes
    ----------
    folder : Path
    steps : dict of str to StepRecord
        By name, those that are done.
    """

    folder: Path
    steps: dict[str, StepRecord] = field(default_factory=dict)
    _files: dict[str, tuple[int, int, str]] = field(default_factory=dict)

    @classmethod
    def opened(cls, folder: Path) -> Record:
        """The record of a folder, a new one if there is none."""
        path = folder / RECORD
        if not os.path.lexists(path):
            own = folder.is_dir() and all(_LEFT.fullmatch(item.name) for item in folder.iterdir())
            if os.path.lexists(folder) and not own:
                raise InputError(f"{folder} is there and holds no analysis; choose another name")
            return cls(folder)
        for name in (RECORD, *FOLDERS):
            if (folder / name).is_symlink():
                raise InputError(f"{folder / name} is a link, which an analysis does not follow; remove it")
            if name in FOLDERS and (folder / name).exists() and not (folder / name).is_dir():
                raise InputError(f"{folder / name} is no folder; remove it")
        advice = "remove it to start anew"
        try:
            content = json.loads(read_text(path), parse_constant=_refuse_constant)
        except (OSError, ValueError, RecursionError) as err:
            raise InputError(f"{path} cannot be read as a record of an analysis; {advice}") from err
        if isinstance(content, dict) and content.get("format") != _FORMAT:
            raise InputError(f"{path} has the format {shortened(repr(content.get('format')))}, not {_FORMAT}; {advice}")
        try:
            check_schema(content, "record", "the record")
        except InputError as err:
            raise InputError(f"{path} cannot be read as a record of an analysis: {err}; {advice}") from err
        if content["digest"] != _digest_of(content):
            raise InputError(f"{path} was damaged, or changed by hand, so that nothing of it is quoted; {advice}")
        steps = {name: StepRecord(**content["steps"][name]) for name in STEPS if name in content["steps"]}
        return cls(folder, steps, {name: (a, b, c) for name, (a, b, c) in content["files"].items()})

    def __repr__(self) -> str:
        ran = [f"{name}{'' if step.ran else ' (nothing changed)'}" for name, step in self.steps.items()]
        return f"Record of {self.folder}: {', '.join(ran) or 'no step is done'}"

    def __getitem__(self, step: str) -> dict[str, Any]:
        """What a step found."""
        if step not in self.steps:
            raise KeyError(step)
        return self.steps[step].found

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, keep other runs out of it, and remove what a killed one left."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder, os.O_RDONLY)
        except OSError as err:
            raise InputError(f"{self.folder} cannot be written: {err.strerror or err}") from err
        try:
            _lock(lock, self.folder)
            for place in (self.folder, self.folder / "ntuples"):
                for item in place.glob(".*") if place.is_dir() else ():
                    if _LEFT.fullmatch(item.name) and not item.name.startswith(".train-"):
                        _remove(item)
            yield
        finally:
            os.close(lock)  # which unlocks

    def write(self) -> None:
        """Write it to the folder."""
        content = {
            "format": _FORMAT,
            "fivesigma": fivesigma.__version__,
            "steps": {
                name: {"inputs": step.inputs, "outputs": step.outputs, "found": step.found}
                for name, step in self.steps.items()
            },
            "files": self._files,
        }
        content = json.loads(json.dumps(content, allow_nan=False))  # as it is read
        content["digest"] = _digest_of(content)
        write_text(self.folder / RECORD, json.dumps(content, indent=1) + "\n")

    def file_digest(self, path: File) -> str:
        """SHA-256 of a file; one of the same size and time of change is not read again, and a remote one not at all."""
        if isinstance(path, RemoteFile):
            return path.digest()
        try:
            stat = path.stat()
            name = str(path.resolve())
            known = self._files.get(name)
            if known is not None and known[:2] == (stat.st_size, stat.st_mtime_ns):
                return known[2]
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as err:
            raise InputError(f"{path} cannot be read: {err.strerror or err}") from err
        self._files[name] = (stat.st_size, stat.st_mtime_ns, found)
        return found

    def is_done(self, name: str, inputs: str) -> bool:
        """Whether a step was done with these inputs, and its files are as it wrote them."""
        step = self.steps.get(name)
        if step is None or step.inputs != inputs:
            return False
        paths = {self.folder / output: noted for output, noted in step.outputs.items()}
        return all(
            path.is_file() and not path.is_symlink() and self.file_digest(path) == noted
            for path, noted in paths.items()
        )

    def run(self, name: str, inputs: str, work: Callable[[], tuple[Iterable[Path], dict[str, Any]]]) -> None:
        """Run a step and note what it wrote and found; what it wrote before and does not write now is removed."""
        before = set(self.steps[name].outputs) if name in self.steps else set()
        self.steps.pop(name, None)
        files, found = work()
        outputs = {str(path.relative_to(self.folder)): self.file_digest(path) for path in files}
        inside = self.folder.resolve()
        for stale in before - set(outputs):
            path = self.folder / stale
            # The schema has refused names that lead outside; a folder that became a link since is not followed.
            if path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(inside):
                path.unlink()
        self.steps[name] = StepRecord(inputs, outputs, found, ran=True)
        self.write()

    def outputs(self, *names: str) -> list[dict[str, str]]:
        """Digests of what some steps wrote."""
        return [self.steps[name].outputs for name in names]


def digest(*parts: Any) -> str:
    """SHA-256 of numbers, text, lists and mappings."""
    text = json.dumps([fivesigma.__version__, *parts], sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest_of(content: dict[str, Any]) -> str:
    return digest({key: value for key, value in content.items() if key not in ("digest", "fivesigma")})


def _plain(value: Any) -> Any:
    if isinstance(value, File):
        return str(value)
    raise TypeError(f"{shortened(repr(value))} has no digest")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}")


def _lock(descriptor: int, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as err:
        raise InputError(f"another run writes to {folder}; wait for it, or choose another folder") from err
    except OSError:  # a file system without locks
        return


def _remove(item: Path) -> None:
    if item.is_dir() and not item.is_symlink():
        shutil.rmtree(item, ignore_errors=True)
    else:
        item.unlink(missing_ok=True)
