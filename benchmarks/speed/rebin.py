"""How fast the fine bins of a workspace are merged; ``python -m benchmarks.speed.rebin FILE K`` does any workspace."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

from tests.rebinning.random_workspaces import random_workspace

from benchmarks.harness import Figure, benchmark
from fivesigma.rebinning import rebin


@benchmark(slow=True)
def large() -> Iterable[Figure]:
    """CPU seconds of 3 channels of 1,000 bins with 50 systematics."""
    workspace = random_workspace(0, (1000, 1000, 1000), local=False, n_shapes=48, scale=20)
    start = time.process_time()
    found = rebin(workspace, 30)
    z = found.significance
    yield Figure("3 x 1,000 bins, 50 systematics, 30 new bins: CPU", time.process_time() - start, 60.0, " s")
    yield Figure("3 x 1,000 bins, 50 systematics, 30 new bins: gap", found.gap, None, "", f"significance {z:.3f}")


if __name__ == "__main__":
    for goal in ("discovery", "measurement"):
        begin = time.process_time()
        print(rebin(sys.argv[1], int(sys.argv[2]), goal=goal, min_effective=1.0))
        print(f"{time.process_time() - begin:.1f} s")
