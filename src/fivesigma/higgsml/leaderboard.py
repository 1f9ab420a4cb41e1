"""What is known of the challenge's private leaderboard, and where a score lies on it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PRIVATE", "Place", "standing"]


class Place(NamedTuple):
    """One place of the private leaderboard; its score lies in [low, high]."""

    rank: int
    who: str
    low: float
    high: float

    def __str__(self) -> str:
        last = "th" if self.rank % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(self.rank % 10, "th")
        score = f"{self.low:.5f}" if self.low == self.high else f"{self.low:.2f}+"
        return f"{self.rank}{last} ({self.who}, {score})"


# Only places whose score a public source gives. 1: github.com/melisgl/higgsml. 2: github.com/TimSalimans/HiggsML. 3:
# Kaggle's forum, t/10481. 4 and 5: as quoted in a participant's repository. 26: github.com/phunterlau/kaggle_higgs,
# which says 3.73+ and no more digits. 31: Mackey, Bryan and Mo, PMLR 42:129-134.
PRIVATE = (
    Place(1, "Melis", 3.80581, 3.80581),
    Place(2, "Salimans", 3.78912, 3.78912),
    Place(3, "nhlx5haze", 3.78682, 3.78682),
    Place(4, "ChoKo Team", 3.77526, 3.77526),
    Place(5, "cheng chen", 3.77383, 3.77383),
    Place(26, "phunter", 3.73, 3.74),
    Place(31, "Mackey, Bryan and Mo", 3.72594, 3.72594),
)


def standing(private: float) -> str:
    """Say between which known places a private score would have ended; the places between them are not known.

    `private` is the AMS on the challenge's own private events (set v).

    Examples
    --------
    >>> standing(3.75)
    'between 5th (cheng chen, 3.77383) and 26th (phunter, 3.73+)'
    >>> standing(3.735)
    'between 5th (cheng chen, 3.77383) and 31st (Mackey, Bryan and Mo, 3.72594)'
    """
    score = round(private, 5)  # the digits that Kaggle showed
    level = [place for place in PRIVATE if place.low == place.high == score]
    if level:
        return f"level with {level[0]}"
    above = [place for place in PRIVATE if place.low > score]
    below = [place for place in PRIVATE if place.high <= score]
    if not above:
        return f"above {below[0]}"
    if not below:
        return f"below {above[-1]}"
    return f"between {above[-1]} and {below[0]}"
