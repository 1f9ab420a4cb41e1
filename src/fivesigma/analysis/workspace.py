"""The workspace, built by cabinetry, and its fit."""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._extras import need
from fivesigma._files import written_whole
from fivesigma.errors import InputError, shortened
from fivesigma.workspace import discovery_significance

__all__ = ["build_workspace", "fitted", "write_config"]


def write_config(config: dict[str, Any], path: Path) -> None:
    """Write a configuration as YAML; the file appears whole or not at all."""
    with written_whole(path) as beside:
        text = need("yaml").safe_dump(config, sort_keys=False, allow_unicode=True, width=120)
        beside.write_text(text, encoding="utf-8")


def build_workspace(config: dict[str, Any], folder: Path) -> tuple[Path, list[str]]:
    """Let cabinetry make templates and workspace, as it would in this folder.

    Returns
    -------
    path : Path
        Of ``workspace.json``.
    said : list of str
        What cabinetry warned of.
    """
    cabinetry = need("cabinetry")
    here = copy.deepcopy(config)  # the folder of this process is not ours to change
    histograms = folder / config["General"]["HistogramFolder"]
    here["General"] |= {
        "InputPath": str(folder.resolve() / config["General"]["InputPath"]),
        "HistogramFolder": str(histograms.resolve()),
    }
    histograms.mkdir(parents=True, exist_ok=True)
    for old in histograms.glob("*.npz"):
        old.unlink()
    with _listening() as said:
        try:
            cabinetry.configuration.validate(here)
            cabinetry.templates.build(here)
            cabinetry.templates.postprocess(here)
            workspace = cabinetry.workspace.build(here)
        except Exception as err:  # of cabinetry, uproot, pyhf or jsonschema
            why = shortened(" ".join(str(err).split()), 300)
            raise InputError(f"cabinetry cannot build the workspace ({type(err).__name__}: {why})") from err
    path = folder / "workspace.json"
    with written_whole(path) as beside:
        beside.write_text(json.dumps(workspace, sort_keys=True, indent=4), encoding="utf-8")  # as cabinetry has it
    return path, said


def fitted(path: Path) -> dict[str, float | None]:
    """Expected discovery significance of a workspace, and the signal strength with its uncertainty.

    Returns
    -------
    dict
        ``significance``, ``mu`` and ``error``; None where the fit failed.
    """
    cabinetry = need("cabinetry")
    workspace = json.loads(path.read_text(encoding="utf-8"))
    out: dict[str, float | None] = dict.fromkeys(("significance", "mu", "error"))
    with _listening():
        try:
            out["significance"] = discovery_significance(workspace)
        except Exception:  # a minimiser that did not converge is no reason to lose the rest
            out["significance"] = None
        try:
            model, data = cabinetry.model_utils.model_and_data(workspace)
            found = cabinetry.fit.fit(model, data)
        except Exception:  # the same
            return out
    at = model.config.poi_index
    mu, error = float(found.bestfit[at]), float(found.uncertainty[at])
    return out | {"mu": mu, "error": error} if np.isfinite([mu, error]).all() else out


class _Collecting(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(f"cabinetry: {record.getMessage()}")


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Collect cabinetry's and pyhf's warnings in place of printing them."""
    handler, loggers = _Collecting(), [logging.getLogger(name) for name in ("cabinetry", "pyhf")]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield handler.said
    finally:
        for logger, propagate in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate
