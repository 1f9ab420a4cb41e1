"""Nothing below imports anything above, no two parts import each other, and what one uses of another is public."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.layers import FIGURE, LAYERS, ROOT, draw, layer_of

SOURCE = ROOT / "src"
FILES = sorted(SOURCE.rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Modules that a file imports, also inside functions, and the names that it takes from them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.startswith("fivesigma."))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "fivesigma":
            for alias in node.names:
                inside = SOURCE.joinpath(*node.module.split("."), alias.name)
                is_module = inside.is_dir() or inside.with_suffix(".py").exists()
                yield (f"{node.module}.{alias.name}", "") if is_module else (node.module, alias.name)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_down(path: Path) -> None:
    here = module_of(path)
    mine = layer_of(here)
    if mine is None:
        return  # the package itself, which knows every public name and imports none before it is asked for
    for module, name in imports(path):
        if module == "fivesigma":
            continue  # the version, or a public name by which the store makes a class
        other, mine_part = layer_of(module), here.split(".")[1]
        assert other is not None, f"{module} is in no layer"
        same = module.split(".")[1] == mine_part
        assert same or other < mine, f"{here} imports {module}, which is not below it"
        assert same or not name.startswith("_"), f"{here} imports {name} of {module}, which is private"


def test_every_module_has_its_layer() -> None:
    parts = {module_of(path).split(".")[1] for path in FILES if "." in module_of(path)} - {"__main__"}
    listed = [part for _, members in LAYERS for part in members]
    assert len(listed) == len(set(listed))
    assert parts == set(listed)


def test_the_picture_shows_these_layers() -> None:
    assert FIGURE.read_text(encoding="utf-8") == draw(), "draw it again: python -m tests.layers"
