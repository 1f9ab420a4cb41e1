from __future__ import annotations

import os

from hypothesis import settings

os.environ["MPLBACKEND"] = "Agg"
# The same examples on every run; a slow machine is not a failure.
settings.register_profile("fivesigma", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("fivesigma")
