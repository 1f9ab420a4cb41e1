"""Speed and memory, each against a limit."""
