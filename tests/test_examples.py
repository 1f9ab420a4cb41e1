"""The documented examples run and find what they say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")  # pyhf 0.7.6 uses it
def test_categories_to_pyhf(tmp_path: Path) -> None:
    pytest.importorskip("pyhf")
    pytest.importorskip("matplotlib")
    folder = tmp_path / "made" / "here"
    found = load("categories_to_pyhf").main(folder, n=6_000)
    quoted, shifts = found["quoted"], found["shifts"]
    assert quoted.held_out
    assert len(quoted) >= 2
    assert list(quoted.by_process) == ["H", "Z", "ttbar"]
    assert shifts.known_background == pytest.approx(quoted.significance)
    assert found["mu"] == pytest.approx(1.0, abs=0.01)
    # Uncertainties cost significance, and pyhf's has the statistics of the simulation on top of ours.
    assert found["significance"] < shifts.significance < quoted.significance
    assert found["workspace"].stat().st_size > 500
    assert (folder / "categories.png").stat().st_size > 5_000


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")  # pyhf 0.7.6 uses it
def test_open_data() -> None:
    pytest.importorskip("uproot")
    pytest.importorskip("pyhf")
    folder = Path(__file__).parents[2] / "shared" / "data" / "ntuples"
    if not folder.exists():
        pytest.skip(f"the files of others are not in {folder}")
    found = load("open_data").main(folder)
    page = (EXAMPLES.parent / "docs" / "tutorials" / "open-data.md").read_text()
    assert found["events"].process.tolist().count("HZZ") == 1_397
    assert found["pyhf"] == pytest.approx(found["categories"].significance, abs=1e-6)
    for name, value in [*found["waterfall"], ("as pyhf finds it", found["pyhf"])]:
        quoted = re.search(rf"^ +([\d.]+)  {name}$", page, re.MULTILINE)
        assert quoted is not None
        assert value == pytest.approx(float(quoted[1]), abs=0.02)  # trees of other versions differ a little
