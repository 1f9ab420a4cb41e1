"""How a net is made and trained, and which copies of an event a prediction is the mean of."""

from __future__ import annotations

import math
from dataclasses import dataclass

_SYMMETRIES = 4  # mirrored or not, flipped or not


@dataclass(frozen=True)
class NetSettings:
    """How a net is made and trained; see `NetClassifier`."""

    width: int
    depth: int
    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    dropout: float


def symmetric_copies(n_augment: int) -> list[tuple[float, float, float]]:
    """Angle of rotation, sign of y and sign of z of the copies of an event whose mean is a prediction.

    Rotations by equal angles, each mirrored and flipped or not, are a group, so that their mean is symmetric.
    """
    angles = [2.0 * math.pi * k * _SYMMETRIES / n_augment for k in range(n_augment // _SYMMETRIES)]
    group = [(angle, mirror, flip) for angle in angles for mirror in (1.0, -1.0) for flip in (1.0, -1.0)]
    return group or [(0.0, 1.0, 1.0)]
