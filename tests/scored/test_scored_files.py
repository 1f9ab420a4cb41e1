"""Scores in files: the same cut, yields and categories as from arrays."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fivesigma import AMS2, ScoredEvents, ScoredFiles, Varied, categorise, scan
from fivesigma.errors import InputError

pl = pytest.importorskip("polars")

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def _write(folder: Path, *, negative: float = 0.0, ending: str = ".parquet", n: int = 9_000) -> Arrays:
    """Three files of scores, the first of which holds signal only."""
    parts = []
    for k in range(3):
        rng = np.random.default_rng(k)
        y = np.ones(n, dtype=bool) if k == 0 else rng.random(n) < 0.1
        w = rng.exponential(size=n) * np.where(y, 0.01, 1.0)
        w[rng.random(n) < negative] *= -1
        score = np.round(rng.normal(1.5 * y), 4)
        ScoredEvents(score, y, w, process=np.where(y, "H", "Z")).write(folder / f"scores-{k}{ending}")
        parts.append((score, y, w))
    score, y, w = (np.concatenate(column) for column in zip(*parts, strict=True))
    return score, y, w


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
@pytest.mark.parametrize("negative", [0.0, 0.1])
@pytest.mark.parametrize("rule", ["model", "plateau", "peak"])
def test_a_scan_of_files_is_that_of_arrays(tmp_path: Path, rule: str, negative: float, ending: str) -> None:
    arrays = _write(tmp_path, negative=negative, ending=ending)
    files = ScoredFiles(tmp_path / f"scores-*{ending}", rows=2_000)
    assert len(files) == (15 if ending == ".parquet" else 3)
    found, expected = scan(files, utility=AMS2(10.0), rule=rule), scan(*arrays, AMS2(10.0), rule)
    assert found.cut == expected.cut
    assert found.fraction == expected.fraction
    for name in ("significance", "s", "b", "effective_background", "error"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-12)
    assert found.curve.cut.size <= 65_536
    assert np.nanmax(found.curve.significance) <= np.nanmax(expected.curve.significance) * (1 + 1e-12)


def test_weights_are_scaled_to_yields(tmp_path: Path) -> None:
    _write(tmp_path)
    path = tmp_path / "scores-1.parquet"
    found = scan(ScoredFiles(path, yields=(50.0, 7_000.0), rows=1_000), rule="peak")
    expected = scan(ScoredEvents.read(path, yields=(50.0, 7_000.0)), rule="peak")
    assert found.cut == expected.cut
    assert found.significance == pytest.approx(expected.significance, rel=1e-12)


def test_categories_of_files_are_those_of_arrays(tmp_path: Path) -> None:
    arrays = _write(tmp_path)
    files = ScoredFiles(tmp_path / "scores-*.parquet", rows=2_000)
    for n in (3, "auto"):
        found, expected = categorise(files, n_categories=n), categorise(*arrays, n)
        np.testing.assert_array_equal(found.edges, expected.edges)
        np.testing.assert_allclose(found.b, expected.b, rtol=1e-12)
        assert found.significance == pytest.approx(expected.significance, rel=1e-12)
    assert found.by_process.keys() == {"H", "Z"}
    one = ScoredFiles(tmp_path / "scores-1.parquet")
    quoted = found.evaluate(one)
    assert quoted.held_out
    again = expected.evaluate(ScoredEvents.read(tmp_path / "scores-1.parquet"))
    assert quoted.significance == pytest.approx(again.significance, rel=1e-12)
    low, high = expected.interval().significance
    assert found.error == pytest.approx((high - low) / 2, rel=0.3)
    with pytest.raises(InputError, match=r"an interval needs all events in memory; read the files with ScoredEvents"):
        found.interval()


def test_bins_of_many_events_cost_little_significance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = _write(tmp_path, n=40_000)
    monkeypatch.setattr("fivesigma.cut.binned.PUREST", 2_000)
    found = categorise(ScoredFiles(tmp_path / "scores-*.parquet"), n_categories=4)
    best = categorise(*arrays, 4).significance
    assert found.significance == pytest.approx(best, rel=2e-3)  # of other candidate edges


def test_what_needs_every_cut_is_refused(tmp_path: Path) -> None:
    _write(tmp_path)
    files = ScoredFiles(tmp_path / "scores-*.parquet")
    with pytest.raises(
        InputError, match=r"rule='smooth' needs every cut, which a scan of files or of a cluster does not"
    ):
        scan(files, rule="smooth")
    with pytest.raises(InputError, match="systematics need all events in memory"):
        scan(files, systematics={"a": (Varied(weight=np.ones(3)), None)})
    with pytest.raises(InputError, match="y is given with ScoredFiles, which read it from their files; leave it out"):
        scan(files, np.ones(3))
    with pytest.raises(InputError, match="systematics needs all events in memory"):
        categorise(files, n_categories=2, systematics={})


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    _write(tmp_path)
    pl.DataFrame({"score": [0.1], "label": [1]}).write_parquet(tmp_path / "scores-9.parquet")
    with pytest.raises(InputError, match=r"no column 'weight' in scores-9\.parquet"):
        ScoredFiles(tmp_path / "scores-*.parquet")
    bad = {
        "column 'label' of x.parquet must hold two labels; it holds 1": ([0.1, 0.2], [1, 1], [1.0, 1.0]),
        "column 'label' of x.parquet must hold two labels; it holds 3": ([0.1, 0.2, 0.3], [0, 1, 2], [1.0] * 3),
        "column 'score' of x.parquet is not finite in row 2": ([0.1, np.nan], [0, 1], [1.0, 1.0]),
        "column 'weight' of x.parquet is not finite in row 1": ([0.1, 0.2], [0, 1], [np.inf, 1.0]),
    }
    for sentence, (score, label, weight) in bad.items():
        pl.DataFrame({"score": score, "label": label, "weight": weight}).write_parquet(tmp_path / "x.parquet")
        with pytest.raises(InputError, match=re.escape(sentence)):
            scan(ScoredFiles(tmp_path / "x.parquet"))
    pl.DataFrame({"score": [], "label": [], "weight": []}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"x\.parquet holds no events"):
        scan(ScoredFiles(tmp_path / "x.parquet"))


def test_a_file_that_changes_between_passes(tmp_path: Path) -> None:
    _write(tmp_path)
    files = ScoredFiles(tmp_path / "scores-*.parquet")
    _ = files[0]
    path = tmp_path / "scores-1.parquet"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(
        InputError, match=r"scores-1\.parquet has changed since the first pass over it; every pass needs"
    ):
        scan(files)
