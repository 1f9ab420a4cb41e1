"""From what a user calls events to the files that hold them: patterns, trees, processes and their normalisation."""

from __future__ import annotations

import filecmp
import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fivesigma._tools.files import DIGEST, check_digest, explained
from fivesigma.datasets.columns import BY_PROCESS, Columns, Kind, Source, require
from fivesigma.datasets.remote import File, RemoteFile, find_remote, is_remote
from fivesigma.datasets.root import RootTree, stored_sum
from fivesigma.datasets.tables import CsvFile, ParquetFile
from fivesigma.errors import InputError, did_you_mean, is_number, require_known

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_ENDINGS = (".csv", ".csv.gz", ".csv.zst", ".parquet", ".root")


class Target(NamedTuple):
    """A file, and the tree in it that its name asks for."""

    path: File
    tree: str | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.path.name

    def state(self) -> tuple[Any, ...]:
        """What the system says of the file, by which a change is noticed."""
        with explained(self.path, "read"):
            found = self.path.stat()
        return found.st_size, found.st_mtime_ns, found.st_ino

    def open(self, tree: str | None = None) -> Source:
        """Open the file; its digest is checked if there is one."""
        tree = self.tree or tree
        ending = next(ending for ending in _ENDINGS if self.name.lower().endswith(ending))
        if isinstance(self.path, Path):
            check_digest(self.path)
        try:
            if ending == ".root":
                return RootTree(self.path, tree)
            if self.tree is not None:
                raise InputError(f"{self.name} is not a ROOT file, so it has no tree {self.tree!r}")
            path = self.path.copy() if isinstance(self.path, RemoteFile) else self.path
            return ParquetFile(path) if ending == ".parquet" else CsvFile(path)
        except PermissionError as err:
            raise InputError(f"{self.path} may not be read by this user") from err


class Input(NamedTuple):
    """Events of a file or in memory: the tree of a file that names none, columns in place of others, and a process."""

    target: Target | Source
    tree: str | None = None
    varied: Mapping[str, str] = {}
    process: str | None = None
    factor: float = 1.0

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.target.name

    def open(self) -> Source:
        """Open the file."""
        source = self.target.open(self.tree) if isinstance(self.target, Target) else self.target
        return Renamed(source, self.varied) if self.varied else source

    def state(self) -> tuple[Any, ...]:
        """What tells that a file has changed, its size first."""
        return self.target.state() if isinstance(self.target, Target) else ()

    def absolute(self) -> Input:
        """The same for a process in another folder."""
        if not isinstance(self.target, Target):
            return self
        return self._replace(target=self.target._replace(path=self.target.path.absolute()))


class Renamed:
    """A source in which some columns stand for others, as `load_events` says of ``varied``."""

    def __init__(self, source: Source, varied: Mapping[str, str]) -> None:
        self._source = source
        self._new = {old: new for pattern in varied.items() for old, new in counterparts(source, *pattern)}
        self.name, self.names, self.numbers = source.name, source.names, source.numbers

    def chunks(self, kinds: Mapping[str, Kind], rows: int | None = None) -> Iterator[dict[str, Any]]:
        """Read the columns under the names of those that they stand for."""
        # Two names may want one column, as when a replaced one and its replacement are both used.
        wanted: dict[str, Kind] = {}
        for name, kind in kinds.items():
            real = self._new.get(name, name)
            wanted[real] = "raw" if wanted.get(real, kind) != kind else kind
        for chunk in self._source.chunks(wanted, rows):
            yield {name: chunk[self._new.get(name, name)] for name in kinds}


def counterparts(source: Source, old: str, new: str) -> list[tuple[str, str]]:
    """Names that a variation changes, and what is read in their place."""
    if "*" not in old:
        require(old, source)
        require(new, source)
        return [(old, new)]
    if old.count("*") != new.count("*"):
        raise InputError(f"varied={{{old!r}: {new!r}}} needs as many * on both sides")
    pattern, there = re.compile(re.escape(old).replace(r"\*", "(.*)")), frozenset(source.names)
    found = []
    for name in source.names:
        match = pattern.fullmatch(name)
        if match is not None:
            parts = iter(match.groups())
            other = "".join(next(parts) if piece == "*" else piece for piece in re.split(r"(\*)", new))
            found += [(name, other)] if other in there else []
    if not found:
        raise InputError(f"no column of {source.name} that matches {old!r} has a counterpart {new!r}")
    return found


def find_inputs(path: Paths | Mapping[str, Paths], columns: Columns) -> tuple[list[Input], Columns, list[str]]:
    """Find the files that a user means; none is read yet, but for sums of weights.

    Columns are as asked for; without label and process, and with the factors, where files say what an event is. Notes
    say how each process was normalised.
    """
    if isinstance(path, Mapping):
        return _find_processes(path, columns)
    if columns.luminosity is not None or columns.cross_section or columns.sum_of_weights:
        raise InputError("luminosity, cross_section and sum_of_weights belong to processes; give {process: files}")
    targets = find_targets(path)
    if columns.tree is not None and not all(target.name.lower().endswith(".root") for target in targets):
        other = next(target.name for target in targets if not target.name.lower().endswith(".root"))
        raise InputError(f"a tree is chosen within ROOT files, but {other} is not one")
    if not targets:
        raise InputError("there is no file to read")
    return [Input(target, columns.tree, columns.varied) for target in targets], columns, []


def _find_processes(paths: Mapping[str, Paths], columns: Columns) -> tuple[list[Input], Columns, list[str]]:
    """Find files whose processes are known."""
    if not paths:
        raise InputError("there is no process to read")
    if columns.signal is None:
        raise InputError("name the processes that are signal with signal= or --signal")
    signals = (columns.signal,) if isinstance(columns.signal, str) else tuple(columns.signal)
    given = {"signal": signals, "cross_section": columns.cross_section, "sum_of_weights": columns.sum_of_weights}
    several = {name: getattr(columns, name) for name in BY_PROCESS if isinstance(getattr(columns, name), Mapping)}
    given |= several
    for kind, names in given.items():
        for name in names:
            require_known(name, paths, f"{kind} names the process {name!r}, which has no files")
    for kind, texts in several.items():
        for name in (name for name in paths if name not in texts):
            raise InputError(f"{kind} has no entry for process {name!r}; give one, or None for no {kind}")
    _refuse_unnormalised(list(paths), columns)
    inputs: list[Input] = []
    targets: list[Target] = []
    notes: list[str] = []
    factors: dict[str, float] = {}
    for process, path in paths.items():
        try:
            own = find_targets(path)
        except InputError as err:
            raise InputError(f"{err} (process {process!r})") from err
        if not own:
            raise InputError(f"process {process!r} has no file to read")
        found = normalise(process, own, columns)
        factors[process] = found.factor
        notes += [] if found.sentence is None else [found.sentence]
        inputs += [Input(target, columns.tree, columns.varied, process, found.factor) for target in own]
        targets += own
    notes += [
        f"{inputs[first].name} is read for {inputs[first].process} and again for {inputs[second].process}: its events "
        "count for both."
        for first, second in _copies(targets)
    ]
    return inputs, replace(columns, label=None, process=None, signal=signals, factors=factors), notes


class Normalised(NamedTuple):
    """The factor of a process's weights, and how it was found; no sentence where weights are as they stand."""

    factor: float
    sentence: str | None = None


def normalise(process: str, files: Sequence[Target], columns: Columns) -> Normalised:
    """Factor of the weights of a process: 1000 x luminosity x cross section / sum of weights, or one."""
    luminosity, cross_section = columns.luminosity, columns.cross_section.get(process)
    asked = columns.sum_of_weights.get(process)
    if cross_section is None:
        if asked is not None:
            raise InputError(f"process {process!r} has a sum of weights and no cross section; give both or neither")
        return Normalised(1.0, f"{process}: weights as they stand." if columns.cross_section else None)
    if luminosity is None:
        raise InputError(f"process {process!r} has a cross section, which needs a luminosity (in 1/fb)")
    if asked is None:
        raise InputError(f"process {process!r} has a cross section, which needs a sum of weights")
    total: Any = asked
    said = ""
    if isinstance(asked, str):
        total = sum(stored_sum(target.path, asked, process) for target in files)
        said = f" ({asked}, {len(files)} file{'s' * (len(files) != 1)})"
    for name, value in (("luminosity", luminosity), ("cross section", cross_section), ("sum of weights", total)):
        if not is_number(value) or not np.isfinite(value) or value <= 0:
            raise InputError(f"the {name} of process {process!r} must be a positive number, got {value!r}")
    factor = 1000.0 * float(luminosity) * float(cross_section) / float(total)
    parts = f"1000 x {luminosity:g}/fb x {cross_section:g} pb / {float(total):.8g}{said}"
    return Normalised(factor, f"{process}: weights x {factor:.6g} = {parts}.")


def _refuse_unnormalised(processes: Sequence[str], columns: Columns) -> None:
    """Refuse a luminosity that nothing uses, and a process whose cross section was forgotten."""
    known = [name for name in processes if columns.cross_section.get(name) is not None]
    if columns.luminosity is not None and not known:
        raise InputError("a luminosity is given and no cross section, so that it would change nothing; leave it out")
    forgotten = [name for name in processes if name not in columns.cross_section]
    if known and forgotten:
        raise InputError(
            f"process {forgotten[0]!r} has no cross section, while {known[0]!r} has one: give it one, or None if its "
            f"weights are expected yields already (cross_section={{{forgotten[0]!r}: None}})"
        )


def find_targets(path: Paths) -> list[Target]:
    """All files that a path, a pattern or a list of them means, each of a known kind and each once."""
    found = list(_targets(path))
    for first, second in _copies(found):
        one, two = found[first].path, found[second].path
        how = "given twice" if one == two else f"the same as {two}"
        raise InputError(f"{one} is {how}, so that its events would count twice; leave one of them out")
    return found


def _targets(path: Paths) -> Iterator[Target]:
    if not isinstance(path, str | os.PathLike):
        for item in path:
            yield from _targets(item)
        return
    text = os.path.expandvars(path if is_remote(str(path)) else Path(path).expanduser())
    name, mark, tree = str(text).rpartition(".root:")
    file = f"{name}.root" if mark else str(text)
    found: Sequence[File] = find_remote(file) if is_remote(file) else _matching(Path(file))
    for each in found:
        if not each.name.lower().endswith(_ENDINGS):
            raise InputError(f"{each.name} ends in none of {', '.join(_ENDINGS)}, so its format is unknown")
        yield Target(each, tree if mark else None)


def _matching(file: Path) -> list[Path]:
    """Files that a name or a pattern means."""
    try:
        file.exists()
    except OSError as err:  # a name that is too long, a folder that may not be entered
        raise InputError(f"{file} cannot be looked up: {err.strerror}") from err
    if file.is_dir():
        raise InputError(f"{file} is a folder: name its files, for example '{file / '*.parquet'}'")
    found = [file]
    if not file.exists():
        if not glob.has_magic(str(file)):
            nearby = [item.name for item in file.parent.glob("*")] if file.parent.is_dir() else []
            raise InputError(f"there is no file {file}{did_you_mean(file.name, nearby)}")
        found = [Path(name) for name in sorted(glob.glob(str(file), recursive=True))]  # noqa: PTH207 - absolute too
        found = [item for item in found if not item.name.endswith(DIGEST)]
        if "**" in str(file):  # which matches every folder on the way
            found = [item for item in found if not item.is_dir() or item.name.lower().endswith(_ENDINGS)]
    if not found:
        raise InputError(f"no file matches {str(file)!r}")
    for item in found:
        if not item.is_file():
            kind = "a folder" if item.is_dir() else "a link to nothing" if item.is_symlink() else "no plain file"
            raise InputError(f"{item} is {kind}, so that its events would be missing: name the files one by one")
    return found


def _copies(targets: Sequence[Target]) -> Iterator[tuple[int, int]]:
    """Positions of pairs of files with the same content, of which the same tree is read."""
    # Size and first bytes tell most files apart before any is read as a whole; remote ones are not read for that.
    for group in _group(range(len(targets)), lambda at: (targets[at].tree, targets[at].path.stat().st_size)):
        for first, *others in _group(group, lambda at: _first_bytes(targets[at].path)):
            for other in others:
                one, two = targets[first].path, targets[other].path
                local = isinstance(one, Path) and isinstance(two, Path)
                if not local or filecmp.cmp(one, two, shallow=False):  # type: ignore[arg-type]
                    yield first, other


def _group(positions: Iterable[int], key: Callable[[int], Any]) -> list[list[int]]:
    """Positions with the same key, where there are several."""
    groups: dict[Any, list[int]] = {}
    for at in positions:
        groups.setdefault(key(at), []).append(at)
    return [group for group in groups.values() if len(group) > 1]


def _first_bytes(path: File, size: int = 1 << 16) -> bytes:
    if isinstance(path, RemoteFile):
        return path.read(0, min(size, path.stat().st_size))
    with explained(path, "read"), path.open("rb") as file:
        return file.read(size)
