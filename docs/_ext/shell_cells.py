"""Cells that begin with %%bash are shown as the commands alone, so that what is copied runs in any shell."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

MAGIC = "%%bash\n"


class ShellCells(SphinxPostTransform):
    """Take the magic line away and mark the block as shell."""

    default_priority = 100

    def run(self, **_: Any) -> None:
        """Look at every block of code on the page."""
        for block in self.document.findall(nodes.literal_block):
            text = block.astext()
            if text.startswith(MAGIC):
                block["language"] = "sh"
                block.rawsource = text.removeprefix(MAGIC)
                block.children = []
                block.append(nodes.Text(block.rawsource))


def setup(app: Any) -> dict[str, bool]:
    """Register the transform."""
    app.add_post_transform(ShellCells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
