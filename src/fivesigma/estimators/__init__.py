"""The cascades as estimators of scikit-learn, one per file, and what they share."""
