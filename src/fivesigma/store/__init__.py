"""Saved models: a folder or a zip of native files and a hashed manifest, loaded without running code."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import fivesigma
from fivesigma.errors import StoreError
from fivesigma.store import parts, values
from fivesigma.store.archive import MANIFEST, check_target, open_archive, write_archive
from fivesigma.store.manifest import FORMAT, file_entry, read_files, read_manifest, render
from fivesigma.store.packing import Packer, Unpacker

__all__ = ["load", "save"]

_CODECS = (*values.CODECS, *parts.CODECS)
_LIBRARIES = ("numpy", "scipy", "sklearn", "xgboost", "lightgbm", "skops", "torch")


def save(model: Any, path: str | os.PathLike[str], *, force: bool = False, allow_pickle: bool = False) -> Path:
    """Save a fitted estimator.

    The result is a folder, or a zip if `path` ends so: boosters in their libraries' own formats, nets by safetensors,
    scikit-learn's estimators by skops, and ``manifest.json`` with all else (parameters, classes, feature names,
    utility, cut, history, versions) and the hash of each file. It appears whole or not at all.

    Parameters
    ----------
    model : estimator
        A fitted `CascadeClassifier`, `GrownCascadeClassifier` or `CascadePool`.
    path : path
        Where to save it; its folder must be there.
    force : bool, default=False
        Whether to replace a model that is there. Nothing but a saved model is ever replaced.
    allow_pickle : bool, default=False
        Whether what has no other format, such as the functions of `FDivergence`, may be pickled. Such a model loads
        with ``allow_pickle=True`` only.

    Returns
    -------
    pathlib.Path
        Where it is.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import fivesigma
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([1, 0], 500)
    >>> X = rng.normal(size=(1000, 2)) + y[:, None]
    >>> model = fivesigma.GrownCascadeClassifier(n_trees=5, random_state=0, n_jobs=1).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = fivesigma.load(fivesigma.save(model, f"{folder}/model"))
    >>> bool((again.predict_proba(X) == model.predict_proba(X)).all())
    True
    """
    path = Path(path)
    check_target(path, force=force)
    packer = Packer(_CODECS, allow_pickle)
    packed = packer.pack(model, "model")
    if not isinstance(packed, dict) or packed.get("$") != "estimator":
        raise StoreError(f"a {type(model).__name__} cannot be saved; known are {', '.join(parts.ESTIMATORS)}")
    content = {
        "format": FORMAT,
        "fivesigma": fivesigma.__version__,
        "versions": _versions(),
        "model": packed,
        "files": {name: file_entry(content) for name, content in packer.files.items()},
    }
    write_archive(path, {MANIFEST: render(content), **packer.files})
    return path


def load(path: str | os.PathLike[str], *, allow_pickle: bool = False) -> Any:
    """Load a saved estimator; its scores are those of the one that was saved.

    Everything is checked before it is used: the manifest against its digest, the files against their hashes. This
    finds damage; it is no signature. Loading runs no code from the files.

    Parameters
    ----------
    path : path
        What `save` returned.
    allow_pickle : bool, default=False
        Whether to load pickles, which run code: only for files whose author you trust.

    Returns
    -------
    estimator

    Raises
    ------
    StoreError
        If anything was changed, is missing, is too much, or is of a newer format.
    """
    path = Path(path)
    archive = open_archive(path)
    content = read_manifest(archive, str(path))
    files = read_files(archive, content, str(path))
    unpacker = Unpacker({codec.tag: codec for codec in _CODECS}, files, allow_pickle)
    try:
        model = unpacker.unpack(content["model"], "model")
    except RecursionError as err:
        raise StoreError(f"{MANIFEST} in {path} is nested too deep") from err
    if type(model).__name__ not in parts.ESTIMATORS:
        raise StoreError(f"{MANIFEST} in {path} describes no estimator")
    return model


def _versions() -> dict[str, str]:
    """Versions of what the model was made with; libraries that were not used are not imported."""
    found = {name: str(sys.modules[name].__version__) for name in _LIBRARIES if name in sys.modules}
    return {"python": platform.python_version(), **found}
