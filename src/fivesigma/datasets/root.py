"""ROOT files: TTrees and RNTuples, read by uproot without ROOT."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma.datasets.columns import Kind, some
from fivesigma.datasets.remote import File, RemoteFile
from fivesigma.errors import FivesigmaError, InputError, did_you_mean, shortened

_TREES = ("TTree", "TNtuple", "TNtupleD", "TChain", "ROOT::RNTuple", "ROOT::Experimental::RNTuple")
# C++ types, without std::, that are one number per event.
_NUMBERS = {"float", "double", "bool", "char", "short", "int", "long"}
_NUMBERS |= {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
# How much of a tree is in memory before it is cut down to the wanted types.
_STEP = "50 MB"
_ROWS = 100_000  # likewise, of trees that are read together


class RootTree:
    """One TTree or RNTuple of a ROOT file; ``"nominal + scores"`` joins friends of one file, entry by entry."""

    def __init__(self, path: File, tree: str | None) -> None:
        self.path, self.name = path, path.name
        self._owner: dict[str, str] = {}  # the tree of each branch: the first that has it, as in ROOT
        types: dict[str, str] = {}
        with _open(path) as file:
            trees = _trees_in(file)
            asked = [tree] if tree is None or tree in trees else [part.strip() for part in tree.split(" + ")]
            self.trees = [self._choose(trees, one) for one in asked]
            for name in self.trees:
                found = file[name]
                if "RNTuple" in type(found).__name__:  # its fields can be read by their names, parts of fields cannot
                    own = {str(key): str(found[key].typename) for key in found.keys(recursive=False)}
                else:
                    own = {str(key): str(kind) for key, kind in found.typenames().items()}
                types = own | types
                self._owner = dict.fromkeys(own, name) | self._owner
            sizes = {name: int(file[name].num_entries) for name in self.trees}
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name!r} {size:,}" for name, size in sizes.items())
            raise InputError(f"trees of {self.name} that are read together need as many entries; they have: {listed}")
        self.names = tuple(types)
        self.numbers = tuple(name for name, kind in types.items() if kind.removeprefix("std::") in _NUMBERS)
        self._numbers = frozenset(self.numbers)

    def chunks(self, kinds: Mapping[str, Kind], rows: int | None = None) -> Iterator[dict[str, Any]]:
        """Read the chosen branches piece by piece."""
        several = [name for name, kind in kinds.items() if kind == "raw" and name not in self._numbers]
        own = [(tree, [name for name in kinds if self._owner[name] == tree]) for tree in self.trees]
        own = [(tree, names) for tree, names in own if names] or [(self.trees[0], [])]
        n_rows = 0
        with _open(self.path) as file:
            options = {"step_size": rows or (_STEP if len(own) == 1 else _ROWS), "library": "ak" if several else "np"}
            pieces = (file[tree].iterate(names, **options) for tree, names in own)
            for joined in zip(*pieces, strict=True):
                chunk = {name: piece[name] for piece, (_, names) in zip(joined, own, strict=True) for name in names}
                lengths = {len(column) for column in chunk.values()}
                if len(lengths) > 1:
                    raise InputError(f"branches of {own[0][0]!r} in {self.name} differ in their number of entries")
                n_rows += lengths.pop()
                yield chunk
            n_entries = int(file[own[0][0]].num_entries)
            if n_rows != n_entries:
                raise InputError(f"{self.name} gave {n_rows:,} of the {n_entries:,} entries of its tree")

    def _choose(self, trees: Sequence[str], tree: str | None) -> str:
        listed = ", ".join(map(repr, trees)) or "none"
        if tree is None and len(trees) == 1:
            return trees[0]
        if tree is None:
            say = "choose one with tree= or --tree" if trees else "there is nothing to read"
            raise InputError(f"{self.name} must have one tree, but its trees are: {listed}; {say}")
        if re.sub(r";\d+$", "", tree) not in trees:  # nominal;1 is the first version of nominal
            hint = did_you_mean(tree, trees)
            raise InputError(f"no tree {tree!r} in {self.name}; its trees are: {listed}{hint}")
        return tree


@contextmanager
def _open(path: File) -> Iterator[Any]:
    """Open a file; whatever uproot raises on damaged bytes becomes one sentence."""
    if path.stat().st_size == 0:
        raise InputError(f"{path.name} is empty")
    try:
        with _open_root(path) as file:
            yield file
    except FivesigmaError:
        raise
    except Exception as err:  # damaged bytes can make uproot fail anywhere, with anything
        why = shortened(str(err).strip().splitlines()[0].rstrip(".:"), 200) if str(err).strip() else "no reason given"
        msg = f"cannot read {path.name} as a ROOT file ({type(err).__name__}: {why}); it may be damaged"
        raise InputError(msg) from err


def _open_root(path: File) -> Any:
    return path.open_root() if isinstance(path, RemoteFile) else need("uproot").open({path: None})


def _trees_in(file: Any) -> list[str]:
    return [name for name, kind in file.classnames(recursive=True, cycle=False).items() if kind in _TREES]


def find_trees(path: File) -> list[str]:
    """Names of all trees of a file."""
    with _open(path) as file:
        return _trees_in(file)


def stored_sum(path: File, name: str, process: str) -> float:
    """Sum of weights that a ROOT file stores, as `load_events` says of ``sum_of_weights``."""
    where = f"{path.name} (process {process!r})"
    if not path.name.lower().endswith(".root"):
        raise InputError(f"{where} is not a ROOT file, so it has no histogram {name!r}; give the sum as a number")
    try:
        with _open_root(path) as file:
            classes = file.classnames(recursive=True, cycle=False)
            tree, _, branch = name.rpartition("/")
            if classes.get(tree) in _TREES:
                return _branch_sum(file[tree], branch, f"{name!r} in {where}")
            found, picked = _histogram(name, classes, where)
            return _bin_content(file[found], picked, f"{found!r} in {where}")
    except FivesigmaError:
        raise
    except Exception as err:  # whatever uproot raises
        raise InputError(f"{name!r} in {where} cannot be read as a sum ({type(err).__name__})") from err


def _histogram(name: str, classes: Mapping[str, str], where: str) -> tuple[str, str | None]:
    """The histogram that a name means, and the bin that it picks."""
    histograms = [key for key, kind in classes.items() if kind.startswith(("TH1", "TH2", "TH3", "TProfile"))]
    bracket = re.fullmatch(r"(.+?)\[([^\]]+)\]", name)
    pattern, picked = (name, None) if name in histograms or bracket is None else (bracket[1], bracket[2].strip("'\""))
    found = [key for key in histograms if key == pattern] or fnmatch.filter(histograms, pattern)
    if len(found) > 1:
        raise InputError(f"{pattern!r} matches {some(found)} in {where}; name one of them")
    if not found:
        trees = [key for key, kind in classes.items() if kind in _TREES]
        hint = did_you_mean(pattern, histograms) or f"; its histograms are: {some(histograms) or 'none'}"
        if trees and not histograms:
            hint += f"; a branch of a tree is written as {trees[0]}/BRANCH"
        raise InputError(f"no histogram {pattern!r} in {where}{hint}")
    return found[0], picked


def _bin_content(histogram: Any, picked: str | None, what: str) -> float:
    values = np.asarray(histogram.values())
    labels = list(histogram.axis().labels() or []) if values.ndim == 1 else []
    named = [f"{k} ({label})" for k, label in enumerate(labels)] or [f"0 to {values.size - 1}"]
    if picked is None:
        if values.size != 1:
            raise InputError(f"{what} has {values.size} bins; name one as in 'NAME[1]': {', '.join(named[:12])}")
        return float(values.sum())
    if picked in labels:
        return float(values[labels.index(picked)])
    if values.ndim != 1 or not picked.isdecimal() or int(picked) >= values.size:
        raise InputError(f"{what} has no bin {picked!r}; it has {', '.join(named[:12])}")
    return float(values[int(picked)])


def _branch_sum(tree: Any, name: str, what: str) -> float:
    bracket = re.fullmatch(r"(.+)\[(\d+)\]", name)
    branch, position = (name, None) if bracket is None else (bracket[1], int(bracket[2]))
    names = [str(key) for key in tree.keys()]  # noqa: SIM118 - a tree, not a dict
    if branch not in names:
        raise InputError(f"{what} is not there{did_you_mean(branch, names) or f'; the tree has {some(names)}'}")
    values = tree[branch].array(library="ak")
    if position is not None:
        values = values[:, position]
    if values.ndim != 1:
        raise InputError(f"{what} has several numbers per entry; pick one with '{name}[0]'")
    return float(need("awkward").sum(values))
