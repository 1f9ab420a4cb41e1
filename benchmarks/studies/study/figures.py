"""Figures of docs/validation/study.md, drawn from results.json alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.studies.study.screening import CUTS
from benchmarks.studies.study.stages import load
from fivesigma._tools.extras import need

BALANCED = 594  # class ratio at which the yields of the challenge balance
LEAST = -0.45  # gains further to the left are written, not drawn
COLOURS = {"grown": "#c1440e", "ratio 38": "#1f5a96", "decomposed": "#4b8b3b"}
RATIOS = {"ratio 150": 150, "ratio 38": 38, "ratio 10": 10, "ratio 1": 1}

Found = dict[str, Any]


def figures() -> dict[str, Callable[[], Any]]:
    """Every figure for which there are results: its name, and a function that draws it."""
    results = {stage: r["found"] for stage, r in load().items()}
    screening, scaling = results.get("screening", []), results.get("scaling", [])
    toy = [f for f in scaling if f["events"] == 100_000]
    drawn: dict[str, Callable[[], Any]] = {}
    if screening:
        shown = [f for f in screening if _is_against_plain(f) and f["arm"] not in CUTS and not _is_plain(f["arm"])]
        drawn["screening"] = lambda: _forest(shown, "gain over the plain model of the same trees")
    if screening and scaling:
        drawn["ratio"] = lambda: _ratios(screening, toy)
        drawn["capacity"] = lambda: _capacity(screening, toy)
    if scaling:
        drawn["scaling"] = lambda: _scaling(scaling)
    if screening and "confirm" in results:
        unseen = [f for f in results["confirm"] if f["events"] == "unseen"]
        drawn["ensembles"] = lambda: _ensembles(screening, unseen)
    if "confirm" in results:
        drawn["confirm"] = lambda: _confirm(results["confirm"])
    if "peers" in results:
        peers = [f for f in results["peers"] if f["baseline"] == "plain"]
        drawn["peers"] = lambda: _forest(peers, "gain over plain + tuned cut")
    return drawn


def _is_against_plain(found: Found) -> bool:
    return _is_plain(found["baseline"])


def _is_plain(arm: str) -> bool:
    return arm.startswith("plain")


def _panel(width: float, height: float, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    plt = need("matplotlib.pyplot")
    figure, axes = plt.subplots(1, columns, figsize=(width, height), layout="constrained", **options)
    for ax in axes if columns > 1 else [axes]:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _forest(found: Sequence[Found], label: str) -> Any:
    """One line per arm: gain with bars of one and two standard errors."""
    figure, ax = _panel(7.5, 0.9 + 0.21 * len(found))
    for row, f in enumerate(found):
        gain, error = f["window"]["gain"], f["window"]["error"]
        ax.plot([gain - 2 * error, gain + 2 * error], [row, row], color="#999999", lw=1)
        ax.plot([gain - error, gain + error], [row, row], color="#333333", lw=3, solid_capstyle="butt")
        ax.plot(gain, row, "o", color="#c1440e", ms=4)
        if gain < LEAST:
            ax.text(LEAST, row, f"  {gain:+.2f} ± {error:.2f}", va="center", fontsize=7)
    ax.set_xlim(left=max(ax.get_xlim()[0], LEAST))
    ax.axvline(0, color="black", lw=0.8)
    ax.set_yticks(range(len(found)), [f["arm"] for f in found], fontsize=8)
    ax.invert_yaxis()
    ax.set_xlabel(f"mean AMS over cuts at 10-20 %: {label}")
    return figure


def _points(ax: Any, x: Sequence[float], found: Sequence[Found], measure: str = "window", **style: Any) -> None:
    gains, errors = ([f[measure][part] for f in found] for part in ("gain", "error"))
    ax.errorbar(x, gains, errors, marker="o", ms=4, capsize=2, lw=1.2, **style)


def _ratios(screening: Sequence[Found], toy: Sequence[Found]) -> Any:
    """Gain against the class ratio; cascades stand at the ratios of their last u, least to most of the seeds."""
    figure, ax = _panel(7.0, 3.6)
    for label, found, colour in (("simulated", screening, "#1f5a96"), ("toy, 300,000 test events", toy, "#4b8b3b")):
        chosen = [f for name in RATIOS for f in found if f["arm"] == name and f["baseline"] == "plain"]
        _points(ax, [RATIOS[f["arm"]] for f in chosen], chosen, label=f"fixed ratio, {label}", color=colour)
        grown = _one(found, "grown", "plain")
        ends = sorted(2 / u for u in grown["u"])
        middle = ends[len(ends) // 2]
        ax.errorbar(
            [middle],
            [grown["window"]["gain"]],
            [[grown["window"]["error"]], [grown["window"]["error"]]],
            [[middle - ends[0]], [ends[-1] - middle]],
            fmt="D",
            ms=6,
            lw=1.5,
            color=colour,
            markerfacecolor="white",
            label=f"grown cascade, {label}",
        )
    ax.plot(BALANCED, 0, "ks", ms=5, label="plain: balanced classes")
    ax.axhline(0, color="black", lw=0.8)
    ax.set(xscale="log", xlabel="class ratio k = u / f*(u)", ylabel="gain over plain, AMS at 10-20 %")
    ax.legend(fontsize=7, frameon=False)
    return figure


def _capacity(screening: Sequence[Found], toy: Sequence[Found]) -> Any:
    """Gain of the grown cascade against the number and the size of its trees."""
    figure, (left, right) = _panel(7.6, 3.4, columns=2, sharey=True)
    trees = {"grown, 30 trees": 30, "grown, 60 trees": 60, "grown": 100, "grown, 200 trees": 200}
    shapes = {"grown, depth 3": 0, "grown": 1, "grown, depth 9": 2, "grown, eta 0.3": 3}
    for label, found, shift in (("simulated", screening, -0.08), ("toy, 300,000 test events", toy, 0.08)):
        colour = "#1f5a96" if shift < 0 else "#4b8b3b"
        for ax, places, step in ((left, trees, 10 * shift), (right, shapes, shift)):
            rows = [f for n in places for f in found if f["arm"] == n and _is_against_plain(f)]
            style = {"color": colour, "label": label, "ls": "-" if ax is left else "none"}
            _points(ax, [places[f["arm"]] + step for f in rows], rows, **style)
    for ax in (left, right):
        ax.axhline(0, color="black", lw=0.8)
    left.set(xlabel="trees (depth 6, eta 0.1)", ylabel="gain of grown over plain", xticks=list(trees.values()))
    right.set_xticks(list(shapes.values()), ["depth 3", "depth 6", "depth 9", "eta 0.3"])
    right.set_xlabel("shape of 100 trees")
    left.legend(fontsize=8, frameon=False)
    return figure


def _scaling(found: Sequence[Found]) -> Any:
    """Gain and cost against the number of training events."""
    figure, (left, right) = _panel(7.6, 3.4, columns=2)
    for arm, colour in COLOURS.items():
        rows = [f for f in found if f["arm"] == arm and f["baseline"] == "plain"]
        _points(left, [f["events"] for f in rows], rows, label=arm, color=colour)
        right.plot([f["events"] for f in rows], [f["time ratio"] for f in rows], "o-", ms=4, color=colour, label=arm)
    for ax in (left, right):
        ax.set(xscale="log", xlabel="training events (toy)")
    left.axhline(0, color="black", lw=0.8)
    left.set_ylabel("gain over plain, AMS at 10-20 %")
    right.axhline(1, color="black", lw=0.8)
    right.set_ylabel("processor time / plain")
    right.set_ylim(bottom=0)
    left.legend(fontsize=8, frameon=False)
    return figure


def _ensembles(screening: Sequence[Found], unseen: Sequence[Found]) -> Any:
    """Gain against the number of models that are blended."""
    figure, axes = _panel(7.6, 3.4, columns=2, sharey=True)
    for ax, title, found in zip(axes, ("halves of t", "sets b and u"), (screening, unseen), strict=True):
        for shift, (arm, colour) in enumerate(COLOURS.items()):
            f = _one(found, arm, "plain")
            sizes = [1, *(n for n in (5, 10) if f"blend of {n}" in f)]
            parts = [f["window"], *(f[f"blend of {n}"] for n in sizes[1:])]
            rows = [{"window": p} for p in parts]
            _points(ax, [n + 0.15 * (shift - 1) for n in sizes], rows, label=arm, color=colour)
        ax.axhline(0, color="black", lw=0.8)
        ax.set(title=title, xlabel="models in the blend", xticks=[1, 5, 10], xlim=(0, 10.5))
    axes[0].set_ylabel("gain over a blend of as many plain models")
    axes[1].legend(fontsize=8, frameon=False)
    return figure


def _confirm(found: Sequence[Found]) -> Any:
    """Events that no choice has seen: simulated and real."""
    figure, axes = _panel(9.5, 4.2, columns=2)
    for ax, kind, title in zip(axes, ("unseen", "folds"), ("simulated, sets b and u", "real, five folds"), strict=True):
        rows = [f for f in found if f["events"] == kind and _is_against_plain(f) and not _is_plain(f["arm"])]
        for k, (measure, colour) in enumerate((("window", "#333333"), ("own cut", "#c1440e"))):
            gains, errors = ([f[measure][part] for f in rows] for part in ("gain", "error"))
            y = [i + 0.25 * k for i in range(len(rows))]
            label = {"window": "cuts at 10-20 %", "own cut": "at the learner's own cut"}[measure]
            ax.errorbar(gains, y, xerr=errors, fmt="o", ms=4, color=colour, capsize=2, label=label)
        ax.axvline(0, color="black", lw=0.8)
        ax.set_yticks(range(len(rows)), [f["arm"] for f in rows], fontsize=8)
        ax.set_ylim(len(rows) - 0.3, -0.7)
        ax.set(title=title, xlabel="gain over plain, with one error")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure


def _one(found: Sequence[Found], arm: str, baseline: str) -> Found:
    return next(f for f in found if f["arm"] == arm and f["baseline"] == baseline)
