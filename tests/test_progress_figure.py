"""The figure of a cascade's progress shows what the paper proves."""

import numpy as np
import pytest

from fivesigma import AMS2, GrownCascadeClassifier, RelativeBackground, scan
from fivesigma.errors import InputError
from fivesigma.progress_figure import draw_progress
from tests.estimators.blobs import make_blobs

pytest.importorskip("matplotlib")
pytest.importorskip("xgboost")
X, y, weight = make_blobs(4000)


def test_minorants_lie_below_and_touch() -> None:
    model = GrownCascadeClassifier(n_trees=15, b_reg=2.0, random_state=0, n_jobs=1).fit(X, y, weight)
    curve = scan(model.predict_proba(X)[:, 1], y, weight, AMS2(b_reg=2.0)).curve
    figure = draw_progress(model.history_, curve, model.utility_, cut=model.cut_, title="a title")
    rounds, right, path = figure.axes
    np.testing.assert_array_equal(path.lines[0].get_ydata()[1:], [r.u for r in model.history_][1:])
    np.testing.assert_array_equal(rounds.lines[0].get_ydata(), [r.significance for r in model.history_])

    lines = {line.get_label(): line for line in right.lines}
    objective = lines["$Z^2/2$"].get_ydata()
    minorants = [line.get_ydata() for label, line in lines.items() if label.startswith("round")]
    assert len(minorants) >= 3
    for minorant in minorants:
        assert (minorant <= objective * (1 + 1e-12)).all()
        assert np.min(objective - minorant) < 0.01 * objective.max()
    assert lines["the model's cut"].get_xdata()[0] == model.cut_


def test_a_plain_model_has_no_minorants() -> None:
    model = GrownCascadeClassifier(n_trees=3, cascade=False, random_state=0, n_jobs=1).fit(X, y, weight)
    curve = scan(model.predict_proba(X)[:, 1], y, weight).curve
    labels = {line.get_label() for line in draw_progress(model.history_, curve, AMS2(), cut=0.5).axes[1].lines}
    assert not any(label.startswith("round") for label in labels)
    with pytest.raises(InputError, match="has no u"):
        draw_progress(model.history_, curve, RelativeBackground(0.1), cut=0.5)
