"""A picture of fine bins with the edges of the new ones, and a page about them."""

from __future__ import annotations

import io
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fivesigma._tools.drawing import axes_or_current
from fivesigma._tools.extras import need
from fivesigma._tools.files import written_whole
from fivesigma.errors import InputError

if TYPE_CHECKING:
    from fivesigma.rebinning.rebin import Rebinned

_STYLE = "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}svg{max-width:100%;height:auto}"


def draw_channel(found: Rebinned, channel: str, ax: Any = None) -> Any:
    """Draw all and the signal of the fine bins of a channel, with a line at the edges of the new ones."""
    if channel not in found.edges:
        raise InputError(f"channel {channel!r} was not merged; there are {', '.join(map(repr, found.edges))}")
    ax = axes_or_current(ax)
    samples = next(c["samples"] for c in found.fine["channels"] if c["name"] == channel)
    signal = [s for s in samples if any(m["name"] == found.poi for m in s["modifiers"])]
    edges = np.arange(len(samples[0]["data"]) + 1)
    total = np.sum([s["data"] for s in samples], axis=0)
    ax.stairs(total, edges, fill=True, color="0.8", label="s + b")
    if signal:
        ax.stairs(np.sum([s["data"] for s in signal], axis=0), edges, color="black", label="signal")
    for k, first in enumerate(found.edges[channel][1:]):
        ax.axvline(first, color="tab:red", linewidth=1, label="new edges" if k == 0 else None)
    ax.set_yscale("log")
    ax.set_ylim(bottom=float(total[total > 0].min(initial=1.0)) / 100)
    ax.set_xlim(0, edges[-1])
    ax.set_xlabel(f"fine bin of {channel}")
    ax.set_ylabel("expected events")
    ax.legend()
    return ax


def draw_all(found: Rebinned) -> Any:
    """Draw all merged channels, one below the other."""
    figure = need("matplotlib.figure").Figure(figsize=(7, 3 * len(found.edges)), layout="constrained")
    for ax, channel in zip(np.ravel(figure.subplots(len(found.edges))), found.edges, strict=True):
        draw_channel(found, channel, ax)
    return figure


def write_page(found: Rebinned, path: str | Path) -> Path:
    """Write a page with the figures before and after, and which bins went where."""
    path, svg = Path(path), io.StringIO()
    draw_all(found).savefig(svg, format="svg")
    picture = svg.getvalue()
    what = "Uncertainty of mu" if found.goal == "measurement" else "Significance"
    binning = "".join(
        f"<p>{escape(name)}: <code>Binning: {escape(str(found.binning.get(name, first)))}</code></p>"
        for name, first in found.edges.items()
    )
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Merged bins</title><style>{_STYLE}</style>'
        f"</head><body><h1>Merged bins</h1><p>{what} before {found.before:.4f}, after {found.figure:.4f}; bound "
        f"{found.bound:.4f}, gap {found.gap:.4f}.</p>{picture[picture.index('<svg') :]}{found._repr_html_()}{binning}"
        "</body></html>\n"
    )
    with written_whole(path) as beside:
        beside.write_text(text, encoding="utf-8")
    return path
