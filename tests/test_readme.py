"""The README's example runs as it stands, and its links lead somewhere."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import fivesigma

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    exec(compile(code, "README.md", "exec"), {})
    assert "CutScan(significance=" in capsys.readouterr().out


PAGES = [*ROOT.glob("*.md"), *(p for p in (ROOT / "docs").rglob("*.md") if not {"_build", "generated"} & set(p.parts))]


@pytest.mark.parametrize("page", sorted(str(p.relative_to(ROOT)) for p in PAGES))
def test_links_lead_to_files(page: str) -> None:
    text = re.sub(r"```\{code-cell\}.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    for target in re.findall(r"(?:\]\(|src(?:set)?=\")(?!https?://|#)([^)#\"]+)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        assert f"\n{target}:" in makefile


def calls_in_tables() -> list[str]:
    """Calls of the library in the tables of the README, with something in place of what is left out."""
    cells = [cell for line in README.splitlines() if line.startswith("| ") for cell in re.findall(r"`([^`]+)`", line)]
    filled = [cell.replace("[…]", "[]").replace("(…)", "()").replace(", …", "").replace("…", "None") for cell in cells]
    return [
        cell for cell in filled if re.match(r"[A-Za-z_.]+\(", cell) and "(...)" not in cell and cell.count("(...") == 0
    ]


@pytest.mark.parametrize("call", sorted(set(calls_in_tables())))
def test_calls_of_the_tables_fit_their_signatures(call: str) -> None:
    node = ast.parse(call, mode="eval").body
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call):
        node = node.func.value  # the first of a chain of calls
    assert isinstance(node, ast.Call)
    name = ast.unparse(node.func)
    function: Any = fivesigma
    for part in name.split("."):
        function = getattr(function, part)
    inspect.signature(function).bind(*node.args, **{str(word.arg): word.value for word in node.keywords})
