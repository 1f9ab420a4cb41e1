"""The 2014 Higgs boson challenge: its events, features, submissions and leaderboard."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fivesigma.higgsml.data import ChallengeEvents, load
    from fivesigma.higgsml.download import fetch
    from fivesigma.higgsml.features import ALL_SETS, engineer
    from fivesigma.higgsml.leaderboard import standing
    from fivesigma.higgsml.orientation import MOMENTA, transform
    from fivesigma.higgsml.recipes import RECIPES, find_recipe
    from fivesigma.higgsml.simulate import write_simulated
    from fivesigma.higgsml.submission import SubmissionScore, score_submission, write_submission

# Every public name and the module that defines it; modules are imported on first use (PEP 562).
_HOME = {
    "ALL_SETS": "features",
    "ChallengeEvents": "data",
    "MOMENTA": "orientation",
    "RECIPES": "recipes",
    "SubmissionScore": "submission",
    "engineer": "features",
    "fetch": "download",
    "find_recipe": "recipes",
    "load": "data",
    "score_submission": "submission",
    "standing": "leaderboard",
    "transform": "orientation",
    "write_simulated": "simulate",
    "write_submission": "submission",
}

__all__ = [
    "ALL_SETS",
    "MOMENTA",
    "RECIPES",
    "ChallengeEvents",
    "SubmissionScore",
    "engineer",
    "fetch",
    "find_recipe",
    "load",
    "score_submission",
    "standing",
    "transform",
    "write_simulated",
    "write_submission",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"fivesigma.higgsml.{_HOME[name]}"), name)
    msg = f"module 'fivesigma.higgsml' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
