"""Kill runs at random moments, resume them, and compare with runs that were left alone.

``python -m benchmarks.kills [N]`` kills each kind of run N times (10 by default): the grown cascade of both libraries,
the retrained cascade with two restarts, and a pool. It fails if a resumed run ends with another model or with an error,
or if no kill hit a run that had written something.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

_RUN = """
import sys
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from xgboost import XGBClassifier
from fivesigma import CascadeClassifier, CascadePool, GrownCascadeClassifier
from fivesigma.datasets import make_htautau
kind, folder, out = sys.argv[1:]
events = make_htautau(20_000, random_state=0)
common = {"b_reg": 10, "checkpoint": folder, "random_state": 3, "n_jobs": 1}
trees = {"params": {"max_depth": 4, "learning_rate": 0.1}, "checkpoint_every": 15}
if kind == "restarts":
    learner = XGBClassifier(n_estimators=10, subsample=0.5)
    model = CascadeClassifier(learner, n_restarts=2, max_rounds=12, extra_rounds=12, keep=2, **common)
elif kind == "pool":
    members = [
        ("quick", RandomForestClassifier(5)),
        ("grown", GrownCascadeClassifier(n_trees=40, **trees)),
        ("plain", GrownCascadeClassifier("lightgbm", n_trees=40, cascade=False, **trees)),
        ("restarts", CascadeClassifier(XGBClassifier(n_estimators=10), n_restarts=2, max_rounds=3)),
    ]
    model = CascadePool(members, cv=2, **common)
else:
    model = GrownCascadeClassifier(kind, n_trees=120, **trees, **common)
print("ready", flush=True)
np.save(out, model.fit(events.X, events.y, events.weight).predict_proba(events.X))
"""


def start(kind: str, folder: Path, out: Path) -> subprocess.Popen[str]:
    """Start a run and wait until it trains."""
    command = [sys.executable, "-c", _RUN, kind, str(folder), str(out)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    run.stdout.readline()
    return run


def kills(kind: str, n_kills: int, seed: int = 0) -> int:
    """Kill runs of one kind; return how many ended otherwise than the run that was left alone."""
    moments = random.Random(seed)
    different, left, hits = 0, n_kills, 0
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        run = start(kind, root / "whole", root / "whole.npy")
        clock = time.monotonic()
        run.wait()
        seconds = time.monotonic() - clock
        whole = np.load(root / "whole.npy")
        chain = 0
        while left:
            chain += 1
            folder, out = root / f"run-{chain}", root / f"run-{chain}.npy"
            for _ in range(min(left, moments.randint(1, 4))):  # some runs are killed more than once
                run = start(kind, folder, out)
                time.sleep(moments.uniform(0.05, 0.9) * seconds)
                run.kill()
                hits += run.wait() == -signal.SIGKILL and (folder / "checkpoint.json").exists()
                left -= 1
            failed = start(kind, folder, out).wait() != 0
            same = not failed and np.array_equal(np.load(out), whole)
            different += not same
            end = "same model" if same else "AN ERROR" if failed else "ANOTHER model"
            print(f"{kind}: chain {chain}, {n_kills - left} kills, {hits} of them with a checkpoint, {end}", flush=True)
    return different + (hits == 0)


def main() -> int:
    """Return 1 if a resumed run ended with another model."""
    n_kills = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    kinds = ("xgboost", "lightgbm", "restarts", "pool")
    wrong = sum(kills(kind, n_kills) for kind in kinds)
    print(f"{n_kills * len(kinds)} kills, {wrong} resumed runs that ended otherwise")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
