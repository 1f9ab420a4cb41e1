"""The models and events of the report's tests, which its command uses too."""

from tests.reporting.conftest import cascade, made, plain_model, test_events, train

__all__ = ["cascade", "made", "plain_model", "test_events", "train"]
