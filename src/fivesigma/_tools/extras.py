"""The one place where optional libraries are imported, and asked for their versions."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import re
import sys
from contextlib import suppress
from importlib import metadata
from typing import Any

from fivesigma.errors import InputError, MissingExtraError

# Every extra of pyproject.toml with the libraries that it adds.
EXTRAS = {
    "xgboost": ("xgboost",),
    "lightgbm": ("lightgbm",),
    "catboost": ("catboost",),
    "cpu": ("xgboost-cpu", "lightgbm"),
    "torch": ("torch", "safetensors"),
    "root": ("uproot",),
    "parquet": ("polars",),
    "remote": ("fsspec", "aiohttp"),
    "xrootd": ("fsspec", "fsspec-xrootd"),
    "plot": ("matplotlib", "mplhep"),
    "report": ("jinja2",),
    "stats": ("pyhf", "hist"),
    "store": ("skops",),
    "onnx": ("onnx", "onnxruntime"),
    "analysis": ("uproot", "pyhf", "hist", "jinja2", "matplotlib", "mplhep", "cabinetry", "pyyaml"),
    "dask": ("dask", "distributed"),
    "higgsml": ("polars", "pooch"),
}

# Where the module has not the name of the distribution.
_MODULE_OF = {"xgboost-cpu": "xgboost", "pyyaml": "yaml", "fsspec-xrootd": "fsspec_xrootd"}
# The extra that is named for a module: the first that adds it, unless a smaller one does or it comes with another.
EXTRA_OF = {
    **{_MODULE_OF.get(name, name): extra for extra, names in reversed(EXTRAS.items()) for name in names},
    "xgboost": "cpu",
    "awkward": "root",
    "cramjam": "root",
    "requests": "higgsml",
}
# Before 3.1 categories in another order are scored wrongly; before 3.1.3 a worker waits for ever for one that was lost.
_OLDEST = {"xgboost": (3, 1, 3)}
BOOSTERS = ("xgboost", "lightgbm", "catboost")


def installed(module: str) -> bool:
    """Whether `module` could be imported, without importing it."""
    return importlib.util.find_spec(module) is not None


# In a forked child the threads of its parent are gone, and libraries would wait for them for ever.
threads_of: set[str] = set()  # what has started threads in this process
threads_lost: set[str] = set()  # what had in the process that this one was forked from
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: threads_lost.update(threads_of))


def refuse_after_fork(what: str, before: str) -> None:
    """Refuse what would never end here, with what could be done before the fork."""
    if what in threads_lost:
        raise InputError(
            f"this process was forked from one that had used {what}, whose threads are gone here, so that it would "
            f"wait for ever; {before} before the fork, or start processes by multiprocessing's spawn or joblib's loky"
        )


def need(module: str) -> Any:
    """Import an optional `module` or say how to install it."""
    package = module.partition(".")[0]
    if package == "polars":
        refuse_after_fork("polars", "read and write files")
        threads_of.add("polars")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as err:
        if err.name is None or err.name.partition(".")[0] != package:
            raise  # the package is there, something inside it is not
        msg = f"{package} is needed here. Install it with: pip install 'fivesigma[{EXTRA_OF[package]}]'"
        raise MissingExtraError(msg, name=package) from err
    if package in _OLDEST:
        version, oldest = str(version_of(package)), _OLDEST[package]
        if tuple(map(int, re.findall(r"\d+", version)[:3])) < oldest:
            needed = ".".join(map(str, oldest))
            raise InputError(f"{package} {needed} or newer is needed here, and {version} is installed; update it")
    return found


# Libraries that decide what a model is: by the names that are imported, and by those that are installed.
_MODULES = ("numpy", "scipy", "sklearn", *BOOSTERS, "skops", "torch")
_TRAINERS = ("scikit-learn", *BOOSTERS, "torch")


def version_of(module: str) -> str | None:
    """Version of a library that was imported; None if it was not."""
    return str(sys.modules[module].__version__) if module in sys.modules else None


def installed_version(distribution: str) -> str | None:
    """Version of an installed distribution; either build of XGBoost stands for both. None if it is not installed."""
    builds = ("xgboost", "xgboost-cpu") if distribution.startswith("xgboost") else (distribution,)
    for build in sorted(builds, key=lambda name: name != distribution):
        with suppress(metadata.PackageNotFoundError):
            found = metadata.version(build)
            return found if build == distribution else f"{found} ({build})"
    return None


def versions_in_use() -> dict[str, str]:
    """Versions of Python and of the libraries that were imported."""
    found = {name: version for name in _MODULES if (version := version_of(name)) is not None}
    return {"python": platform.python_version(), **found}


def versions_of_trainers() -> dict[str, str]:
    """Versions of the installed libraries that train; from their metadata, as importing them takes long."""
    return {name: found for name in _TRAINERS if (found := installed_version(name)) is not None}
