"""One word, one meaning: no two modules have one name, and no public class or function is defined twice."""

from __future__ import annotations

import ast
import importlib
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "fivesigma"
# Packages that users import by themselves: what these export may have the name of something at the top level, as
# fivesigma.dask.GrownCascadeClassifier and fivesigma.higgsml.load have.
NAMESPACES = ("dask", "fair_universe", "higgsml")


def test_no_two_modules_have_one_name() -> None:
    found = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        if path.name != "__init__.py":
            found[path.stem].append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_no_public_class_or_function_is_defined_twice() -> None:
    exported = {part: set(importlib.import_module(f"fivesigma.{part}").__all__) for part in NAMESPACES}
    found = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        where = path.relative_to(SOURCE)
        if where.parts[0] == "cli":
            continue
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for node in (n for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef)):
            if not node.name.startswith("_") and node.name not in exported.get(where.parts[0], set()):
                found[node.name].append(str(where))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_tests_mirror_the_source() -> None:
    """Each folder of tests is one of the source, and each package of the source has tests."""
    tests = SOURCE.parents[1] / "tests"

    def folders(root: Path) -> set[str]:
        found = {path.parent.relative_to(root) for path in root.rglob("*.py")}
        return {str(part) for folder in found for part in [folder, *folder.parents] if str(part) != "."}

    packages = folders(SOURCE)
    assert folders(tests) - packages == {"benchmarks"}
    assert {name for name in packages if "/" not in name} - folders(tests) == set()
    for folder in folders(tests):
        assert any((tests / folder).rglob("test_*.py")), f"tests/{folder} holds no test"
