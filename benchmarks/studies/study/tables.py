"""Tables of the study, from results.json alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.harness import as_table
from benchmarks.studies.study.stages import load

Found = dict[str, Any]


def tables() -> dict[str, str]:
    """All tables as Markdown."""
    found = {stage: r["found"] for stage, r in load().items()}
    return {
        "screening": _screening(found["screening"]),
        "aside": _aside(found["screening"]),
        "peers": _peers(found["peers"]),
        "confirm": _confirm(found["confirm"]),
        "blends": _blends(found["confirm"]),
        "scaling": _scaling(found["scaling"]),
    }


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
    return as_table(
        ["setting", "AMS", "gain, cuts at 10-20 %", "gain, tuned cut", "gain of blends (of)", "last u"], rows
    )


def _is_aside(found: Found) -> bool:
    """Whether two cascades are compared, or two plain models."""
    return bool(found["arm"].startswith("plain") or not found["baseline"].startswith("plain"))


def _aside(found: Sequence[Found]) -> str:
    rows = [
        [f["arm"], f["baseline"], _gain(f["window"]), _gain(f.get("own cut")), _blend(f, 5, 2)]
        for f in found
        if _is_aside(f)
    ]
    return as_table(["setting", "against", "gain, cuts at 10-20 %", "gain, tuned cut", "gain of blends (of)"], rows)


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
    return as_table([*head, "events selected", "time ratio", "memory"], rows)


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
    return as_table([*head, "gain of blends (of)", "gain of blends of ten"], rows)


def _blends(found: Sequence[Found]) -> str:
    rows = [
        [f["arm"], f["baseline"], f"{f['window']['value']:.3f}", _gain(f["window"])]
        for f in found
        if f["events"] == "blends"
    ]
    return as_table(["blend", "against", "AMS", "gain, cuts at 10-20 %"], rows)


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
    return as_table([*head, "last u", "time ratio"], rows)
