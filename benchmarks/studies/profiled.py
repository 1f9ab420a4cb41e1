"""What a score gains that knows the systematics, on other events; how many systematics it takes; how long it takes.

``python -m benchmarks.studies.profiled run DATA [PART ...] [SEEDS]`` trains, and adds to ``profiled.json`` after every
seed: it can be killed, and the same call resumes. DATA is the folder of ``htautau_pythia8.parquet``.
``python -m benchmarks.studies.profiled times DATA`` times fits with up to thirty systematics.

Systematics are the energy of the hadronic tau (3 %; missing momentum and all derived features follow), W (10 %),
top (8 %) and Z (5 %). Two scores come from one fit of `ProfiledClassifier` with its defaults: t, and the plain score,
which is the mean of its classifiers of signal against background. A third is that of `AutoClassifier`. A seed draws
the training events, the folds and the halves of the test events. Edges are chosen on one half and quoted on the other,
both ways; each half stands for the full yields. Naive edges do not know the systematics. The limit is the plain score
with naive edges if the background were known.

Parts: ``exact`` (toys whose densities are known), ``pythia-N`` and ``toy-N`` (N training events), ``size-X`` (8,000
events of Pythia with systematics of X times their size), ``none`` (without any), ``thirty`` (26 more systematics), and
``picture`` (yields by process in bins of both scores).
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.protocol import read_set
from benchmarks.studies.study.data import SIMULATED
from benchmarks.studies.systematic_categories import tau_energy_scale
from fivesigma import (
    AutoClassifier,
    Normalisation,
    ProfiledClassifier,
    ScoredEvents,
    Varied,
    categorise,
    yield_shifts,
)
from fivesigma._tools.files import written_whole
from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.datasets import Events, make_htautau
from fivesigma.errors import SmallSampleWarning
from fivesigma.estimators.moved_events import bin_edges
from fivesigma.likelihood.least_favourable import least_favourable, likelihood_ratio
from fivesigma.likelihood.shifts import Systematics

HERE = Path(__file__).parent
RESULTS = HERE / "profiled.json"
SEEDS = 5
N_CATEGORIES = (6, 10, 20)
YIELD_SIZES = {"W": ("wjets", 0.10), "Z": ("ztautau", 0.05), "top": ("ttbar", 0.08)}
TAU_ENERGY = 0.03
N_SIZES, SIZES = 8_000, (0.1, 0.25, 0.5)
MOST_FOR_AUTO = 25_000  # training events: `AutoClassifier` takes many times as long as the rest

Given = dict[str, Any]


# ---------------------------------------------------------------- events and their systematics


def yields(size: float = 1.0) -> Given:
    """Uncertain yields of three backgrounds."""
    return {name: Normalisation(process, size * fraction) for name, (process, fraction) in YIELD_SIZES.items()}


def energy(events: Events, size: float = 1.0, where: BoolArray | bool = True) -> tuple[Events, Events]:
    """Events with another energy of the tau, up and down, all or some of them."""

    def moved(change: float) -> Events:
        factor: Any = np.where(where, 1 + change, 1.0)
        return replace(events, X=tau_energy_scale(events.X, events.feature_names, factor))

    return moved(size * TAU_ENERGY), moved(-size * TAU_ENERGY)


def four(events: Events, size: float = 1.0) -> Given:
    """The systematics of this study."""
    return {"tau energy": energy(events, size), **yields(size)}


def thirty(events: Events) -> Given:
    """Thirty systematics: the four, the tau energy in ten slices of its direction, and sixteen tilts of the weights."""
    out = four(events)
    eta = events.column("PRI_tau_eta")
    for k, (low, high) in enumerate(zip(np.linspace(-2.5, 2, 10), np.linspace(-2, 2.5, 10), strict=True)):
        out[f"tau energy {k}"] = energy(events, 0.5, (eta >= low) & (eta < high))
    names = [name for name in events.feature_names if name.startswith(("PRI_", "DER_mass", "DER_pt"))][:16]
    for name in names:
        column = events.column(name)
        centre, width = np.nanmedian(column), np.nanstd(column)
        tilt = 0.05 * np.nan_to_num(np.tanh((column - centre) / width)) * ~events.is_signal
        out[f"tilt {name}"] = ((1 + tilt) * events.weight, (1 - tilt) * events.weight)
    return out


def scored(
    score: Callable[[Events], Array], events: Events, given: Given, rows: AnyArray
) -> tuple[ScoredEvents, Systematics]:
    """Some events, standing for all of them, with their systematics."""
    part = events[rows]
    whole = [events.weight[m].sum() for m in (events.is_signal, ~events.is_signal)]
    share = [part.weight[m].sum() for m in (part.is_signal, ~part.is_signal)]
    factor = np.where(part.is_signal, whole[0] / share[0], whole[1] / share[1])
    found = ScoredEvents(score(part), part.is_signal, factor * part.weight, process=part.process)

    def varied(side: Any) -> Varied:
        return Varied(score(side[rows])) if isinstance(side, Events) else Varied(weight=factor * side[rows])

    moved = {
        name: value if isinstance(value, Normalisation) else (varied(value[0]), varied(value[1]))
        for name, value in given.items()
    }
    return found, moved


# ---------------------------------------------------------------- one seed


def compare(
    train: Events, test: Events, systematics: Callable[[Events], Given], ks: tuple[int, ...], seed: int
) -> dict[str, Any]:
    """Fit and judge all scores on other events, in some numbers of categories; `AutoClassifier` if ks are several.

    It is left out with many training events.
    """
    start = time.process_time()
    model = ProfiledClassifier(random_state=seed, n_jobs=1)
    model.fit(train, systematics=systematics(train))
    seconds = time.process_time() - start

    def plain(events: Events) -> Array:
        return np.asarray(np.mean([m.signal_probability(events.X) for m in model.models_], axis=0))

    given = systematics(test)
    chosen = np.random.default_rng(seed).random(len(test)) < 0.5
    out: dict[str, Any] = {
        "seconds": seconds,
        "pulls": model.pulls_,
        "bound": model.bound_,
        "rounds": [r.value for r in model.history_],
        "choice": model.choice_,
        "left out": len(model.left_out_),
    }
    scores: dict[str, Callable[[Events], Array]] = {"plain": plain, "t": model.decision_function}
    if len(ks) > 1 and len(train) <= MOST_FOR_AUTO:
        start = time.process_time()
        auto = AutoClassifier(random_state=seed, n_jobs=1).fit(train)
        out["seconds auto"] = time.process_time() - start
        scores["auto"] = lambda events: auto.predict_proba(events)[:, 1]
    found: dict[str, list[float]] = {}
    for half in (chosen, ~chosen):
        for name, score in scores.items():
            tune, tune_moved = scored(score, test, given, np.flatnonzero(half))
            judge, judge_moved = scored(score, test, given, np.flatnonzero(~half))
            for k in ks:
                knowing = categorise(tune, n_categories=k, systematics=tune_moved)
                quoted = knowing.evaluate(judge, systematics=judge_moved, mc_statistics=False)
                with_mc = knowing.evaluate(judge, systematics=judge_moved, mc_statistics=True)
                values = {"knowing": quoted.significance, "simulation": with_mc.significance}
                if name == "plain":
                    naive = categorise(tune, n_categories=k, rule="model", min_effective=25)
                    values["limit"] = naive.evaluate(judge).significance
                    shifts = naive.evaluate(judge, systematics=judge_moved, mc_statistics=False)
                    values["naive"] = shifts.significance
                for key, value in values.items():
                    found.setdefault(f"{name} {key} {k}", []).append(value)
    return out | {key: float(np.mean(values)) for key, values in found.items()}


def picture(train: Events, test: Events, seed: int) -> dict[str, Any]:
    """Yields by process in bins of the plain score and of t."""
    model = ProfiledClassifier(random_state=seed, n_jobs=1).fit(train, systematics=four(train))
    plain = np.mean([m.signal_probability(test.X) for m in model.models_], axis=0)
    out: dict[str, Any] = {}
    for name, score in (("plain", plain), ("t", model.decision_function(test))):
        edges = bin_edges(score, test.is_signal, test.weight)
        filled = yield_shifts(
            edges, ScoredEvents(score, test.is_signal, test.weight, process=test.process), systematics={}
        )
        out[name] = {process: rows.sum_of_weights.tolist() for process, rows in filled.nominal.items()}
    return out


def exact(seed: int) -> dict[str, Any]:
    """Fifty categories of t and of s/b on a toy whose densities are known, over the significance without binning."""
    from tests.likelihood.test_least_favourable import random_toy

    toy = random_toy(seed)
    weight, r_s, r = toy.ratios
    found = least_favourable(weight, r_s, r, np.ones(len(r)))
    y, w = np.repeat([1, 0], r_s.size), np.concatenate([toy.s, toy.b])
    moved = {str(j): (Varied(weight=np.concatenate([toy.s, toy.b + row])), None) for j, row in enumerate(toy.shifts)}
    out = {"unbinned": found.value}
    for name, score in (("t", likelihood_ratio(r_s, r, found.pulls)), ("s/b", r_s)):
        best = categorise(np.tile(score, 2), y, w, 50, systematics=moved, rule="peak", min_effective=0)
        out[name] = best.significance
    return out


def parts(folder: str) -> dict[str, Callable[[int], dict[str, Any]]]:
    """What can be run, by name."""
    path = str(Path(folder) / SIMULATED)

    def pythia(n: int, systematics: Callable[[Events], Given], ks: tuple[int, ...], seed: int) -> dict[str, Any]:
        train, test = read_set(path, "t"), read_set(path, "b")
        if n < len(train):
            train = train.split(n / len(train), random_state=seed)[1]
        return compare(train, test, systematics, ks, seed)

    def toy(n: int, seed: int) -> dict[str, Any]:
        return compare(make_htautau(n, 1_000 + seed), make_htautau(60_000, 2_000 + seed), four, N_CATEGORIES, seed)

    out: dict[str, Callable[[int], dict[str, Any]]] = {"exact": exact}
    for n in (8_000, 25_000, 125_000):
        out[f"pythia-{n}"] = partial(pythia, n, four, N_CATEGORIES)
    for n in (8_000, 25_000, 125_000):
        out[f"toy-{n}"] = partial(toy, n)
    for size in SIZES:
        out[f"size-{size:g}"] = partial(pythia, N_SIZES, partial(four, size=size), (10,))

    def picture_of(seed: int) -> dict[str, Any]:
        train = read_set(path, "t")
        return picture(train.split(N_SIZES / len(train), random_state=seed)[1], read_set(path, "b"), seed)

    out["picture"] = picture_of
    out["none"] = partial(pythia, N_SIZES, lambda _: {}, (10,))
    out["thirty"] = partial(pythia, N_SIZES, thirty, (10,))
    return out


def run(folder: str, asked: list[str], n_seeds: int) -> None:
    """Run what is not there yet."""
    known = parts(folder)
    for seed in range(n_seeds):
        for name in asked or known:
            results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            if str(seed) in results.get(name, {}):
                continue
            results.setdefault(name, {})[str(seed)] = known[name](seed)
            with written_whole(RESULTS) as beside:
                beside.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
            print(name, seed, time.strftime("%H:%M:%S"), flush=True)


def time_fits(folder: str) -> None:
    """CPU seconds of a fit with no, four and thirty systematics, and the held-out significance of both scores."""
    whole = read_set(str(Path(folder) / SIMULATED), "t")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for n in (8_000, 25_000):
        train, row = whole.split(n / len(whole), random_state=0)[1], {}
        for name, given in (("none", {}), ("four", four(train)), ("thirty", thirty(train))):
            start = time.process_time()
            model = ProfiledClassifier(random_state=0, n_jobs=1).fit(train, systematics=given)
            row[name] = time.process_time() - start
        values = [r.value for r in model.history_]
        row |= {"left out": len(model.left_out_), "plain": values[0], "t": max(values[1:])}
        results.setdefault("thirty-time", {})[str(n)] = row
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def main() -> None:
    warnings.simplefilter("ignore", SmallSampleWarning)
    command, folder, *names = sys.argv[1:]
    if command == "times":
        time_fits(folder)
        return
    n_seeds = int(names.pop()) if names and names[-1].isdigit() else SEEDS
    run(folder, names, n_seeds)


if __name__ == "__main__":
    main()
