"""docs/formulas.md says where each formula stands, and docs/architecture.md where to look: both are true."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fivesigma"
ROW = re.compile(r"^\| (.+?) \| `(.+?)` \| ([\w/]+\.py) \| (module|`\w+`) \|$", re.MULTILINE)
PAGE = (ROOT / "docs" / "formulas.md").read_text(encoding="utf-8")
FORMULAS = [tuple(part.replace("\\|", "|") for part in row) for row in ROW.findall(PAGE)]


def docstrings(path: Path, name: str) -> list[str]:
    """Docstrings of what has this name in a file, or that of the file itself, on one line each."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes: list[ast.Module | ast.ClassDef | ast.FunctionDef] = [tree]
    if name != "module":
        found = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef))
        nodes = [node for node in found if node.name == name]
    return [" ".join((ast.get_docstring(node) or "").split()) for node in nodes]


def test_every_row_of_the_table_is_read() -> None:
    assert len(FORMULAS) == sum(line.startswith("| ") for line in PAGE.splitlines()) - 1
    assert len(FORMULAS) >= 30


@pytest.mark.parametrize(("what", "formula", "file", "name"), FORMULAS, ids=[row[0] for row in FORMULAS])
def test_a_formula_stands_where_the_page_says(what: str, formula: str, file: str, name: str) -> None:
    assert (SOURCE / file).is_file(), f"{what}: there is no {file}"
    found = docstrings(SOURCE / file, name.strip("`"))
    assert found, f"{what}: {file} has no {name}"
    assert any(formula in text for text in found), f"{what}: the docstring of {name} in {file} lacks {formula!r}"


def test_the_page_of_the_architecture_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = [line for line in page.splitlines() if line.startswith("| ")][1:]
    named = [path for line in table for path in re.findall(r"`([\w/]+(?:\.py|/))`", line)]
    assert len(named) >= 15
    assert [path for path in named if not (SOURCE / path).exists()] == []
