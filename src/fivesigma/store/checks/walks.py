"""How deep trees are, all at once."""

from __future__ import annotations

import numpy as np

from fivesigma._types import AnyArray
from fivesigma.store.checks.refusal import refuse_unless

DEEPEST = 4096  # libraries walk trees by recursion here and there


def check_depth(parent: AnyArray) -> None:
    """Refuse trees so deep that a recursion would leave the stack.

    Parameters
    ----------
    parent : int array
        Place of each node's parent, which comes before it; a root is its own.
    """
    depth = (parent != np.arange(parent.size)).astype(np.int64)
    while True:  # each turn doubles the steps that are taken, so there are few
        above = parent[parent]
        if np.array_equal(above, parent):
            break
        depth += depth[parent]
        parent = above
    refuse_unless(depth.max(initial=0) <= DEEPEST, f"a tree is deeper than {DEEPEST} nodes")
