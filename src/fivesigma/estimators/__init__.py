"""scikit-learn's doors to the cascades, one a file, and what they share."""
