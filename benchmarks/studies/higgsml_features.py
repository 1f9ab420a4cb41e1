"""What each set of engineered features adds: the same trees, folds and seeds, other columns.

``python -m benchmarks.studies.higgsml_features simulated|real events folder`` trains what is missing in the folder,
prints the
figures of docs/validation/challenge.md and writes them to the folder as JSON. Both cross-fit: `simulated` set t of a
parquet file with the columns of the 2014 challenge in two folds, `real` the challenge's csv file in five. A score is
made comparable between folds by its rank. The learner is a plain XGBoost with class-balanced weights. Gains and
their errors are those of `benchmarks.studies.protocol`: mean AMS over cuts at 10 to 20 % of the events. A blend is
the mean
score of the seeds; its error has no part from the seeds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from benchmarks.studies.protocol import as_measured, entering_steps, mean_significance, paired_gain, ranks, read_set
from fivesigma._tools.extras import need
from fivesigma._tools.files import written_whole
from fivesigma._types import AnyArray, Array
from fivesigma.datasets import Events, load_events
from fivesigma.higgsml.features import ALL_SETS, engineer

PARAMS: dict[str, Any] = {
    "n_estimators": 300,
    "max_depth": 6,
    "learning_rate": 0.05,
    "subsample": 0.8,
    "colsample_bytree": 0.8,
    "tree_method": "hist",
    "n_jobs": 1,
}
RAW, EVERY = "raw columns", "all sets"


def columns(variants: list[str], events: Events) -> dict[str, list[int]]:
    """Which columns of the events with all sets and the raw angles each variant has."""
    names = list(engineer(events[:0], (*ALL_SETS, "raw")).feature_names)
    raw = list(events.feature_names)
    of = {s: list(engineer(events[:0], [s]).feature_names) for s in ALL_SETS}
    sets = {RAW: raw, EVERY: list(engineer(events[:0]).feature_names)}
    for s in ALL_SETS:
        added = [n for n in of[s] if n not in raw]
        sets[f"raw + {s}"] = [*raw, *added]
        sets[f"all - {s}"] = [n for n in sets[EVERY] if n not in added]
    return {v: [names.index(n) for n in sets[v]] for v in variants}


def cross_fit(X: AnyArray, events: Events, n_folds: int, seed: int) -> Array:
    """Out-of-fold ranks."""
    out = np.empty(len(X))
    for rows, rest in StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(X, events.is_signal):
        train = events[rows].scaled_to(rows.size / 2, rows.size / 2)
        model = need("xgboost").XGBClassifier(**PARAMS, random_state=seed)
        score = model.fit(X[rows], train.is_signal, sample_weight=train.weight).predict_proba(X[rest])[:, 1]
        out[rest] = ranks(score)
    return out


def run(source: Events, events: Events, folder: Path, jobs: list[tuple[str, int]], n_folds: int) -> None:
    """Train the missing (variant, seed) jobs in order, then compare."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = list(dict.fromkeys(variant for variant, _ in jobs))
    where = columns(wanted, source)
    X = engineer(source, (*ALL_SETS, "raw")).X
    scores: dict[str, dict[int, Array]] = {variant: {} for variant in wanted}
    for variant, seed in jobs:
        path = folder / f"{variant.replace(' ', '_')}-{seed}.npy"
        if not path.exists():
            with written_whole(path) as beside:
                np.save(beside, cross_fit(X[:, where[variant]], events, n_folds, seed))
            print(f"  {variant}, seed {seed}: {mean_significance(np.load(path), events):.4f}", flush=True)
        scores[variant][seed] = np.load(path)
    table = {variant: _row(variant, scores, len(where[variant]), events) for variant in wanted}
    with written_whole(folder / "results.json") as beside:
        beside.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def _row(variant: str, scores: dict[str, dict[int, Array]], n_columns: int, events: Events) -> dict[str, Any]:
    """Mean significance of the seeds and of their blend, with the gains over the raw columns or over all sets."""
    baseline = EVERY if variant.startswith("all -") else RAW
    seeds = sorted(scores[variant])
    ours, theirs = ([scores[v][seed] for seed in seeds] for v in (variant, baseline))
    row: dict[str, Any] = {"columns": n_columns, "n_seeds": len(seeds), "over": baseline}
    for name, a, b in (("seeds", ours, theirs), ("blend", [np.mean(ours, axis=0)], [np.mean(theirs, axis=0)])):
        z = float(np.mean([mean_significance(score, events) for score in a]))
        gain, error = (0.0, 0.0) if variant == baseline else paired_gain(a, b, events, entering_steps)
        row[name] = {"ams": z, "gain": gain, "error": error}
        over = f"over {baseline} {gain:+.4f} ± {error:.4f}"
        print(f"{variant:22} {n_columns:3} columns, {len(seeds)} {name}  {z:.4f}  {over}", flush=True)
    return row


def simulated(path: str, folder: str, n_seeds: int = 2) -> None:
    """Every variant on set t."""
    events = read_set(path, "t")
    variants = [RAW, EVERY, *(f"all - {s}" for s in ALL_SETS), *(f"raw + {s}" for s in ALL_SETS)]
    run(events, events, Path(folder), [(v, seed) for seed in range(n_seeds) for v in variants], n_folds=2)


def real(path: str, folder: str) -> None:
    """Raw against all, three times five folds."""
    source = load_events(path, weight="KaggleWeight")
    run(source, as_measured(source), Path(folder), [(v, seed) for seed in range(3) for v in (RAW, EVERY)], n_folds=5)


if __name__ == "__main__":
    {"simulated": simulated, "real": real}[sys.argv[1]](sys.argv[2], sys.argv[3])
