"""Tables of the site, made from the JSON files of the benchmarks when the site is built.

A page shows a table with its date and its command by the directive ``{measured}``, and
``python -m benchmarks.tables study.peers`` prints it.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class Source(NamedTuple):
    """Where the tables of a study come from: a module with a function ``tables``, its file, its date, its command."""

    module: str
    file: str
    date: str
    command: str


SOURCES = {
    "bench": Source("harness", "results.json", "", "python -m benchmarks"),
    "study": Source("studies.study.tables", "studies/study/results.json", "2026-11-16", "make study DATA=folder"),
    "auto": Source("studies.auto", "studies/auto.json", "2026-11-18", "python -m benchmarks.studies.auto run DATA"),
    "net": Source(
        "studies.auto_net", "studies/auto_net.json", "2026-11-18", "python -m benchmarks.studies.auto_net run DATA"
    ),
    "auto-focus": Source(
        "studies.auto_focus",
        "studies/auto_focus.json",
        "2026-11-19",
        "python -m benchmarks.studies.auto_focus run DATA",
    ),
    "cut": Source(
        "studies.cut_rules", "studies/cut_rules.json", "2026-11-18", "python -m benchmarks.studies.cut_rules"
    ),
    "yields": Source(
        "studies.category_yields",
        "studies/category_yields.json",
        "2026-11-18",
        "python -m benchmarks.studies.category_yields",
    ),
    "systematics": Source(
        "studies.systematic_categories",
        "studies/systematic_categories.json",
        "2026-11-18",
        "python -m benchmarks.studies.systematic_categories",
    ),
    "profiled": Source(
        "studies.profiled_tables",
        "studies/profiled.json",
        "2026-11-18",
        "python -m benchmarks.studies.profiled run DATA",
    ),
    "focus": Source("studies.focus", "studies/focus.json", "2026-11-18", "python -m benchmarks.studies.focus run DATA"),
    "honesty": Source(
        "studies.honesty", "studies/honesty.json", "2026-11-18", "python -m benchmarks.studies.honesty run"
    ),
    "simulation": Source(
        "studies.simulation", "studies/simulation.json", "2026-11-18", "python -m benchmarks.studies.simulation FILE"
    ),
    "inferno": Source("peers.tables", "peers/inferno.json", "2026-11-18", "python -m benchmarks.peers.inferno"),
    "fair-universe": Source(
        "peers.tables", "peers/fair_universe.json", "2026-11-18", "python -m benchmarks.peers.fair_universe"
    ),
}


@cache
def tables_of(source: str) -> dict[str, str]:
    """All tables of one study as Markdown."""
    made: dict[str, str] = importlib.import_module(f"benchmarks.{SOURCES[source].module}").tables()
    return made


def table(name: str) -> str:
    """The table ``source.name`` as Markdown, with a line that says where it comes from."""
    source, _, which = name.partition(".")
    _, file, date, command = SOURCES[source]
    measured = f"Measured {date} by" if date else "By"
    return f"{tables_of(source)[which]}\n\n{measured} `{command}`; `benchmarks/{file}`."


if __name__ == "__main__":
    print(*(table(name) for name in sys.argv[1:]), sep="\n\n")
