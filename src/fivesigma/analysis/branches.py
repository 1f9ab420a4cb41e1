"""How expressions appear in the ntuples and in cabinetry's configuration: as they are, or as a new branch."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from fivesigma.analysis.templates import FOLD, SCORE, Template
from fivesigma.datasets.expression import Expression

__all__ = ["Branches"]


class Branches:
    """Names of the new branches of an analysis.

    uproot reads ``jet_pt[0]`` as the first event and knows no ``&&``, so that conditions are always new branches, and
    so are weights and variables other than columns, and products and quotients of columns and numbers.

    Parameters
    ----------
    templates : sequence of Template
    regions : mapping of str to str
        Condition of each region.
    friends : bool
        Whether everything is a new branch, so that the ntuples need no others.
    """

    def __init__(self, templates: Sequence[Template], regions: Mapping[str, str], *, friends: bool) -> None:
        self._taken = {SCORE, FOLD}
        self.conditions: dict[str, str] = {}
        for region, text in regions.items():
            if text not in self.conditions:
                self.conditions[text] = self.reserve(_slug("in", [region]))
        self.weights: dict[str, str] = {}
        self.variables: dict[str, str] = {SCORE: SCORE}
        for text in dict.fromkeys(template.condition for template in templates):
            users = [template for template in templates if template.condition == text]
            if text not in self.conditions:
                self.conditions[text] = self._new("in", users)
        for text in dict.fromkeys(t.weight for t in templates if t.weight is not None):
            users = [template for template in templates if template.weight == text]
            keep = _is_product(text) and (not friends or _is_number(text))
            self.weights[text] = text if keep else self._new("weight", users)
        for text in dict.fromkeys(template.variable for template in templates if template.variable != SCORE):
            users = [template for template in templates if template.variable == text]
            keep = text.isidentifier() and not friends
            self.variables[text] = text if keep else self._new("variable", users)

    def evaluated(self, templates: Iterable[Template]) -> dict[str, str]:
        """New branches that some templates need, by name, with their expressions; the conditions are not among them."""
        found: dict[str, str] = {}
        for template in templates:
            for text, names in ((template.weight, self.weights), (template.variable, self.variables)):
                if text is not None and names[text] not in (text, SCORE):
                    found[names[text]] = text
        return found

    def used(self, templates: Iterable[Template]) -> list[str]:
        """Branches that cabinetry needs as they are."""
        found: dict[str, None] = {}
        for template in templates:
            if template.weight is not None and self.weights[template.weight] == template.weight:
                found |= dict.fromkeys(sorted(Expression(template.weight, "Weight").columns))
            if template.variable != SCORE and self.variables[template.variable] == template.variable:
                found[template.variable] = None
        return list(found)

    def reserve(self, name: str) -> str:
        """A name that no other branch has."""
        free, k = name, 2
        while free in self._taken:
            free, k = f"{name}_{k}", k + 1
        self._taken.add(free)
        return free

    def _new(self, kind: str, users: Collection[Template]) -> str:
        """A name after those who use it."""
        regions, samples = {t.region for t in users}, {t.sample for t in users}
        varied = {f"{t.systematic}_{t.direction}" for t in users if t.systematic is not None}
        words = []
        if len(varied) == 1 and all(t.systematic is not None for t in users):
            words = list(varied)
        elif len(regions) == 1 and kind != "weight":
            words = list(regions)
        elif len(samples) == 1:
            words = list(samples)
        return self.reserve(_slug(kind, words))


def _slug(kind: str, words: Iterable[str]) -> str:
    return re.sub(r"\W+", "_", "_".join(["fivesigma", kind, *words]))


def _is_product(text: str) -> bool:
    """Whether it is a product or quotient of columns and numbers, which uproot evaluates as we do.

    Examples
    --------
    >>> _is_product("0.7*weight"), _is_product("a*(b/2)"), _is_product("sf[0]*w"), _is_product("a && b")
    (True, True, False, False)
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return False
    allowed = (ast.BinOp, ast.Mult, ast.Div, ast.Name, ast.Constant, ast.Load)
    nodes = list(ast.walk(tree))
    return all(isinstance(node, allowed) for node in nodes) and all(
        type(node.value) in (int, float) for node in nodes if isinstance(node, ast.Constant)
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
