"""The weighted classification cascade of the paper: the algorithm, and the record of its rounds."""
