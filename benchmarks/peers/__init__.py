"""Other tools on the same events."""
