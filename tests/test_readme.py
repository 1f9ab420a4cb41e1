"""The README's example runs as it stands, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
