"""One small table for the terminal and for notebooks, with numbers that show as many digits as they are worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_LARGE, _SMALL = 1e9, 1e-4  # beyond these numbers are written with an exponent

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


class Shown:
    """A result that terminals and notebooks show as its summary."""

    __slots__ = ()

    def _summary(self) -> Summary:
        raise NotImplementedError

    def __repr__(self) -> str:
        return self._summary().text()

    def _repr_html_(self) -> str:
        return self._summary().html()
