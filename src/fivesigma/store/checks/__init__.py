"""What is looked at in the files of a saved model before another library sees them.

Libraries of trees follow the indices of a file without a look, so a file of a stranger could make them read anywhere in
memory, or walk in a circle. Each module here knows one format and raises `UncheckedError` for whatever is not as its
library writes it.
"""

from __future__ import annotations

from fivesigma.store.checks.refusal import UncheckedError, refuse_unless

__all__ = ["UncheckedError", "refuse_unless"]
