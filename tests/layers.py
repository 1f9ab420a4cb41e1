"""The architecture: which part may use which. Data flow upwards; nothing below imports anything above.

``python -m tests.layers`` draws docs/figures/architecture.svg.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "docs" / "figures" / "architecture.svg"

# From the bottom to the top: what the layer is for, and its modules and packages. Within a layer none imports another.
LAYERS: tuple[tuple[str, dict[str, str]], ...] = (
    (
        "ground",
        {
            "errors": "what can go wrong",
            "_types": "names of array types",
            "challenge": "numbers of the 2014 challenge",
        },
    ),
    ("tools", {"_tools": "optional imports, whole files, progress, sorting, tables, threads, axes"}),
    ("significance", {"significance": "Z = h(F(s, b)), class weights"}),
    ("yields", {"yields": "weights, labels, selections"}),
    (
        "events",
        {
            "datasets": "events in and out",
            "cascade": "Algorithms 1 and 2, their record",
            "blend": "mean of scores",
        },
    ),
    ("scores", {"scored": "events with scores, in memory and in files"}),
    ("likelihood", {"likelihood": "systematics, profiled"}),
    ("cut", {"cut": "the best cut", "learners": "how libraries take weights"}),
    ("categories", {"categories": "exact categories, several signals, HistFactory"}),
    ("store", {"store": "saved models, checkpoints", "rebinning": "fine bins of workspaces merged"}),
    ("estimators", {"estimators": "cascades, decomposed, pool"}),
    ("figures", {"reporting": "the page", "plot": "figures for papers", "exporting": "ONNX, JSON"}),
    ("cluster", {"dask": "one model on several machines"}),
    (
        "uses",
        {
            "analysis": "ntuples to fit",
            "higgsml": "the 2014 challenge",
            "fair_universe": "pseudo-experiments",
            "demonstration": "the demo",
        },
    ),
    ("command line", {"cli": "fivesigma ..."}),
)


def layer_of(module: str) -> int | None:
    """Number of the layer of a module such as ``fivesigma.store.archive``; None for the package itself."""
    part = module.split(".")[1] if "." in module else ""
    return next((k for k, (_, members) in enumerate(LAYERS) if part in members), None)


def draw() -> str:
    """The layers as a picture, the top one first."""
    width, row, gap, left = 760, 44, 8, 130
    height = len(LAYERS) * (row + gap) + gap
    font = 'font-family="sans-serif" font-size="13"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {font}>',
        "<title>Layers of fivesigma: each uses only what lies below it</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for k, (name, members) in enumerate(reversed(LAYERS)):
        y = gap + k * (row + gap)
        out.append(f'<text x="{left - 12}" y="{y + 27}" text-anchor="end" fill="#555555">{escape(name)}</text>')
        each = (width - left - gap) / len(members)
        for j, (module, what) in enumerate(members.items()):
            x = left + j * each
            out.append(
                f'<rect x="{x:.0f}" y="{y}" width="{each - gap:.0f}" height="{row}" rx="6" fill="#e8eef7" '
                'stroke="#4c72b0"/>'
                f'<text x="{x + 8:.0f}" y="{y + 18}" font-weight="bold" fill="#1c1c1c">{escape(module)}</text>'
                f'<text x="{x + 8:.0f}" y="{y + 35}" font-size="11" fill="#444444">{escape(what)}</text>'
            )
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    FIGURE.write_text(draw(), encoding="utf-8")
