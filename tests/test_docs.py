"""The site is consistent without being built: pages, reference, targets of make, versions."""

from __future__ import annotations

import importlib
import importlib.util
import json
import pkgutil
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from benchmarks.tables import SOURCES, table, tables_of

import fivesigma
from fivesigma import cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if not {"_build", "generated"} & set(p.parts))
TOCTREE = re.compile(r"```\{toctree\}\n(.*?)```", re.DOTALL)
AUTOSUMMARY = re.compile(r"\.\. currentmodule:: (\S+)\n\n\.\. autosummary::\n(?:   :.*\n)+\n((?:   \w+\n)+)")
CONSTANT = re.compile(r"\.\. py:data:: (\S+)\.(\w+)\n")

# The library shares the names of these modules among its own parts. The reference has those that users need, the
# other modules' names are all in it.
SHARED = {"challenge", "cli", "demonstration", "learners", "ratios", "store", "yields"}
DEPRECATED = {"report", "variations"}  # they warn


def documented() -> dict[str, Any]:
    """Every name of the reference, with what it stands for."""
    found: dict[str, Any] = {}
    for page in (DOCS / "api").glob("*.md"):
        text = page.read_text()
        for module, names in AUTOSUMMARY.findall(text) + CONSTANT.findall(text):
            for name in names.split():
                full = f"{module}.{name}"
                assert full not in found, f"{full} is documented twice"
                found[full] = getattr(importlib.import_module(module), name)
    return found


def test_every_public_name_is_in_the_reference() -> None:
    names = documented()
    assert {f"fivesigma.{name}" for name in fivesigma.__all__} - set(names) <= {"fivesigma.plot"}  # a page of its own
    objects = {id(value) for value in names.values()}
    modules = {found.name for found in pkgutil.iter_modules(fivesigma.__path__) if not found.name.startswith("_")}
    for module in sorted(modules - SHARED - DEPRECATED):
        public = importlib.import_module(f"fivesigma.{module}")
        missing = [
            n
            for n in getattr(public, "__all__", ())
            if f"fivesigma.{module}.{n}" not in names and id(getattr(public, n)) not in objects
        ]
        assert not missing, f"fivesigma.{module}: {missing} are public and not in docs/api"


#: Their examples are pages: they need a file, a cluster, pyhf or minutes. Those of `fivesigma.plot` are the gallery.
SHOWN_ELSEWHERE = {
    "discovery_significance",
    "dask.scan",
    "fair_universe.load",
    "fair_universe.compare",
    "Exported",
    "Pruned",
    "Rebinned",
    "Report",
}


def test_every_name_that_users_call_has_an_example() -> None:
    developers = {
        f"{m}.{name}"
        for m, names in AUTOSUMMARY.findall((DOCS / "api/developers.md").read_text())
        for name in names.split()
    }
    for name, value in documented().items():
        is_error = isinstance(value, type) and issubclass(value, Exception)
        elsewhere = name.removeprefix("fivesigma.") in SHOWN_ELSEWHERE or name.startswith("fivesigma.plot.")
        if callable(value) and not (is_error or elsewhere or name in developers):
            assert ">>>" in (value.__doc__ or ""), f"{name} has no example"


IMPORT = re.compile(r"^from (fivesigma[\w.]*) import (\(.*?\)|[^\n(]*)", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: str(p.relative_to(ROOT)))
def test_names_that_a_page_imports_are_in_the_reference(page: Path) -> None:
    objects = {id(value) for value in documented().values()}
    for module, names in IMPORT.findall(page.read_text()):
        for name in re.findall(r"(\w+)(?: as \w+)?", names.partition("#")[0]):
            used = getattr(importlib.import_module(module), name)
            assert id(used) in objects or isinstance(used, ModuleType), f"{module}.{name} is not in docs/api"


def entries(page: Path) -> list[Path]:
    """Pages to which the toctrees of a page lead."""
    found = []
    for tree in TOCTREE.findall(page.read_text()):
        for line in tree.splitlines():
            name = re.sub(r".*<(.*)>", r"\1", line.strip())
            if not name or name.startswith(":"):
                continue
            matches = sorted(page.parent.glob(f"{name}.md"))
            assert matches or "*" in name, f"{page.name} lists {name}, which does not exist"
            found += [m.resolve() for m in matches]
    return found


def test_every_page_is_in_exactly_one_toctree() -> None:
    listed = [entry for page in PAGES for entry in entries(page)]
    assert sorted(listed) == sorted(set(listed))
    assert {p.resolve() for p in PAGES} - set(listed) == {(DOCS / "index.md").resolve()}


@pytest.mark.parametrize(
    "page", [p for p in PAGES if "{code-cell}" in p.read_text()], ids=lambda p: str(p.relative_to(DOCS))
)
def test_pages_with_cells_are_run(page: Path) -> None:
    text = page.read_text()
    assert text.startswith("---\nfile_format: mystnb\n")
    for cell in re.findall(r"```\{code-cell\}\n(?::tags:[^\n]*\n)?(.*?)```", text, re.DOTALL):
        if not cell.startswith("%%bash"):
            compile(cell, page.name, "exec")


# Blocks of Python that the build does not run; those of scale.md would need a batch system.
STATIC = {"cluster.md": 2, "models.md": 2, "challenge.md": 1}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(DOCS)))
def test_python_is_run_or_at_least_compiles(page: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    for block in blocks:
        compile(block, page.name, "exec")
    assert len(blocks) <= STATIC.get(page.name, 0), "make it a {code-cell}, which the build runs"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(DOCS)))
def test_no_line_is_taken_for_a_comment(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(r"^%.*", text, re.MULTILINE), "a line that begins with % is not shown"


MEASURED = re.compile(r"^```\{measured\} (\S+)\n```$", re.MULTILINE)
FIGURE = re.compile(r"\d+\.\d+ ± \d+\.\d+")


def test_tables_that_are_made_from_results_are_all_shown() -> None:
    shown = [name for page in PAGES for name in MEASURED.findall(page.read_text())]
    assert sorted(shown) == sorted(set(shown)), "a table is shown twice"
    for source in SOURCES:
        if source != "fair-universe":  # one module makes the tables of both peers
            assert set(tables_of(source)) >= {name.partition(".")[2] for name in shown if name.startswith(f"{source}.")}
    assert all(re.search(r"20\d\d-\d\d-\d\d", table(name)) for name in shown), "a table has no date"


NUMBERS = re.compile(r"^\|.*\| \**[+-]?\d+\.\d+(?: ± \d+\.\d+)?\** \|", re.MULTILINE)


def sections(text: str) -> list[str]:
    return re.split(r"^#+ ", text, flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(DOCS)))
def test_commands_of_benchmarks_exist(page: Path) -> None:
    for module in re.findall(r"python -m (benchmarks[\w.]*\w)", page.read_text()):
        assert importlib.util.find_spec(module) is not None, module


@pytest.mark.parametrize("page", sorted((DOCS / "validation").glob("*.md")), ids=lambda p: p.name)
def test_tables_that_are_typed_have_a_date(page: Path) -> None:
    for section in sections(page.read_text()):
        if NUMBERS.search(section):
            assert re.search(r"20\d\d-\d\d-\d\d", section), f"{section.splitlines()[0]}: when was this measured?"


def test_figures_in_prose_are_those_of_the_measurements() -> None:
    """A number with its error, wherever it is quoted, stands on a page of the validation or in a table of results."""
    validation = [page for page in PAGES if page.parent.name == "validation"]
    known = {figure for page in validation for figure in FIGURE.findall(page.read_text())}
    known |= {figure for source in SOURCES for made in tables_of(source).values() for figure in FIGURE.findall(made)}
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(p for p in PAGES if p not in validation)]:
        # What a script has printed is a source of its own.
        quoting = [section for section in sections(page.read_text()) if "Printed by" not in section]
        unknown = {figure for section in quoting for figure in FIGURE.findall(section)} - known
        assert not unknown, f"{page.name}: {sorted(unknown)} are measured nowhere"


def test_all_estimators_have_what_the_guide_says() -> None:
    text = (DOCS / "guide" / "estimators.md").read_text()
    named = set(re.findall(r"^\| .* \| `(\w+Classifier|CascadePool)", text, re.MULTILINE))
    assert len(named) == 7
    for name in named:
        for attribute in ("fit", "predict", "predict_proba", "significance", "checkpoint", "verbose"):
            assert hasattr(getattr(fivesigma, name), attribute), f"{name} has no {attribute}"


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *PAGES], ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_and_files_that_a_page_names_exist(page: Path) -> None:
    for code in re.findall(r"`([^`\n]+)`", page.read_text()):
        for name in re.findall(r"(?<![\w./-])fivesigma(?:\.[a-zA-Z_]\w*)+", code):
            assert resolve(name), f"{name} does not exist"
        for path in re.findall(r"^(?:benchmarks|tests|examples|docs|src)/[\w./-]+", code.replace("-N/", "-1/")):
            assert (ROOT / path).exists(), f"{path} does not exist"
        for test in re.findall(r"^(?:(?!tests/)\w+/)?test_\w+\.py$", code):
            assert list((ROOT / "tests").rglob(test)), f"{test} does not exist"


def resolve(name: str) -> bool:
    """Whether a dotted name leads to a module, or to an attribute of one."""
    found: Any = fivesigma
    for part in name.split(".")[1:]:
        if not hasattr(found, part):
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except (ImportError, AttributeError):
                return False
        found = getattr(found, part)
    return True


def test_messages_of_the_questions_are_those_of_the_library() -> None:
    text = (DOCS / "help" / "faq.md").read_text()
    messages = re.findall(r"\*\*`([^`]+)`\*\*", text[text.index("## Messages") : text.index("## Use")])
    source = "".join(path.read_text() for path in (ROOT / "src" / "fivesigma").rglob("*.py"))
    assert len(messages) >= 9
    assert [message for message in messages if message not in source] == []


def test_pages_of_the_guide_are_short() -> None:
    lines = {page.name: page.read_text().count("\n") for page in (DOCS / "guide").glob("*.md")}
    assert {name: n for name, n in lines.items() if n > 150} == {}


COMMAND = re.compile(r"\bfivesigma ((?:[a-z]+[ -])*[a-z]+)\b(.*)")


def options_of(names: list[str]) -> set[str] | None:
    """Options of the command that the words begin with, or None if there is no such command."""
    command: Any = cli.main
    for name in names:
        if name not in getattr(command, "commands", {}):
            break
        command = command.commands[name]
    return None if command is cli.main else {option for one in command.params for option in one.opts}


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: str(p.relative_to(ROOT)))
def test_options_of_commands_exist(page: Path) -> None:
    """Commands in blocks, in cells and in code within a line have the options that they are given."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines += re.findall(r"`([^`]+)`", prose) + [line for line in prose.splitlines() if line.startswith("    ")]
    for line in lines:
        for words, rest in COMMAND.findall(line.partition(" #")[0]):
            known = options_of(words.split())
            given = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest.partition("|")[0]))
            assert known is not None or not given, f"fivesigma {words} is no command"
            assert not given - (known or set()) - {"--help"}, f"fivesigma {words} has no {sorted(given)}"


def test_options_alone_and_keys_of_a_configuration_exist() -> None:
    commands = [*cli.main.commands.values()]
    commands += [sub for one in commands for sub in getattr(one, "commands", {}).values()]
    known = {option for one in [cli.main, *commands] for parameter in one.params for option in parameter.opts}
    for page in PAGES:
        alone = {
            o for code in re.findall(r"`(--[^`]+)`", page.read_text()) for o in re.findall(r"--[a-z][a-z-]*", code)
        }
        assert alone <= known, f"{page.name}: {sorted(alone - known)} belong to no command"
        for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            assert {f"--{key}" for key in tomllib.loads(block)} <= (options_of(["train"]) or set()), page.name


def test_every_command_is_in_the_reference() -> None:
    page = (DOCS / "api" / "commands.md").read_text()
    for name, command in cli.main.commands.items():
        for words in [name, *(f"{name} {sub}" for sub in getattr(command, "commands", {}))]:
            assert f"fivesigma {words} -h" in page, words


def test_front_pages_name_the_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == fivesigma.__version__
    assert f"version: {fivesigma.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert json.loads((ROOT / ".zenodo.json").read_text())["version"] == fivesigma.__version__
    heading = re.search(r"^## \[(.*)\] - (.*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None
    assert heading[1] == fivesigma.__version__
    released = re.findall(r"^date-released: (.*)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert [heading[2]] == (released or ["unreleased"])


def test_lines_of_the_changelog_are_in_a_section() -> None:
    """Each list ends with a mark, so that a merge that puts lines elsewhere is noticed."""
    text = (ROOT / "CHANGELOG.md").read_text()
    release = text[text.index("\n## [") :].split("\n## [")[1]
    sections = re.split(r"^### (.*)\n", release, flags=re.MULTILINE)[1:]
    for name, section in zip(sections[::2], sections[1::2], strict=True):
        assert section.rstrip().endswith(f"\n\n<!-- {name}: add lines above this one. -->"), name


def test_workflows_call_targets_of_make() -> None:
    yaml = pytest.importorskip("yaml")
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    commands += [hook["entry"] for hook in hooks]
    assert len(commands) >= 5
    for command in commands:
        make, *names = command.split()
        assert make == "make"
        assert set(names) <= set(targets), command


def test_python_versions_are_those_of_the_workflow() -> None:
    yaml = pytest.importorskip("yaml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert named == workflow["jobs"]["test"]["strategy"]["matrix"]["python-version"]
    assert project["requires-python"] == f">={named[0]}"


def test_the_oldest_versions_are_the_bounds_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    bounds = dict(re.findall(r"^([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)$", "\n".join(wanted), re.MULTILINE))
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "constraints-oldest.txt").read_text(), re.MULTILINE))
    assert bounds.pop("xgboost") == bounds["xgboost-cpu"], "the same module"
    assert pinned == {name: f"{bound}.0.0"[: len(pinned[name])] for name, bound in bounds.items()}


@pytest.mark.parametrize("file", sorted([*ROOT.glob(".github/**/*.yml"), *ROOT.glob(".*.y*ml")]), ids=lambda p: p.name)
def test_settings_are_valid_yaml(file: Path) -> None:
    assert isinstance(pytest.importorskip("yaml").safe_load(file.read_text()), dict)


class TestCheckSite:
    @pytest.fixture
    def complaints(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.syspath_prepend(str(DOCS / "_ext"))
        yield importlib.import_module("check_site").complaints
        sys.modules.pop("check_site", None)

    def test_a_sound_site(self, complaints: Any, tmp_path: Path) -> None:
        (tmp_path / "a.html").write_text('<h1 id="top"></h1><a href="b.html#there">b</a><a href="https://x.org">x</a>')
        (tmp_path / "b.html").write_text('<p id="there"><a href="#there">self</a><img src="c.png"></p>')
        assert complaints(tmp_path) == []

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('<a href="c.html">c</a>', "a.html links to c.html, which does not exist"),
            ('<a href="#nowhere">c</a>', "a.html links to #nowhere, which is not on that page"),
            ('<script src="https://cdn.org/x.js"></script>', "a.html fetches https://cdn.org/x.js"),
            ('<link rel="stylesheet" href="https://cdn.org/x.css">', "a.html fetches https://cdn.org/x.css"),
        ],
    )
    def test_what_is_wrong_is_said(self, complaints: Any, tmp_path: Path, text: str, said: str) -> None:
        (tmp_path / "a.html").write_text(text)
        assert complaints(tmp_path) == [said]
