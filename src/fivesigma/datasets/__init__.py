"""Events: read from files, taken from memory, simulated, and written."""

from __future__ import annotations

from fivesigma.datasets.columns import NEVER_FEATURES
from fivesigma.datasets.events import Events
from fivesigma.datasets.htautau import make_htautau
from fivesigma.datasets.load import column_names, from_arrays, from_frame, load_events
from fivesigma.datasets.stream import EventStream
from fivesigma.datasets.variations import find_variations, load_variations
from fivesigma.datasets.write import write_events

__all__ = [
    "NEVER_FEATURES",
    "EventStream",
    "Events",
    "column_names",
    "find_variations",
    "from_arrays",
    "from_frame",
    "load_events",
    "load_variations",
    "make_htautau",
    "write_events",
]
