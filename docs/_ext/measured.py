"""``{measured} study.peers`` shows a table that is made from the JSON file of a benchmark, with its date."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


class Measured(SphinxDirective):
    """The table of that name, and a line with its source."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parse the Markdown of the table in place."""
        from benchmarks.tables import HERE, SOURCES, table

        name = self.arguments[0]
        self.env.note_dependency(str(HERE / SOURCES[name.partition(".")[0]].file))
        holder = nodes.container(classes=["measured"])
        self.state.nested_parse(StringList(table(name).splitlines(), source=name), self.content_offset, holder)
        return [holder]


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("measured", Measured)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
