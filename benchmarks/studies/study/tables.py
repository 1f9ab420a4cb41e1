"""Tables of docs/validation/study.md, written between their markers from results.json alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.studies.study.stages import load

PAGE = Path(__file__).parents[3] / "docs" / "validation" / "study.md"

Found = dict[str, Any]


def write_tables() -> None:
    """Replace what stands between ``<!-- table: name -->`` and ``<!-- end -->``; the text around it is left alone."""
    results = {stage: r["found"] for stage, r in load().items()}
    makers = {
        "screening": ("screening", _screening),
        "aside": ("screening", _aside),
        "peers": ("peers", _peers),
        "confirm": ("confirm", _confirm),
        "blends": ("confirm", _blends),
        "scaling": ("scaling", _scaling),
    }
    page = PAGE.read_text()
    for name, (stage, make) in makers.items():
        if stage in results:
            body = make(results[stage])
            page = re.sub(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", rf"\1{body}\2", page, flags=re.DOTALL)
    PAGE.write_text(page)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) + "\n"


def _gain(measured: Found | None) -> str:
    """A gain with its error, in bold from two errors on."""
    if measured is None:
        return ""
    if measured["error"] == 0:
        return "same scores"
    text = f"{measured['gain']:+.3f} ± {measured['error']:.3f}"
    return f"**{text}**" if abs(measured["gain"]) >= 2 * measured["error"] else text


def _blend(found: Found, *sizes: int) -> str:
    size = next((n for n in sizes if f"blend of {n}" in found), None)
    return "" if size is None else f"{_gain(found[f'blend of {size}'])} ({size})"


def _u(found: Found) -> str:
    return "" if "u" not in found else f"{min(found['u']):.3f} to {max(found['u']):.3f}"


def _screening(found: Sequence[Found]) -> str:
    rows = [
        [f["arm"], f"{f['window']['value']:.3f}", _gain(f["window"]), _gain(f.get("own cut")), _blend(f, 5, 2), _u(f)]
        for f in found
        if not _is_aside(f)
    ]
    return _table(["setting", "AMS", "gain, cuts at 10-20 %", "gain, tuned cut", "gain of blends (of)", "last u"], rows)


def _is_aside(found: Found) -> bool:
    """Whether two cascades are compared, or two plain models."""
    return bool(found["arm"].startswith("plain") or not found["baseline"].startswith("plain"))


def _aside(found: Sequence[Found]) -> str:
    rows = [
        [f["arm"], f["baseline"], _gain(f["window"]), _gain(f.get("own cut")), _blend(f, 5, 2)]
        for f in found
        if _is_aside(f)
    ]
    return _table(["setting", "against", "gain, cuts at 10-20 %", "gain, tuned cut", "gain of blends (of)"], rows)


def _peers(found: Sequence[Found]) -> str:
    plain = found[0]
    first = ["plain + tuned cut", f"{plain['window']['baseline']:.3f}", f"{plain['own cut']['baseline']:.3f}"]
    rows = [[*first, "", "", "", "1", ""]]
    for f in found:
        name = f["arm"] if f["baseline"] == "plain" else f"{f['arm']}, against {f['baseline']}"
        rows.append(
            [
                name,
                f"{f['window']['value']:.3f}",
                f"{f['own cut']['value']:.3f}",
                _gain(f["window"]),
                _gain(f.get("own cut")),
                f"{min(f['fraction']):.3f} to {max(f['fraction']):.3f}",
                f"{f['time ratio']:.2f}",
                f"{f['memory']:.0f} MB",
            ]
        )
    head = ["learner", "AMS, 10-20 %", "AMS, own cut", "difference, 10-20 %", "difference, own cut"]
    return _table([*head, "events selected", "time ratio", "memory"], rows)


def _confirm(found: Sequence[Found]) -> str:
    names = {"unseen": "simulated, b and u", "folds": "real"}
    rows = [
        [
            names[f["events"]],
            f["arm"],
            f["baseline"],
            f"{f['window']['value']:.3f}",
            _gain(f["window"]),
            _gain(f.get("own cut")),
            _blend(f, 5, 3),
            _blend(f, 10),
        ]
        for f in found
        if f["events"] in names
    ]
    head = ["events", "setting", "against", "AMS", "gain, cuts at 10-20 %", "gain, tuned cut"]
    return _table([*head, "gain of blends (of)", "gain of blends of ten"], rows)


def _blends(found: Sequence[Found]) -> str:
    rows = [
        [f["arm"], f["baseline"], f"{f['window']['value']:.3f}", _gain(f["window"])]
        for f in found
        if f["events"] == "blends"
    ]
    return _table(["blend", "against", "AMS", "gain, cuts at 10-20 %"], rows)


def _scaling(found: Sequence[Found]) -> str:
    rows = [
        [
            f"{f['events']:,}",
            f["arm"],
            f["baseline"],
            str(f["seeds"]),
            f"{f['window']['value']:.3f}",
            _gain(f["window"]),
            _blend(f, 3),
            _u(f),
            f"{f['time ratio']:.2f}",
        ]
        for f in found
    ]
    head = ["training events", "setting", "against", "seeds", "AMS", "gain, cuts at 10-20 %", "gain of blends (of)"]
    return _table([*head, "last u", "time ratio"], rows)
