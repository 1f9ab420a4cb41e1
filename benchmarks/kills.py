"""Kill runs at random moments, resume them, and compare with runs that were left alone.

``python -m benchmarks.kills [N]`` kills N times (20 by default), half of them with each library, and fails if a
resumed run ends with another model.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

_RUN = """
import sys
import numpy as np
from fivesigma import GrownCascadeClassifier
from fivesigma.datasets import make_htautau
library, folder, out = sys.argv[1:]
events = make_htautau(20_000, random_state=0)
model = GrownCascadeClassifier(
    library, n_trees=120, b_reg=10, checkpoint=folder, checkpoint_every=15, random_state=3, n_jobs=1,
    params={"max_depth": 4, "learning_rate": 0.1},
)
print("ready", flush=True)
np.save(out, model.fit(events.X, events.y, events.weight).predict_proba(events.X))
"""


def start(library: str, folder: Path, out: Path) -> subprocess.Popen[str]:
    """Start a run and wait until it trains."""
    command = [sys.executable, "-c", _RUN, library, str(folder), str(out)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    run.stdout.readline()
    return run


def kills(library: str, n_kills: int, seed: int = 0) -> int:
    """Kill runs of one library; return how many ended with another model than the run that was left alone."""
    moments = random.Random(seed)
    different, left = 0, n_kills
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        run = start(library, root / "whole", root / "whole.npy")
        clock = time.monotonic()
        run.wait()
        seconds = time.monotonic() - clock
        whole = np.load(root / "whole.npy")
        chain = 0
        while left:
            chain += 1
            folder, out = root / f"run-{chain}", root / f"run-{chain}.npy"
            for _ in range(min(left, moments.randint(1, 4))):  # some runs are killed more than once
                run = start(library, folder, out)
                time.sleep(moments.uniform(0.05, 0.9) * seconds)
                run.kill()
                run.wait()
                left -= 1
            start(library, folder, out).wait()
            same = np.array_equal(np.load(out), whole)
            different += not same
            print(f"{library}: chain {chain}, {n_kills - left} kills so far, {'same' if same else 'ANOTHER'} model")
    return different


def main() -> int:
    """Return 1 if a resumed run ended with another model."""
    n_kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    wrong = sum(kills(library, n_kills // 2) for library in ("xgboost", "lightgbm"))
    print(f"{n_kills // 2 * 2} kills, {wrong} resumed runs with another model")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
