"""The best cut on a score: the whole significance-against-cut curve, the rule that chooses, and the uncertainty."""

from fivesigma.cut.best_cut import scan
from fivesigma.cut.cut_scan import Curve, CutInterval, CutScan

__all__ = ["Curve", "CutInterval", "CutScan", "scan"]
