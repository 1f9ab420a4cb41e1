"""Whatever happens, the command line says one line, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

from fivesigma import GrownCascadeClassifier, save
from fivesigma.cli import main
from fivesigma.datasets import load_events, make_htautau, write_events
from fivesigma.errors import InputError
from fivesigma.yields import learner_weights
from tests.store.test_untrusted import hash_again

pl = pytest.importorskip("polars")


def error(*arguments: object, **options: Any) -> str:
    """Run a command that must fail with one line of a modest length."""
    result = CliRunner().invoke(main, [str(a) for a in arguments], **options)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit), "a traceback"
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert len(result.stderr) < 1100
    return result.stderr


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command with a fault in it."""

    @click.command()
    def fault() -> None:
        raise KeyError("what nobody\nthought of")

    monkeypatch.setitem(main.commands, "fault", fault)


@pytest.mark.usefixtures("broken")
def test_a_fault_of_ours_is_one_line() -> None:
    said = error("fault")
    assert "KeyError" in said
    assert "please report it" in said
    assert "FIVESIGMA_DEBUG=1" in said


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize(("arguments", "env"), [(["--debug", "fault"], {}), (["fault"], {"FIVESIGMA_DEBUG": "1"})])
def test_debug_shows_the_traceback(arguments: list[str], env: dict[str, str]) -> None:
    assert isinstance(CliRunner().invoke(main, arguments, env=env).exception, KeyError)


def test_the_commands_name_their_own_options(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        learner_weights(np.array([-1.0, 1.0]), np.array([True, False]))
    assert "set negative_weights or --negative-weights to 'zero'" in str(caught.value)
    pl.DataFrame({"x": [1.0, 2.0], "Weight": [1.0, 1.0], "Label": ["u", "v"]}).write_csv(tmp_path / "a.csv")
    assert "name it with signal= or --signal" in error("train", tmp_path / "a.csv", "-o", tmp_path / "m")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "mine").touch()
    assert "--force" in error("train", tmp_path / "a.csv", "-o", tmp_path / "m")


def test_nothing_is_echoed_whole(tmp_path: Path) -> None:
    path = write_events(make_htautau(100), tmp_path / "events.csv")
    for cut in (
        "PRI_jet_num > 1 && " * 5000,
        "PRI_jet_num + " * 3000 + "1",
        "x" * 100_000 + " > 1",
        "'%9d' % 5 == 'x'",
    ):
        error("train", path, "-o", tmp_path / "m", "--where", cut)
    (tmp_path / "nul.csv").write_bytes(bytes(200_000))
    error("train", tmp_path / "nul.csv", "-o", tmp_path / "m")
    (tmp_path / "long.csv").write_text("a" * 200_000 + ",b\n1,2\n")
    error("train", tmp_path / "long.csv", "-o", tmp_path / "m")


def test_text_is_not_formatted_by_a_cut(tmp_path: Path) -> None:
    path = write_events(make_htautau(100), tmp_path / "events.csv")
    with pytest.raises(InputError, match="text can be compared with text"):
        load_events(path, cut="'%1000000000d' % 5 == 'x'")


def test_header_names_that_are_empty_are_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,,,Weight,Label\n1,2,3,1,s\n1,2,3,1,b\n")
    with pytest.raises(InputError, match="several columns have no name in the header"):
        load_events(tmp_path / "a.csv")


def test_columns_that_cannot_become_numbers_are_named(tmp_path: Path) -> None:
    good = {"x": [1.0, 2.0], "Weight": [1.0, 1.0], "Label": ["s", "b"]}
    odd = {
        "binary": [b"a", b"b"],
        "struct": [{"a": 1}, {"a": 2}],
        "list": [[1], [2]],
        "text": ["1", "two"],
        "category": pl.Series(["1", "two"], dtype=pl.Categorical),
    }
    pl.DataFrame(good | odd).write_parquet(tmp_path / "a.parquet")
    for name in odd:
        with pytest.raises(InputError, match=name):
            load_events(tmp_path / "a.parquet", features=["x", name])


def test_identifiers_that_64_bits_cannot_hold_are_refused(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1.0, 2.0], "Weight": [1.0, 1.0], "Label": ["s", "b"]})
    frame.with_columns(EventId=pl.Series([2**100, 2**100 + 1], dtype=pl.Int128)).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"column 'EventId' of a.parquet holds object values; give text or numbers"):
        load_events(tmp_path / "a.parquet")


_LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
import fivesigma, fivesigma.cli, click
from fivesigma import ScoredEvents

@click.command()
@click.argument("path", type=Path)
def writing(path):
    n = 50_000
    scored = ScoredEvents(np.random.default_rng(0).random(n), np.arange(n) % 2 == 0, np.ones(n))
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    scored.write(path)

fivesigma.cli.main.add_command(writing)
fivesigma.cli.main(["writing", sys.argv[1]])
"""


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_disk_that_takes_no_more_is_named(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"scores.{ending}"
    ran = subprocess.run([sys.executable, "-c", _LIMITED, path], check=False, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stderr
    assert ran.stderr.startswith(f"Error: {path} cannot be written: ")
    assert ran.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


_WAITING = """
import sys, time
from pathlib import Path
import click
import fivesigma.cli
from fivesigma._tools.files import written_with_digest

@click.command()
@click.argument("path", type=Path)
def waiting(path):
    with written_with_digest(path) as beside:
        beside.write_text("half")
        print("ready", flush=True)
        while True:
            time.sleep(0.01)

fivesigma.cli.main.add_command(waiting)
fivesigma.cli.main(["waiting", sys.argv[1]])
"""


def test_sigterm_leaves_no_temporary_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WAITING, str(tmp_path / "scores.csv")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_a_crafted_model_is_one_line_of_every_command(tmp_path: Path) -> None:
    events = make_htautau(2000, random_state=0)
    path = write_events(events, tmp_path / "events.csv")
    kept = load_events(path, features=["DER_mass_vis"])
    model = save(GrownCascadeClassifier("lightgbm", n_trees=2, random_state=0, n_jobs=1).fit(kept), tmp_path / "model")
    done = CliRunner().invoke(main, ["predict", str(model), str(path), "-o", str(tmp_path / "good.csv"), "--untrusted"])
    assert done.exit_code == 0, done.output
    part = next(model.glob("*.txt"))
    part.write_bytes(part.read_bytes()[:900])
    hash_again(model)
    for command, end in (("predict", ".csv"), ("report", ".html"), ("export", ".onnx")):
        inputs = () if command == "export" else (path,)
        message = error(command, model, *inputs, "-o", tmp_path / f"out{end}", "--untrusted")
        assert "ended a child process" in message


def test_a_device_or_a_pipe_as_output_is_refused_before_any_work(tmp_path: Path) -> None:
    path = write_events(make_htautau(500, random_state=0), tmp_path / "events.csv")
    pipe = tmp_path / "out.csv"
    os.mkfifo(pipe)
    assert "name a plain file" in error("predict", tmp_path / "model", path, "-o", pipe, "--force")
    assert "name a plain file" in error("export", tmp_path / "model", "-o", "/dev/null", "--force")
    assert pipe.is_fifo()
    assert Path("/dev/null").is_char_device()
