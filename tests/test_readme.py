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
    """Calls of the library in the tables of README, guide and help, with something in place of what is left out."""
    pages = [ROOT / "README.md", *(ROOT / "docs" / "guide").glob("*.md"), *(ROOT / "docs" / "help").glob("*.md")]
    lines = [line for page in pages for line in page.read_text().splitlines() if line.startswith("|")]
    cells = [cell for line in lines for cell in re.findall(r"`([^`]+)`", line)]
    filled = [re.sub(r"…|\.\.\.", "None", cell.replace(", …", "").replace(", ...", "")) for cell in cells]
    return sorted({cell for cell in filled if re.match(r"(fivesigma\.)?[A-Za-z_]+\(.*\)$", cell) and _known(cell)})


def _known(call: str) -> bool:
    name = call.removeprefix("fivesigma.").partition("(")[0]
    return name in fivesigma.__all__ and callable(getattr(fivesigma, name))


@pytest.mark.parametrize("call", calls_in_tables())
def test_calls_of_the_tables_fit_their_signatures(call: str) -> None:
    node = ast.parse(call.removeprefix("fivesigma."), mode="eval").body
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value  # the first of a chain of calls
    assert isinstance(node, ast.Call)
    if [ast.unparse(one) for one in node.args] == ["None"] and not node.keywords:
        return  # the arguments are left out: "scan(...)"
    function: Any = getattr(fivesigma, ast.unparse(node.func))
    inspect.signature(function).bind(*node.args, **{str(word.arg): word.value for word in node.keywords})
