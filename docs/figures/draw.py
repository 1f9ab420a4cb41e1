"""Figures of the pages, drawn from the results of the benchmarks when the site is built.

A page calls a function in a cell without input: ``from docs.figures import draw; draw.cut_rules()``.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

STUDIES = Path(__file__).parents[2] / "benchmarks" / "studies"
INK, BLUE, RED, GREEN, GREY = "#222832", "#1f5a96", "#c1440e", "#4b8b3b", "#667788"
SOURCES = {
    "gauss": "two Gaussians",
    "heavy": "heavy weights",
    "toy": "toy H→ττ",
    "t": "simulated, set t",
    "b": "simulated, set b",
    "real": "real events",
}


def _read(name):
    return json.loads((STUDIES / f"{name}.json").read_text())


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
    ax.set_yticks(range(len(results)), results)
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


def _boxes(label, boxes, arrows, height):
    """Boxes at (x, y, width) with a title and a line of text, and arrows between them."""
    figure, ax = _figure(label, height=height)
    ax.set(xlim=(0, 100), ylim=(0, 12 * height))
    ax.axis("off")
    places = {}
    for name, (x, y, width, title, text) in boxes.items():
        ax.add_patch(FancyBboxPatch((x, y), width, 8, boxstyle="round,pad=0.3", fill=False, edgecolor=BLUE))
        ax.text(x + width / 2, y + 5.6, title, ha="center", va="center", weight="bold", fontsize=8.5, color=INK)
        ax.text(x + width / 2, y + 2.4, text, ha="center", va="center", fontsize=7.5, color=INK)
        places[name] = (x, y, width)
    for start, end in arrows:
        (x0, y0, w0), (x1, y1, _) = places[start], places[end]
        a, b = (x0 + w0 + 0.6, y0 + 4), (x1 - 0.6, y1 + 4)
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
            "choose": (55, 10, 20, "choose", "cut or categories,\nwith a proof"),
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
