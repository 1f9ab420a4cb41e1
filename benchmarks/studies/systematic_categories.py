"""What categories gain that know the systematics, on other events; how good their search is; how fast it is.

``python -m benchmarks.studies.systematic_categories [gaussians|htautau|sizes|pyhf|brute]`` writes to
``systematic_categories.json``. Without an argument all, one after the other. The ratio of times is a benchmark of the
harness: ``python -m benchmarks systematic_categories.speed``.

Gaussians: 100 signal events around 1.5 and 10,000 background events around 0, from 40,000 simulated events of each; the
score may shift by 0.05 and the background is known to 10 %. "Out" is the expectation of the distributions.

Toy H -> tautau: an XGBoost score, trained on 100,000 events of `make_htautau`. Ten blocks of 100,000 events; edges are
chosen on one and quoted on the other nine. The energy of the hadronic tau is known to 3 % (missing momentum and all
derived features follow; the likelihood mass is scaled with the visible mass), W to 10 %, Z to 5 %.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from benchmarks.harness import Figure, as_table, benchmark, best_times
from fivesigma import profiled_significance
from fivesigma._types import AnyArray, Array, IntArray
from fivesigma.categories import categorise
from fivesigma.categories.one_score.dual import search
from fivesigma.categories.one_score.profiled_cells import Cells, DiscoveryCells, merge_cells
from fivesigma.errors import SmallSampleWarning
from fivesigma.likelihood.profile import Counts
from fivesigma.likelihood.shifts import Systematics, Varied, YieldShifts, yield_shifts
from fivesigma.yields import class_sums

RESULTS = Path(__file__).with_suffix(".json")
N_CATEGORIES = (1, 3, 5, 10, 20)
SHIFT, NORMALISATION = 0.05, 0.10
PROCESSES = ("htautau_VBF", "htautau_ggF", "ttbar", "wjets", "ztautau")
SIZES = (0.25, 0.5, 1.0, 2.0, 4.0)


class Sample(NamedTuple):
    """Scores, labels, physics weights, processes, and scores after the energy scale moved up and down."""

    score: Array
    y: IntArray
    weight: Array
    process: Any
    up: Array
    down: Array

    @property
    def events(self) -> tuple[Array, IntArray, Array]:
        """What every function takes first."""
        return self.score, self.y, self.weight


# ---------------------------------------------------------------- Gaussians


def gaussians(seed: int, n: int = 40_000) -> Sample:
    """100 signal events at 1.5 and 10,000 background events at 0, n simulated events of each."""
    rng = np.random.default_rng(seed)
    y = np.repeat([1, 0], n)
    score = rng.normal(1.5 * y)
    weight = np.where(y == 1, 100.0, 10_000.0) / n
    return Sample(score, y, weight, np.where(y == 1, "signal", "background"), score + SHIFT, score - SHIFT)


def gaussian_systematics(sample: Sample, size: float = 1.0) -> Systematics:
    """A shift of the score and a normalisation, each of `size` standard deviations."""
    moved = [Varied(score=sample.score + sign * size * SHIFT) for sign in (1, -1)]
    heavier = np.where(sample.y == 0, 1 + size * NORMALISATION, 1.0) * sample.weight
    return {"scale": (moved[0], moved[1]), "normalisation": (Varied(weight=heavier), None)}


def expected(edges: Array, size: float = 1.0) -> float:
    """Profiled significance of categories, from the distributions themselves."""

    def background(shift: float) -> Array:
        events: Array = 10_000.0 * np.diff(ndtr(edges - shift))
        return events

    s, b = 100.0 * np.diff(ndtr(edges - 1.5)), background(0.0)
    moved = [[background(sign * size * SHIFT) - b, sign * size * NORMALISATION * b] for sign in (1, -1)]
    return profiled_significance(s, b, *moved)


def on_gaussians(n_samples: int = 20) -> dict[str, Any]:
    """Expected significance of naive edges and of edges that know the systematics."""
    rows: dict[int, list[list[float]]] = {k: [] for k in N_CATEGORIES}
    for seed in range(n_samples):
        sample = gaussians(seed)
        for k in N_CATEGORIES:
            naive = [categorise(*sample.events, k, rule="model", min_effective=floor) for floor in (10, 25)]
            knowing = categorise(*sample.events, k, systematics=gaussian_systematics(sample))
            rows[k].append([*(expected(c.edges) for c in (*naive, knowing)), knowing.significance, knowing.gap or 0.0])
    return _table(rows)


def misjudged(n_samples: int = 10, k: int = 10) -> dict[str, Any]:
    """Significance at the true sizes, of edges that were chosen for other ones; also without any systematics."""
    found: dict[str, list[float]] = {}
    for seed in range(n_samples):
        sample = gaussians(seed)
        naive = categorise(*sample.events, k, rule="model", min_effective=25).edges
        for true in (0.0, 1.0):
            found.setdefault(f"true size {true:g}, naive", []).append(expected(naive, true))
            for size in SIZES:
                edges = categorise(*sample.events, k, systematics=gaussian_systematics(sample, size)).edges
                found.setdefault(f"true size {true:g}, assumed {size:g}", []).append(expected(edges, true))
    out = {}
    for name, values in found.items():
        gain = np.subtract(values, found[f"{name.partition(',')[0]}, naive"])
        out[name] = {"z": float(np.mean(values)), "gain": float(gain.mean()), "error": _error(gain)}
    return out


# ---------------------------------------------------------------- toy H -> tautau


def tau_energy_scale(X: AnyArray, names: tuple[str, ...], factor: float) -> AnyArray:
    """Scale the hadronic tau and let the missing momentum and the derived features follow."""
    from fivesigma.datasets.htautau.kinematics import MEASURED, derive

    columns = {name: X[:, i].astype(np.float64) for i, name in enumerate(names)}
    before = derive({name: columns[name] for name in MEASURED})["DER_mass_vis"]
    pt, phi = columns["PRI_tau_pt"], columns["PRI_tau_phi"]
    x = columns["PRI_met"] * np.cos(columns["PRI_met_phi"]) - (factor - 1) * pt * np.cos(phi)
    y = columns["PRI_met"] * np.sin(columns["PRI_met_phi"]) - (factor - 1) * pt * np.sin(phi)
    columns |= {"PRI_tau_pt": factor * pt, "PRI_met": np.hypot(x, y), "PRI_met_phi": np.arctan2(y, x)}
    derived = derive({name: columns[name] for name in MEASURED})
    columns["DER_mass_MMC"] = columns["DER_mass_MMC"] * derived["DER_mass_vis"] / before
    columns |= derived
    return np.stack([columns[name] for name in names], axis=1).astype(np.float32)


def htautau_blocks(n_blocks: int = 10, n_events: int = 100_000) -> list[Sample]:
    """Blocks of scored events, each with the full yields."""
    import xgboost as xgb

    from fivesigma.datasets import make_htautau
    from fivesigma.yields import balanced_class_weights, learner_weights

    train = make_htautau(100_000, 1_000)
    signal = train.is_signal
    model = xgb.XGBClassifier(n_estimators=150, max_depth=5, learning_rate=0.1, n_jobs=1)
    weights = learner_weights(train.weight, signal, balanced_class_weights(train.weight, signal))
    model.fit(train.X, signal, sample_weight=weights)
    out = []
    for seed in range(n_blocks):
        events = make_htautau(n_events, 2_000 + seed)
        tables = [events.X, *(tau_energy_scale(events.X, events.feature_names, f) for f in (1.03, 0.97))]
        score, up, down = (model.predict(X, output_margin=True).astype(np.float64) for X in tables)
        process = np.searchsorted(PROCESSES, np.asarray(events.process))  # numbers are faster than names
        out.append(Sample(score, events.is_signal.astype(int), events.weight, process, up, down))
    return out


def joined(blocks: list[Sample]) -> Sample:
    """Several blocks as one with the full yields."""
    columns = [np.concatenate(column) for column in zip(*blocks, strict=True)]
    columns[2] = columns[2] / len(blocks)
    return Sample(*columns)


def htautau_systematics(sample: Sample) -> Systematics:
    """Tau energy 3 %, W 10 %, Z 5 %."""
    out: dict[str, tuple[Varied, Varied | None]] = {"TES": (Varied(score=sample.up), Varied(score=sample.down))}
    for name, size in (("wjets", 0.10), ("ztautau", 0.05)):
        factor = np.where(sample.process == PROCESSES.index(name), 1 + size, 1.0)
        out[name] = (Varied(weight=factor * sample.weight), None)
    return out


def on_htautau(blocks: list[Sample]) -> dict[str, Any]:
    """Profiled significance on other blocks, of naive edges and of edges that know the systematics."""
    rows: dict[int, list[list[float]]] = {k: [] for k in N_CATEGORIES}
    for i, sample in enumerate(blocks):
        systematics = htautau_systematics(sample)
        chosen = {
            k: [
                *(categorise(*sample.events, k, rule="model", min_effective=floor) for floor in (10, 25)),
                categorise(*sample.events, k, systematics=systematics, process=sample.process),
            ]
            for k in N_CATEGORIES
        }
        test = joined(blocks[:i] + blocks[i + 1 :])
        edges = np.unique(np.concatenate([c.edges for found in chosen.values() for c in found]))
        cells = yield_shifts(edges, *test.events, htautau_systematics(test), process=test.process)
        for k, found in chosen.items():
            shifts = [merge_cells(cells, np.searchsorted(edges, c.edges[:-1]), c.edges) for c in found]
            row = [*(s.significance for s in shifts), found[-1].significance, found[-1].gap or 0.0]
            rows[k].append([*row, *map(with_staterror, shifts[1:])])
        print("block", i, file=sys.stderr)
    return _table(rows)


def with_staterror(shifts: YieldShifts) -> float:
    """Significance with the statistics of the simulation, as pyhf has them."""
    up, down = zip(*shifts.background_shifts(), strict=True)
    variance = class_sums(shifts.nominal, signal=False)[1]
    return profiled_significance(shifts.yields(signal=True), shifts.yields(signal=False), up, down, variance)


def _table(rows: dict[int, list[list[float]]]) -> dict[str, Any]:
    out = {}
    for k, values in rows.items():
        columns = np.array(values).T
        naive, naive_25, knowing, inside, gap = columns[:5]
        row = {
            "naive": float(naive.mean()),
            "naive, 25 effective": float(naive_25.mean()),
            "knowing": float(knowing.mean()),
            "gain": float((knowing - naive).mean()),
            "gain error": _error(knowing - naive),
            "gain over 25 effective": float((knowing - naive_25).mean()),
            "gain over 25 effective, error": _error(knowing - naive_25),
            "in sample": float(inside.mean()),
            "largest gap": float(gap.max()),
            "samples": len(values),
        }
        if len(columns) > 5:
            gain = columns[6] - columns[5]
            row |= {"gain with staterror": float(gain.mean()), "gain with staterror, error": _error(gain)}
        out[f"K = {k}"] = row
    return out


def _error(values: Array) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(values.size))


# ---------------------------------------------------------------- against brute force and against pyhf


def random_cells(rng: np.random.Generator, n_cells: int, n_systematics: int) -> Cells:
    """Noisy cells of two Gaussians whose background is scaled, tilted or bent by up to tens of per cent."""
    x = np.linspace(3.5, -2.0, n_cells)
    s, b = (np.exp(-((x - mean) ** 2) / 2) * rng.gamma(20.0, size=n_cells) for mean in (1.5, 0.0))
    s, b = s * rng.uniform(20, 200) / s.sum(), b * rng.uniform(1e3, 1e5) / b.sum()
    shapes = np.stack([np.ones(n_cells), x, (x * x - 1) / 2])[rng.integers(3, size=n_systematics)]
    relative = np.clip(rng.normal(0, 0.1, (n_systematics, 1)) * shapes, -0.6, 0.6)
    up = relative * b
    down = -up * rng.uniform(0.3, 1.3, (n_systematics, 1)) + rng.normal(0, 0.02, (n_systematics, 1)) * b
    n, b, up, down = (np.pad(np.cumsum(v, axis=-1), [(0, 0)] * (v.ndim - 1) + [(1, 0)]) for v in (s + b, b, up, down))
    allowed = np.tri(n_cells + 1, k=-1, dtype=np.bool_)
    return DiscoveryCells(n, allowed, 0.0, np.zeros(n_systematics), b, up, down)


def brute_force(cells: Cells, k: int, theta: Array) -> float:
    """Largest profiled significance over all partitions, each from several starts."""
    every = np.array(list(itertools.combinations(range(1, cells.n.size), k)))
    n = cells.constant.size
    starts = [np.zeros(n), theta, *(1.5 * np.eye(n)), *(-1.5 * np.eye(n))]
    return float(np.sqrt(2 * np.min([cells.between(every).profile(start).objective for start in starts], axis=0).max()))


def against_brute_force(n_trials: int = 300) -> dict[str, Any]:
    """How often the bound is below the optimum, and how often the value is within 0.01 of it."""
    rng = np.random.default_rng(0)
    out: dict[str, Any] = {}
    for k, n_cells in ((1, 60), (2, 40), (3, 24)):
        loss, room, gap = [], [], []
        for _ in range(n_trials // 3):
            cells = random_cells(rng, n_cells, int(rng.integers(1, 4)))
            found = search(cells, k)
            best = brute_force(cells, k, found.theta)
            value, bound = np.sqrt(2 * np.array([found.objective, found.bound]))
            loss.append(best - value)
            room.append(bound - best)
            gap.append(bound - value)
        out[f"K = {k}"] = {
            "grids": len(loss),
            "bound below the optimum": int(np.count_nonzero(np.array(room) < -1e-7)),
            "within 0.01 of the optimum": float(np.mean(np.array(loss) < 0.01)),
            "largest loss": float(max(loss)),
            "largest gap": float(max(gap)),
        }
    return out


def random_workspace(rng: np.random.Generator) -> tuple[Array, Array, Array, Array, Array]:
    """Yields, shifts and variances of random categories, with pulls well within pyhf's bounds of 5."""
    k, n = int(rng.integers(1, 8)), int(rng.integers(1, 5))
    b = rng.uniform(20, 2000, k)
    s = rng.uniform(0.1, 3.0, k) * np.sqrt(b)
    up = rng.normal(0, 0.1, (n, k)) * b
    return s, b, up, -up * rng.uniform(0.5, 1.5, up.shape), (rng.uniform(0.01, 0.15, k) * b) ** 2


def pyhf_workspace(s: Array, b: Array, up: Array, down: Array, variance: Array | None) -> dict[str, Any]:
    """One background with ``histosys`` and, if there is a variance, ``staterror``."""
    modifiers: list[dict[str, Any]] = [
        {"name": f"a{i}", "type": "histosys", "data": {"hi_data": (b + u).tolist(), "lo_data": (b + d).tolist()}}
        for i, (u, d) in enumerate(zip(up, down, strict=True))
    ]
    if variance is not None:
        modifiers.append({"name": "stat", "type": "staterror", "data": np.sqrt(variance).tolist()})
    samples = [
        {"name": "signal", "data": s.tolist(), "modifiers": [{"name": "mu", "type": "normfactor", "data": None}]},
        {"name": "background", "data": b.tolist(), "modifiers": modifiers},
    ]
    config = {"poi": "mu", "parameters": [{"name": "mu", "inits": [1.0], "bounds": [[0.0, 10.0]]}]}
    return {
        "channels": [{"name": "c", "samples": samples}],
        "observations": [{"name": "c", "data": (s + b).tolist()}],
        "measurements": [{"name": "discovery", "config": config}],
        "version": "1.0.0",
    }


def against_pyhf(n_workspaces: int = 200) -> dict[str, Any]:
    """Largest difference of the profiled significance from pyhf's, with and without staterror."""
    from fivesigma import discovery_significance

    rng = np.random.default_rng(0)
    worst, other_minimum = {"without staterror": 0.0, "with staterror": 0.0}, 0
    for _ in range(n_workspaces):
        s, b, up, down, variance = random_workspace(rng)
        for name, v in (("without staterror", None), ("with staterror", variance)):
            fitted = Counts(s + b, b, up, down, None if v is None else v / b**2).lowest()
            pulls = {f"a{i}": float(pull) for i, pull in enumerate(fitted.theta)}
            workspace = pyhf_workspace(s, b, up, down, v)
            theirs, from_zero = discovery_significance(workspace, pulls), discovery_significance(workspace)
            other_minimum += from_zero > theirs + 1e-6
            worst[name] = max(worst[name], abs(profiled_significance(s, b, up, down, v) - theirs))
    return {"workspaces": n_workspaces, **worst, "pyhf alone stops in a higher minimum": other_minimum}


# ---------------------------------------------------------------- speed


@benchmark()
def speed() -> Iterable[Figure]:
    """Time of ten categories with three systematics on a million events, over that of the smooth rule without."""
    rng = np.random.default_rng(0)
    n = 1_000_000
    y = np.arange(n) % 2
    score = rng.normal(1.5 * y)
    weight = np.where(y == 1, 692.0, 411_000.0) * 2 / n
    tilt = [Varied(weight=np.where(y == 0, 1 + c * np.tanh(score), 1.0) * weight) for c in (0.05, -0.04)]
    systematics: Systematics = {
        "scale": (Varied(score=score + 0.05), Varied(score=score - 0.05)),
        "normalisation": (Varied(weight=np.where(y == 0, 1.1, 1.0) * weight), None),
        "tilt": (tilt[0], tilt[1]),
    }
    with_, without = best_times(
        5,
        lambda: categorise(score, y, weight, 10, systematics=systematics),
        lambda: categorise(score, y, weight, 10, rule="model"),
        clock=time.process_time,
    )
    note = f"{with_:.2f} s against {without:.2f} s"
    yield Figure("10^6 events, 10 categories, 3 systematics: time over that without", with_ / without, 10.0, "", note)


def tables() -> dict[str, str]:
    """Gains of edges that know the systematics, what misjudged sizes cost, and how near the search comes."""
    results = json.loads(RESULTS.read_text())
    return {"gains": _gains(results), "sizes": _sizes(results["sizes"]), "gaps": _gaps(results)}


def _gains(results: dict[str, Any]) -> str:
    gaussians, toy = results["gaussians"], results["htautau"]
    head = ["K", "Gaussians: naive", "profiled", "gain", "H→ττ toy: naive", "profiled", "gain", "gain with staterror"]
    rows = []
    for k in N_CATEGORIES:
        row = [str(k)]
        for found, digits in ((gaussians[f"K = {k}"], 3), (toy[f"K = {k}"], 2)):
            gain = f"{found['gain']:+.{digits}f} ± {found['gain error']:.{digits}f}"
            row += [f"{found['naive']:.2f}", f"{found['knowing']:.2f}", gain]
        found = toy[f"K = {k}"]
        rows.append([*row, f"{found['gain with staterror']:+.2f} ± {found['gain with staterror, error']:.2f}"])
    return as_table(head, rows)


def _sizes(found: dict[str, Any]) -> str:
    head = ["assumed size / true size", *(f"{size:g}" for size in SIZES)]
    cells = {
        name: [found[f"true size {true}, assumed {size:g}"] for size in SIZES]
        for name, true in (("gain", 1), ("gain if there are none at all", 0))
    }
    return as_table(head, [[k, *(f"{c['gain']:+.3f} ± {c['error']:.3f}" for c in row)] for k, row in cells.items()])


def _gaps(results: dict[str, Any]) -> str:
    """Largest gap of the samples above, and largest loss against all partitions of random grids."""
    rows = [
        [f"{words}, K = {k}", f"{results[key][f'K = {k}']['largest gap']:.4f}", ""]
        for key, words in (("gaussians", "Gaussians"), ("htautau", "H→ττ toy"))
        for k in N_CATEGORIES
    ]
    brute = results["brute"].items()
    rows += [
        [f"{one['grids']} random grids, {k}", f"{one['largest gap']:.4f}", f"{one['largest loss']:.4f}"]
        for k, one in brute
    ]
    return as_table(["search", "largest gap to the bound", "largest loss against the best of all partitions"], rows)


def main() -> None:
    warnings.simplefilter("ignore", SmallSampleWarning)
    asked = sys.argv[1:] or ["pyhf", "brute", "gaussians", "sizes", "htautau"]
    parts = {
        "gaussians": on_gaussians,
        "sizes": misjudged,
        "pyhf": against_pyhf,
        "brute": against_brute_force,
        "htautau": lambda: on_htautau(htautau_blocks()),
    }
    for name in asked:
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results[name] = parts[name]()
        RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
        print(name, json.dumps(results[name], indent=2))


if __name__ == "__main__":
    main()
