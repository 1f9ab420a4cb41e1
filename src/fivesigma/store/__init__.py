"""Saved models: a folder or a zip of native files and a hashed manifest, loaded without running code."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import fivesigma
from fivesigma._tools.extras import versions_in_use
from fivesigma.errors import StoreError
from fivesigma.store.archive import (
    MANIFEST,
    check_target,
    file_entry,
    read_archive,
    read_manifest,
    render,
    write_archive,
)
from fivesigma.store.codecs import CODECS, STORABLE, ends_in_ours
from fivesigma.store.migrations import FORMAT, migrate
from fivesigma.store.packing import Packer, Unpacker
from fivesigma.store.probe import check_probe, rehearse, score_probe

__all__ = ["check_storable", "load", "load_value", "save", "save_value"]


def save(model: Any, path: str | os.PathLike[str], *, force: bool = False, allow_pickle: bool = False) -> Path:
    """Save a fitted estimator, or categories.

    The result is a folder, or a zip if `path` ends so: boosters in their libraries' own formats, nets by safetensors,
    scikit-learn's estimators by skops, arrays in NumPy's own format, and ``manifest.json`` with all else (parameters,
    classes, feature names, utility, cut, versions) and the hash of each file. It appears whole or not at all.

    Parameters
    ----------
    model : estimator
        A fitted `AutoClassifier`, `GrownCascadeClassifier`, `CascadeClassifier`, `DecomposedClassifier`,
        `ProfiledClassifier`, `CascadePool` or `NetClassifier`, or a Pipeline that ends in one of them; or `Categories`
        or `ScoreCategories`, of which edges, yields and variations are kept, and no events: they assign and evaluate
        others, and have no interval of their own.
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
    if not _is_storable(model):
        raise StoreError(f"a {type(model).__name__} cannot be saved; known are {', '.join(STORABLE)}")
    return _write(model, Path(path), force=force, allow_pickle=allow_pickle, probed=hasattr(model, "predict_proba"))


def load(path: str | os.PathLike[str], *, allow_pickle: bool = False, untrusted: bool = False) -> Any:
    """Load a saved estimator, whose scores are those of the one that was saved, or saved categories.

    That is all that `save` takes: `AutoClassifier`, `GrownCascadeClassifier`, `CascadeClassifier`,
    `DecomposedClassifier`, `ProfiledClassifier`, `CascadePool`, `NetClassifier`, `Categories` or `ScoreCategories`.
    Everything is checked before it is used: the manifest against its digest, the files against their hashes. This finds
    damage; it is no signature. No code of the model runs. Its scores of a few fixed events must be those that it gave
    when it was saved, so that another version of a library cannot change them unseen.

    Parameters
    ----------
    path : path
        What `save` returned.
    allow_pickle : bool, default=False
        Whether to load pickles, which run code: only for files whose author you trust.
    untrusted : bool, default=False
        Whether to load the model and to score events with it in a child process first, with limits on time and memory:
        for a model whose author you do not know. A crafted file can make XGBoost, LightGBM or scikit-learn crash, hang
        or take all memory; then it ends the child, and here it is one sentence.

    Returns
    -------
    estimator

    Raises
    ------
    StoreError
        If anything was changed, is missing, is too much, or is of a newer format; or if the child did not survive.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from fivesigma import categorise, load, save
    >>> found = categorise(np.linspace(0, 1, 100), np.arange(100) % 2, np.ones(100), 1, rule="peak", min_effective=1)
    >>> with TemporaryDirectory() as folder:
    ...     again = load(save(found, f"{folder}/categories"))
    >>> bool(again.significance == found.significance)
    True
    """
    if untrusted:
        if allow_pickle:
            raise StoreError("a pickle runs code of its author; leave out allow_pickle=True for an untrusted model")
        rehearse(Path(path))
    model, content = _read(Path(path), allow_pickle=allow_pickle)
    if not _is_storable(model):
        raise StoreError(f"{MANIFEST} in {path} describes no estimator and no categories")
    if hasattr(model, "predict_proba"):
        check_probe(model, content.get("probe"), content["versions"], str(path))
    return model


def _is_storable(model: Any) -> bool:
    return type(model).__name__ in STORABLE or ends_in_ours(model)


def save_value(value: Any, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Save any value that the codecs know, as `save` does; for what is no estimator by itself."""
    return _write(value, Path(path), force=force, allow_pickle=False, probed=False)


def load_value(path: str | os.PathLike[str]) -> Any:
    """Load what `save_value` saved."""
    return _read(Path(path), allow_pickle=False)[0]


def _write(value: Any, path: Path, *, force: bool, allow_pickle: bool, probed: bool) -> Path:
    check_target(path, force=force)
    packer = Packer(CODECS, allow_pickle)
    packed = packer.pack(value, "model")
    content = {
        "format": FORMAT,
        "fivesigma": fivesigma.__version__,
        "versions": versions_in_use(),
        "model": packed,
        "probe": score_probe(value) if probed else None,
        "files": {name: file_entry(content) for name, content in packer.files.items()},
    }
    write_archive(path, {MANIFEST: render(content), **packer.files})
    return path


def _read(path: Path, *, allow_pickle: bool) -> tuple[Any, dict[str, Any]]:
    """Return what is stored, and the manifest."""
    for left in range(_REPLACED, -1, -1):
        seen = _identity(path)
        try:
            files = read_archive(path)
            content = read_manifest(files, str(path))
            break
        except StoreError:
            if not left or _identity(path) == seen:
                raise
    versions = {**content["versions"], "fivesigma": content["fivesigma"]}
    unpacker = Unpacker(_BY_TAG, files, allow_pickle, versions)
    try:
        migrate(content["model"], content["format"])
        return unpacker.unpack(content["model"], "model"), content
    except RecursionError as err:
        raise StoreError(f"{MANIFEST} in {path} is nested too deep") from err


def _identity(path: Path) -> tuple[int, int] | None:
    """Tell a model from another that another process saved in its place while it was read."""
    with suppress(OSError):
        info = path.stat()
        return info.st_ino, info.st_mtime_ns
    return None


_REPLACED = 20  # times that a model may be replaced while it is read
_BY_TAG = {codec.tag: codec for codec in CODECS}


def check_storable(value: Any, where: str) -> None:
    """Refuse what `save_value` could not keep; nothing is written."""
    Packer(CODECS).pack(value, where)
