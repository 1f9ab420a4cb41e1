from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fivesigma
from fivesigma._tools import extras as _extras
from fivesigma.errors import MissingExtraError, did_you_mean


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("name", fivesigma.__all__)
def test_every_public_name_resolves_and_is_documented(name: str) -> None:
    assert getattr(fivesigma, name).__doc__
    assert name in dir(fivesigma)


def test_type_checkers_read_what_is_imported_on_first_use() -> None:
    tree = ast.parse(Path(str(fivesigma.__file__)).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: str(node.module).removeprefix("fivesigma").removeprefix(".") or alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert seen == fivesigma._HOME
    assert fivesigma.__all__ == sorted(seen)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'fivesigma' has no attribute 'AMS4'"):
        _ = fivesigma.AMS4
    assert re.fullmatch(r"\d+\.\d+\.\d+", fivesigma.__version__)


def test_import_is_lazy() -> None:
    code = "import sys, fivesigma; print(*[m for m in ('numpy', 'scipy', 'sklearn', 'matplotlib') if m in sys.modules])"
    assert _python(code) == ""


def test_scanning_needs_no_optional_or_heavy_library() -> None:
    code = (
        "import sys; from fivesigma import scan, AMS2; scan([3, 2, 1], [1, 0, 0], [1, 1, 1], min_effective=0);"
        "print(*[m for m in ('sklearn', 'matplotlib', 'pandas', 'scipy.optimize', 'scipy.stats') if m in sys.modules])"
    )
    assert _python(code) == ""


@pytest.mark.parametrize(("module", "extra"), sorted(_extras.EXTRA_OF.items()))
def test_a_missing_library_is_answered_with_the_install_line(
    monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    sentence = f"{module} is needed here. Install it with: pip install 'fivesigma[{extra}]'"
    with pytest.raises(MissingExtraError, match=re.escape(sentence)) as caught:
        _extras.need(module)
    assert isinstance(caught.value, ModuleNotFoundError)
    assert caught.value.name == module


def test_need_imports_submodules_and_passes_other_errors_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert _extras.need("json.decoder").JSONDecoder
    folder = tmp_path_factory.mktemp("broken")
    (folder / "hist.py").write_text("import a_library_that_is_not_there")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "hist", raising=False)
    with pytest.raises(ModuleNotFoundError, match="a_library_that_is_not_there") as caught:
        _extras.need("hist")
    assert not isinstance(caught.value, MissingExtraError)


def test_installed() -> None:
    assert _extras.installed("numpy")
    assert not _extras.installed("a_library_that_is_not_there")


def test_nearest_names() -> None:
    assert did_you_mean("plato", ["plateau", "peak"]) == "; did you mean 'plateau'?"
    assert did_you_mean("zzz", ["plateau", "peak"]) == ""
