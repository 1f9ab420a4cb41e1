"""The child process of `benchmarks.robustness.fuzz_models`: loads and uses models, and says how it went."""

from __future__ import annotations

import json
import os
import resource
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any

import numpy as np
from pandas import Categorical, DataFrame

import fivesigma
from benchmarks.robustness.fuzz_models import CATEGORIES
from fivesigma.errors import FivesigmaError

TABLE = np.random.default_rng(1).normal(size=(40, 100))
Y = np.repeat([0, 1], 20)
# Where libraries look at any time: at themselves and at the system.
_FREE = tuple(
    os.path.realpath(p) for p in {sys.prefix, sys.base_prefix, "/proc", "/sys", "/dev", *sysconfig.get_paths().values()}
)


class Watch:
    """Takes down which files are opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.inside = ""

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Look at an event that Python reports."""
        if event not in ("open", "os.listdir", "subprocess.Popen", "os.system", "os.exec", "socket.connect"):
            return
        name = arguments[0] if arguments else ""
        if not self.inside or isinstance(name, int) or name is None:
            return
        path = os.path.realpath(os.fsdecode(name)) if isinstance(name, str | bytes | os.PathLike) else str(name)
        source = str(Path(fivesigma.__file__).parent)
        if not path.startswith((self.inside, source, *_FREE)) or event not in ("open", "os.listdir"):
            self.opened.append(f"{event} {path}")


def table(model: Any) -> Any:
    """Events for a model: numbers, or a frame with categories."""
    names = getattr(model, "feature_names_in_", None)
    if names is None or "by" not in list(names):
        return TABLE[:, : model.n_features_in_]
    frame = DataFrame({str(name): TABLE[:, k] for k, name in enumerate(names)})
    codes = np.arange(len(TABLE)) * 7 % CATEGORIES
    return frame.assign(by=Categorical(codes, categories=range(CATEGORIES)))


def use(path: str) -> None:
    """Load a model and do with it what a user does."""
    model = fivesigma.load(path)
    repr(model)
    if model.n_features_in_ > TABLE.shape[1]:
        raise FivesigmaError("nobody has so many columns")
    X = table(model)
    p = model.predict_proba(X)
    assert p.shape == (len(X), 2)
    assert np.isfinite(p).all()
    model.predict(X)
    model.significance(X, np.asarray(model.classes_)[Y], np.ones(len(X)))
    if hasattr(model, "history_"):
        str(model.history_)
    if hasattr(model, "staged_significance"):
        list(model.staged_significance(X, np.asarray(model.classes_)[Y], np.ones(len(X))))
        np.asarray(model.feature_importances_)


def outcome(path: str, watch: Watch) -> str:
    """Say how it went."""
    watch.opened.clear()
    watch.inside = os.path.realpath(path)
    try:
        use(path)
        result = "used"
    except FivesigmaError as err:
        result = "refused" if "\n" not in str(err) else f"more than one line: {err}"
    except BaseException:
        result = traceback.format_exc()
    finally:
        watch.inside = ""
    return result if not watch.opened else f"OPENED {watch.opened[:3]}; {result[-300:]}"


def main() -> None:
    """Answer until there are no more paths."""
    out = os.fdopen(os.dup(1), "w")  # libraries print what they like
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for name in ("xgboost", "lightgbm", "skops.io", "sklearn.ensemble", "safetensors.numpy", "torch"):
        try:
            __import__(name)
        except ModuleNotFoundError:
            continue
    watch = Watch()
    sys.addaudithook(watch)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + int(sys.argv[1]),) * 2)
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(outcome(line.rstrip("\n"), watch)), file=out, flush=True)


if __name__ == "__main__":
    main()
