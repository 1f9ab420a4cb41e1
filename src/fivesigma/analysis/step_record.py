"""The record of an analysis: which step was done with which inputs, what it found, and how that is said."""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fivesigma
from fivesigma._tools.files import explained, read_text, remove, sha256_of, write_text
from fivesigma._tools.summary import Summary
from fivesigma.analysis.settings import check_schema
from fivesigma.datasets.remote import File, RemoteFile
from fivesigma.errors import InputError, shortened

STEPS = ("read", "train", "score", "categorise", "workspace", "report")
RECORD = "analysis.json"
FOLDERS = ("model", "ntuples", "histograms", "figures", "combine", "hepdata")  # within that of the analysis
_FORMAT, _STORED = 4, ("inputs", "outputs", "found")
_LEFT = re.compile(r"\.(\d+-.+|model-.+|train-.+)")  # what a killed run leaves behind
_MANY = 4  # notes of one kind that become one line


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
            content = json.loads(read_text(path))
            check_schema(content, "record", "the record")
        except (OSError, ValueError, RecursionError) as err:
            why = shortened(str(err), 200)
            raise InputError(f"{path} cannot be read as a record of an analysis: {why}; {advice}") from err
        if content["digest"] != _digest_of(content):
            raise InputError(f"{path} was damaged, or changed by hand, so that nothing of it is quoted; {advice}")
        steps = {name: StepRecord(**content["steps"][name]) for name in STEPS if name in content["steps"]}
        return cls(folder, steps, {name: (a, b, c) for name, (a, b, c) in content["files"].items()})

    def __repr__(self) -> str:
        ran = [f"{name}{'' if step.ran else ' (nothing changed)'}" for name, step in self.steps.items()]
        return f"Record of {self.folder}: {', '.join(ran) or 'no step is done'}"

    def __getitem__(self, step: str) -> dict[str, Any]:
        """What a step found."""
        return self.steps[step].found

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, keep other runs out of it, and remove what a killed one left."""
        with explained(self.folder, "written"):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder, os.O_RDONLY)
        try:
            _lock(lock, self.folder)
            for place in (self.folder, self.folder / "ntuples"):
                for item in place.glob(".*") if place.is_dir() else ():
                    if _LEFT.fullmatch(item.name) and not item.name.startswith(".train-"):
                        remove(item)
            yield
        finally:
            os.close(lock)  # which unlocks

    def write(self) -> None:
        """Write it to the folder."""
        steps = {name: {key: getattr(step, key) for key in _STORED} for name, step in self.steps.items()}
        content = {"format": _FORMAT, "fivesigma": fivesigma.__version__, "steps": steps, "files": self._files}
        content = json.loads(json.dumps(content, allow_nan=False))  # as it is read
        content["digest"] = _digest_of(content)
        write_text(self.folder / RECORD, json.dumps(content, indent=1) + "\n")

    def file_digest(self, path: File) -> str:
        """SHA-256 of a file; one of the same size and time of change is not read again, and a remote one not at all."""
        if isinstance(path, RemoteFile):
            return path.digest()
        with explained(path, "read"):
            stat = path.stat()
            name = str(path.resolve())
            known = self._files.get(name)
            if known is not None and known[:2] == (stat.st_size, stat.st_mtime_ns):
                return known[2]
            found = sha256_of(path)
        self._files[name] = (stat.st_size, stat.st_mtime_ns, found)
        return found

    def is_done(self, name: str, inputs: str) -> bool:
        """Whether a step was done with these inputs, and its files are as it wrote them."""
        step = self.steps.get(name)
        if step is None or step.inputs != inputs:
            return False
        return all(
            path.is_file() and not path.is_symlink() and self.file_digest(path) == noted
            for path, noted in ((self.folder / name, noted) for name, noted in step.outputs.items())
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
    text = json.dumps([fivesigma.__version__, *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest_of(content: dict[str, Any]) -> str:
    return digest({key: value for key, value in content.items() if key not in ("digest", "fivesigma")})


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


def lines(step: str, record: Record, what: str, blind: Sequence[str]) -> list[str]:
    """Describe what a step found; `what` is quoted, and `blind` are the regions whose data are hidden."""
    found, folder = record[step], record.folder
    notes = [f"note: {note}" for note in condensed(found.get("notes", []))]
    if step == "read":
        hidden = [f"data in region {region!r} are blinded" for region in blind]
        rows = [(r["region"], r["sample"], f"{r['entries']:,}", f"{r['yield']:,.6g}", f"{r['effective']:,.1f}")
                for r in found["yields"]]  # fmt: skip
        table = Summary("", ("region", "sample", "entries", "yield", "effective"), rows)
        return [*found["normalisation"], table.text(), *hidden, *notes]
    if step == "train":
        return [*found["model"], *notes]
    if step == "categorise":
        quoted, seen, other = found["cross_fitted"], found["in_sample"][what], found["plain"]
        path = " -> ".join(f"{value:.3f} ({name})" for name, value in quoted["waterfall"])
        together = found["all_regions"]
        out = [*notes]
        for name, edges in found["edges"].items():
            where = f" of {name}" if len(found["edges"]) > 1 else ""
            out.append(f"edges{where} {', '.join(f'{edge:.4g}' for edge in edges)}")
        how = "in the given edges" if quoted == found["in_sample"] else f"by cross-fitted edges ({seen:.3f} in sample)"
        out.append(f"expected {what} {quoted[what]:.3f} {how}: {path}")
        if other is not None:
            out.append(f"with the plain score {other[what]:.3f} by cross-fitted edges of its own")
        seen_too = "" if quoted == found["in_sample"] else f" ({together['in_sample']:.3f} in sample)"
        return [*out, f"with all regions {together['cross_fitted']:.3f}{seen_too}"]
    if step == "score":
        return [f"ntuples in {folder / 'ntuples'}"]
    if step == "workspace":
        expected = ", ".join(found["expected_data"])
        fit = f"mu = {found['mu']:.3f} +- {found['error']:.3f}, expected {what} {found[what]:.3f}"
        return [
            *notes,
            *([f"expected data in {expected}"] if expected else []),
            f"{fit} (all regions); workspace in {folder / 'workspace.json'}",
            same_bins(record["categorise"]),
        ]
    pages = [name for name in record.steps[step].outputs if name.endswith(".html")]
    return [*notes, *(f"report in {folder / name}" for name in pages)]


def warned(work: Callable[..., Any], *args: Any, **options: Any) -> list[str]:
    """Do something, and give its warnings as notes."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        work(*args, **options)
    return [str(one.message) for one in heard]


def condensed(notes: Sequence[str]) -> list[str]:
    """Notes, of which many of one kind are one line; they are of one kind if only names and numbers differ.

    Examples
    --------
    >>> condensed([f"systematic 'sf{k}' moves no background" for k in range(30)])
    ["systematic 'sf0' moves no background (and 29 more like this, in analysis.json)"]
    """
    kinds: dict[str, list[str]] = {}
    for note in notes:
        note_of_bins = re.sub(r"bins? \d+(, \d+)*| \(\d+ templates\)$", "", note)
        kind = re.sub(r"^\S+ (up|down)\b|^[^ /]+/[^:]+?(?=:| has )|'[^']*'|[-+]?\d[\d.,e+-]*", "*", note_of_bins)
        kinds.setdefault(kind, []).append(note)
    return [
        line
        for same in kinds.values()
        for line in (
            same if len(same) < _MANY else [f"{same[0]} (and {len(same) - 1} more like this, in analysis.json)"]
        )
    ]


def same_bins(categorise: dict[str, Any]) -> str:
    """How our expectation compares with that of the fit."""
    ours = categorise["all_regions"]
    return (
        f"for the same bins we have {ours['in_sample']:.3f}, and {ours['as_pyhf']:.3f} with pyhf's one statistical "
        "factor for signal and background of a bin, whose relative error is that of their sum"
    )
