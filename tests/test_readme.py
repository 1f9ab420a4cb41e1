"""The README's example runs as it stands, and its links lead somewhere."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.studies import auto, cut_rules, profiled, profiled_tables, systematic_categories
from benchmarks.studies.study import stages

import fivesigma

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    exec(compile(code, "README.md", "exec"), {})
    assert "profiled over Z, W, simulation" in capsys.readouterr().out


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


def calls_in_prose() -> list[str]:
    """Calls of the library within lines of text and tables, with something in place of what is left out."""
    texts = [re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE) for page in PAGES]
    cells = [cell for text in texts for cell in re.findall(r"`([^`\n]+)`", text)]
    filled = [re.sub(r"…|\.\.\.", "None", cell.replace(", …", "").replace(", ...", "")) for cell in cells]
    return sorted({cell for cell in filled if re.match(r"(fivesigma\.)?[A-Za-z_]+\(.*\)$", cell) and _known(cell)})


def _known(call: str) -> bool:
    name = call.removeprefix("fivesigma.").partition("(")[0]
    return name in fivesigma.__all__ and callable(getattr(fivesigma, name))


@pytest.mark.parametrize("call", calls_in_prose())
def test_calls_in_prose_fit_their_signatures(call: str) -> None:
    node = ast.parse(call.removeprefix("fivesigma."), mode="eval").body
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value  # the first of a chain of calls
    assert isinstance(node, ast.Call)
    function: Any = getattr(fivesigma, ast.unparse(node.func))
    signature = inspect.signature(function)
    is_cut_short = "None" in map(ast.unparse, node.args)  # "scan(..., rule=...)"
    bind = signature.bind_partial if is_cut_short else signature.bind
    bind(*node.args, **{str(word.arg): word.value for word in node.keywords})


def _range(gains: Iterable[float]) -> str:
    values = list(gains)
    return f"{min(values):+.2f} to {max(values):+.2f}"


def test_gains_are_those_of_the_measurements() -> None:
    """The table of gains says what the JSON files of the benchmarks hold."""
    ratios = json.loads(profiled.RESULTS.read_text())
    categories = json.loads(systematic_categories.RESULTS.read_text())
    regret = json.loads(cut_rules.RESULTS.read_text())["regret"].values()
    lost = {rule: np.mean([row["regret"][row["rules"].index(rule)] for row in regret]) for rule in ("peak", "model")}
    rows = [row for row in stages.load()["confirm"]["found"] if row["arm"] == "grown, 30 trees"]
    cascades = {row["events"]: row["window"]["gain"] for row in rows if row["baseline"] == "plain, 30 trees"}
    gains = {
        "`ProfiledClassifier`": _range(
            profiled_tables.column(ratios, part, f"t knowing {k}").mean()
            - profiled_tables.column(ratios, part, f"plain knowing {k}").mean()
            for part in ("pythia-8000", "pythia-25000", "pythia-125000")
            for k in (6, 10, 20)
        ),
        "`systematics=`": _range([row["gain with staterror"] for row in categories["htautau"].values()]),
        "Gaussians": _range([row["gain"] for row in categories["gaussians"].values()]),
        "`scan`": f"{lost['peak'] - lost['model']:+.2f}",
        "`AutoClassifier`": _range(
            [gain for gain, _ in auto.means(json.loads(auto.RESULTS.read_text()), "auto", "over")]
        ),
        "30 trees": f"{np.mean([cascades['unseen'], cascades['folds']]):+.2f}",
    }
    table = README[README.index("| Instead of |") :].splitlines()
    for what, gain in gains.items():
        row = next(line for line in table if what in line)
        assert f"| {gain} |" in row, f"{what}: measured {gain}"
