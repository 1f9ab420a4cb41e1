"""Constants of the 2014 challenge that the simulation, the demo and the recipes share."""

from __future__ import annotations

__all__ = ["B_REG", "MISSING", "YIELDS"]

#: Constant that the challenge added to the background of a selection.
B_REG = 10.0

#: Expected signal and background of the challenge, after selection, in the data of 2012.
YIELDS = {"s": 691.98861, "b": 410_999.84732}

#: Code of a feature that an event does not have, in the challenge's files and in many others.
MISSING = -999.0
