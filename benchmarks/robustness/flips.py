"""Files that we wrote, with one bit flipped: how many are refused, and how many are read as other numbers.

``python -m benchmarks.robustness.flips 500`` prints the counts by format. Events, scores and categories are read
with the digest
that is written beside every file, and without it, which is all that a foreign file has. Models and checkpoints have
their digests inside; a bit is flipped in any of their files.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma import GrownCascadeClassifier, ScoreCategories, ScoredEvents, categorise_scores, load, save
from fivesigma._tools.files import DIGEST, digest_path
from fivesigma.datasets import Events, load_events, make_htautau, write_events
from fivesigma.datasets.write import write_trees
from fivesigma.errors import InputError
from fivesigma.higgsml import write_simulated

FORMATS = ("csv", "csv.gz", "parquet", "root", "scores.csv", "scores.parquet", "scores.root")
FOLDERS = ("model", "model.zip", "checkpoint", "categories.zip")


def flips(kind: str, n: int, folder: Path, *, digest: bool) -> Counter[str]:
    """Flip one bit at a time.

    Parameters
    ----------
    kind : str
        One of `FORMATS` or `FOLDERS`.
    n : int
        Flips, at places that a fixed seed chooses.
    folder : Path
        Where the file is.
    digest : bool
        Whether the digest beside it is left there.

    Returns
    -------
    Counter
        Of "refused", "same" and "other numbers"; and of "foreign error", an error that is not ours.
    """
    path, read = _written(kind, folder)
    if not digest:
        digest_path(path).unlink(missing_ok=True)
    right = read(path)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    whole = {file: file.read_bytes() for file in files if file.is_file() and not file.name.endswith(DIGEST)}
    chooser, counts = random.Random(7), Counter[str]()
    for _ in range(n):
        place = chooser.randrange(sum(map(len, whole.values())))
        for file, content in whole.items():
            damaged = bytearray(content)
            if 0 <= place < len(damaged):
                damaged[place] ^= 1 << chooser.randrange(8)
            place -= len(damaged)
            file.write_bytes(damaged)
        try:
            found = read(path)
        except InputError:
            counts["refused"] += 1
        except Exception:
            counts["foreign error"] += 1
        else:
            counts["same" if _alike(found, right) else "other numbers"] += 1
    for file, content in whole.items():
        file.write_bytes(content)
    return counts


def _written(kind: str, folder: Path) -> tuple[Path, Callable[[Path], list[Any]]]:
    events = make_htautau(300, random_state=3)
    if kind in FOLDERS:
        events = make_htautau(1_000, random_state=3)  # so many that no warning of few is given
        model = GrownCascadeClassifier(n_trees=3, b_reg=10, random_state=0, n_jobs=1)
        if kind == "categories.zip":
            return save(_categories(events), folder / kind), lambda path: [np.array(repr(load(path)))]
        if kind == "checkpoint":
            model.set_params(checkpoint=folder / kind, checkpoint_every=1).fit(events)
            return folder / kind, lambda _: [model.fit(events).predict_proba(events)]
        return save(model.fit(events), folder / kind), lambda path: [load(path).predict_proba(events)]
    if kind == "scores.root":
        columns = {"score": events.weight, "id": np.arange(len(events))}
        return write_trees(folder / kind, [("scores", columns)]), _scores_of_root
    if kind.startswith("scores"):
        scored = ScoredEvents(np.nan_to_num(events.X[:, 0]), events.is_signal, events.weight, ids=events.ids)
        return scored.write(folder / kind), _scores
    if kind == "csv.gz":
        return write_simulated(folder / f"events.{kind}", 1000), _simulated
    return write_events(events, folder / f"events.{kind}"), _events


def _categories(events: Events) -> ScoreCategories:
    rng, code = np.random.default_rng(0), np.arange(len(events)) % 3
    scores = np.exp(rng.normal(size=(code.size, 3)) + 1.5 * np.eye(3)[code])
    names = np.array(["A", "B", "other"])
    shares = scores / scores.sum(axis=1, keepdims=True)
    return categorise_scores(shares, names[code], np.ones(code.size), 2, signals=["A", "B"], processes=[*names])


def _events(path: Path) -> list[Any]:
    events: Events = load_events(path, process="Process")
    return [events.X, events.weight, events.y, events.ids, events.process]


def _simulated(path: Path) -> list[Any]:
    events = load_events(path, features=["DER_*", "PRI_*"])
    return [events.X, events.weight, events.y, events.ids]


def _scores_of_root(path: Path) -> list[Any]:
    events = load_events(path, label=None, weight=None, features=["score"], ids="id")
    return [events.X, events.ids]


def _scores(path: Path) -> list[Any]:
    scored = ScoredEvents.read(path, signal=1)
    return [scored.score, scored.signal, scored.weight, scored.ids]


def _alike(found: list[Any], right: list[Any]) -> bool:
    return all(
        a.shape == b.shape and np.array_equal(a, b, equal_nan=b.dtype.kind == "f")
        for a, b in zip(found, right, strict=True)
    )


def main(n: int) -> None:
    """Print a table."""
    columns = ("refused", "same", "other numbers", "foreign error")
    print(f"{'format':>16} {'digest':>7} " + " ".join(f"{name:>14}" for name in columns))
    with tempfile.TemporaryDirectory() as folder:
        for kind in (*FORMATS, *FOLDERS):
            for digest in (True, False) if kind in FORMATS else (True,):
                counts = flips(kind, n, Path(folder), digest=digest)
                print(f"{kind:>16} {digest!s:>7} " + " ".join(f"{counts[name]:>14}" for name in columns), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
