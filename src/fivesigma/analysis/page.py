"""The section of the report that belongs to an analysis: what is expected, what it costs, and the fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import Any

__all__ = ["with_expectation"]

_BEFORE = '<section id="verdict">'
_LINK = '<a href="#verdict">'
_AID = """<p class="aid">Systematic uncertainties and the statistics of the simulation are profiled. The first number is
from edges that were chosen without the fold of the events that fill them. The number in sample is from the edges of the
fit on the events that chose them, and tends to be too high. The sections below show the model by itself, at its own cut
and without systematic uncertainties.</p>"""


def with_expectation(html: str, categorise: dict[str, Any], workspace: dict[str, Any], *, blind: bool) -> str:
    """Put the section before the verdict of a report.

    Parameters
    ----------
    html : str
        A report on the out-of-fold events of the chosen region.
    categorise, workspace : dict
        What these steps found.
    blind : bool
        Whether the data of the chosen region are expected ones.
    """
    section = _section(categorise, workspace, blind=blind)
    html = html.replace(_LINK, f'<a href="#expectation">Expectation</a> {_LINK}', 1)
    return html.replace(_BEFORE, f"{section}\n\n{_BEFORE}", 1)


def _section(found: dict[str, Any], fit: dict[str, Any], *, blind: bool) -> str:
    quoted, seen = (found[which]["significance"] for which in ("cross_fitted", "in_sample"))
    many = "1 category" if len(found["s"]) == 1 else f"{len(found['s'])} categories"
    categories = (
        (f"{float(low):.4g}", f"{float(high):.4g}", f"{s:.4g}", f"{b:.4g}", f"{s / b:.3g}" if b else "–")
        for (low, high), s, b in zip(pairwise(found["edges"]), found["s"], found["b"], strict=True)
    )
    lines = [
        '<section id="expectation">',
        "<h2>Expectation</h2>",
        f'<p class="headline"><b id="expected">{quoted:.3f}</b> <span>σ expected significance of {many}, ',
        f'<span class="soft">in sample</span> <span id="in-sample">{seen:.3f}</span></span></p>',
        _AID,
        "<h3>From a known background to the fit</h3>",
        _waterfall(found["cross_fitted"]["waterfall"]),
        "<h3>Categories</h3>",
        _table(("from", "to", "s", "b", "s/b"), categories),
    ]
    if fit["significance"] is not None:
        lines.append(
            f"<p>The workspace of all regions has an expected significance of {fit['significance']:.3f} σ.</p>"
        )
    if fit["mu"] is not None:
        data = "expected data in the chosen region" if blind else "data"
        lines.append(f"<p>Fit to {data}: signal strength {fit['mu']:.3f} ± {fit['error']:.3f}.</p>")
    return "\n".join([*lines, "</section>"])


def _waterfall(steps: Sequence[Sequence[Any]]) -> str:
    """Bars of the significance after each uncertainty, and the same as a table."""
    row, left, width = 26, 190, 420
    largest = max(value for _, value in steps) or 1.0
    bars = []
    for k, (name, value) in enumerate(steps):
        label = escape("simulation statistics" if name == "simulation" else name)
        y, length = k * row, width * value / largest
        bars += [
            f'<text x="{left - 8}" y="{y + 17}" text-anchor="end" fill="currentColor">{label}</text>',
            f'<rect x="{left}" y="{y + 4}" width="{length:.1f}" height="{row - 8}" fill="#4c72b0"/>',
            f'<text x="{left + length + 6:.1f}" y="{y + 17}" fill="currentColor">{value:.3f}</text>',
        ]
    size = f'viewBox="0 0 {left + width + 60} {len(steps) * row}" width="{left + width + 60}"'
    drawn = f'<figure><svg {size} font-size="13" role="img" aria-label="Waterfall">{"".join(bars)}</svg></figure>'
    losses = [after[1] - before[1] for before, after in pairwise(steps)]
    rows = zip([n for n, _ in steps], [f"{z:.3f}" for _, z in steps], ["", *(f"{d:+.3f}" for d in losses)], strict=True)
    return (
        f"{drawn}\n<details><summary>Table: waterfall</summary>{_table(('uncertainty', 'σ', 'change'), rows)}</details>"
    )


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
