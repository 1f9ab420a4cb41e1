"""From the challenge's events and a recipe to a submission and a table like the paper's.

Training sees the events of set t and nothing else; of the test sets b and v it sees the features.  Their labels and
weights are read once, at the end, by `_score`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.files import write_text
from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.blend import Blend
from fivesigma.challenge import B_REG
from fivesigma.cut.best_cut import scan
from fivesigma.cut.bootstrap import paired_difference
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError, did_you_mean
from fivesigma.estimators.decomposed import DecomposedClassifier
from fivesigma.estimators.grown import GrownCascadeClassifier
from fivesigma.estimators.pool import CascadePool
from fivesigma.estimators.retrained import CascadeClassifier
from fivesigma.higgsml.data import ChallengeEvents, list_sets
from fivesigma.higgsml.features import MOMENTA
from fivesigma.higgsml.submission import write_submission
from fivesigma.learners.libraries import default_regressor
from fivesigma.significance import AMS2
from fivesigma.yields import rescale, signal_and_background

Members = list[tuple[str, Any]]

TREES = {"learning_rate": 0.05, "max_depth": 6, "subsample": 0.8, "colsample_bytree": 0.8}
NET: dict[str, Any] = {"epochs": 15, "dropout": 0.1}
_TEN = "five plain and five grown XGBoost models of 500 trees"
_BESIDE = "with plain XGBoost, a random forest and a neural net"
QUICK = 0.05  # share of trees and epochs of a quick run


@dataclass(frozen=True)
class Recipe:
    """An ensemble that is trained on the challenge's 30 columns; `cv` and `weights` are those of `CascadePool`.

    `members` makes (name, estimator) pairs from the names of the columns and the share of the full effort.
    """

    name: str
    summary: str
    cv: float | int
    weights: str
    members: Callable[[Sequence[str], float], Members]


def find_recipe(name: str) -> Recipe:
    """Return the recipe of this name."""
    known = {recipe.name: recipe for recipe in RECIPES}
    if name not in known:
        raise InputError(f"there is no recipe {name!r}; choose among {', '.join(known)}{did_you_mean(name, known)}")
    return known[name]


def _boosted(effort: float, *, plain: int = 0, grown: int = 0) -> Members:
    """Plain models and grown cascades of 500 trees, u updated after each: the paper's settings."""
    shared: dict[str, Any] = {"n_trees": _scaled(500, effort), "params": TREES, "update_every": 1}
    wanted = [(f"plain-{k + 1}", False) for k in range(plain)] + [(f"grown-{k + 1}", True) for k in range(grown)]
    return [(name, GrownCascadeClassifier(cascade=cascade, **shared)) for name, cascade in wanted]


def _paper_full(columns: Sequence[str], effort: float) -> Members:
    """XGBoost, a random forest, a neural net, and both cascades; best rounds of several restarts of the retrained."""
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(_scaled(200, effort), min_samples_leaf=20, max_features=0.3)
    learner = need("xgboost").XGBClassifier(n_estimators=_scaled(200, effort), **(TREES | {"learning_rate": 0.1}))
    retrained = CascadeClassifier(learner, max_rounds=12, extra_rounds=3, n_restarts=3, keep=5)
    others = [("forest", forest), ("net", _net(columns, effort)), ("retrained", retrained)]
    return [*_boosted(effort, plain=5), *others, *_boosted(effort, grown=5)]


def _best(columns: Sequence[str], effort: float) -> Members:
    """Nets, which carry it, and decomposed trees, whose unweighted classifier can use a larger capacity."""
    params = TREES | {"learning_rate": 0.1, "colsample_bytree": 0.5}
    regressor = default_regressor()
    regressor.set_params(n_estimators=_scaled(regressor.n_estimators, effort))
    classifier = need("xgboost").XGBClassifier(n_estimators=_scaled(300, effort), **params)
    nets = [(f"net-{k}", _net(columns, effort).set_params(weight_groups=4, focus=3.0)) for k in range(1, 4)]
    return [*nets, ("decomposed", DecomposedClassifier(classifier, regressor))]


def _net(columns: Sequence[str], effort: float) -> Any:
    """A net that turns events while it learns; columns by number, because a pool trains on arrays."""
    from fivesigma.estimators.net_classifier import NetClassifier

    at = {name: k for k, name in enumerate(columns)}
    momenta = [tuple(None if c is None else at[c] for c in triple) for triple in MOMENTA]
    return NetClassifier(**(NET | {"epochs": _scaled(NET["epochs"], effort)}), momenta=momenta)


def _scaled(n: int, effort: float) -> int:
    return max(1, round(n * effort))


RECIPES = (
    Recipe("plain", "one plain XGBoost model of 500 trees", 0.25, "even", lambda _, e: _boosted(e, plain=1)),
    Recipe("paper-ten", _TEN, 0.25, "even", lambda _, e: _boosted(e, plain=5, grown=5)),
    Recipe("paper-full", f"retrained and grown cascades {_BESIDE}", 0.25, "even", _paper_full),
    Recipe("best", "three nets and decomposed trees, bagged over five folds, weights fitted", 5, "fit", _best),
)

UTILITY = AMS2(b_reg=B_REG)
RESULTS, TABLE, SUBMISSION = WRITTEN = ("results.json", "table.md", "submission.csv")
SETS = {"b": "public", "v": "private"}
WITHOUT, WITH, ALL = "without cascades", "with cascades", "all"
STEADY = (0.10, 0.20)  # selected shares over which significance is averaged: less noise than at one cut


class Selection(NamedTuple):
    """Test events as one blend of models sees them."""

    name: str
    members: list[str]
    score: Array
    selected: BoolArray

    @property
    def fraction(self) -> float:
        """Share of the test events that is selected."""
        return float(np.mean(self.selected))


@dataclass(frozen=True)
class Results:
    """What a recipe reached: for each seed, by blend and test set, members, selected share and significances.

    ``steady`` is the mean significance over cuts that select 10 to 20 % of the events, None if there are too few;
    ``gain`` is the difference to the selection without cascades on the same events. 68 % intervals hold the statistics
    of the test events alone.
    """

    recipe: str
    summary: str
    notes: tuple[str, ...]
    seconds: float
    runs: list[dict[str, Any]]

    def __str__(self) -> str:
        lines = [f"{self.recipe}: {self.summary}", ""]
        sets = [name for name in SETS.values() if name in self.runs[0]["blends"][ALL]["sets"]]
        many = len(self.runs) > 1
        what = f"mean ± spread of {len(self.runs)} seeds" if many else "[68 %]"
        heads = [f"{name} {column}" for name in sets for column in (f"AMS {what}", "difference", "at 10-20 %")]
        lines += [f"| models | kept | {' | '.join(heads)} |", "| --- " * (len(heads) + 2) + "|"]
        for blend in self.runs[0]["blends"]:
            found = [run["blends"][blend] for run in self.runs]
            cells = [blend, f"{np.mean([f['fraction'] for f in found]):.1%}"]
            for name in sets:
                each = [f["sets"][name] for f in found]
                cells += [
                    _cell([e["ams"] for e in each], each[0]["interval"]),
                    "" if blend == next(iter(self.runs[0]["blends"])) else
                    _cell([e["gain"] for e in each], each[0]["gain_interval"], "+"),
                    _cell([e["steady"] for e in each], None),
                ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join([*lines, "", *self.notes])


def _cell(values: Sequence[float | None], interval: Sequence[float] | None, sign: str = "") -> str:
    """A value with its interval or, of several seeds, mean and spread."""
    if None in values:
        return ""
    if len(values) > 1:
        numbers = np.array(values, dtype=np.float64)
        return f"{numbers.mean():{sign}.3f} ± {numbers.std(ddof=1):.3f}"
    text = f"{values[0]:{sign}.3f}"
    return text if interval is None else f"{text} [{interval[0]:{sign}.3f}, {interval[1]:{sign}.3f}]"


def reproduce(
    data: ChallengeEvents,
    recipe: Recipe,
    folder: Path,
    *,
    seeds: Sequence[int] = (0,),
    quick: bool = False,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Results:
    """Train a recipe on set t, select among sets b and v, and score the selection, for each seed.

    The folder gets results.json, table.md, submission.csv of the first seed, and checkpoints, from which the same call
    resumes. `quick` takes a twentieth of the trees and epochs, to see that everything works.
    """
    start = time.perf_counter()
    summary = recipe.summary + (f", {QUICK:.0%} of the trees and epochs" if quick else "")
    if "t" not in data.sets or not any(name in data.sets for name in SETS):
        raise InputError(
            "a recipe needs training events (set t) and test events with labels (set b or v), and these are "
            f"{list_sets(data.sets)}; use the CERN file, or training events with sample=True (--sample), which splits "
            "them"
        )
    _check_folder(folder, summary)
    folder.mkdir(parents=True, exist_ok=True)
    effort = QUICK if quick else 1.0
    test_rows = np.isin(data.kaggle_set, list(SETS))
    train, test = data.subset("t"), data[test_rows]
    ids, test_sets = test.ids, data.kaggle_set[test_rows]
    runs = []
    for seed in seeds:
        checkpoint = folder / f"checkpoint-{seed}"
        pool = fit_recipe(recipe, train, seed, effort=effort, checkpoint=checkpoint, n_jobs=n_jobs, verbose=verbose)
        runs.append(select(pool, train, test.X))
    assert ids is not None  # the challenge's events have them
    write_submission(folder / SUBMISSION, ids, runs[0][-1].score, selected=runs[0][-1].selected)
    del train, test
    # Nothing above has seen a label or a weight of the test sets.
    results = Results(
        recipe.name,
        summary,
        tuple(data.notes),
        time.perf_counter() - start,
        [_score(seed, run, data, test_sets) for seed, run in zip(seeds, runs, strict=True)],
    )
    write_text(folder / RESULTS, json.dumps(asdict(results), indent=2, allow_nan=False) + "\n")
    write_text(folder / TABLE, f"{results}\n")
    return results


def _check_folder(folder: Path, summary: str) -> None:
    """Refuse a folder that holds anything but a run of this recipe."""
    if folder.is_file():
        raise InputError(f"{folder} is a file; name a folder")
    for path in sorted(folder.iterdir()) if folder.exists() else []:
        if path.name not in WRITTEN and not path.match("checkpoint-*"):
            raise InputError(f"{folder} holds {path.name}, which no such run has written; name another folder")
    # Checkpoints say so too, but those of other seeds are not looked at.
    if (folder / RESULTS).exists():
        try:
            found = json.loads((folder / RESULTS).read_text(encoding="utf-8"))["summary"]
        except (ValueError, TypeError, KeyError):
            found = "another program"
        if found != summary:
            raise InputError(f"{folder} holds the results of another run ({found}); name another folder")


def fit_recipe(recipe: Recipe, train: Events, seed: int, *, effort: float = 1.0, **options: Any) -> CascadePool:
    """Train all members of a recipe with a share of their trees and epochs; options are those of `CascadePool`."""
    members = recipe.members(train.feature_names, effort)
    pool = CascadePool(members, weights=recipe.weights, b_reg=B_REG, cv=recipe.cv, random_state=seed, **options)
    return pool.fit(train.X, train.is_signal.astype(int), train.weight)


def select(pool: CascadePool, train: Events, X: AnyArray) -> list[Selection]:
    """Blend plain members, cascades, and all; each keeps the share of events that is best on held-out events."""
    scores = pool.member_scores(X)
    cascades = [name for name, estimator in pool.estimators if getattr(estimator, "cascade", False)]
    groups = {WITHOUT: [name for name in scores if name not in cascades], WITH: cascades} if cascades else {}
    out = []
    for name, members in [*groups.items(), (ALL, list(scores))]:
        blend, share = (pool.blend_, pool.selected_fraction_) if name == ALL else _blend_of(members, pool, train)
        score = blend([scores[m] for m in members])
        # A share rather than a cut: the mean of several fits lies closer together than the scores of one.
        out.append(Selection(name, members, score, score >= np.quantile(score, 1.0 - share)))
    return out


def _blend_of(members: list[str], pool: CascadePool, train: Events) -> tuple[Blend, float]:
    """Blend some members of a pool, and find the share of events that is best on held-out events."""
    held_out = [pool.held_out_scores_[m] for m in members]
    rows = np.flatnonzero(np.isfinite(held_out).all(axis=0))
    known = [score[rows] for score in held_out]
    blend = Blend.fitted(pool.blend, known)
    signal = train.is_signal[rows]
    weight = rescale(train.weight[rows], signal, signal_and_background(train.weight, train.is_signal))
    return blend, scan(blend(known), signal, weight, UTILITY).fraction


def _score(seed: int, run: Sequence[Selection], data: ChallengeEvents, test_sets: Array) -> dict[str, Any]:
    """Score the selections of one seed on each test set, beside the first of them."""
    blends: dict[str, Any] = {one.name: {"members": one.members, "fraction": one.fraction, "sets": {}} for one in run}
    for key, name in SETS.items():
        rows = np.asarray(test_sets == key)
        if not rows.any():
            continue
        events = data.subset(key)
        signal, weight = events.is_signal, events.weight
        for one in run:
            pair = paired_difference(run[0].selected[rows], one.selected[rows], signal, weight, UTILITY)
            curve = scan(one.score[rows], signal, weight, UTILITY).curve
            z = curve.significance[(curve.fraction >= STEADY[0]) & (curve.fraction <= STEADY[1])]
            blends[one.name]["sets"][name] = {
                "ams": pair.second,
                "interval": pair.second_interval,
                "steady": float(np.mean(z)) if z.size and np.isfinite(z).all() else None,
                "gain": pair.difference,
                "gain_interval": pair.difference_interval,
            }
    return {"seed": seed, "blends": blends}
