"""Figures of the pages, drawn from the results of the benchmarks when the site is built.

A page calls a function in a cell without input: ``from docs.figures import draw; draw.cut_rules()``.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
INK, BLUE, RED, GREEN, PURPLE, GREY = "#222832", "#1f5a96", "#c1440e", "#4b8b3b", "#7b4fa0", "#667788"
SOURCES = {
    "gauss": "two Gaussians",
    "heavy": "heavy weights",
    "toy": "toy H→ττ",
    "t": "simulated, set t",
    "b": "simulated, set b",
    "real": "real events",
}


PROBLEMS = {
    "few": "toy, 1,500 events",
    "toy-5000": "toy, 5,000",
    "toy-10000": "toy, 10,000",
    "t-b": "simulated, 10,000",
    "real": "real, 11,400",
    "heavy": "heavy weights, 5,000",
    "weak": "weak features, 3,000",
}


def _read(name, folder="studies"):
    return json.loads((BENCHMARKS / folder / f"{name}.json").read_text())


def _figure(label, width=7.0, height=3.4, columns=1):
    figure = Figure(figsize=(width, height), layout="constrained", label=label)
    return figure, figure.subplots(1, columns)


def cut_rules():
    """Loss of each rule against the best cut, mean over the settings of a source of events."""
    regret = _read("cut_rules")["regret"]
    figure, ax = _figure("Loss of the rules of scan against the best possible cut, by source of events", height=3.0)
    for rule, colour, marker in (("peak", GREY, "s"), ("plateau", RED, "D"), ("model", BLUE, "o")):
        for place, source in enumerate(SOURCES):
            rows = [row for name, row in regret.items() if name.split("-")[0] == source]
            values = [row["regret"][row["rules"].index(rule)] for row in rows]
            ax.plot(np.mean(values), place, marker, color=colour, label=None if place else f'"{rule}"')
    ax.set_yticks(range(len(SOURCES)), SOURCES.values())
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.set_xlabel("significance lost against the best possible cut")
    ax.legend()
    return figure


def cut_coverage():
    """Share of 68 % intervals that hold the true significance."""
    covered = _read("cut_rules")["coverage, yields as drawn"]
    figure, ax = _figure("Coverage of the 68 % interval of scan, by rule", height=3.2)
    for rule, colour in (("plateau", RED), ("model", BLUE)):
        values = [row["covered"][row["rules"].index(rule)] for row in covered.values()]
        ax.errorbar(values, range(len(values)), xerr=0.023, fmt="o", color=colour, label=f'"{rule}"')
    ax.axvline(0.68, color=GREY, linestyle=":")
    ax.set_yticks(range(len(covered)), covered)
    ax.invert_yaxis()
    ax.set_xlabel("share of 68 % intervals that hold the true significance")
    ax.legend()
    return figure


def auto_gains():
    """Gain of AutoClassifier over one plain model, by problem."""
    from benchmarks.studies.auto import mean_gain

    results = _read("auto")
    figure, ax = _figure("Gain of AutoClassifier over one plain model, by problem", height=3.2)
    for name, words, colour, shift in (("fast", "fast=True", RED, 0.12), ("auto", "AutoClassifier()", BLUE, -0.12)):
        for place, seeds in enumerate(results.values()):
            gain, error = mean_gain([found["models"][name]["over"]["gains"] for found in seeds.values()])
            label = None if place else words
            ax.errorbar(gain, place + shift, xerr=error, fmt="o", color=colour, label=label)
    ax.axvline(0, color=GREY, linestyle=":")
    ax.set_yticks(range(len(results)), [PROBLEMS[name] for name in results])
    ax.invert_yaxis()
    ax.set_xlabel("gain in AMS over one plain XGBoost with a tuned cut, mean over cuts")
    ax.legend()
    return figure


def systematic_categories():
    """Profiled significance against the number of categories, for naive and for knowing edges."""
    results = _read("systematic_categories")
    figure, axes = _figure("Significance with systematics against the number of categories", columns=2)
    for ax, key, title in zip(axes, ("gaussians", "htautau"), ("two Gaussians", "toy H→ττ"), strict=True):
        n = sorted(int(name.removeprefix("K = ")) for name in results[key])
        for name, words, colour in (
            ("naive", "edges for a known background", RED),
            ("knowing", "edges that know the systematics", BLUE),
        ):
            ax.plot(n, [results[key][f"K = {k}"][name] for k in n], "o-", color=colour, label=words)
        ax.set_xscale("log")
        ax.set_xticks(n, n)
        ax.minorticks_off()
        ax.set(title=title, xlabel="categories", ylim=(0, None))
    axes[0].set_ylabel("significance on other events")
    axes[0].legend(loc="lower right")
    return figure


def trials(which="simulated"):
    """Gains of the trials for the recipe `best`, as a forest plot."""
    rows = {name: row for name, row in _read("higgsml_trials")[which].items() if row["error"]}
    figure, ax = _figure("Gains of single changes to the net", height=0.6 + 0.2 * len(rows))
    for place, row in enumerate(rows.values()):
        ax.errorbar(row["gain"], place, xerr=row["error"], fmt="o", markersize=4, color=BLUE)
    ax.axvline(0, color=GREY, linestyle=":")
    ax.set_yticks(range(len(rows)), rows, fontsize=8)
    ax.invert_yaxis()
    ax.set_xlabel("gain in AMS, mean over cuts at 10 to 20 %")
    return figure


def net_gains():
    """Gain of the net in AutoClassifier, by problem."""
    from benchmarks.studies.auto import mean_gain

    results = _read("auto_net")
    figure, ax = _figure("Gain of AutoClassifier with its net over the same without", height=2.8)
    for what, words, colour, shift in (("own", "at its own cut", GREY, 0.12), ("over", "over cuts", BLUE, -0.12)):
        for place, seeds in enumerate(results.values()):
            gain, error = mean_gain([found[what]["gains"] for found in seeds.values()])
            label = None if place else words
            ax.errorbar(gain, place + shift, xerr=error, fmt="o", color=colour, label=label)
    ax.axvline(0, color=GREY, linestyle=":")
    ax.set_yticks(range(len(results)), [PROBLEMS[name] for name in results])
    ax.invert_yaxis()
    ax.set_xlabel("gain in AMS over the same blend without the net")
    ax.set_xlim(right=0.42)
    ax.legend(loc="lower right")
    return figure


def category_yields():
    """Gain of modelled over averaged yields on other events, by score and number of events."""
    groups = {}
    for name, row in _read("category_yields").items():
        kind, n = name.partition("-")[0].partition(",")[0], int(name.rpartition(", ")[2].replace(",", ""))
        groups.setdefault(kind, {}).setdefault(n, []).extend(row.values())
    figure, ax = _figure("Gain of modelled yields in the choice of categories", height=2.8)
    for shift, (n, colour) in enumerate(((5_000, RED), (20_000, BLUE), (100_000, GREEN))):
        for place, found in enumerate(groups.values()):
            rows = found.get(n, [])
            if rows:
                error = np.sqrt(sum(row["error"] ** 2 for row in rows)) / len(rows)
                gain = np.mean([row["gain"] for row in rows])
                label = f"{n:,} events" if place == 0 else None
                ax.errorbar(gain, place + 0.2 * (shift - 1), xerr=error, fmt="o", color=colour, label=label)
    ax.axvline(0, color=GREY, linestyle=":")
    words = SOURCES | {"apart": "Gaussians far apart", "t": "simulated events"}
    ax.set_yticks(range(len(groups)), [words[name] for name in groups])
    ax.invert_yaxis()
    ax.set_xlabel("gain in significance on other events, mean over K = 2, 5, 10, 20")
    ax.legend()
    return figure


def bias():
    """Quoted less true significance of each number that a model offers."""
    rows = _read("honesty")
    numbers = ("test", "held-out", "categories, same events", "categories, other events")
    figure, axes = _figure("Quoted less true significance, by scenario", width=9.0, height=3.4, columns=len(numbers))
    scenarios = list(dict.fromkeys(key.split()[0] for key in rows))
    for ax, what in zip(axes, numbers, strict=True):
        for shift, (model, colour) in enumerate((("grown", RED), ("auto", BLUE), ("pool", GREEN))):
            for place, name in enumerate(scenarios):
                found = [row for key, row in rows.items() if key.startswith(f"{name} {model} ") and what in row]
                differences = np.array([row[what][0] for row in found])
                error = differences.std(ddof=1) / np.sqrt(differences.size)
                label = model if place == 0 else None
                at = place + 0.2 * (shift - 1)
                ax.errorbar(differences.mean(), at, xerr=error, fmt="o", markersize=4, color=colour, label=label)
        ax.axvline(0, color=GREY, linestyle=":")
        ax.set(title=what.replace(", ", ",\n"), xlim=(-0.32, 0.32), ylim=(len(scenarios) - 0.5, -0.5))
        ax.set_yticks(range(len(scenarios)), scenarios if ax is axes[0] else [""] * len(scenarios))
    figure.supxlabel("quoted less true significance")
    axes[0].legend(fontsize=8)
    return figure


def inferno():
    """Uncertainty of the signal in the five settings of INFERNO's paper, over that of the analytical likelihood."""
    from benchmarks.peers.inferno import PUBLISHED, ROWS

    results = _read("inferno", "peers")
    limit, settings = np.array(PUBLISHED["analytical likelihood (paper)"]), list(ROWS)
    figure, ax = _figure("Uncertainty over that of the analytical likelihood", height=3.0)
    for (name, published), colour in zip(PUBLISHED.items(), (GREY, RED, INK), strict=True):
        if not name.startswith("analytical"):
            ax.plot(settings, np.array(published) / limit, "o--", color=colour, label=name)
    for bins, colour in ((5, GREEN), (10, BLUE)):
        found = [[one[f"{bins} bins"] for key, one in results.items() if key.startswith(f"{row}/")] for row in ROWS]
        ax.plot(settings, [np.mean(of) for of in found] / limit, "o-", color=colour, label=f"fivesigma, {bins} bins")
    ax.axhline(1, color=GREY, linestyle=":")
    ax.set_xticks(settings)
    ax.set(xlabel="setting", ylabel="uncertainty over the limit")
    ax.legend(fontsize=8)
    return figure


def simulation():
    """All columns of the toy and of real events."""
    found = _read("simulation")
    figure = Figure(figsize=(9.0, 10.5), layout="constrained", label="Columns of toy and real events")
    for ax, (name, row) in zip(figure.subplots(6, 5).ravel(), found.items(), strict=True):
        edges = row["edges"]
        for words, colour in (("background", BLUE), ("signal", RED)):
            ax.stairs(row[words]["real"], edges, fill=True, color=colour, alpha=0.25)
            ax.stairs(row[words]["toy"], edges, color=colour, lw=1.0)
        ax.set_title(name.removeprefix("DER_").removeprefix("PRI_"), fontsize=7)
        ax.set_yticks([])
        ax.tick_params(labelsize=6)
        if name.endswith("_num"):
            ax.set_xticks([0, 1, 2, 3])
    return figure


def memory():
    """Peak memory of a training on ten million events."""
    figures = [f for r in json.loads((BENCHMARKS / "results.json").read_text()).values() for f in r["figures"]]
    figure, ax = _figure("Peak memory of a training on ten million events", height=1.9)
    modes = ("all", "bins", "disk")
    peaks = [
        next(f["value"] for f in figures if f["name"].endswith(f"memory='{m}'") and f["unit"] == " MB") for m in modes
    ]
    ax.barh(range(3), peaks, color=BLUE)
    for place, peak in enumerate(peaks):
        ax.text(peak, place, f" {peak / 1000:.1f} GB", va="center", fontsize=8)
    ax.set_yticks(range(3), [f'memory="{mode}"' for mode in modes])
    ax.invert_yaxis()
    ax.set_xlabel("peak memory in MB, 10 million events of 30 features")
    return figure


def best_cuts():
    """How the best cut moves as the background becomes uncertain."""
    from benchmarks.studies.systematics import rows

    found = rows()
    percent = [100 * row.uncertainty for row in found]
    figure, (left, right) = _figure(
        "Best cut and its significance against the uncertainty of the background", columns=2
    )
    for k, (name, colour) in enumerate((("RelativeBackground", BLUE), ("GaussianBackground", RED), ("OnOff", GREEN))):
        left.plot(percent, [row.cut[k] for row in found], "o-", color=colour, label=name)
        right.plot(percent, [row.significance[k] for row in found], "o-", color=colour, label=name)
    unmoved = [row.unmoved for row in found]
    right.plot(percent, unmoved, "--", color=GREY, label="RelativeBackground,\ncut of a known background")
    left.set(xlabel="uncertainty of the background, %", ylabel="best cut")
    right.set(xlabel="uncertainty of the background, %", ylabel="significance")
    left.legend(fontsize=8)
    right.legend(fontsize=8)
    return figure


def profiled_sizes():
    """Significance against the size of the systematics."""
    from benchmarks.studies.profiled_tables import column, sizes_of

    results = _read("profiled")
    known = sizes_of(results)
    figure, ax = _figure("Significance of ten categories against the size of all systematics")
    for label, key, style, colour in (
        ("known background", "plain limit 10", ":", GREY),
        ("t, edges that know the systematics", "t knowing 10", "o-", BLUE),
        ("plain score, edges that know the systematics", "plain knowing 10", "s-", GREEN),
        ("plain score, naive edges", "plain naive 10", "^--", RED),
    ):
        rows = [column(results, part, key) for _, part in known]
        errors = [row.std(ddof=1) / np.sqrt(row.size) if row.size > 1 else 0.0 for row in rows]
        ax.errorbar(
            [size for size, _ in known], [row.mean() for row in rows], errors, fmt=style, color=colour, label=label
        )
    ax.set_xlabel("size of all systematics (1: W 10 %, top 8 %, Z 5 %, tau energy 3 %)")
    ax.set_ylabel("profiled significance of ten categories")
    ax.legend(fontsize=8)
    return figure


def profiled_picture():
    """Share of each background in bins of the plain score and of t, and s/b."""
    bins = _read("profiled")["picture"]["0"]
    figure = Figure(figsize=(8.6, 4.6), layout="constrained", label="Backgrounds in bins of the plain score and of t")
    panels = figure.subplots(2, 2, sharex="col", height_ratios=(3, 1))
    processes = {"wjets": ("W", BLUE), "ztautau": ("Z", "#8a6d00"), "ttbar": ("top", GREEN)}
    for j, (name, title) in enumerate((("plain", "plain score s/b"), ("t", "t, which knows the systematics"))):
        yields = {key: np.array(values) for key, values in bins[name].items()}
        signal = np.sum([v for key, v in yields.items() if key.startswith("htautau")], axis=0)
        background = np.sum([yields[key] for key in processes], axis=0)
        base, at = np.zeros(signal.size), np.arange(signal.size)
        for key, (words, colour) in processes.items():
            panels[0, j].bar(at, yields[key] / background, width=1.0, bottom=base, color=colour, label=words)
            base += yields[key] / background
        panels[1, j].bar(at, signal / background, width=1.0, color=RED)
        panels[0, j].set_title(title)
        panels[1, j].set(yscale="log", xlabel="bin of the score, lowest first")
    panels[0, 0].set_ylabel("share of the background")
    panels[1, 0].set_ylabel("s/b")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return figure


def which_estimator():
    """Questions that lead to an estimator."""
    return _boxes(
        "Which estimator: four questions",
        {
            "one": (1, 30.5, 27, "systematics", "that cost significance?"),
            "two": (1, 21, 27, "a learner of your own?", "any scikit-learn classifier"),
            "three": (1, 11.5, 27, "a small model, large files?", "or a cluster"),
            "four": (1, 2, 27, "none of these", "no settings to choose"),
            "profiled": (38, 30.5, 29, "ProfiledClassifier", "one score that knows them"),
            "cascade": (38, 21, 29, "CascadeClassifier", "if it takes weights"),
            "decomposed": (70, 21, 29, "DecomposedClassifier", "if it takes no weights"),
            "grown": (38, 11.5, 29, "GrownCascadeClassifier", "one booster"),
            "auto": (38, 2, 29, "AutoClassifier", "finds members, blend and cut"),
            "pool": (70, 2, 29, "CascadePool", "members of your choice"),
        },
        [("one", "profiled"), ("two", "cascade"), ("three", "grown"), ("four", "auto")],
        3.3,
    )


def _boxes(label, boxes, arrows, height, width=7.0):
    """Boxes at (x, y, width) with a title and a line of text, and arrows between them: to the right, left or down."""
    figure, ax = _figure(label, width, height)
    ax.set(xlim=(0, 100 * width / 7), ylim=(0, 12 * height))
    ax.axis("off")
    places = {}
    for name, (x, y, wide, title, text) in boxes.items():
        ax.add_patch(FancyBboxPatch((x, y), wide, 8, boxstyle="round,pad=0.3", fill=False, edgecolor=BLUE))
        ax.text(x + wide / 2, y + 5.6, title, ha="center", va="center", weight="bold", fontsize=8.5, color=INK)
        ax.text(x + wide / 2, y + 2.4, text, ha="center", va="center", fontsize=7.5, color=INK)
        places[name] = (x, y, wide)
    for start, end in arrows:
        (x0, y0, w0), (x1, y1, w1) = places[start], places[end]
        if x1 > x0 + w0:
            a, b = (x0 + w0 + 0.6, y0 + 4), (x1 - 0.6, y1 + 4)
        elif x0 > x1 + w1:
            a, b = (x0 - 0.6, y0 + 4), (x1 + w1 + 0.6, y1 + 4)
        else:
            a, b = (x0 + w0 / 2, y0 - 0.6), (x1 + w1 / 2, y1 + 8.6)
        ax.annotate("", b, a, arrowprops={"arrowstyle": "-|>", "color": GREY, "shrinkA": 0, "shrinkB": 0})
    return figure


def flow():
    """The way of the data, with its three doors."""
    return _boxes(
        "From ntuples, arrays or histograms to a fitted workspace",
        {
            "ntuples": (1, 24, 19, "ntuples", "ROOT, Parquet, CSV"),
            "arrays": (1, 13, 19, "arrays", "X, y, weights"),
            "scores": (1, 2, 19, "scores, histograms", "from any tool"),
            "train": (28, 18, 20, "train", "a score that knows\nthe systematics"),
            "choose": (55, 10, 20, "choose", "cut or categories,\nwith a bound"),
            "fit": (82, 18, 17, "fit", "pyhf, cabinetry,\ncombine"),
            "report": (82, 3, 17, "report", "one HTML page"),
        },
        [
            ("ntuples", "train"),
            ("arrays", "train"),
            ("train", "choose"),
            ("scores", "choose"),
            ("choose", "fit"),
            ("choose", "report"),
        ],
        2.9,
    )


def flow_on_a_phone():
    """The same from top to bottom; the style of the site shows it on narrow screens."""
    figure = _boxes(
        "From ntuples, arrays or histograms to a fitted workspace",
        {
            "ntuples": (1, 43, 20, "ntuples", "ROOT, Parquet"),
            "arrays": (23.5, 43, 16, "arrays", "X, y, weights"),
            "scores": (40, 29.5, 20, "scores", "and histograms"),
            "train": (6, 29.5, 26, "train", "a score that knows\nthe systematics"),
            "choose": (17, 16, 26, "choose", "cut or categories,\nwith a bound"),
            "fit": (1, 2.5, 30, "fit", "pyhf, cabinetry, combine"),
            "report": (36, 2.5, 23, "report", "one HTML page"),
        },
        [
            ("ntuples", "train"),
            ("arrays", "train"),
            ("train", "choose"),
            ("scores", "choose"),
            ("choose", "fit"),
            ("choose", "report"),
        ],
        4.4,
        4.3,
    )
    figure.set_gid("narrow")
    return figure


def events_for_what():
    """Which events are used for what."""
    return _boxes(
        "Which events are used for what",
        {
            "fit": (1, 14, 21, "training events", "fit the learner"),
            "u": (27, 14, 21, "held-out events", "update u, number of trees"),
            "cut": (53, 14, 21, "held-out events", "tune the cut or the edges"),
            "quote": (79, 14, 20, "test events", "quote, and nothing else"),
        },
        [("fit", "u"), ("u", "cut"), ("cut", "quote")],
        2.0,
    )


def profiled_gains():
    """Significance against the number of categories: plain score with both kinds of edges, and t."""
    from benchmarks.studies.profiled_tables import column

    results = _read("profiled")
    figure, axes = _figure("Significance against the number of categories, by training sample", 8.6, 3.2, columns=3)
    for ax, part in zip(axes, ("pythia-8000", "pythia-25000", "pythia-125000"), strict=True):
        for label, key, style, colour in (
            ("known background", "plain limit", ":", GREY),
            ("t", "t knowing", "o-", BLUE),
            ("plain score, edges with systematics", "plain knowing", "s-", GREEN),
            ("plain score, naive edges", "plain naive", "^--", RED),
        ):
            rows = [column(results, part, f"{key} {k}") for k in (6, 10, 20)]
            errors = [row.std(ddof=1) / np.sqrt(row.size) if row.size > 1 else 0.0 for row in rows]
            ax.errorbar(range(3), [row.mean() for row in rows], errors, fmt=style, color=colour, label=label)
        ax.set_xticks(range(3), (6, 10, 20))
        ax.set(title=f"{int(part.partition('-')[2]):,} training events", xlabel="categories", ylim=(2.0, 4.6))
    axes[0].set_ylabel("profiled significance")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
    return figure


def limits():
    """Each figure of the benchmarks that has a limit, as a share of it."""
    rows = json.loads((BENCHMARKS / "results.json").read_text())
    shares = {
        name: [f["value"] / f["limit"] for f in row["figures"] if f["limit"]]
        for name, row in sorted(rows.items(), reverse=True)
    }
    shares = {name.replace("_", " ").replace(".", ": "): found for name, found in shares.items() if found}
    figure, ax = _figure("Results of the benchmarks as shares of their limits", height=0.7 + 0.19 * len(shares))
    for place, found in enumerate(shares.values()):
        ax.plot(found, [place] * len(found), "o", color=BLUE, markersize=5)
    ax.axvline(1, color=RED, linestyle=":")
    ax.set_yticks(range(len(shares)), shares, fontsize=8)
    ax.set(xlim=(0, 1.05), xlabel="result as a share of its limit")
    return figure


def growth():
    """Time of the search for several signals against events, classes and categories."""
    rows = json.loads((BENCHMARKS / "results.json").read_text())["several_signals.growth"]["figures"]
    found = {"events": {}, "classes": {}, "categories": {}}
    for row in rows:
        words = row["name"].replace(",", "").split()
        if words[1] == "/":
            found[words[-1]][int(words[0])] = float(row["note"].split()[0])
        else:  # the unit: 100,000 events, 3 classes, 10 categories
            for what, at in (("events", 0), ("classes", 2), ("categories", 4)):
                found[what][int(words[at])] = float(row["note"].split()[0])
    figure, axes = _figure("Time of the search for several signals", height=2.8, columns=3)
    for ax, (what, values) in zip(axes, found.items(), strict=True):
        n = sorted(values)
        ax.plot(n, [values[k] for k in n], "o-", color=BLUE)
        ax.set(xlabel=what, ylim=(0, None))
    axes[0].set_xscale("log")
    axes[0].set_ylabel("seconds")
    return figure


def waterfalls(shifts):
    """Significance as systematics are added, for choices of edges by name that lose most by the same ones."""
    figure, ax = _figure("What the systematics cost, by choice of the edges", height=2.8)
    steps = {words: dict(found.waterfall()) for words, found in shifts.items()}
    (names,) = {tuple(found) for found in steps.values()}
    for (words, found), colour in zip(steps.items(), (RED, BLUE), strict=True):
        ax.plot(range(len(names)), found.values(), "o-", color=colour, label=words)
    ax.set_xticks(range(len(names)), [names[0], *(f"+ {name}" for name in names[1:])])
    ax.set(ylabel="significance", ylim=(0, None))
    ax.legend(fontsize=8, loc="lower left")
    return figure


def folds():
    """Which fit trains on which fold, and which one scores it."""
    figure, ax = _figure("Five folds by event number", height=2.6)
    for fit in range(5):
        for fold in range(5):
            scores = fit == fold
            colour, alpha = (RED, 0.35) if scores else (BLUE, 0.15)
            ax.add_patch(Rectangle((fold + 0.04, 4.06 - fit), 0.92, 0.88, facecolor=colour, alpha=alpha))
            word, weight = ("scores", "bold") if scores else ("trains", "normal")
            ax.text(fold + 0.5, 4.5 - fit, word, ha="center", va="center", fontsize=8, weight=weight, color=INK)
    ax.set(xlim=(0, 5), ylim=(0, 5), xlabel="event number modulo 5, the same for data and varied events")
    ax.set_xticks(np.arange(5) + 0.5, range(5))
    ax.set_yticks(np.arange(5) + 0.5, [f"fit {4 - k}" for k in range(5)])
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    return figure


def steps():
    """The steps of an analysis."""
    return _boxes(
        "Steps of fivesigma analyse",
        {
            "read": (1, 14, 26, "read", "trees, yields, regions"),
            "train": (37, 14, 26, "train", "one model per fold"),
            "score": (73, 14, 26, "score", "all entries of all trees"),
            "categorise": (73, 1, 26, "categorise", "edges, profiled"),
            "workspace": (37, 1, 26, "workspace", "templates and fit"),
            "report": (1, 1, 26, "report", "page, figures, tables"),
        },
        [
            ("read", "train"),
            ("train", "score"),
            ("score", "categorise"),
            ("categorise", "workspace"),
            ("workspace", "report"),
        ],
        2.0,
    )


def commands():
    """Which command writes what the next one reads."""
    return _boxes(
        "The commands and their files",
        {
            "train": (1, 24, 27, "train", "events to a model"),
            "predict": (37, 24, 27, "predict", "model and events to scores"),
            "scan": (73, 24, 26, "scan, score", "the cut, its significance"),
            "categorise": (73, 13, 26, "categorise", "edges, a workspace"),
            "report": (37, 13, 27, "report", "model and events to a page"),
            "export": (1, 13, 27, "export", "ONNX, XGBoost's JSON"),
            "analyse": (1, 2, 27, "analyse", "all of it, from ntuples"),
            "rebin": (73, 2, 26, "rebin", "a workspace, fewer bins"),
        },
        [
            ("train", "predict"),
            ("predict", "scan"),
            ("predict", "categorise"),
            ("train", "export"),
            ("train", "report"),
        ],
        2.9,
    )


def saved_model():
    """What happens between save and load."""
    return _boxes(
        "From save to load",
        {
            "save": (1, 2, 20, "save", "plain files, no code"),
            "digests": (28, 2, 20, "load: digests", "damage is refused"),
            "types": (55, 2, 20, "types", "only those on a list"),
            "scores": (82, 2, 17, "16 scores", "as when saved"),
        },
        [("save", "digests"), ("digests", "types"), ("types", "scores")],
        1.0,
    )


def exports():
    """Which file for which program."""
    return _boxes(
        "Formats of an exported model",
        {
            "model": (1, 8, 22, "model", "compared on events"),
            "onnx": (33, 14, 27, "model.onnx", "score and selection"),
            "json": (33, 2, 27, "model.json", "one XGBoost booster"),
            "runtime": (70, 14, 29, "onnxruntime", "Python, C++"),
            "root": (70, 2, 29, "ROOT's RBDT, Treelite", "no missing values in RBDT"),
        },
        [("model", "onnx"), ("model", "json"), ("onnx", "runtime"), ("json", "root")],
        2.0,
    )


def jobs():
    """A run on a batch system that is killed and resumed."""
    return _boxes(
        "A job that is killed and resumed",
        {
            "train": (1, 2, 20, "train", "job of one seed"),
            "checkpoint": (28, 2, 20, "checkpoint", "every 50 trees"),
            "resume": (55, 2, 20, "train --resume", "after a kill"),
            "model": (82, 2, 17, "the same model", "to the last bit"),
        },
        [("train", "checkpoint"), ("checkpoint", "resume"), ("resume", "model")],
        1.0,
    )


def cluster():
    """Who holds what when a cluster trains."""
    return _boxes(
        "A cluster that trains one booster",
        {
            "client": (1, 13.5, 24, "client", "fit, checkpoint, model"),
            "scheduler": (38, 13.5, 24, "scheduler", "and XGBoost's tracker"),
            "first": (75, 25, 24, "worker", "files 1, 4, 7, ..."),
            "second": (75, 13.5, 24, "worker", "files 2, 5, 8, ..."),
            "third": (75, 2, 24, "worker", "files 3, 6, 9, ..."),
        },
        [("client", "scheduler"), ("scheduler", "first"), ("scheduler", "second"), ("scheduler", "third")],
        2.9,
    )
