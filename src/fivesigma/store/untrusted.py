"""A stranger's model, tried out in a child process: a crafted file ends the child and not the user's own process.

The libraries of trees follow the indices of a file without a look, so a crafted model can make them crash, hang or take
all memory. The child loads the model as `load` does and scores events with it, within limits of time and memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from fivesigma.errors import StoreError

SECONDS = 120
MEMORY = 4 << 30  # bytes that the child may allocate, on systems that have such a limit
_ROWS = 2000

# Isolated: the child imports what this process would, and nothing from the folder in which it happens to run.
_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import fivesigma.store.untrusted as u; u.main()"


def rehearse(path: Path) -> None:
    """Load and use a model in a child process; refuse it if the child refuses it or does not survive.

    Parameters
    ----------
    path : Path
        Folder or zip of the model.
    """
    places = json.dumps([place for place in sys.path if place])
    command = [sys.executable, "-I", "-c", _PROGRAM, places, str(path.absolute()), str(SECONDS), str(MEMORY)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}  # threads reserve much memory
    try:
        child = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        raise StoreError(f"{path} kept a child process busy for {SECONDS} seconds, so it is not loaded here") from None
    try:
        refusal = json.loads(child.stdout)["refusal"]
    except ValueError:
        raise StoreError(f"{path} ended a child process ({_end(child.returncode)}), so it is not loaded here") from None
    if refusal is not None:
        raise StoreError(refusal)


def _end(code: int) -> str:
    with suppress(ValueError):
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"signal {-code}"


def main() -> None:
    """Run in the child: load and score, and write as JSON why the model is refused, if it is."""
    path, seconds, memory = sys.argv[2:]
    answer = os.dup(1)
    os.dup2(2, 1)  # what libraries print is not the answer
    _limit(int(seconds), int(memory))
    from fivesigma.store import load
    from fivesigma.store.probe import made_up_events

    refusal = None
    try:
        model = load(path)
        if hasattr(model, "predict_proba"):
            X = made_up_events(model, _ROWS)
            _use(model, X)
            X[::7, ::2] = float("nan")  # these take other branches
            _use(model, X)
    except ModuleNotFoundError:
        pass  # the parent will say which extra is missing
    except StoreError as err:
        refusal = str(err)
    os.write(answer, json.dumps({"refusal": refusal}).encode())


def _use(model: Any, X: Any) -> None:
    with suppress(Exception):  # it may need a frame, or no NaN: what can be caught harms nobody
        model.predict_proba(X)


def _limit(seconds: int, memory: int) -> None:
    """Bound time and memory where the system can; the parent bounds the time in any case."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
