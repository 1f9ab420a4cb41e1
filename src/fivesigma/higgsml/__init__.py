"""The 2014 Higgs boson challenge: its events, features, submissions and leaderboard."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# The public names of each module, which is imported on first use (PEP 562).
_NAMES = {
    "data": "ChallengeEvents load",
    "download": "fetch",
    "features": "ALL_SETS MOMENTA engineer transform",
    "reproduce": "RECIPES find_recipe",
    "simulate": "write_simulated",
    "submission": "SubmissionScore score_submission standing write_submission",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)  # noqa: PLE0605

# ruff: noqa: I001 - the second name tells type checkers that it is meant for others
if TYPE_CHECKING:
    from fivesigma.higgsml.data import ChallengeEvents as ChallengeEvents, load as load
    from fivesigma.higgsml.download import fetch as fetch
    from fivesigma.higgsml.features import (
        ALL_SETS as ALL_SETS,
        MOMENTA as MOMENTA,
        engineer as engineer,
        transform as transform,
    )
    from fivesigma.higgsml.reproduce import RECIPES as RECIPES, find_recipe as find_recipe
    from fivesigma.higgsml.simulate import write_simulated as write_simulated
    from fivesigma.higgsml.submission import (
        SubmissionScore as SubmissionScore,
        score_submission as score_submission,
        standing as standing,
        write_submission as write_submission,
    )


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"fivesigma.higgsml.{_HOME[name]}"), name)
    msg = f"module 'fivesigma.higgsml' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
