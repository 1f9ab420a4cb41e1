"""Damage event files in every way and load them: only fivesigma's own errors may come out.

Run it by hand with ``python -m benchmarks.robustness.fuzz_loaders --cases 2400``.
"""

from __future__ import annotations

import argparse
import gzip
import io
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fivesigma._tools.extras import need
from fivesigma.datasets import load_events, make_htautau, write_events
from fivesigma.errors import FivesigmaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SLOWEST = 30  # seconds; longer is a hang
WORDS = [b"nan", b"", b"abc", b"-1e999", b"1e39", b'"', b"\xff\xfe", b"\r", b",,,", b"s", b"\x00", b"9" * 40]


def whole_files(folder: Path, n_events: int = 150) -> dict[str, bytes]:
    """One good file of each format, as bytes."""
    events = make_htautau(n_events)
    files = {}
    for ending in (".csv", ".parquet", ".root"):
        files[ending] = write_events(events, folder / f"whole{ending}").read_bytes()
    files[".csv.gz"] = gzip.compress(files[".csv"])
    files[".csv.zst"] = bytes(need("cramjam").zstd.compress(files[".csv"]))
    arrays = {"x": events.X[:, 0], "Weight": events.weight, "Label": events.is_signal}
    target = folder / "ntuple.root"
    with need("uproot").recreate(target) as root:
        root.mkrntuple("events", arrays)
    files[".ntuple.root"] = target.read_bytes()
    return files


def cut_short(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def flip(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 2, 5, 40))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def overwrite(rng: random.Random, data: bytes) -> bytes:
    start, size = rng.randrange(len(data)), rng.choice((1, 4, 8, 200))
    block = rng.choice((b"\0" * size, b"\xff" * size, rng.randbytes(size)))
    return data[:start] + block + data[start + size :]


def remove(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.choice((1, 3, 30, 3000)) :]


def repeat(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data))
    end = start + rng.choice((1, 10, 500))
    return data[:end] + data[start:]


def spoil_cell(rng: random.Random, data: bytes) -> bytes:
    """Put a strange word into a cell of the text, if it is text."""
    rows = data.split(b"\n")
    i = rng.randrange(len(rows))
    cells = rows[i].split(b",")
    cells[rng.randrange(len(cells))] = rng.choice(WORDS)
    rows[i] = b",".join(cells)
    return b"\n".join(rows)


DAMAGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    cut_short,
    flip,
    overwrite,
    remove,
    repeat,
    spoil_cell,
)


def damaged(rng: random.Random, ending: str, whole: dict[str, bytes]) -> bytes:
    """One to three damages in a row; those of text may be inside the compression."""
    data = whole[ending]
    inside = ending == ".csv.gz" and rng.random() < 0.5
    data = whole[".csv"] if inside else data
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if data:
            data = rng.choice(DAMAGES)(rng, data)
    return gzip.compress(data) if inside else data


@contextmanager
def no_longer_than(seconds: int) -> Iterator[None]:
    def too_long(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(path: Path) -> str:
    """Load a file: "loaded", "refused", or the traceback of anything else."""
    try:
        with no_longer_than(SLOWEST):
            repr(load_events(path))
    except FivesigmaError as err:
        return "refused" if "\n" not in str(err) else f"more than one line: {err}"
    except KeyboardInterrupt:
        raise
    except BaseException:  # a panic of polars is no Exception
        return traceback.format_exc()
    return "loaded"


def run(n_cases: int, seed: int, folder: Path) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Try `n_cases` damaged files; count the outcomes, and keep what should not have come out."""
    whole = whole_files(folder)
    counts: Counter[tuple[str, str]] = Counter()
    surprises = []
    for case in range(n_cases):
        rng = random.Random(f"{seed}-{case}")  # so that one case can be repeated alone
        ending = sorted(whole)[case % len(whole)]
        path = folder / f"damaged{ending}"
        path.write_bytes(damaged(rng, ending, whole))
        result = outcome(path)
        if result not in ("loaded", "refused"):
            surprises.append(f"case {seed}-{case} ({ending}): {result}")
            result = "SURPRISE"
        counts[ending, result] += 1
    return counts, surprises


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        counts, surprises = run(arguments.cases, arguments.seed, Path(folder))
    report = io.StringIO()
    for (ending, result), count in sorted(counts.items()):
        report.write(f"{ending:14} {result:10} {count:6,}\n")
    print(report.getvalue(), *surprises, sep="\n")
    print(f"{arguments.cases:,} cases in {time.perf_counter() - start:.0f} s, {len(surprises)} surprises")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
