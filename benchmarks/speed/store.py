"""What a saved pool takes: bytes beside those of its boosters, time to save and to load."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.harness import Figure, benchmark
from fivesigma import CascadePool, GrownCascadeClassifier, load, save
from fivesigma.challenge import B_REG
from fivesigma.datasets import make_htautau

N_EVENTS = 250_000
MEMBERS = 6
FOLDS = 5
N_TREES = 20


@benchmark(slow=True)
def pool() -> Iterable[Figure]:
    """Six members on five folds each, with trees that are few: what counts here is the rest."""
    events = make_htautau(N_EVENTS, random_state=0)
    members = [(f"grown-{k}", GrownCascadeClassifier(n_trees=N_TREES)) for k in range(MEMBERS)]
    model = CascadePool(members, cv=FOLDS, b_reg=B_REG, random_state=0).fit(events.X, events.y, events.weight)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        path = save(model, Path(folder) / "pool")
        saved = time.perf_counter() - begin
        begin = time.perf_counter()
        again = load(path)
        loaded = time.perf_counter() - begin
        sizes = {file.name: file.stat().st_size for file in path.iterdir()}
    boosters = sum(size for name, size in sizes.items() if name.endswith(".ubj"))
    rest = sum(sizes.values()) - boosters
    assert len(again.members_) == MEMBERS * FOLDS
    yield Figure("manifest of a pool of 30 fits", sizes["manifest.json"] / 1000, 200, " kB")
    yield Figure("folder beside its boosters, bytes per event", rest / N_EVENTS, 64, note=f"{rest / 1e6:.1f} MB")
    yield Figure("time to save", saved, unit=" s", note=f"{sum(sizes.values()) / 1e6:.1f} MB in {len(sizes)} files")
    yield Figure("time to load", loaded, unit=" s")
