"""A booster of LightGBM in its own format, a text: refused unless it is as LightGBM writes it and is safe to use."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from fivesigma.store.checks.lightgbm_trees import check_trees
from fivesigma.store.checks.refusal import UncheckedError, refuse_unless

_NUMBER = r"-?(?:\d{1,25}(?:\.\d{0,25})?(?:e[-+]?\d{1,3})?|inf|nan)"
_INFO = re.compile(rf"none|\[{_NUMBER}:{_NUMBER}\]|-?\d{{1,9}}(?::-?\d{{1,9}})*")
_OBJECTIVE = re.compile(rf"([a-z_0-9]{{1,40}})(?: [a-z_]{{1,40}}(?::{_NUMBER})?)*")
_OBJECTIVES = (
    *("binary", "cross_entropy", "cross_entropy_lambda", "regression", "regression_l1", "huber", "fair", "poisson"),
    *("quantile", "mape", "gamma", "tweedie"),
)
_HEADER = re.compile(
    r"tree\nversion=v[34]\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=\d{1,9}\n"
    r"max_feature_idx=(?P<last>\d{1,9})\nobjective=(?P<objective>[^\n]*)\n(?:average_output\n)?"
    r"feature_names=(?P<names>[^\n]*)\n(?:monotone_constraints=(?P<monotone>[-01 ]*)\n)?"
    r"feature_infos=(?P<infos>[^\n]*)\ntree_sizes=(?P<sizes>[0-9 ]*)\n\n"
)
_FOOTER = re.compile(
    r"end of trees\n\nfeature_importances:\n(?:[^\n=]*=\d{1,12}\n)*"
    r"\nparameters:\n(?P<parameters>(?:\[[a-z_0-9]{1,60}: [^\]\n:]{0,10000}\]\n)*)\nend of parameters\n"
    r"(?:\npandas_categorical:(?P<categories>[^\n]*)\n?)?"
)
_NAMES_A_FILE = re.compile(r"\[(?:data|valid|machines|\w*(?:file|filename)): [^\]]")


def check_booster(content: bytes, objectives: Collection[str] = _OBJECTIVES) -> tuple[int, int]:
    """Refuse what is not a booster that can be used safely.

    Parameters
    ----------
    content : bytes
        Text of the model.
    objectives : collection of str
        What the booster may have been trained for.

    Returns
    -------
    n_features, n_trees : int
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise UncheckedError("it is not UTF-8") from None
    refuse_unless("\0" not in text and "\r" not in text, "it holds characters that LightGBM does not write")
    head = _HEADER.match(text)
    if head is None:
        raise UncheckedError("its first lines are not those of a LightGBM model")
    n_features = int(head["last"]) + 1
    objective = _OBJECTIVE.fullmatch(head["objective"])
    refuse_unless(objective and objective[1] in objectives, f"its objective is {head['objective'][:40]!r}")
    for what in ("names", "infos"):
        refuse_unless(len(head[what].split(" ")) == n_features, f"feature_{what} are not one for each feature")
    refuse_unless(all(map(_INFO.fullmatch, head["infos"].split(" "))), "feature_infos are not as LightGBM writes them")
    refuse_unless(
        head["monotone"] is None or len(head["monotone"].split()) == n_features, "monotone_constraints do not fit"
    )
    start = len(text[: head.end()].encode())
    sizes = [int(k) for k in head["sizes"].split()]
    refuse_unless(" ".join(map(str, sizes)) == head["sizes"], "tree_sizes are no sizes")
    end = start + sum(sizes)
    refuse_unless(end <= len(content), "tree_sizes are more than the file has")
    check_trees(content[start:end], sizes, n_features)
    _check_footer(content[end:].decode(errors="replace"))
    return n_features, len(sizes)


def _check_footer(text: str) -> None:
    found = _FOOTER.fullmatch(text)
    if found is None:
        raise UncheckedError("its last lines are not those of a LightGBM model")
    refuse_unless(_NAMES_A_FILE.search(found["parameters"]) is None, "its parameters name a file")
    keys = re.findall(r"\[(\w+):", found["parameters"])
    refuse_unless(len(set(keys)) == len(keys), "a parameter stands in it twice")
    if found["categories"] is None:
        return
    try:
        categories: Any = json.loads(found["categories"])
    except (ValueError, RecursionError):
        raise UncheckedError("pandas_categorical is not JSON") from None
    refuse_unless(
        categories is None or (isinstance(categories, list) and all(map(_are_categories, categories))),
        "pandas_categorical does not hold categories",
    )


def _are_categories(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(v, str | int | float) for v in values)
