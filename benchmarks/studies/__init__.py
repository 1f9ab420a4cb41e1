"""Studies whose tables stand in the documentation."""
