"""Classifiers of samples that are told apart: one for every contrast and split, each kept when it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from fivesigma._tools.progress import end_if_given_up
from fivesigma._tools.threads import spread_threads
from fivesigma._types import Array
from fivesigma.errors import InputError
from fivesigma.estimators.auto import BINS, count_trees
from fivesigma.estimators.member_fits import Task, derived_seed
from fivesigma.estimators.moved_events import Contrast, FoldedEvents
from fivesigma.estimators.running import PoolProgress, run_parallel
from fivesigma.estimators.training_sample import Splits, TrainingSample
from fivesigma.learners.density_ratios import ContrastTrainer, stack_tables
from fivesigma.learners.libraries import installed_library, make_like_grown
from fivesigma.learners.protocols import Model
from fivesigma.store.checkpoint import Checkpoint, once

# Settings of the trees that learn shapes, by library: the difference is small, and noise in it is a fake constraint.
SHAPE_TREES: dict[str, dict[str, Any]] = {
    "xgboost": {"max_depth": 3, "min_child_weight": 50.0, "learning_rate": 0.1},
    "lightgbm": {"num_leaves": 8, "min_child_samples": 200, "learning_rate": 0.1},
    "catboost": {"depth": 3, "learning_rate": 0.1},
    "histogram": {"max_leaf_nodes": 8, "min_samples_leaf": 200, "learning_rate": 0.2},
}


def default_learners(
    estimator: Any, sample: TrainingSample, splits: Splits, seed: int, checkpoint: Checkpoint | None
) -> list[Any]:
    """Boosters for processes and for shapes, with as many trees as held-out events of the first split advise."""
    library = installed_library()
    params = BINS.get(library, {})
    first = Task(0, "search", 0, *splits[0], seed)
    n_trees, _ = count_trees(estimator, sample, first, library, params, checkpoint=checkpoint)
    few = make_like_grown(library, max(1, n_trees // 4), **params, **SHAPE_TREES.get(library, {}))
    return [make_like_grown(library, n_trees, **params), few]


def fit_contrasts(
    estimator: Any,
    contrasts: Mapping[str, tuple[Contrast, Any]],
    *,
    stem: str,
    n_splits: int,
    seed: int,
    checkpoint: Checkpoint | None,
) -> list[dict[str, Model]]:
    """Train a classifier for each contrast and each split, side by side."""
    numbers = {name: number for number, name in enumerate(contrasts)}
    keys = {(name, k): f"{stem}-{number}-{k}" for name, number in numbers.items() for k in range(n_splits)}
    groups: dict[tuple[int, int], list[str]] = {}
    for name, (contrast, learner) in contrasts.items():
        groups.setdefault((id(contrast.X), id(learner)), []).append(name)
    tasks = [(names, k) for names in groups.values() for k in range(n_splits)]
    n_cells = max((c.X.shape[0] * c.X.shape[1] for c, _ in contrasts.values()), default=0)
    workers, threads = spread_threads(estimator.n_jobs, len(tasks), n_cells)
    progress = PoolProgress(estimator, dict.fromkeys(keys.values(), 1))
    with progress.showing(checkpoint):

        def work(names: list[str], split: int) -> dict[str, Model]:
            """Fits on one table, which is then binned once."""
            out: dict[str, Model] = {}
            table, learner = contrasts[names[0]]
            rows = np.flatnonzero(table.home != split)
            options = {"seed": derived_seed(seed, numbers[names[0]], split), "n_threads": threads}

            @cache
            def trainer() -> ContrastTrainer:
                X = _safe_indexing(table.X, rows)
                return ContrastTrainer(learner, X, negative=estimator.negative_weights, **options)

            def fit(name: str) -> Model:
                contrast = contrasts[name][0]
                try:
                    return trainer().fit(contrast.first[rows], contrast.second[rows])
                except InputError as err:
                    raise (err if stem == "plain" else InputError(f"systematic {name!r}: {err}")) from None

            for name in names:
                end_if_given_up()
                key = keys[name, split]
                with progress.fit(key):
                    out[name] = once(checkpoint, key, partial(fit, name))
            return out

        fits = run_parallel(work, tasks, workers)
    models: list[dict[str, Model]] = [{} for _ in range(n_splits)]
    for (_, split), found in zip(tasks, fits, strict=True):
        models[split] |= found
    return models


class HeldOutTables:
    """Tables of the events that each split holds out, of several samples one below the other."""

    def __init__(self, samples: Sequence[FoldedEvents]) -> None:
        # Of an event that is not moved one knows what the models say.
        rows = [np.arange(e.signal.size) if e.moved is None else e.moved for e in samples]
        X = stack_tables([_safe_indexing(e.X, there) for e, there in zip(samples, rows, strict=True)])
        home = np.concatenate([e.home[there] for e, there in zip(samples, rows, strict=True)])
        self._at = [np.flatnonzero(home == split) for split in range(home.max(initial=-1) + 1)]
        self._tables = [_safe_indexing(X, at) for at in self._at]
        self._sizes, self._rows = [e.signal.size for e in samples], rows

    def probabilities(self, models: Sequence[Model], unmoved: Array | None = None) -> list[Array]:
        """P(first sample) of each event by the model that did not see it; a half where no split holds an event out."""
        p = np.full(sum(rows.size for rows in self._rows), 0.5)
        for model, at, table in zip(models, self._at, self._tables, strict=False):
            if at.size:
                p[at] = model.signal_probability(table)
        ends = np.cumsum([rows.size for rows in self._rows])
        out = []
        for rows, size, found in zip(self._rows, self._sizes, np.split(p, ends[:-1]), strict=True):
            full = np.empty(size) if unmoved is None or rows.size == size else unmoved.copy()
            full[rows] = found
            out.append(full)
        return out
