"""Run the quick benchmarks, or those whose name contains a pattern."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from benchmarks.harness import COLUMNS, registered, save


def main() -> int:
    """Return 1 if a limit is missed."""
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = registered(pattern)
    if not chosen:
        print(f"no benchmark matches {pattern!r}", file=sys.stderr)
        return 2
    console, table, missed = Console(), Table("benchmark", *COLUMNS), 0
    for benchmark in chosen:
        with console.status(benchmark.name):
            figures = list(benchmark.run())
        save(benchmark.name, figures)
        for figure in figures:
            table.add_row(benchmark.name, *figure.row(), style="" if figure.holds else "bold red")
            missed += not figure.holds
    console.print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
