"""Give saved models a stranger's content with right hashes, then load and use them in child processes.

Only fivesigma's own errors may come out: no crash, no hang, no file opened outside of the model, no memory out of
proportion. Run it by hand with ``python -m benchmarks.robustness.fuzz_models --cases 2000``, which is that many for
each kind.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.robustness.fuzz_edits import EDITS, bytes_anywhere, damage_value, edit_zip, edited
from fivesigma import CascadeClassifier, CascadePool, DecomposedClassifier, GrownCascadeClassifier, save
from fivesigma.store.manifest import file_entry, render

SLOWEST = 30  # seconds; longer is a hang
MEMORY = 1 << 31  # bytes that a child may take beside what it has when it is ready
FEATURES = 3
CATEGORIES = 40  # more than 32, so that a set of them takes two words
FORMAT_1 = Path(__file__).parents[2] / "tests" / "store" / "format-1"  # models that 0.1 saved


def whole_models(folder: Path, only: Sequence[str] = ()) -> dict[str, list[Path]]:
    """Save good models, by the ending of the parts that are edited in them."""
    from lightgbm import LGBMClassifier
    from pandas import Categorical, DataFrame
    from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from xgboost import XGBClassifier

    rng = np.random.default_rng(0)
    y = np.repeat([1, 0], 300)
    X = rng.normal(size=(600, FEATURES)) + y[:, None]
    w = rng.uniform(0.5, 1.5, size=600)
    codes = (rng.integers(0, 20, size=600) + 17 * y) % CATEGORIES
    frame = DataFrame({"x": X[:, 0], "by": Categorical(codes, categories=range(CATEGORIES)), "z": X[:, 1]})
    shared: dict[str, Any] = {"random_state": 0, "n_jobs": 1}
    once: dict[str, Any] = {"max_rounds": 1, "extra_rounds": 0, **shared}
    xgb, lgbm = {"n_estimators": 3, "max_depth": 3, "n_jobs": 1}, {"n_estimators": 3, "verbosity": -1, "n_jobs": 1}
    grown = GrownCascadeClassifier(n_trees=3, b_reg=5.0, **shared)
    members = [("grown", GrownCascadeClassifier(n_trees=3)), ("plain", CascadeClassifier(LogisticRegression()))]
    sets = {"max_cat_to_onehot": 1, "max_depth": 3}  # splits by sets of categories, not by single ones
    small = {"min_data_per_group": 2, "cat_smooth": 1, "cat_l2": 1, "max_cat_to_onehot": 1, "num_leaves": 7}
    kinds: dict[str, list[Any]] = {
        ".ubj": [
            grown,
            CascadeClassifier(XGBClassifier(**xgb, booster="dart", rate_drop=0.5), **once),
            DecomposedClassifier(XGBClassifier(**xgb), **shared),
        ],
        ".txt": [GrownCascadeClassifier("lightgbm", n_trees=3, cv=2, **shared)],
        ".skops": [
            CascadeClassifier(RandomForestClassifier(2, max_depth=3), **once),
            CascadeClassifier(GradientBoostingClassifier(n_estimators=2, max_depth=2), **once),
            CascadeClassifier(HistGradientBoostingClassifier(max_iter=2, max_leaf_nodes=5), **once),
            CascadeClassifier(make_pipeline(StandardScaler(), LogisticRegression()), **once),
            CascadeClassifier(make_pipeline(StandardScaler(), XGBClassifier(**xgb)), **once),
            CascadeClassifier(XGBClassifier(n_estimators=3, n_jobs=1, booster="gblinear"), **once),
            CascadeClassifier(make_pipeline(StandardScaler(), LGBMClassifier(**lgbm)), **once),
        ],
        "categories of XGBoost": [GrownCascadeClassifier(n_trees=3, params=sets, **shared)],
        "categories of LightGBM": [GrownCascadeClassifier("lightgbm", n_trees=3, params=small, **shared)],
        ".npy": [CascadePool(members, cv=2, **shared)],
        "manifest": [grown, CascadePool(members, cv=2, **shared), DecomposedClassifier(XGBClassifier(**xgb), **shared)],
        "files": [grown],
        "zip": [grown, CascadePool(members, cv=2, **shared)],
    }
    if not only or ".safetensors" in only:
        from fivesigma import NetClassifier

        kinds[".safetensors"] = [CascadeClassifier(NetClassifier(width=4, depth=1, epochs=1), **once)]
    found: dict[str, list[Path]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few events, for one
        for kind, models in kinds.items():
            if not only or kind in only:
                ending = ".zip" if kind == "zip" else ""
                paths = [folder / f"{kind.strip('.').replace(' ', '-')}-{k}{ending}" for k in range(len(models))]
                table = frame if kind.startswith("categories") else X
                found[kind] = [save(m.fit(table, y, w), path) for m, path in zip(models, paths, strict=True)]
    for kind, paths in found.items():
        old = sorted(path for path in FORMAT_1.iterdir() if path.is_dir())
        paths.extend(path for path in old if kind == "manifest" or (kind in EDITS and any(path.glob(f"*{kind}"))))
    return found


def hash_again(path: Path, manifest: dict[str, Any] | None = None) -> None:
    """Give a changed model a right manifest."""
    file = path / "manifest.json"
    content = json.loads(file.read_bytes()) if manifest is None else manifest
    if isinstance(content.get("files"), dict):
        for name in content["files"]:
            part = path / name
            if manifest is None and part.is_file():
                content["files"][name] = file_entry(part.read_bytes())
    file.write_bytes(render(content))


def edit_part(kind: str) -> Callable[[random.Random, Path], None]:
    """Edit one part of a kind, with right hashes."""

    def edit(rng: random.Random, path: Path) -> None:
        ending = {"categories of XGBoost": ".ubj", "categories of LightGBM": ".txt"}.get(kind, kind)
        part = rng.choice(sorted(path.glob(f"*{ending}")))
        part.write_bytes(edited(EDITS[ending], rng, part.read_bytes()))
        hash_again(path)

    return edit


def edit_manifest(rng: random.Random, path: Path) -> None:
    """Edit the manifest, and give it a right digest."""
    manifest = json.loads((path / "manifest.json").read_bytes())
    for _ in range(rng.choice((1, 1, 2, 5))):
        damage_value(rng, manifest if rng.random() < 0.1 else manifest["model"])
        if not isinstance(manifest.get("model"), dict) or not manifest["model"]:
            break
    try:
        hash_again(path, manifest)
    except ValueError:  # NaN is no JSON
        edit_manifest(rng, path)


def edit_files(rng: random.Random, path: Path) -> None:
    """Remove, rename, add, damage or link files."""
    victim = rng.choice(sorted(path.iterdir()))
    what = rng.randrange(5)
    if what == 0:
        victim.unlink()
    elif what == 1:
        victim.rename(path / rng.choice(("part-009.ubj", "Manifest.JSON", "ä")))
    elif what == 2:
        (path / rng.choice(("extra", "part-099.ubj", ".hidden"))).mkdir()
    elif what == 3:
        victim.write_bytes(bytes_anywhere(rng, victim.read_bytes()))
    else:
        target = path.parent / "outside"
        victim.replace(target)
        victim.symlink_to(target)


def edit_zipped(rng: random.Random, path: Path) -> None:
    """Edit a zip: its directory, its names, or a part of the model in it, with right hashes."""
    if rng.random() < 0.7:
        path.write_bytes(edited(edit_zip, rng, path.read_bytes()))
        return
    folder = path.with_suffix("")
    with zipfile.ZipFile(path) as file:
        file.extractall(folder)
    endings = sorted({part.suffix for part in folder.iterdir() if part.suffix in EDITS})
    (edit_manifest if rng.random() < 0.3 else edit_part(rng.choice(endings)))(rng, folder)
    with zipfile.ZipFile(path, "w") as file:
        for part in sorted(folder.iterdir()):
            file.write(part, part.name)


class Child:
    """A process that loads and uses models, one after the other; a new one takes over after a crash."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        """Start a process and wait until it is ready."""
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.robustness.fuzz_child", str(MEMORY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def use(self, path: Path) -> str:
        """Load and use a model: "used", "refused", or what went wrong."""
        if self._process is None:
            self._process = self.start()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{path}\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], SLOWEST)
        line = process.stdout.readline() if ready else ""
        if line:
            return str(json.loads(line))
        self.end()
        return f"HANG of more than {SLOWEST} s" if not ready else f"CRASH with {process.returncode}"

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None


def run(n_cases: int, seed: int, folder: Path, only: Sequence[str] = ()) -> tuple[Counter[str], list[str]]:
    """Try `n_cases` of each kind; count the outcomes, and keep what should not have come out."""
    counts: Counter[str] = Counter()
    surprises = []
    child = Child()
    models = whole_models(folder, only)
    for case, kind in itertools.product(range(n_cases), models):
        rng = random.Random(f"{seed}-{kind}-{case}")  # so that one case can be repeated alone
        whole = models[kind][case % len(models[kind])]
        path = folder / "case" / whole.name
        if whole.is_dir():
            shutil.copytree(whole, path)
        else:
            path.parent.mkdir()
            shutil.copy(whole, path)
        edits = {"manifest": edit_manifest, "files": edit_files, "zip": edit_zipped}
        (edits.get(kind) or edit_part(kind))(rng, path)
        result = child.use(path)
        if result not in ("used", "refused"):
            surprises.append(f"case {seed}-{kind}-{case} ({whole.name}): {result}")
            print(surprises[-1], file=sys.stderr, flush=True)
            result = "SURPRISE"
        counts[f"{kind} {result}"] += 1
        if case % 100 == 99:
            print(f"{case + 1} {kind}: {len(surprises)} surprises so far", file=sys.stderr, flush=True)
        shutil.rmtree(path.parent)
    child.end()
    return counts, surprises


def main() -> int:
    """Return 1 if anything came out that should not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=())
    arguments = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        counts, surprises = run(arguments.cases, arguments.seed, Path(folder), arguments.only)
    for result, count in sorted(counts.items()):
        print(f"{result:34} {count:6,}")
    print(*surprises, sep="\n")
    print(f"{sum(counts.values()):,} cases in {time.perf_counter() - start:.0f} s, {len(surprises)} surprises")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
