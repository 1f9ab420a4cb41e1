"""Cascades on a cluster: Dask starts one worker function per worker, and XGBoost's collective joins them."""

from __future__ import annotations

from fivesigma.dask.collections import scan
from fivesigma.dask.estimator import GrownCascadeClassifier
from fivesigma.dask.watch import ClusterError

__all__ = ["ClusterError", "GrownCascadeClassifier", "scan"]
