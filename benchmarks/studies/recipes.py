"""The recipes of the challenge beside each other, on the same test events.

``python -m benchmarks.studies.recipes simulated|real EVENTS FOLDER`` trains what is missing in the folder and prints
the tables of docs/validation/challenge.md. `simulated` trains on set t and quotes set b; `real` cross-fits the training
events of the challenge. Measures and errors are those of `benchmarks.studies.protocol`; seconds are processor time of
one core.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from benchmarks.studies.protocol import Steps, as_measured, entering_steps, paired_gain, ranks, selection_steps
from benchmarks.studies.protocol import step_significance as significance
from fivesigma._tools.files import written_whole
from fivesigma._types import AnyArray, Array
from fivesigma.datasets import Events
from fivesigma.higgsml import ChallengeEvents, load
from fivesigma.higgsml.reproduce import Recipe, find_recipe, fit_recipe, select

SEEDS = range(2)
REPEATS, FOLDS = 2, 5

Scores = dict[str, AnyArray]


def _one_net(columns: Sequence[str], effort: float) -> Any:
    """What the recipe `best` was before: its first net without focus, and its trees."""
    net, *_, trees = find_recipe("best").members(columns, effort)
    return [(net[0], net[1].set_params(focus=0.0)), trees]


BEST = find_recipe("best")
RECIPES = (find_recipe("plain"), find_recipe("paper-ten"), replace(BEST, name="one-net", members=_one_net), BEST)


def run(recipe: Recipe, train: ChallengeEvents, test: ChallengeEvents, seed: int) -> Scores:
    """Score and selection of the test events by each blend of a recipe."""
    start = time.process_time()
    found = select(fit_recipe(recipe, train, seed, n_jobs=1), train, test.X)
    out: Scores = {"seconds": np.array(time.process_time() - start)}
    for blend in found:
        out |= {blend.name: blend.score, f"{blend.name} selected": blend.selected}
    return out


def simulated(data: ChallengeEvents, folder: Path) -> None:
    """Train on set t, quote set b."""
    train, test = data.subset("t"), data.subset("b")
    found = {
        recipe.name: [
            kept(folder / f"simulated-{recipe.name}-{seed}.npz", partial(run, recipe, train, test, seed))
            for seed in SEEDS
        ]
        for recipe in RECIPES
    }
    show(found, as_measured(test))


def real(data: ChallengeEvents, folder: Path) -> None:
    """Cross-fit; scores of different folds are compared by their ranks within the fold."""
    found = {
        recipe.name: [
            kept(folder / f"real-{recipe.name}-{seed}.npz", partial(cross_fit, recipe, data, folder, seed))
            for seed in range(REPEATS)
        ]
        for recipe in RECIPES
    }
    show(found, as_measured(whole(data)))


def cross_fit(recipe: Recipe, data: ChallengeEvents, folder: Path, seed: int) -> Scores:
    """Scores of all events, each by models that have not seen it."""
    out: Scores = {}
    splits = StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(data.X, data.is_signal)
    for k, (train, test) in enumerate(splits):
        part = kept(
            folder / "folds" / f"real-{recipe.name}-{seed}-{k}.npz",
            partial(run, recipe, whole(data[train]), whole(data[test]), seed),
        )
        seconds = out.get("seconds", np.array(0.0)) + part.pop("seconds")
        for name, values in part.items():
            column = values if values.dtype == bool else ranks(values)
            out.setdefault(name, np.empty(len(data), dtype=column.dtype))[test] = column
        out["seconds"] = seconds
    return out


def whole(events: ChallengeEvents) -> ChallengeEvents:
    """Let a part stand for the whole experiment.

    Its weights are those of the file: `load` deals a sample to three sets of different size, each scaled to the yields.
    """
    weight = events.weight if events.original_weight is None else events.original_weight
    return replace(events, kaggle_set=np.full(len(events), "t"), weight=weight).subset("t")


def kept(path: Path, make: Callable[[], Scores]) -> Scores:
    """Results of an earlier run, or new ones."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = make()
        with written_whole(path) as beside, beside.open("wb") as file:
            np.savez(file, **made)  # type: ignore[arg-type]  # numpy's stub takes no mapping here
        print(f"  {path.name}", file=sys.stderr, flush=True)
    with np.load(path) as stored:
        return dict(stored)


def show(results: dict[str, list[Scores]], test: Events) -> None:
    """Print each blend of each recipe with its gain over the plain recipe."""
    rows: dict[str, list[tuple[Array, Array]]] = {}
    measures: tuple[Steps, Steps] = (entering_steps, selection_steps)
    seconds = {}
    for recipe, found in results.items():
        seconds[recipe] = np.mean([f["seconds"] for f in found])
        for blend in found[0]:
            if blend != "seconds" and not blend.endswith(" selected"):
                rows[f"{recipe}, {blend}"] = [(f[blend], f[f"{blend} selected"]) for f in found]
    base = next(iter(rows.values()))
    print("| recipe | mean AMS at 10-20 % | over plain | AMS at the cut | over plain | kept |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, values in rows.items():
        cells = []
        for column, steps in enumerate(measures):
            ours, theirs = ([v[column] for v in each] for each in (values, base))
            z = [significance(steps(v), test) for v in ours]
            gain, error = paired_gain(ours, theirs, test, steps)
            cells += [f"{np.mean(z):.3f}", "" if values is base else f"{gain:+.3f} ± {error:.3f}"]
        print(f"| {name} | {' | '.join(cells)} | {np.mean([v[1].mean() for v in values]):.1%} |", flush=True)
    best, before = (next(rows[name] for name in rows if name.startswith(recipe)) for recipe in ("best", "one-net"))
    for column, what in enumerate(("mean AMS at 10-20 %", "AMS at the cut")):
        gain, error = paired_gain([v[column] for v in best], [v[column] for v in before], test, measures[column])
        print(f"best over one-net, {what}: {gain:+.3f} ± {error:.3f}")
    print("seconds:", ", ".join(f"{name} {value:.0f}" for name, value in seconds.items()))


if __name__ == "__main__":
    {"simulated": simulated, "real": real}[sys.argv[1]](load(sys.argv[2], sample=True), Path(sys.argv[3]))
