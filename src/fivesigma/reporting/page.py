"""The page: one HTML document that needs no other file and no network."""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import fields, is_dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from fivesigma._tools.extras import need

if TYPE_CHECKING:
    from fivesigma.reporting import ReportData
    from fivesigma.reporting.histogram import ClassOverlay
    from fivesigma.reporting.profiled_score import ScorePanel

_MINUS = "−"
COLOURS = ("#3f90da", "#ffa90e", "#94a4a2", "#832db6", "#a96b59", "#b9ac70", "#717581")  # of backgrounds, as in plot
DIGITS = 8  # significant digits that are sent
_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\~{}", "^": r"\^{}"}
Table = tuple[list[str], list[list[str]]]


def render_page(data: ReportData) -> str:
    """Render a report. Text that comes from files or parameters is escaped, and only our own script may run."""
    jinja2 = need("jinja2")
    assets = files("fivesigma.reporting") / "assets"
    style = (assets / "style.css").read_text(encoding="utf-8")
    script = "".join((assets / name).read_text(encoding="utf-8") for name in ("figures.js", "page.js"))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"num": number, "share": share, "z": sigma, "signed": signed}
    environment.filters["base64"] = lambda picture: base64.b64encode(picture).decode()
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":"), "allow_nan": False}
    safe = need("markupsafe").Markup  # for files of this package only
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    sent = {key: plain(getattr(data, key)) for key in ("verdict", "progress", "cuts", "scores")}
    has_rounds = any(len(s.round) > 1 for s in data.progress.series)
    template = environment.from_string((assets / "page.html").read_text(encoding="utf-8"))
    page: str = template.render(
        data=data,
        payload=sent,
        tables={
            "cuts": cuts_table(data),
            "progress": progress_table(data),
            "rates": rates_table(data),
            "rounds": rounds_table(data),
            "scores": scores_table(data),
        },
        has_rounds=has_rounds,
        panels=[] if data.profiled is None else [stacked(panel) for panel in data.profiled.panels],
        overlays=[] if data.overtraining is None else [overlay(one) for one in data.overtraining.classes],
        has_path=any((s.u == s.u).any() for s in data.progress.series),
        style=safe(style),
        script=safe(script),
        script_hash=f"sha256-{digest}",
    )
    return page


def plain(value: Any) -> Any:
    """Turn records and arrays into what JSON knows; what is not finite becomes None."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(v) for v in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def number(value: float | None) -> str:
    """Four digits, and whole numbers from a thousand on; the page's script does the same."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e7 or size < 1e-4:
        mantissa, _, exponent = f"{value:.3e}".partition("e")
        return f"{mantissa}e{int(exponent):+d}"
    return f"{value:,.0f}" if size >= 999.95 else f"{value:#.4g}".rstrip(".")


def share(value: float) -> str:
    """Per cent with three digits."""
    return "–" if not math.isfinite(value) else f"{100 * value:#.3g}".rstrip(".") + " %"


def sigma(value: float) -> str:
    """Significance."""
    return f"{value:.3f}"


def signed(value: float) -> str:
    """Significance with its sign."""
    return f"{value:+.3f}".replace("-", _MINUS)


def overlay(one: ClassOverlay) -> dict[str, Any]:
    """Coordinates of the overlay of a class, 360 by 160: the line of training, and points with their bars."""
    width = 360 / one.here.size
    top = max(float((one.here + one.here_error).max()), float(one.training.max())) or 1.0

    def height(value: float) -> str:
        return f"{160 - 150 * max(value, 0.0) / top:.1f}"

    steps = [f"{k * width:.1f} {height(v)}H{(k + 1) * width:.1f}" for k, v in enumerate(one.training)]
    points = [
        (f"{(k + 0.5) * width:.1f}", height(v), height(v - e), height(v + e))
        for k, (v, e) in enumerate(zip(one.here, one.here_error, strict=True))
    ]
    return {"line": f"M{'L'.join(steps)}", "points": points}


def stacked(panel: ScorePanel) -> list[tuple[str, str, str]]:
    """Name, colour and outline of the share of each background in the bins of a score, 360 by 160."""
    width = 360 / panel.shares.shape[1]
    upper = np.cumsum(panel.shares, axis=0)
    out = []
    for k, name in enumerate(panel.backgrounds):
        low = upper[k] - panel.shares[k]
        steps = [f"{i * width:.1f} {160 - 150 * v:.1f}H{(i + 1) * width:.1f}" for i, v in enumerate(upper[k])]
        back = [f"{(i + 1) * width:.1f} {160 - 150 * low[i]:.1f}H{i * width:.1f}" for i in reversed(range(low.size))]
        out.append((name, COLOURS[k % len(COLOURS)], f"M{'L'.join(steps)}L{'L'.join(back)}Z"))
    return out


def yields_as_latex(data: ReportData) -> str:
    """Yields with the standard errors of the simulation, one line for each process and class."""

    def line(name: str, expected: float, selected: float, effective: float) -> str:
        error = abs(selected) / math.sqrt(effective) if effective > 0 else 0.0
        text = "".join(_LATEX.get(letter, letter) for letter in name)
        return rf"{text} & {expected:.4g} & ${selected:.4g} \pm {error:.2g}$ \\"

    v = data.verdict
    rows = [line(row.name, row.expected, row.selected, row.effective) for row in data.processes]
    totals = [line("signal", v.total_s, v.s, v.effective_s), line("background", v.total_b, v.b, v.effective_b)]
    head = r"process & expected & selected \\"
    parts = [r"\begin{tabular}{lrr}", r"\toprule", head, r"\midrule", *rows, r"\midrule", *totals, r"\bottomrule"]
    return "\n".join([*parts, r"\end{tabular}", ""])


def cuts_table(data: ReportData) -> Table:
    """All rows of the slider."""
    c = data.cuts
    heads = ["cut", "selected", "s", "b", "efficiency", "b efficiency", "purity", "effective b", "± (simulation)"]
    columns: list[list[str]] = [
        [f"{v:.6g}" for v in c.cut],
        [share(v) for v in c.fraction],
        [number(v) for v in c.s],
        [number(v) for v in c.b],
        [share(v) for v in c.efficiency],
        [share(v) for v in c.background_efficiency],
        [share(v) for v in c.purity],
        [number(v) for v in c.effective_b],
        [number(v) for v in c.error],
        *([number(v) for v in values] for values in c.utilities.values()),
    ]
    heads += list(c.utilities)
    for head, values in (("background known, no b_reg", c.known), ("with all systematics", c.profiled)):
        if values is not None:
            heads.append(head)
            columns.append([number(v) for v in values])
    return heads, [list(row) for row in zip(*columns, strict=True)]


def rates_table(data: ReportData) -> Table:
    """Efficiencies and purity, from the loosest cut."""
    c = data.cuts
    columns = zip(c.cut, c.background_efficiency, c.efficiency, c.purity, strict=True)
    rows = [[f"{cut:.6g}", *(share(v) for v in shares)] for cut, *shares in columns]
    return ["cut", "background efficiency", "signal efficiency", "purity"], rows


def progress_table(data: ReportData) -> Table:
    """Objective and minorants at every valid cut."""
    p = data.progress
    heads = ["cut", p.name, *(f"round {m.round}, u = {number(m.u)}" for m in p.minorants)]
    columns: list[Any] = [p.objective, *(m.value for m in p.minorants)]
    rows = [[f"{cut:.6g}", *(number(v) for v in row)] for cut, *row in zip(p.cut, *columns, strict=True)]
    return heads, rows


def rounds_table(data: ReportData) -> Table:
    """Every round that is drawn."""
    rows = [
        [s.name, str(t), number(u), number(z), number(train)]
        for s in data.progress.series
        for t, u, z, train in zip(s.round, s.u, s.significance, s.train, strict=True)
    ]
    return ["cascade", "round", "u", "held-out significance", "training significance"], rows


def scores_table(data: ReportData) -> Table:
    """Expected events of each process in each bin."""
    h = data.scores
    heads = ["from", "to", *(p.name for p in h.processes), "± of the sum"]
    columns = [h.edges[:-1], h.edges[1:], *(p.values for p in h.processes), h.error]
    return heads, [[number(float(v)) for v in row] for row in zip(*columns, strict=True)]
