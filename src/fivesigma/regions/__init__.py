"""Categories for several signals in the scores of a multi-class classifier."""
