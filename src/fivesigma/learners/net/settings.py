"""How a net is made and trained."""

from __future__ import annotations

from dataclasses import dataclass


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
