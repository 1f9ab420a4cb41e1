"""A model is tried before it is used: it must score a few fixed events as it did when it was saved.

A library may read a file of another version without a complaint and mean something else by it. And the libraries of
trees follow the indices of a file without a look, so that a crafted model can make them crash, hang or take all memory:
a stranger's model is loaded and scored in a child process first, within limits of time and memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import BOOSTERS, version_of
from fivesigma._types import Array
from fivesigma.errors import StoreError
from fivesigma.store.packing import one_line

_SCORERS = ("sklearn", *BOOSTERS, "torch")  # libraries whose versions matter
_ROWS = 16
_CLOSE = {"rtol": 1e-4, "atol": 1e-6}  # what float32 and another order of sums may change

SECONDS = 120
MEMORY = 4 << 30  # bytes that the child may allocate, on systems that have such a limit
_CHILD_ROWS = 2000
# Isolated: the child imports what this process would, and nothing from the folder in which it happens to run.
_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import fivesigma.store.probe as p; p.main()"


def score_probe(model: Any) -> list[float] | None:
    """Scores of fixed events of all sizes; None if the model takes no plain array, as a Pipeline that needs names."""
    try:
        return [float(score) for score in _scores(model)]
    except Exception:  # whatever a learner raises
        return None


def check_probe(model: Any, saved: Any, versions: Mapping[str, str], where: str) -> None:
    """Refuse a model that does not give the scores that `score_probe` gave when it was saved; format 1 has none."""
    other = {
        name: (then, now)
        for name in _SCORERS
        if (then := versions.get(name)) is not None and (now := version_of(name)) is not None and then != now
    }
    if saved is None and not other:
        return
    then, now = (", ".join(f"{name} {pair[k]}" for name, pair in other.items()) for k in (0, 1))
    written, used = (f" with {then}", f" with {now}") if other else ("", "")
    advice = f"install {then} or train the model again" if other else "copy it again or train the model again"
    try:
        scores = _scores(model)
    except Exception as err:
        if saved is None and not isinstance(err, AttributeError | TypeError):
            return  # it may need a frame; those two are what objects of another version raise
        raise StoreError(f"{where} was saved{written} and cannot be used{used} ({one_line(err)}); {advice}") from err
    if saved is not None and not (np.shape(saved) == (_ROWS,) and np.allclose(scores, saved, equal_nan=True, **_CLOSE)):
        raise StoreError(f"{where} was saved{written} and gives other scores{used or ' now'}; {advice}")


def made_up_events(model: Any, n_rows: int = _ROWS) -> Array:
    """Events whose features are of all sizes; always the same."""
    rng = np.random.default_rng(0)
    shape = (n_rows, int(model.n_features_in_))
    return np.asarray(rng.normal(size=shape) * 10.0 ** rng.uniform(-2, 3, size=shape))


def _scores(model: Any) -> Array:
    X = made_up_events(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(model, "__fivesigma_score__"):
            return np.asarray(model.__fivesigma_score__(X), dtype=np.float64)
        return np.asarray(model.predict_proba(X)[:, 1], dtype=np.float64)


def rehearse(path: Path) -> None:
    """Load and use a model in a child process; refuse it if the child refuses it or does not survive."""
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

    refusal = None
    try:
        model = load(path)
        if hasattr(model, "predict_proba"):
            X = made_up_events(model, _CHILD_ROWS)
            with_holes = X.copy()
            with_holes[::7, ::2] = float("nan")  # these take other branches
            for table in (X, with_holes):
                with suppress(Exception):  # it may need a frame, or no NaN: what can be caught harms nobody
                    model.predict_proba(table)
    except ModuleNotFoundError:
        pass  # the parent will say which extra is missing
    except StoreError as err:
        refusal = str(err)
    os.write(answer, json.dumps({"refusal": refusal}).encode())


def _limit(seconds: int, memory: int) -> None:
    """Bound time and memory where the system can; the parent bounds the time in any case."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
