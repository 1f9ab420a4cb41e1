"""Events: read from files, taken from memory, simulated, and written."""

from __future__ import annotations
