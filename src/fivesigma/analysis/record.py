"""The record of an analysis: which step was done with which inputs, and what it found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fivesigma
from fivesigma._tools.files import written_whole
from fivesigma.errors import InputError, shortened

__all__ = ["STEPS", "Record", "Step", "digest"]

STEPS = ("read", "train", "categorise", "score", "workspace", "report")
RECORD = "analysis.json"
_FORMAT = 1


@dataclass
class Step:
    """One step.

    Attributes
    ----------
    inputs : str
        Digest of all that it depends on.
    outputs : dict of str to str
        Digests of the files that it wrote, by name within the folder.
    found : dict
        Its results: numbers, lists and text.
    ran : bool
        Whether it ran this time; False if nothing had changed.
    """

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
    steps : dict of str to Step
        By name, those that are done.
    """

    folder: Path
    steps: dict[str, Step] = field(default_factory=dict)
    _files: dict[str, tuple[int, int, str]] = field(default_factory=dict)

    @classmethod
    def opened(cls, folder: Path) -> Record:
        """The record of a folder, a new one if there is none."""
        path = folder / RECORD
        if not path.exists():
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise InputError(f"{folder} is there and holds no analysis; choose another name")
            return cls(folder)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != _FORMAT:
                raise InputError(f"{path} has the format {content['format']}, not {_FORMAT}; remove the folder")
            steps = {name: Step(**content["steps"][name]) for name in STEPS if name in content["steps"]}
            files = {name: (int(a), int(b), str(c)) for name, (a, b, c) in content["files"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as err:
            if isinstance(err, InputError):
                raise
            raise InputError(f"{path} cannot be read as a record of an analysis; remove it to start anew") from err
        return cls(folder, steps, files)

    def __repr__(self) -> str:
        ran = [f"{name}{'' if step.ran else ' (nothing changed)'}" for name, step in self.steps.items()]
        return f"Record of {self.folder}: {', '.join(ran) or 'no step is done'}"

    def __getitem__(self, step: str) -> dict[str, Any]:
        """What a step found."""
        if step not in self.steps:
            raise KeyError(step)
        return self.steps[step].found

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
        with written_whole(self.folder / RECORD) as beside:
            beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def file_digest(self, path: Path) -> str:
        """SHA-256 of a file; one of the same size and time of change is not read again."""
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
        return all(path.is_file() and self.file_digest(path) == noted for path, noted in paths.items())

    def run(self, name: str, inputs: str, work: Callable[[], tuple[Iterable[Path], dict[str, Any]]]) -> None:
        """Run a step and note what it wrote and found; what it wrote before and does not write now is removed."""
        before = set(self.steps[name].outputs) if name in self.steps else set()
        self.steps.pop(name, None)
        files, found = work()
        outputs = {str(path.relative_to(self.folder)): self.file_digest(path) for path in files}
        for stale in before - set(outputs):
            (self.folder / stale).unlink(missing_ok=True)
        self.steps[name] = Step(inputs, outputs, found, ran=True)
        self.write()

    def outputs(self, *names: str) -> list[dict[str, str]]:
        """Digests of what some steps wrote."""
        return [self.steps[name].outputs for name in names]


def digest(*parts: Any) -> str:
    """SHA-256 of numbers, text, lists and mappings."""
    text = json.dumps([fivesigma.__version__, *parts], sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{shortened(repr(value))} has no digest")
