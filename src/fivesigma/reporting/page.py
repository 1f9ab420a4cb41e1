"""The page: one HTML document that needs no other file and no network."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.summary import Summary

if TYPE_CHECKING:
    from fivesigma.reporting import ReportData

_MINUS = "−"
_SENT = ("verdict", "progress", "cuts", "scores", "overtraining", "profiled")  # what the figures need
DIGITS = 8  # significant digits that are sent
Table = tuple[list[str], list[list[str]]]


def render_page(data: ReportData) -> str:
    """Render a report. Text that comes from files or parameters is escaped, and only our own script may run."""
    jinja2 = need("jinja2")
    assets = files("fivesigma.reporting") / "assets"
    style = (assets / "style.css").read_text(encoding="utf-8")
    script = "".join((assets / name).read_text(encoding="utf-8") for name in ("figures.js", "page.js"))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"num": number, "share": share, "z": "{:.3f}".format, "signed": signed}
    environment.filters["base64"] = lambda picture: base64.b64encode(picture).decode()
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":"), "allow_nan": False}
    safe = need("markupsafe").Markup  # for files of this package only
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = environment.from_string((assets / "page.html").read_text(encoding="utf-8"))
    page: str = template.render(
        data=data,
        payload={key: plain(getattr(data, key)) for key in _SENT},
        tables=tables_of(data),
        has_rounds=any(len(s.round) > 1 for s in data.progress.series),
        has_path=any(np.isfinite(s.u).any() for s in data.progress.series),
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


def signed(value: float) -> str:
    """Significance with its sign."""
    return f"{value:+.3f}".replace("-", _MINUS)


def yields_as_latex(data: ReportData) -> str:
    """Yields with the standard errors of the simulation, one line for each process and class."""

    def line(name: str, expected: float, selected: float, effective: float) -> tuple[str, str, str]:
        error = abs(selected) / math.sqrt(effective) if effective > 0 else 0.0
        return name, f"{expected:.4g}", f"{selected:.4g} ± {error:.2g}"

    v = data.verdict
    rows = [line(row.name, row.expected, row.selected, row.effective) for row in data.processes]
    rows += [line("signal", v.total_s, v.s, v.effective_s), line("background", v.total_b, v.b, v.effective_b)]
    return Summary("", ("process", "expected", "selected"), rows).latex()


def tables_of(data: ReportData) -> dict[str, Table]:
    """The numbers behind the figures."""
    c, p, h = data.cuts, data.progress, data.scores
    exact = "{:.6g}".format
    cut = ("cut", c.cut, exact)
    cuts = [
        cut,
        ("selected", c.fraction, share),
        ("s", c.s, number),
        ("b", c.b, number),
        ("efficiency", c.efficiency, share),
        ("b efficiency", c.background_efficiency, share),
        ("purity", c.purity, share),
        ("effective b", c.effective_b, number),
        ("± (simulation)", c.error, number),
        *((name, values, number) for name, values in c.utilities.items()),
        ("background known, no b_reg", c.known, number),
        ("with all systematics", c.profiled, number),
    ]
    efficiencies = ("background efficiency", c.background_efficiency, share), ("signal efficiency", c.efficiency, share)
    progress = [(p.name, p.objective), *((f"round {m.round}, u = {number(m.u)}", m.value) for m in p.minorants)]
    scores = [("from", h.edges[:-1]), ("to", h.edges[1:]), *((one.name, one.values) for one in h.processes)]
    rounds = [
        [s.name, str(t), number(u), number(z), number(train)]
        for s in p.series
        for t, u, z, train in zip(s.round, s.u, s.significance, s.train, strict=True)
    ]
    return {
        "cuts": _table(column for column in cuts if column[1] is not None),
        "rates": _table([cut, *efficiencies, ("purity", c.purity, share)]),
        "progress": _table([("cut", p.cut, exact), *((name, values, number) for name, values in progress)]),
        "rounds": (["cascade", "round", "u", "held-out significance", "training significance"], rounds),
        "scores": _table((name, values, number) for name, values in [*scores, ("± of the sum", h.error)]),
    }


def _table(columns: Iterable[tuple[str, Any, Callable[[float], str]]]) -> Table:
    """Heads and rows of text, from columns with their heads and formats."""
    heads, values, formats = zip(*columns, strict=True)
    return list(heads), [[text(v) for text, v in zip(formats, row, strict=True)] for row in zip(*values, strict=True)]
