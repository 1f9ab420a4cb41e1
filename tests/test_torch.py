"""The net keeps scikit-learn's contract, the symmetries it was given, and torch's state."""

import pytest

pytest.importorskip("torch")
