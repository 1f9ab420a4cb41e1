"""Files that appear whole or not at all."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from fivesigma._tools.files import name_beside, read_text, temporary_folder, written_whole
from fivesigma.errors import InputError


def written(path: Path, write: Callable[[Path], None]) -> None:
    with written_whole(path) as beside:
        write(beside)


def test_the_name_appears_when_the_content_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    replace = Path.replace
    monkeypatch.setattr(os, "fsync", lambda _: done.append("on disk"))

    def named(self: Path, target: Path) -> Path:
        done.append("named")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", named)
    with written_whole(tmp_path / "a.txt") as beside:
        beside.write_text("whole")
        assert not (tmp_path / "a.txt").exists()
    assert done == ["on disk", "named"]
    assert (tmp_path / "a.txt").read_text() == "whole"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("where", ["writing", "fsync", "rename"])
def test_a_full_disk_is_one_sentence_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "a.txt").write_text("old")
    if where == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    elif where == "rename":
        monkeypatch.setattr(Path, "replace", full)

    def write(beside: Path) -> None:
        beside.write_text("half")
        if where == "writing":
            full(0)

    with pytest.raises(InputError, match=r"a\.txt cannot be written: No space left on device$"):
        written(tmp_path / "a.txt", write)
    assert [(item.name, item.read_text()) for item in tmp_path.iterdir()] == [("a.txt", "old")]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_what_polars_says_of_a_full_disk_names_the_file(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": range(100_000)})
    for polars_writes in (frame.write_csv, frame.write_parquet):

        def write(beside: Path, polars_writes: Callable[[Path], None] = polars_writes) -> None:
            beside.symlink_to("/dev/full")
            polars_writes(beside)

        with pytest.raises(InputError, match=r"a\.x cannot be written: .*No space left"):
            written(tmp_path / "a.x", write)
        assert list(tmp_path.iterdir()) == []


def test_other_errors_pass_and_leave_nothing(tmp_path: Path) -> None:
    for error in (RuntimeError("mine"), KeyboardInterrupt(), BrokenPipeError()):

        def write(beside: Path, error: BaseException = error) -> None:
            beside.write_text("half")
            raise error

        with pytest.raises(type(error)):
            written(tmp_path / "a.txt", write)
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_not_read_without_end() -> None:
    with pytest.raises(InputError, match="is no plain file"):
        read_text(Path("/dev/zero"))


@pytest.mark.parametrize("kind", ["pipe", "link", "dangling link", "device"])
def test_what_is_no_plain_file_is_not_replaced(tmp_path: Path, kind: str) -> None:
    """As root a rename would put a file in the place of /dev/null."""
    target = Path("/dev/null") if kind == "device" else tmp_path / "out.html"
    if kind == "pipe":
        os.mkfifo(target)
    elif kind.endswith("link"):
        target.symlink_to(tmp_path / "elsewhere")
        if kind == "link":
            (tmp_path / "elsewhere").write_text("mine")
    before = target.lstat()
    with pytest.raises(InputError, match="name a plain file") as caught:
        written(target, lambda beside: beside.touch())
    assert "\n" not in str(caught.value)
    assert target.lstat().st_ino == before.st_ino


def test_what_killed_processes_left_is_removed_by_the_next_write(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    mine = name_beside(tmp_path / "a.txt")
    for pid in (child.pid, 1):
        mine.with_name(mine.name.replace(str(os.getpid()), str(pid), 1)).write_text("half")
    with written_whole(tmp_path / "a.txt") as beside:
        beside.write_text("whole")
    assert len(list(tmp_path.iterdir())) == 2, "the file of a process that lives stays"
    assert (tmp_path / "a.txt").read_text() == "whole"


def test_temporary_folders_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of ``memory="disk"`` is such a folder, as large as the bins of all events."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = "import os, fivesigma._tools.files as f; (f.temporary_folder('cache') / 'bins').touch(); os._exit(9)"
    killed = subprocess.run([sys.executable, "-c", code], check=False, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert killed.returncode == 9
    (left,) = tmp_path.iterdir()
    other = tmp_path / left.name.replace("cache-", "cache-another", 1)  # machine
    other.mkdir()
    first = temporary_folder("cache")
    assert set(tmp_path.iterdir()) == {first, other}
    assert temporary_folder("cache") != first
    assert first.exists()
