"""Files that we wrote, with one bit flipped: how many are refused, and how many are read as other numbers.

``python -m benchmarks.flips 500`` prints the counts by format: with the digest that is written beside every file, and
without it, which is all that a foreign file has.
"""

from __future__ import annotations

import gzip
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma import ScoredEvents
from fivesigma._files import digest_path
from fivesigma.datasets import Events, load_events, make_htautau, write_events
from fivesigma.errors import InputError

FORMATS = ("csv", "csv.gz", "parquet", "root", "scores.csv", "scores.parquet")


def flips(ending: str, n: int, folder: Path, *, digest: bool) -> Counter[str]:
    """Flip one bit at a time.

    Parameters
    ----------
    ending : str
        One of `FORMATS`.
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
    path, read = _written(ending, folder)
    if not digest:
        digest_path(path).unlink(missing_ok=True)
    whole, right = path.read_bytes(), read(path)
    chooser, counts = random.Random(7), Counter[str]()
    for _ in range(n):
        damaged = bytearray(whole)
        damaged[chooser.randrange(len(whole))] ^= 1 << chooser.randrange(8)
        path.write_bytes(damaged)
        try:
            found = read(path)
        except InputError:
            counts["refused"] += 1
        except Exception:
            counts["foreign error"] += 1
        else:
            counts["same" if _alike(found, right) else "other numbers"] += 1
    path.write_bytes(whole)
    return counts


def _written(ending: str, folder: Path) -> tuple[Path, Callable[[Path], list[Any]]]:
    events = make_htautau(300, random_state=3)
    if ending.startswith("scores"):
        scored = ScoredEvents(np.nan_to_num(events.X[:, 0]), events.is_signal, events.weight, ids=events.ids)
        return scored.write(folder / ending), _scores
    if ending != "csv.gz":
        return write_events(events, folder / f"events.{ending}"), _events
    plain = write_events(events, folder / "plain.csv")  # we write no gzip; it has a checksum of its own
    path = folder / "events.csv.gz"
    path.write_bytes(gzip.compress(plain.read_bytes()))
    return path, _events


def _events(path: Path) -> list[Any]:
    events: Events = load_events(path, process="Process")
    return [events.X, events.weight, events.y, events.ids, events.process]


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
        for ending in FORMATS:
            for digest in (True, False):
                if digest and ending == "csv.gz":
                    continue
                counts = flips(ending, n, Path(folder), digest=digest)
                print(f"{ending:>16} {digest!s:>7} " + " ".join(f"{counts[name]:>14}" for name in columns), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
