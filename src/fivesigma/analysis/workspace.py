"""The workspace, built by cabinetry, and its fit."""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.files import written_whole
from fivesigma.categories.workspace import discovery_significance
from fivesigma.errors import InputError, shortened

__all__ = ["build_workspace", "fitted", "write_config"]


def write_config(config: dict[str, Any], path: Path) -> None:
    """Write a configuration as YAML; the file appears whole or not at all."""
    with written_whole(path) as beside:
        text = need("yaml").safe_dump(config, sort_keys=False, allow_unicode=True, width=120)
        beside.write_text(text, encoding="utf-8")


def build_workspace(
    config: dict[str, Any], folder: Path, advance: Callable[[int, str], None]
) -> tuple[Path, list[str]]:
    """Let cabinetry make templates and workspace, as it would in this folder.

    Parameters
    ----------
    config : dict
    folder : Path
    advance : callable
        Gets one step for each template.

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
    with _listening(lambda: advance(1, "templates")) as said:
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


class _Listener(logging.Handler):
    """Collects warnings, and notices that a template is read."""

    def __init__(self, on_template: Callable[[], None]) -> None:
        super().__init__()
        self.said: list[str] = []
        self.on_template = on_template

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self.said.append(f"cabinetry: {record.getMessage()}")
        elif record.name == "cabinetry.contrib.histogram_creator":
            self.on_template()


@contextmanager
def _listening(on_template: Callable[[], None] = lambda: None) -> Iterator[list[str]]:
    """Collect cabinetry's and pyhf's warnings in place of printing them."""
    handler, loggers = _Listener(on_template), [logging.getLogger(name) for name in ("cabinetry", "pyhf")]
    before = [(logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    loggers[0].setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield handler.said
    finally:
        for logger, (propagate, level) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate
            logger.setLevel(level)
