"""A number and its error stay on one line: the spaces around ± do not break."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

ERROR = re.compile(r"(?<=\d) ± (?=\d)")


class NoBreak(SphinxPostTransform):
    """Replace the spaces in all text but code."""

    default_priority = 110

    def run(self, **_: Any) -> None:
        """Look at every piece of text on the page."""
        for text in list(self.document.findall(nodes.Text)):
            if not isinstance(text.parent, (nodes.literal, nodes.literal_block)) and ERROR.search(text):
                text.parent.replace(text, nodes.Text(ERROR.sub("\u00a0±\u00a0", text)))


def setup(app: Any) -> dict[str, bool]:
    """Register the transform."""
    app.add_post_transform(NoBreak)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
