"""Draw the picture of the README: one analysis, three ways to choose its categories, each with what a fit will find.

``python docs/figures/three_ways.py`` trains on 25,000 events of the toy, chooses ten categories on 100,000 others and
quotes them on 100,000 further ones; takes a few minutes on one core.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from benchmarks.studies.profiled import four, scored

from fivesigma import ProfiledClassifier, categorise
from fivesigma.datasets import make_htautau

HERE = Path(__file__).parent
N_CATEGORIES = 10
PROCESSES = {"ztautau": "Z → ττ", "wjets": "W", "ttbar": "top"}
COLOURS = {"ztautau": "#e69f00", "wjets": "#0072b2", "ttbar": "#009e73"}
THEMES = {"light": "#222832", "dark": "#d5dbe3"}


def three_ways(n_train=25_000, n_test=200_000, seed=0):
    """Categories of the plain score and of the one that knows the systematics, filled with other events."""
    train, test = make_htautau(n_train, random_state=seed), make_htautau(n_test, random_state=seed + 1000)
    model = ProfiledClassifier(random_state=seed, n_jobs=1).fit(train, systematics=four(train))
    print(model.choice_)
    half = np.arange(len(test)) % 2 == 0
    given = four(test)

    def plain(events):
        return np.mean([m.signal_probability(events.X) for m in model.models_], axis=0)

    def knowing(events):
        return model.predict_proba(events)[:, 1]

    out = {}
    for title, score, informed in (
        ("Plain score,\nedges for a known background", plain, False),
        ("Plain score,\nedges that know the systematics", plain, True),
        ("Score and edges\nthat know the systematics", knowing, True),
    ):
        chosen, moved = scored(score, test, given, half)
        found = categorise(chosen, n_categories=N_CATEGORIES, systematics=moved if informed else None)
        other, moved = scored(score, test, given, ~half)
        out[title] = found.evaluate(other, systematics=moved, mc_statistics=False)
    return out


def draw(found, ink):
    """One panel for each way: yields by process in each category, and the significance."""
    with plt.rc_context({"text.color": ink, "axes.labelcolor": ink, "xtick.color": ink, "ytick.color": ink}):
        figure, axes = plt.subplots(1, 3, figsize=(10, 3.3), sharey=True, layout="constrained")
        for ax, (title, categories) in zip(axes, found.items(), strict=True):
            place = np.arange(1, len(categories.b) + 1)
            bottom = np.zeros(len(place))
            for name, label in PROCESSES.items():
                values = categories.by_process[name].sum_of_weights
                ax.bar(place, values, bottom=bottom, width=0.9, color=COLOURS[name], label=label)
                bottom += values
            ax.step(place, categories.s, where="mid", color="#c1440e", linewidth=2, label="signal")
            ax.set(yscale="log", ylim=(1, 1e6), xlabel="category", xticks=place)
            ax.set_title(title, fontsize=10)
            text = f"expected {categories.significance:.2f} σ"
            ax.text(0.97, 0.95, text, transform=ax.transAxes, ha="right", va="top", weight="bold", fontsize=12)
            for side in ("top", "right"):
                ax.spines[side].set_visible(False)
            for spine in ax.spines.values():
                spine.set_color(ink)
        axes[0].set_ylabel("expected events")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


if __name__ == "__main__":
    found = three_ways()
    for theme, ink in THEMES.items():
        draw(found, ink).savefig(HERE / f"three-ways-{theme}.png", dpi=144, transparent=True)
