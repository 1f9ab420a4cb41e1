"""The 2014 Higgs boson challenge: its events, features, submissions and leaderboard."""

from __future__ import annotations

from fivesigma.higgsml.data import ChallengeEvents, load
from fivesigma.higgsml.download import fetch
from fivesigma.higgsml.features import ALL_SETS, MOMENTA, engineer, transform
from fivesigma.higgsml.simulate import write_simulated
from fivesigma.higgsml.submission import SubmissionScore, score_submission, standing, write_submission

__all__ = [
    "ALL_SETS",
    "MOMENTA",
    "ChallengeEvents",
    "SubmissionScore",
    "engineer",
    "fetch",
    "load",
    "score_submission",
    "standing",
    "transform",
    "write_simulated",
    "write_submission",
]
