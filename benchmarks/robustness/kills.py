"""Kill runs at random moments, resume them, and compare with runs that were left alone.

``python -m benchmarks.robustness.kills [N] [EVENTS] [KIND ...]`` kills each kind of run N times (10 by default): the
grown cascade
of both libraries, the retrained cascade with two restarts, the decomposition, a pool, nets, and
``fivesigma higgsml reproduce``. It fails if a resumed run ends with other bytes or with an error, or if no kill hit a
run that had written something.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KINDS = ("xgboost", "lightgbm", "restarts", "decomposed", "pool", "net", "reproduce")
_RUN = """
import sys
from pathlib import Path
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from xgboost import XGBClassifier, XGBRegressor
from fivesigma import CascadeClassifier, CascadePool, DecomposedClassifier, GrownCascadeClassifier
from fivesigma.datasets import make_htautau
kind, folder, out, n_events = sys.argv[1:]
n_events = int(n_events)
common = {"b_reg": 10, "checkpoint": folder, "random_state": 3, "n_jobs": 1}
trees = {"params": {"max_depth": 4, "learning_rate": 0.1}, "checkpoint_every": 15}
if kind == "reproduce":
    from fivesigma.higgsml import load, write_simulated
    from fivesigma.higgsml.reproduce import find_recipe
    from fivesigma.higgsml.reproduce import reproduce
    file = Path(folder).parent / "events.csv.gz"
    if not file.exists():
        write_simulated(file, n_events=n_events, random_state=1)
    data = load(file, sample=True)
    print("ready", flush=True)
    reproduce(data, find_recipe("paper-ten"), Path(folder), quick=True, n_jobs=1)
    Path(out).write_bytes((Path(folder) / "submission.csv").read_bytes())
    sys.exit()
events = make_htautau(n_events, random_state=0)
if kind == "restarts":
    learner = XGBClassifier(n_estimators=10, subsample=0.5)
    model = CascadeClassifier(learner, n_restarts=2, max_rounds=12, extra_rounds=12, keep=2, **common)
elif kind == "decomposed":
    learners = XGBClassifier(n_estimators=40), XGBRegressor(objective="reg:gamma", n_estimators=40)
    model = DecomposedClassifier(*learners, cv=6, **common)
elif kind == "net":
    import torch  # before the clock of the kills starts
    from fivesigma import NetClassifier
    net = NetClassifier(width=16, depth=2, epochs=3)
    model = CascadeClassifier(net, max_rounds=4, extra_rounds=4, cv=2, **common)
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
Path(out).write_bytes(model.fit(events.X, events.y, events.weight).predict_proba(events.X).tobytes())
"""


def start(kind: str, folder: Path, out: Path, n_events: int) -> subprocess.Popen[str]:
    """Start a run and wait until it trains."""
    command = [sys.executable, "-W", "ignore", "-c", _RUN, kind, str(folder), str(out), str(n_events)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    run.stdout.readline()
    return run


def kills(kind: str, n_kills: int, n_events: int, seed: int = 0) -> int:
    """Kill runs of one kind; return how many ended otherwise than the run that was left alone."""
    moments = random.Random(f"{seed}-{kind}")
    different, left, hits = 0, n_kills, 0
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        run = start(kind, root / "whole", root / "whole.bytes", n_events)
        clock = time.monotonic()
        run.wait()
        seconds = time.monotonic() - clock
        whole = (root / "whole.bytes").read_bytes()
        chain = 0
        while left:
            chain += 1
            folder, out = root / f"run-{chain}", root / f"run-{chain}.bytes"
            for _ in range(min(left, moments.randint(1, 4))):  # some runs are killed more than once
                run = start(kind, folder, out, n_events)
                time.sleep(moments.uniform(0.05, 0.9) * seconds)
                run.kill()
                hits += run.wait() == -signal.SIGKILL and any(folder.rglob("checkpoint.json"))
                left -= 1
            failed = start(kind, folder, out, n_events).wait() != 0
            same = not failed and out.read_bytes() == whole
            different += not same
            end = "same bytes" if same else "AN ERROR" if failed else "OTHER bytes"
            print(f"{kind}: chain {chain}, {n_kills - left} kills, {hits} of them with a checkpoint, {end}", flush=True)
    return different + (hits == 0)


def main() -> int:
    """Return 1 if a resumed run ended with other bytes."""
    n_kills = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    n_events = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
    kinds = sys.argv[3:] or KINDS
    wrong = sum(kills(kind, n_kills, n_events) for kind in kinds)
    print(f"{n_kills * len(kinds)} kills, {wrong} resumed runs that ended otherwise")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
