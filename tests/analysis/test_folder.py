"""The folder of an analysis: nothing outside is touched, one run at a time writes, and damage is noticed."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from fivesigma.analysis import Record, analyse
from fivesigma.analysis.step_record import _digest_of
from fivesigma.errors import InputError
from tests.analysis.conftest import Small

pytest.importorskip("cabinetry")


def run(given: dict[str, Any], out: Path, **options: Any) -> Record:
    return analyse(given, out, n_jobs=1, say=None, **options)


@pytest.fixture
def out(small: Small, tmp_path: Path) -> Path:
    """A copy of a folder that is done."""
    shutil.copytree(small.out, tmp_path / "out")
    return tmp_path / "out"


def edit(out: Path, change: Any, *, sign: bool) -> None:
    """Change the record by hand, with the digest that belongs to it or without."""
    path = out / "analysis.json"
    content = json.loads(path.read_text())
    change(content)
    if sign:
        content["digest"] = _digest_of(content)
    path.write_text(json.dumps(content))


def test_a_record_that_names_files_elsewhere_is_refused(small: Small, out: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    for name in ("../victim.txt", str(victim), "a/../../victim.txt", ".hidden"):
        edit(out, lambda c, name=name: c["steps"]["read"]["outputs"].update({name: "0" * 64}), sign=True)
        with pytest.raises(InputError, match="cannot be read as a record"):
            run(small.config, out)
        shutil.copy(small.out / "analysis.json", out)
    assert victim.read_text() == "mine"


def test_a_link_within_the_folder_is_not_followed(small: Small, out: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.npz").write_text("mine")
    shutil.rmtree(out / "histograms")
    (out / "histograms").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="histograms is a link"):
        run(small.config, out)
    assert (tmp_path / "elsewhere" / "mine.npz").read_text() == "mine"


def test_stale_outputs_that_became_links_stay(small: Small, out: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.root").write_text("mine")
    edit(out, lambda c: c["steps"]["score"]["outputs"].update({"ntuples/old.root": "0" * 64}), sign=True)
    (out / "ntuples" / "old.root").symlink_to(tmp_path / "mine.root")
    run(small.config, out)
    assert (tmp_path / "mine.root").read_text() == "mine"


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["steps"]["categorise"]["found"]["cross_fitted"].update(significance=6.2),
        lambda c: c["steps"]["categorise"]["found"]["edges"]["Signal_region"].__setitem__(0, 0.1),
        lambda c: c["steps"]["read"]["found"]["yields"][0].update({"yield": 1.0}),
    ],
    ids=["significance", "edge", "yield"],
)
def test_a_number_that_was_changed_by_hand_is_not_quoted(small: Small, out: Path, change: Any) -> None:
    edit(out, change, sign=False)
    with pytest.raises(InputError, match="damaged, or changed by hand"):
        run(small.config, out)


def test_every_flipped_digit_of_the_record_is_noticed(small: Small, out: Path) -> None:
    path = out / "analysis.json"
    text = path.read_text()
    places = [match.start() for match in re.finditer(r"\d", text)]
    for at in places[:: max(1, len(places) // 60)]:
        changed = f"{text[:at]}{(int(text[at]) + 1) % 10}{text[at + 1 :]}"
        path.write_text(changed)
        try:
            Record.opened(out)
        except InputError:
            continue
        # A digit beyond double precision, or of the version that wrote it, changes nothing that is quoted.
        assert without_version(changed) == without_version(text)


def without_version(text: str) -> Any:
    return {key: value for key, value in json.loads(text).items() if key != "fivesigma"}


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["steps"]["read"].update(found=3),
        lambda c: c["steps"]["read"].update(outputs=["a"]),
        lambda c: c["steps"]["categorise"]["found"].update(edges="0.5"),
        lambda c: c["steps"]["categorise"]["found"].update(edges={"Signal_region": [0.5]}),
        lambda c: c["steps"]["workspace"]["found"].update(mu=None),
        lambda c: c.update(files=[1]),
        lambda c: c.update(steps=[]),
    ],
    ids=["found", "outputs", "text", "numbers", "mu", "files", "steps"],
)
def test_parts_of_a_wrong_type_are_one_sentence(small: Small, out: Path, change: Any) -> None:
    edit(out, change, sign=True)
    with pytest.raises(InputError, match="cannot be read as a record of an analysis") as caught:
        run(small.config, out)
    assert "\n" not in str(caught.value)


def test_a_pipe_in_place_of_the_record(small: Small, out: Path) -> None:
    (out / "analysis.json").unlink()
    os.mkfifo(out / "analysis.json")
    with pytest.raises(InputError, match="cannot be read as a record"):
        run(small.config, out)


def test_one_run_at_a_time(small: Small, out: Path) -> None:
    with Record.opened(out).locked(), pytest.raises(InputError, match="another run writes to"):
        run(small.config, out)
    run(small.config, out)


def test_inputs_within_the_folder_are_refused(small: Small, out: Path) -> None:
    given = copy.deepcopy(small.config)
    given["General"]["InputPath"] = str(out / "ntuples" / "ntuples.root")
    before = (out / "ntuples" / "ntuples.root").read_bytes()
    with pytest.raises(InputError, match="is an input within the folder of the results"):
        run(given, out)
    assert (out / "ntuples" / "ntuples.root").read_bytes() == before


def test_what_a_killed_run_left_is_removed(small: Small, out: Path, tmp_path: Path) -> None:
    for name in (".4711-workspace.json", "ntuples/.4711-ntuples.root"):
        (out / name).write_text("half")
    (out / ".model-abc" / "new").mkdir(parents=True)
    run(small.config, out)
    assert not list(out.rglob(".*"))
    # Killed while the first record was written: the same command begins anew.
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / ".4711-analysis.json").write_text("{")
    run(small.config, tmp_path / "new", only="read")
    assert not list((tmp_path / "new").glob(".*"))


def test_a_file_in_place_of_the_model(small: Small, out: Path) -> None:
    shutil.rmtree(out / "model")
    (out / "model").write_text("mine")
    with pytest.raises(InputError, match="model is no folder"):
        run(small.config, out)
