"""An analysis of files on a server: the same workspace, and a second run that reads nothing again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fivesigma.analysis import analyse
from tests.analysis.conftest import Small
from tests.analysis.ntuples import config
from tests.datasets.test_remote import Server

pytest.importorskip("cabinetry")
pytest.importorskip("aiohttp")


def test_files_on_a_server_give_the_same_workspace(small: Small, tmp_path: Path) -> None:
    server = Server(small.file.parent)
    try:
        given = config(f"{server.url}/{small.file.name}")  # type: ignore[arg-type]
        analyse(given, tmp_path / "out", n_jobs=1, say=None)
        workspaces = [json.loads((out / "workspace.json").read_text()) for out in (small.out, tmp_path / "out")]
        assert workspaces[0]["channels"] == workspaces[1]["channels"]
        asked, said = server.asked, list[str]()
        analyse(given, tmp_path / "out", n_jobs=1, say=said.append)
        assert any("nothing changed" in line for line in said), said
        assert server.asked - asked < 20  # to look at the trees, not to read them
    finally:
        server.http.shutdown()
        server.http.server_close()
