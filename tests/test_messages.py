"""All messages speak one dialect: a sentence without a capital at its beginning and without a full stop at its end."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
FILES = sorted(SOURCE.rglob("*.py"))
RAISED = re.compile(r"(?<!Usage)Error$|Warning$|^warn$|^_error$")  # those of click keep its own dialect
# What may stand at the beginning with a capital: names, and what scikit-learn's own checks look for.
NAMES = re.compile(r"[A-Z0-9_]+\b|[A-Z][A-Za-z]*[A-Z]|Round\.|Weight is|Class must|Only binary classification")
IDIOMS = re.compile(
    r"goes on|go on from|does not count|do not count|\ban event\b(?! (at|of|that|is))|\ba round\b(?! (of|that|is))"
)


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text, with {} for what is filled in, of each message that is raised."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if not RAISED.search(name):
            continue
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield node.lineno, first.value
        elif isinstance(first, ast.JoinedStr):
            parts = [str(v.value) if isinstance(v, ast.Constant) else "{}" for v in first.values]
            yield node.lineno, "".join(parts)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_one_dialect(path: Path) -> None:
    for line, text in messages(path):
        where = f"{path.name}:{line}: {text!r}"
        assert not text[:1].isupper() or NAMES.match(text), f"{where} begins with a capital"
        assert not text.rstrip().endswith((".", "!")), f"{where} ends with a full stop"
        assert ". {}" not in text, f"{where} joins two sentences"
        assert not IDIOMS.search(text), f"{where} has an idiom"
