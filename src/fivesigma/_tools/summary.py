"""One small table for the terminal and for notebooks, with numbers that show as many digits as they are worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from fivesigma._types import Array

_LARGE, _SMALL = 1e9, 1e-4  # beyond these numbers are written with an exponent
_POINTS = 200  # of a curve that is some hundred pixels wide

# Colours are those of the page around it, so that a table is readable in a light and in a dark notebook.
_BORDER = "1px solid"
_TABLE = "border-collapse:collapse;font-variant-numeric:tabular-nums;color:inherit;background:transparent;margin:0"
_CELL = "padding:0.15em 0.8em;white-space:pre;background:transparent"


def digits(value: float, significant: int = 4) -> str:
    """Write a number with some significant digits, all digits before the point, and commas between thousands."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}".removeprefix("-") if value == 0 else f"{value:g}"
    if not _SMALL <= abs(value) < _LARGE:
        return f"{value:.{significant}g}"
    size = int(f"{value:.{significant - 1}e}".rpartition("e")[2])  # of the rounded number
    text = f"{value:,.{max(0, significant - 1 - size)}f}"
    shorter = text.rstrip("0").rstrip(".") if "." in text else text
    return shorter if float(shorter.replace(",", "")) == value else text


def _escaped(text: str) -> str:
    """Text as LaTeX writes it."""
    special = {c: f"\\{c}" for c in "&%$#_{}"}
    special |= {"\\": r"\textbackslash{}", "~": r"\~{}", "^": r"\^{}", "±": r"$\pm$"}
    return "".join(special.get(letter, letter) for letter in text.strip())


@dataclass(frozen=True)
class Summary:
    """A title, a table and some sentences."""

    title: str
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()  # leading blanks indent the first cell; a row of one cell has the whole width
    notes: Sequence[str] = ()  # sentences below the table
    picture: str = ""  # SVG for notebooks
    more: tuple[str, str] | None = None  # a word, and a long text that a notebook shows when it is clicked
    named: bool = True  # whether the first column is text, and not numbers as the others are

    def text(self) -> str:
        """For a terminal."""
        lines = [self.title] if self.title else []
        table = [self.head, *self.rows] if self.head else []
        widths = [max(map(len, column)) for column in zip(*(row for row in table if len(row) > 1), strict=True)]
        for row in table:
            aligned = [f"{cell:{self._align(k, '<', '>')}{widths[k]}}" for k, cell in enumerate(row)]
            lines.append("  ".join(aligned).rstrip() if len(row) > 1 else row[0])
        return "\n".join([*lines, *self.notes])

    def latex(self) -> str:
        """The table as LaTeX, with the rules of booktabs."""
        rows = [" & ".join(map(_escaped, row)) + r" \\" for row in self.rows]
        head = " & ".join(map(_escaped, self.head)) + r" \\"
        columns = "l" + "r" * (len(self.head) - 1)
        lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
        return "\n".join([*lines, r"\end{tabular}"]) + "\n"

    def html(self) -> str:
        """For a notebook: no script, no style sheet, everything escaped."""
        parts = [f"<p style='margin:0.3em 0'><b>{escape(self.title)}</b></p>"] if self.title else []
        if self.picture:
            parts.append(self.picture)
        if self.head:
            body = "".join(self._row("td", row) for row in self.rows)
            parts.append(
                f"<div style='overflow-x:auto'><table style='{_TABLE}'><thead>{self._row('th', self.head)}</thead>"
                f"<tbody>{body}</tbody></table></div>"
            )
        parts += [f"<p style='margin:0.3em 0'>{escape(note)}</p>" for note in self.notes]
        if self.more is not None:
            word, text = map(escape, self.more)
            parts.append(f"<details><summary>{word}</summary><p style='margin:0.3em 0'>{text}</p></details>")
        return f"<div>{''.join(parts)}</div>"

    def _align(self, column: int, text: str, number: str) -> str:
        return text if self.named and column == 0 else number

    def _row(self, tag: str, row: Sequence[str]) -> str:
        line = f";border-bottom:{_BORDER}" if tag == "th" else ""
        span = f" colspan='{len(self.head)}'" if len(row) == 1 < len(self.head) else ""
        align = ["left" if span else self._align(k, "left", "right") for k in range(len(row))]
        cells = [
            f"<{tag}{span} style='{_CELL};text-align:{side}{line}'>{escape(cell)}</{tag}>"
            for side, cell in zip(align, row, strict=True)
        ]
        return f"<tr style='background:transparent'>{''.join(cells)}</tr>"


def curve(x: Array, y: Array, *, at: float | None, x_name: str, y_name: str) -> str:
    """Draw a small curve as SVG, in the colour of the text around it; empty with fewer than two finite points."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    if finite.sum() < 2 or not np.ptp(x[finite]) > 0:
        return ""
    low, high = float(x[finite].min()), float(x[finite].max())
    chosen = np.unique(np.linspace(0, x.size - 1, min(x.size, _POINTS)).astype(np.intp))
    top = max(float(np.max(y[chosen], where=finite[chosen], initial=0.0)), 0.0) or 1.0
    width, height, left, bottom, above = 420, 150, 46, 34, 12

    def across(value: float) -> float:
        return left + (value - low) / (high - low) * (width - left - 10)

    def up(value: float) -> float:
        return height - bottom - max(value, 0.0) / top * (height - bottom - above)

    path, pen = [], "M"
    for k in chosen:
        if not finite[k]:
            pen = "M"
            continue
        path.append(f"{pen}{across(float(x[k])):.1f},{up(float(y[k])):.1f}")
        pen = "L"
    base = height - bottom
    mark = ""
    if at is not None and low <= at <= high:
        mark = f"<line x1='{across(at):.1f}' x2='{across(at):.1f}' y1='{above}' y2='{base}' stroke-dasharray='4 3'/>"
    label = f"{escape(y_name)} against {escape(x_name)}"
    return (
        f"<svg viewBox='0 0 {width} {height}' style='width:100%;max-width:{width}px;height:auto;display:block' "
        f"role='img' aria-label='{label}' fill='none' stroke='currentColor'>"
        f"<path d='M{left},{above}V{base}H{width - 10}' stroke-opacity='0.4'/>{mark}"
        f"<path d='{''.join(path)}' stroke-width='1.8' stroke-linejoin='round'/>"
        "<g fill='currentColor' stroke='none' font-size='11' font-family='sans-serif'>"
        f"<text x='{left - 5}' y='{above + 8}' text-anchor='end'>{digits(top, 3)}</text>"
        f"<text x='{left - 5}' y='{base}' text-anchor='end'>0</text>"
        f"<text x='{left}' y='{base + 14}'>{digits(low, 3)}</text>"
        f"<text x='{width - 10}' y='{base + 14}' text-anchor='end'>{digits(high, 3)}</text>"
        f"<text x='{(left + width) / 2}' y='{height - 4}' text-anchor='middle'>{label}</text></g></svg>"
    )


class Shown:
    """A result that terminals and notebooks show as its summary."""

    __slots__ = ()

    def _summary(self) -> Summary:
        raise NotImplementedError

    def __repr__(self) -> str:
        return self._summary().text()

    def _repr_html_(self) -> str:
        return self._summary().html()
