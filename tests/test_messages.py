"""All messages speak one dialect: a sentence without a capital at its beginning and without a full stop at its end."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fivesigma.cli import main

SOURCE = Path(__file__).parents[1] / "src"
FILES = sorted(SOURCE.rglob("*.py"))
RAISED = re.compile(r"(?<!Usage)Error$|Warning$|^warn$|^_error$")  # those of click keep its own dialect
# What may stand at the beginning with a capital: names, and what scikit-learn's own checks look for.
NAMES = re.compile(r"[A-Z0-9_]+\b|[A-Z][A-Za-z]*[A-Z]|Round\.|Weight is|Class must|Only binary classification")
IDIOMS = re.compile(
    r"goes on|go on from|does not count|do not count|\ban event\b(?! (at|of|that|is))|\ba round\b(?! (of|that|is))"
)


def text_of(node: ast.JoinedStr | ast.Constant) -> str:
    """Text of a literal, with {} for what is filled in."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text, with {} for what is filled in, of each message that is raised."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if not RAISED.search(name):
            continue
        if isinstance(node.args[0], ast.JoinedStr | ast.Constant):
            yield node.lineno, text_of(node.args[0])


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_one_dialect(path: Path) -> None:
    for line, text in messages(path):
        where = f"{path.name}:{line}: {text!r}"
        assert not text[:1].isupper() or NAMES.match(text), f"{where} begins with a capital"
        assert not text.rstrip().endswith((".", "!")), f"{where} ends with a full stop"
        assert ". {}" not in text, f"{where} joins two sentences"
        assert not IDIOMS.search(text), f"{where} has an idiom"


def options(command: click.Command) -> set[str]:
    """Options of a command and of those below it, spelt as parameters."""
    found = {flag[2:].replace("-", "_") for p in command.params for flag in p.opts if flag.startswith("--")}
    for below in getattr(command, "commands", {}).values():
        found |= options(below)
    return found


# A parameter that a sentence tells a user to set, and not one whose value it quotes.
ADVICE = re.compile(rf"\b({'|'.join(sorted(options(main)))})=(?=True\b|[\s,;]|$)")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_advice_names_the_option_as_well_as_the_parameter(path: Path) -> None:
    """The command line prints the library's sentences, so they must tell its users too what to do."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    inner |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        if id(node) in inner or not isinstance(node, ast.JoinedStr | ast.Constant):
            continue
        for found in ADVICE.finditer(text_of(node)):
            option = "--" + found[1].replace("_", "-")
            assert option in text_of(node), f"{path.name}:{node.lineno}: {text_of(node)!r} does not name {option}"
