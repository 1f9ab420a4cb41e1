"""Files that cannot be used: one sentence that says what, where and what to do."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fivesigma.datasets import load_events
from fivesigma.errors import InputError
from tests.datasets.files import CSV, write

uproot = pytest.importorskip("uproot")

GOOD: dict[str, list[Any]] = {
    "EventId": [1, 2, 3],
    "x": [1.0, 2.0, 3.0],
    "Weight": [1.0, 1.0, 1.0],
    "Label": ["s", "b", "b"],
}
FORMATS = pytest.mark.parametrize("ending", ["csv", "parquet", "root"])


def refuse(path: Any, match: str, **options: Any) -> None:
    with pytest.raises(InputError, match=match) as caught:
        load_events(path, **options)
    assert "\n" not in str(caught.value)


@FORMATS
def test_missing_column_names_the_nearest(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a.{ending}")
    refuse(path, rf"no column 'weight' in a\.{ending}\; did you mean 'Weight'", weight="weight")
    refuse(path, "no column 'mas' .* did you mean 'mass'", features=["mas"])
    refuse(path, "no column 'zzzz' in .*; it has 'EventId'", process="zzzz")
    refuse(path, "no column 'ptt' .* did you mean 'pt'", cut="ptt > 1")
    refuse(path, "no column 'EventID' ", ids="EventID")


@FORMATS
def test_a_missing_label_says_how_to_name_it_and_how_to_do_without(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a.{ending}", {k: v for k, v in GOOD.items() if k != "Label"})
    refuse(
        path,
        rf"no column 'Label' in a\.{ending}; it has .*; name the column of the labels with label= or --label; "
        "label=None, or --label none, reads events without labels$",
    )
    assert not load_events(path, label=None).labelled


@FORMATS
def test_missing_column_in_a_later_file_names_that_file(tmp_path: Path, ending: str) -> None:
    write(tmp_path / f"1.{ending}", GOOD)
    write(tmp_path / f"2.{ending}", {k: v for k, v in GOOD.items() if k != "x"})
    refuse(f"{tmp_path}/*.{ending}", rf"no column 'x' in 2\.{ending}")


@FORMATS
def test_pattern_that_matches_nothing(tmp_path: Path, ending: str) -> None:
    refuse(write(tmp_path / f"a.{ending}", GOOD), r"matches 'PRI_\*'", features=["PRI_*"])


@FORMATS
def test_a_role_is_not_a_feature(tmp_path: Path, ending: str) -> None:
    refuse(write(tmp_path / f"a.{ending}", GOOD), "'Weight' is the weight", features=["x", "Weight"])


@pytest.mark.parametrize("line", [3, 2000])
def test_text_in_a_number_column_has_a_row_and_a_file(tmp_path: Path, line: int) -> None:
    path = tmp_path / "a.csv"
    rows = [f"{i},{i}.5,1.0,{'sb'[i % 2]}" for i in range(3000)]
    rows[line] = f"{line},oops,1.0,s"
    path.write_text("\n".join(["EventId,x,Weight,Label", *rows]) + "\n")
    refuse(path, rf"column 'x' should hold numbers, but row {line + 1:,} of a\.csv has 'oops'")


def test_text_in_the_second_of_two_files_has_its_row_there(tmp_path: Path) -> None:
    write(tmp_path / "1.csv", GOOD)
    (tmp_path / "2.csv").write_text("EventId,x,Weight,Label\n4,1,1,s\n5,2,heavy,b\n")
    refuse(f"{tmp_path}/*.csv", r"'Weight' should hold numbers, but row 2 of 2\.csv has 'heavy'")


def test_text_feature_in_parquet(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", GOOD | {"word": ["1", "two", "3"]})
    refuse(path, r"'word' should hold numbers, but row 2 of a\.parquet has 'two'", features=["word"])


def test_lists_are_no_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", GOOD | {"jets": [[1.0], [2.0, 3.0], []]})
    assert load_events(path).feature_names == ("x",)
    refuse(path, r"column 'jets' of a\.parquet does not hold one value per event", features=["jets"])
    with uproot.recreate(tmp_path / "a.root") as root:
        root.mktree("t", {"v": ("f4", (3,))})
        root["t"].extend({"v": np.zeros((2, 3), dtype="f4")})
    refuse(tmp_path / "a.root", "'v' .* does not hold one value", features=["v"], label=None, weight=None)


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
def test_truncated_gzip(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "a.csv.gz"
    rng = np.random.default_rng(0)
    rows = "".join(f"{i},{x},1.0,{'sb'[i % 2]}\n" for i, x in enumerate(rng.normal(size=5000)))
    whole = gzip.compress(("EventId,x,Weight,Label\n" + rows).encode())
    path.write_bytes(whole[: int(keep * len(whole))])
    refuse(path, r"cannot read a\.csv\.gz: .*damaged or truncated")


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "csv.zst", "parquet", "root"])
def test_empty_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    path.write_bytes(b"")
    refuse(path, rf"a\.{ending} is empty")


def test_header_without_events(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,Weight,Label\n")
    refuse(path, "holds no events")
    pl.DataFrame(GOOD).head(0).write_parquet(tmp_path / "a.parquet")
    refuse(tmp_path / "a.parquet", "holds no events")
    with uproot.recreate(tmp_path / "a.root") as root:
        root.mktree("t", {"x": "f4", "Weight": "f8", "Label": "i4"})
    refuse(tmp_path / "a.root", "holds no events")


@FORMATS
def test_labels_must_be_two(tmp_path: Path, ending: str) -> None:
    one = write(tmp_path / f"one.{ending}", GOOD | {"Label": ["s", "s", "s"]})
    refuse(one, r"must hold two labels; it holds 's' \(3\)")
    three = write(tmp_path / f"three.{ending}", GOOD | {"Label": [1, 0, 2]})
    refuse(three, r"it holds 0 \(1\), 1 \(1\), 2 \(1\)")


@FORMATS
def test_the_signal_is_not_guessed(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a.{ending}", GOOD | {"Label": ["ggH", "ttbar", "ttbar"]})
    refuse(path, r"the labels 'ggH', 'ttbar' in a\.\w+ do not say which is signal; name it with signal= or --signal$")
    refuse(path, "no event .* has the signal label 'H'; the labels are 'ggH', 'ttbar'", signal="H")
    refuse(write(tmp_path / f"b.{ending}", GOOD | {"Label": [1, 2, 2]}), "the labels 1, 2 in")


def test_a_row_without_label(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", GOOD | {"Label": ["s", None, "b"]})
    refuse(path, r"column 'Label' is empty in row 2 of a\.csv")
    path = write(tmp_path / "a.parquet", GOOD | {"Label": [1.0, 0.0, float("nan")]})
    refuse(path, r"column 'Label' is empty in row 3 of a\.parquet")


@FORMATS
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_must_be_finite(tmp_path: Path, ending: str, value: float) -> None:
    path = write(tmp_path / f"a.{ending}", GOOD | {"Weight": [1.0, value, value]})
    refuse(path, rf"'Weight' is {value} in row 2 of a\.{ending}, {value} in row 3 of a\.{ending}$")
    # Rows are those of the file even where a cut has removed some.
    refuse(path, rf"'Weight' is {value} in row 3 of", cut="x != 2", features="x")


def test_an_empty_weight_and_many_bad_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", GOOD | {"Weight": [1.0, None, 1.0]})
    refuse(path, r"'Weight' is nan in row 2")
    many = {name: column * 4 for name, column in GOOD.items()} | {"Weight": [float("nan")] * 12}
    refuse(write(tmp_path / "b.csv", many), "and in 9 more rows", ids=None)


@FORMATS
def test_infinite_features_are_refused(tmp_path: Path, ending: str) -> None:
    refuse(write(tmp_path / f"a.{ending}", GOOD | {"x": [1.0, 2.0, float("inf")]}), "'x' is infinite .* in row 3")
    refuse(write(tmp_path / f"b.{ending}", GOOD | {"x": [1.0, 1e300, 2.0]}), "too large .* in row 2 of b")


@FORMATS
def test_duplicate_ids_name_both_rows(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a.{ending}", GOOD | {"EventId": [5, 4, 5]})
    refuse(path, rf"5 is in row 1 of a\.{ending} and in row 3 of a\.{ending} \(1 duplicates")
    assert load_events(path, ids=None).ids is None


@FORMATS
def test_duplicate_ids_across_files(tmp_path: Path, ending: str) -> None:
    write(tmp_path / f"1.{ending}", GOOD)
    write(tmp_path / f"2.{ending}", GOOD | {"EventId": [4, 2, 6]})
    assert load_events(f"{tmp_path}/*.{ending}").ids is not None, "each file may count its events from one"
    write(tmp_path / f"2.{ending}", GOOD | {"EventId": [4, 2, 4]})
    refuse(f"{tmp_path}/*.{ending}", rf"4 is in row 1 of 2\.{ending} and in row 3 of 2\.{ending}")


def test_one_label_of_text_and_one_number_in_two_files(tmp_path: Path) -> None:
    for name, label in (("a", "s"), ("b", "0")):
        (tmp_path / f"{name}.csv").write_text(f"x,Label,Weight\n1,{label},1\n2,{label},1\n")
    with pytest.raises(InputError, match=r"holds numbers in b\.csv and not in the files before it; make them alike"):
        load_events([tmp_path / "a.csv", tmp_path / "b.csv"], signal="s")


def test_labels_of_two_kinds_in_two_files(tmp_path: Path) -> None:
    write(tmp_path / "1.csv", GOOD)
    write(tmp_path / "2.csv", GOOD | {"EventId": [4, 5, 6], "Label": [1, 0, 0]})
    refuse(f"{tmp_path}/*.csv", r"'Label' holds numbers in 2\.csv and not in the files before it; make them alike")


def test_root_file_without_that_tree_lists_its_trees(tmp_path: Path) -> None:
    path = write(tmp_path / "a.root", tree="nominal")
    refuse(
        path,
        r"no tree 'nominl' in a\.root; its trees are: 'nominal'\; did you mean 'nominal'\?",
        tree="nominl",
    )
    with uproot.update(path) as root:
        root.mktree("up", {"z": "f4"})
    refuse(path, "must have one tree, but its trees are: 'nominal', 'up'; choose one with tree=")
    with uproot.recreate(tmp_path / "none.root") as root:
        root["h"] = np.histogram([1.0, 2.0])
    refuse(tmp_path / "none.root", "its trees are: none")


def test_paths_that_are_no_event_files(tmp_path: Path) -> None:
    write(tmp_path / "events.csv")
    refuse(tmp_path / "event.csv", r"there is no file .*event\.csv\; did you mean 'events\.csv'")
    refuse(tmp_path / "no" / "event.csv", "there is no file")
    refuse(tmp_path, r"is a folder: name its files, for example '.*\*\.parquet'")
    refuse(f"{tmp_path}/*.parquet", r"no file matches '.*\*\.parquet'")
    refuse([], "there is no file to read")
    refuse(f"{tmp_path}/{'x' * 300}.csv", "cannot be looked up")
    (tmp_path / "events.xlsx").write_bytes(b"PK")
    refuse(tmp_path / "events.xlsx", r"events\.xlsx ends in none of \.csv")
    refuse(tmp_path / "events.csv", r"a tree is chosen within ROOT files, but events\.csv is not one", tree="t")


@pytest.mark.parametrize("ending", ["csv.gz", "csv.zst", "parquet", "root"])
def test_a_file_of_another_kind(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    path.write_bytes(b"this is not what the name says " * 50)
    refuse(path, rf"a\.{ending}")


def test_header_with_the_same_name_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,x,Weight,Label\n1,2,1,s\n3,4,1,b\n")
    refuse(path, r"'x' appears more than once in the header of a\.csv")


def test_too_many_cells_in_a_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(CSV + "11,1,2,3,s,t,1.0,extra\n")
    refuse(path, r"cannot read a\.csv")


def test_no_features_and_no_survivors(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", {k: v for k, v in GOOD.items() if k != "x"})
    refuse(path, r"no feature is left in a\.csv")
    refuse(write(tmp_path / "b.csv", GOOD), "none of 3 events passes the cut 'x > 100'", cut="x > 100", features="x")
