"""Which events are trained on and which are scored, by stage of the study.

`halves`   set t of the simulated events, cut in two for each seed: each half scores the other. Screening lives here.
`unseen`   trained on set t, scored on sets b and u, which no choice has seen.
`folds`    five folds of the real events, drawn anew for each seed.
`toy-N`    N events of `make_htautau`, scored on 300,000 of another seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from sklearn.model_selection import StratifiedKFold

from benchmarks.studies.protocol import as_measured, read_real, read_set, scaled_part
from fivesigma._types import IntArray
from fivesigma.datasets import Events, make_htautau

SIMULATED = "htautau_pythia8.parquet"
REAL = "atlas-higgs-challenge-2014-v2.first22889.csv.gz"
TOY_TEST, TOY_POOL = 300_000, 1_000_000


@dataclass(frozen=True)
class Source:
    """Splits of one kind of events.

    Attributes
    ----------
    kind : str
        One of the names above.
    folder : str
        Where the files of events are.
    """

    kind: str
    folder: str

    def test(self) -> Events:
        """Events that are scored, the same for all seeds."""
        if self.kind == "halves":
            return _simulated(self.folder, "t")
        if self.kind == "unseen":
            return _simulated(self.folder, "b", "u")
        return _real(self.folder) if self.kind == "folds" else _toy(TOY_TEST, 0)

    def splits(self, seed: int) -> Iterator[tuple[Events, IntArray]]:
        """Training events and the rows of `test` that their model scores."""
        everything = self.test()
        rows = np.arange(len(everything))
        if self.kind in ("halves", "folds"):
            n = 2 if self.kind == "halves" else 5
            folds = StratifiedKFold(n, shuffle=True, random_state=100 + seed)
            for train, scored in folds.split(rows, everything.process):
                yield scaled_part(everything, train), scored
        elif self.kind == "unseen":
            yield _simulated(self.folder, "t"), rows
        else:
            n = int(self.kind.removeprefix("toy-"))
            pool = _toy(TOY_POOL, 1)
            start = (seed * n) % TOY_POOL  # small samples of different seeds share no event
            yield scaled_part(pool, np.arange(start, start + n)), rows


@lru_cache(maxsize=3)
def _simulated(folder: str, *names: str) -> Events:
    return read_set(str(Path(folder) / SIMULATED), *names)


@lru_cache(maxsize=1)
def _real(folder: str) -> Events:
    return read_real(str(Path(folder) / REAL))


@lru_cache(maxsize=2)
def _toy(n_events: int, random_state: int) -> Events:
    return as_measured(make_htautau(n_events, random_state=random_state))
