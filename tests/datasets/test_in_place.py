"""``predict --in-place``: branches are added to the user's own tree, or the file stays as it was to the last byte."""

import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fivesigma import InputError
from fivesigma._tools.files import check_digest
from fivesigma.datasets.write import add_branches, write_trees
from tests.datasets.test_to_root import folder, run  # noqa: F401 - the fixture

uproot = pytest.importorskip("uproot")
NTUPLES = Path(__file__).parents[3] / "shared" / "data" / "ntuples"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_branches_are_added_and_all_else_stays(folder: Path, tmp_path: Path) -> None:  # noqa: F811
    file, scores = tmp_path / "two.root", tmp_path / "scores.root"
    shutil.copyfile(folder / "two.root", file)
    file.chmod(0o640)
    with uproot.open(file) as before:
        old = {tree: before[tree].arrays() for tree in ("Nominal", "JES_up")}
    run("predict", folder / "model", file, "-o", scores)
    text = run("predict", folder / "model", file, "--in-place")
    assert "400 entries of Nominal scored" in text
    assert f"scores in {file}" in text
    with uproot.open(file) as found, uproot.open(scores) as wanted:
        for tree, columns in old.items():
            assert set(found[tree].keys()) == {*columns.fields, "score", "selected"}
            assert found[tree].arrays(columns.fields).to_list() == columns.to_list()
            for name in ("score", "selected"):
                np.testing.assert_array_equal(found[tree][name].array(), wanted[tree][name].array())
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scores.root", "scores.root.sha256", "two.root"]
    now = sha256(file)
    refused = run("predict", folder / "model", file, "--in-place", code=1)
    assert "Nominal in two.root has a branch 'score' already" in refused
    assert sha256(file) == now
    run("predict", folder / "model", file, "--in-place", "--branch", "nn", "--tree", "JES_up")
    with uproot.open(file) as found:
        assert {"nn", "nn_selected", "score"} <= set(found["JES_up"].keys())
        assert "nn" not in found["Nominal"].keys()  # noqa: SIM118 - a tree, not a dict
    run("predict", folder / "model", file, "--in-place", "--branch", "both", "--tree", "Nominal + JES_up")
    with uproot.open(file) as found:  # friends: the first tree, which has all features, gets the branches
        np.testing.assert_array_equal(found["Nominal"]["both"].array(), found["Nominal"]["score"].array())


def test_a_digest_beside_the_file_is_renewed(tmp_path: Path) -> None:
    file = write_trees(tmp_path / "x.root", [("t", {"x": np.arange(3.0)})])
    add_branches(file, [("t", {"score": np.arange(3.0)})])
    check_digest(file)


def test_what_uproot_cannot_do_leaves_the_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "ntuple.root"
    with uproot.recreate(file) as new:
        new["t"] = {"x": np.arange(3.0)}  # an RNTuple
    for path, tree in ((file, "t"), (NTUPLES / "uproot-HZZ.root", "events")):
        own = tmp_path / f"own-{path.name}"
        if not path.exists():
            pytest.skip("real files are not there")
        shutil.copyfile(path, own)
        with uproot.open(own) as opened:
            n = opened[tree].num_entries
        with pytest.raises(InputError, match=r"uproot cannot add branches to \w+ in .*; write a friend tree"):
            add_branches(own, [(tree, {"score": np.zeros(n)})])
        assert sha256(own) == sha256(path)
    with pytest.raises(InputError, match="is no file of this machine"):
        add_branches(Path("https:/x/y.root"), [])


def test_a_real_file_gets_branches(tmp_path: Path) -> None:
    if not NTUPLES.exists():
        pytest.skip("real files are not there")
    file = tmp_path / "Zmumu.root"
    shutil.copyfile(NTUPLES / "uproot-Zmumu.root", file)
    with uproot.open(file) as opened:
        old = opened["events"].arrays()
    add_branches(file, [("events", {"score": np.linspace(0.0, 1.0, len(old))})])
    with uproot.open(file) as opened:
        assert opened["events"].arrays(old.fields).to_list() == old.to_list()
        np.testing.assert_array_equal(opened["events"]["score"].array(), np.linspace(0.0, 1.0, len(old)))


CHILD = """
import os, resource, signal, sys
from pathlib import Path
import numpy as np
from fivesigma.datasets import write

path, fault = Path(sys.argv[1]), sys.argv[2]
if fault == "disk":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 200, path.stat().st_size + 200))
before = write._contents
def contents(file):
    if fault == "kill" and file != path:  # the new branches are in the copy
        os.kill(os.getpid(), signal.SIGKILL)
    return before(file)
write._contents = contents
try:
    write.add_branches(path, [("t", {"score": np.random.default_rng(0).random(5000)})])
except Exception as err:
    print(type(err).__name__, err)
"""


@pytest.mark.parametrize("fault", ["kill", "disk"])
def test_no_file_is_ever_half_written(fault: str, tmp_path: Path) -> None:
    file = tmp_path / "x.root"
    with uproot.recreate(file) as new:
        new.mktree("t", {"x": np.dtype("f8")})
        new["t"].extend({"x": np.arange(5000.0)})
    before = sha256(file)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(file), fault],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert sha256(file) == before
    if fault == "kill":
        assert done.returncode == -signal.SIGKILL
    else:
        assert "InputError" in done.stdout, done.stdout + done.stderr
        assert "cannot be written" in done.stdout
        assert [path.name for path in tmp_path.iterdir()] == ["x.root"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    add_branches(file, [("t", {"score": np.zeros(5000)})])  # what was left beside it does no harm
    assert [path.name for path in tmp_path.iterdir()] == ["x.root"]
