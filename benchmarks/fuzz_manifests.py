"""Damage saved models in every way and load them: only fivesigma's own errors may come out.

Run it by hand with ``python -m benchmarks.fuzz_manifests --cases 2400``.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.fuzz_loaders import SLOWEST, cut_short, flip, no_longer_than, overwrite, remove, repeat
from fivesigma import CascadeClassifier, CascadePool, GrownCascadeClassifier, load, save
from fivesigma.errors import FivesigmaError
from fivesigma.store.manifest import render

Json = Any
STRANGE: tuple[Json, ...] = (
    *(None, True, False, 0, -1, 1 << 70, 0.5, 1e308, "", "nan", "part-000.ubj", "../x", "\ud800", [], [[]], {}),
    *({"$": "tuple"}, {"$": "number", "value": "inf"}, {"$": []}, {"": {}}, [None] * 50),
    {"$": "array", "dtype": "<f8", "shape": [0], "data": []},
)


def whole_models(folder: Path) -> list[Path]:
    """Save one good model of each kind, as folders and as a zip."""
    rng = np.random.default_rng(0)
    y = np.repeat([1, 0], 400)
    X = rng.normal(size=(800, 3)) + y[:, None]
    shared: dict[str, Any] = {"random_state": 0, "n_jobs": 1}
    xgboost = GrownCascadeClassifier(n_trees=3, b_reg=5.0, **shared).fit(X, y)
    lightgbm = GrownCascadeClassifier("lightgbm", n_trees=3, cv=2, **shared).fit(X, y)
    sklearn = CascadeClassifier(LogisticRegression(), max_rounds=2, **shared).fit(X, y)
    members = [("grown", GrownCascadeClassifier(n_trees=3)), ("plain", CascadeClassifier(LogisticRegression()))]
    pool = CascadePool(members, **shared).fit(X, y)
    return [
        save(pool, folder / "pool"),
        save(xgboost, folder / "xgboost"),
        save(lightgbm, folder / "lightgbm"),
        save(sklearn, folder / "sklearn"),
        save(xgboost, folder / "xgboost.zip"),
    ]


def places(value: Json) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found.append((value, key))
        found.extend(places(item))
    return found


def damage_value(rng: random.Random, manifest: dict[str, Json]) -> None:
    """Put something strange at a random place, or take the place away, or move its content elsewhere."""
    container, key = rng.choice(places(manifest))
    what = rng.randrange(4)
    if what == 0:
        del container[key]
    elif what == 1 and isinstance(container, dict):
        container[rng.choice(("$", "extra_", "__class__", "file"))] = container.pop(key)
    elif what == 2:
        other, other_key = rng.choice(places(manifest))
        container[key] = json.loads(json.dumps(other[other_key]))
    else:
        container[key] = json.loads(json.dumps(rng.choice(STRANGE)))


def forge(rng: random.Random, path: Path) -> None:
    """Damage the values of a manifest and give it a right digest, so that the checks behind the digest are reached."""
    file = path / "manifest.json"
    manifest = json.loads(file.read_bytes())
    for _ in range(rng.choice((1, 1, 2, 5))):
        damage_value(rng, manifest)
    file.write_bytes(render(manifest))


def damage_bytes(rng: random.Random, path: Path) -> None:
    """Damage the bytes of one file; hashes stay as they were."""
    file = path if path.is_file() else rng.choice(sorted(path.iterdir()))
    file.write_bytes(rng.choice((cut_short, flip, overwrite, remove, repeat))(rng, file.read_bytes()))


def damage_files(rng: random.Random, path: Path) -> None:
    """Remove, rename, add or swap files."""
    if path.is_file():
        with zipfile.ZipFile(path, "a") as file:
            file.writestr(rng.choice(("../out", "/out", "extra.txt", "a/b", "")) or "x" * 200, rng.randbytes(10))
        return
    victim = rng.choice(sorted(path.iterdir()))
    what = rng.randrange(4)
    if what == 0:
        victim.unlink()
    elif what == 1:
        victim.rename(path / rng.choice(("part-009.ubj", "Manifest.JSON", "ä")))
    elif what == 2:
        (path / rng.choice(("extra", "part-099.ubj", ".hidden"))).mkdir()
    else:
        target = path.parent / "outside"
        victim.replace(target)
        victim.symlink_to(target)


def outcome(path: Path) -> str:
    """Load a model: "loaded", "refused", or the traceback of anything else."""
    try:
        with no_longer_than(SLOWEST):
            repr(load(path))
    except FivesigmaError as err:
        return "refused" if "\n" not in str(err) else f"more than one line: {err}"
    except KeyboardInterrupt:
        raise
    except BaseException:
        return traceback.format_exc()
    return "loaded"


def run(n_cases: int, seed: int, folder: Path) -> tuple[Counter[str], list[str]]:
    """Try `n_cases` damaged models; count the outcomes, and keep what should not have come out."""
    models = whole_models(folder)
    counts: Counter[str] = Counter()
    surprises = []
    for case in range(n_cases):
        rng = random.Random(f"{seed}-{case}")  # so that one case can be repeated alone
        whole = models[case % len(models)]
        path = folder / "case" / whole.name
        path.parent.mkdir()
        if whole.is_dir():
            shutil.copytree(whole, path)
        else:
            shutil.copy(whole, path)
        damage = rng.choice(
            (forge, forge, damage_bytes, damage_files) if path.is_dir() else (damage_bytes, damage_files)
        )
        damage(rng, path)
        result = outcome(path)
        if result not in ("loaded", "refused"):
            surprises.append(f"case {seed}-{case} ({whole.name}, {damage.__name__}): {result}")
            result = "SURPRISE"
        counts[result] += 1
        shutil.rmtree(path.parent)
    return counts, surprises


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        counts, surprises = run(arguments.cases, arguments.seed, Path(folder))
    for result, count in sorted(counts.items()):
        print(f"{result:10} {count:6,}")
    print(*surprises, sep="\n")
    print(f"{arguments.cases:,} cases in {time.perf_counter() - start:.0f} s, {len(surprises)} surprises")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
