"""Boosted trees of XGBoost and LightGBM as tree operators.

XGBoost compares float32 features with float32 thresholds (left if less) and adds up float32 leaves; LightGBM does both
in float64 (left if not greater). The operator follows the precision of its input, so the forests keep theirs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._types import Array
from fivesigma.errors import InputError
from fivesigma.exporting.graph import ML, Graph
from fivesigma.learners.xgboost import XGBoostModel

Node = TypeVar("Node")
_ZERO = float(np.float32(1e-35))  # LightGBM's kZeroThreshold
_INFINITE = 1e300  # what LightGBM writes for infinity, with which it separates missing values from all others
_LEAF = -1  # stands for the feature of a leaf
_EXP_POLYNOMIAL = ("0x1.c6af84b912394p-5", "0x1.ebfce50fac4f3p-3", "0x1.62e42ff0c52d6p-1")
_MOST_POWER = 32 * 151  # of the 32nd root of two, within the limits of float32
_EXPONENTIAL = ("reg:gamma", "reg:tweedie", "count:poisson", "gamma", "tweedie", "poisson")
_IDENTITY = ("reg:squarederror", "reg:absoluteerror", "regression", "regression_l1", "huber", "fair")


@dataclass
class Forest:
    """Trees, node by node."""

    precision: type[np.floating[Any]]  # of features, thresholds and sums
    mode: str  # the comparison after which an event goes left
    tree_factors: bool = False  # whether leaves were multiplied by a factor of their tree
    # Tree, number of the node, feature (-1 for a leaf), threshold or response, children, whether NaN goes left.
    rows: list[tuple[int, int, int, float, int, int, bool]] = field(default_factory=list)

    def grow(self, tree: int, root: Node, look: Callable[[Node], float | tuple[int, float, bool, Node, Node]]) -> None:
        """Add a tree; `look` gives the response of a leaf, or feature, threshold, whether NaN goes left, and children.

        A root that is a leaf gets a split that decides nothing, for not every runtime knows trees without one.
        """
        last, waiting = 0, [(0, root)]
        while waiting:
            at, node = waiting.pop()
            found = look(node)
            if not isinstance(found, tuple):
                self.rows += [] if at else [(tree, 0, 0, 0.0, 1, 2, False)]
                self.rows += [(tree, leaf, _LEAF, found, 0, 0, False) for leaf in ((at,) if at else (1, 2))]
                continue
            feature, threshold, nan, left, right = found
            self.rows.append((tree, at, feature, threshold, last + 1, last + 2, nan))
            waiting += [(last + 1, left), (last + 2, right)]
            last += 2

    def thresholds(self) -> dict[int, Array]:
        """Thresholds of each feature, ascending."""
        features, values = np.array([row[2] for row in self.rows]), np.array([row[3] for row in self.rows])
        return {int(k): np.unique(values[features == k]) for k in np.unique(features[features != _LEAF])}


def add_forest(graph: Graph, table: str, forest: Forest, *, exact: bool = False) -> str:
    """Sum of the leaves that events fall into, formed in the precision of the forest and then rounded to float32.

    If it is to be `exact`, it is float64: leaves are divided into parts whose sums are multiples of a power of two,
    and few enough of them for float32.
    """
    columns = list(zip(*forest.rows, strict=True))
    trees, nodes, features, left, right, missing = (np.array(columns[k], dtype=np.int64) for k in (0, 1, 2, 4, 5, 6))
    values = np.array(columns[3], dtype=forest.precision)
    leaf = features == _LEAF
    parts = _parts(values[leaf], int(trees.max()) + 1) if exact else values[leaf][None]
    for k, thresholds in forest.thresholds().items():
        graph.note(table, k, thresholds)

    def numbers(name: str, array: Any) -> dict[str, Any]:
        """Attribute with numbers, which has another name in double precision."""
        if forest.precision is np.float32:
            return {name: array.tolist()}
        return {f"{name}_as_tensor": need("onnx.numpy_helper").from_array(array, name)}

    sums = graph.add(
        "TreeEnsembleRegressor",
        table if forest.precision is np.float64 else graph.cast(table, np.float32),
        domain=ML,
        nodes_treeids=trees,
        nodes_nodeids=nodes,
        nodes_featureids=np.where(leaf, 0, features),
        nodes_modes=np.where(leaf, "LEAF", forest.mode).tolist(),
        nodes_truenodeids=left,
        nodes_falsenodeids=right,
        nodes_missing_value_tracks_true=missing,
        **numbers("nodes_values", np.where(leaf, forest.precision(0), values)),
        target_treeids=np.repeat(trees[leaf], len(parts)),
        target_nodeids=np.repeat(nodes[leaf], len(parts)),
        target_ids=np.tile(np.arange(len(parts)), int(leaf.sum())),
        **numbers("target_weights", parts.T.ravel()),
        n_targets=len(parts),
        aggregate_function="SUM",
        post_transform="NONE",
    )
    return graph.add("ReduceSum", graph.cast(sums, np.float64), np.array([1]), keepdims=1) if exact else sums


def _parts(values: Array, n_trees: int) -> Array:
    """Numbers that add up to the values but for 2^-53 of the largest; of each row the sum over trees is a float32."""
    rows, rest = [], np.asarray(values, dtype=np.float64)
    smallest = max(float(np.abs(rest).max(initial=0.0)) * 2.0**-53, 2.0**-100)
    while np.abs(rest).max(initial=0.0) > smallest:
        quantum = 2.0 ** (np.ceil(np.log2(np.abs(rest).max() * n_trees)) - 23)
        rows.append(np.round(rest / quantum) * quantum)
        rest = rest - rows[-1]
    return np.array(rows or [np.zeros_like(rest)])


def xgboost_probability(graph: Graph, table: str, model: XGBoostModel) -> str:
    """P(signal) of an XGBoost model, rounded to float32 at each step as XGBoost does, so that it is the same number."""
    forest, objective = xgboost_forest(model)
    if objective != "binary:logistic":
        raise InputError(
            f"an XGBoost classifier with the objective {objective} cannot be exported: only binary:logistic"
        )
    margin = add_forest(graph, _without(graph, table, model.missing), forest)
    one = np.ones(1, dtype=np.float32)
    odds = _exponential(graph, graph.add("Neg", margin), 88.7)  # more is too much for XGBoost as well
    return graph.cast(graph.add("Div", one, graph.add("Add", odds, one)), np.float64)


def _exponential(graph: Graph, single: str, most: float = 89.0) -> str:
    """Exponential in float32 as the C library of Linux has it (glibc 2.28 and later), to the last digit.

    Its steps are in float64: exp(x) = 2^(k/32) P(r), with k / 32 + r / 32 = x / log(2), k whole, and P a polynomial.
    """
    limits = np.float32(-104.0), np.float32(most)  # where float32 is zero, and infinite
    x = graph.cast(graph.add("Clip", single, *(np.asarray(v) for v in limits)), np.float64)
    z = graph.add("Mul", x, 32 * float.fromhex("0x1.71547652b82fep+0"))
    k = graph.add("Round", z)
    r = graph.add("Sub", z, k)
    c3, c2, c1 = (float.fromhex(c) / 32.0**n for n, c in zip((3, 2, 1), _EXP_POLYNOMIAL, strict=True))
    low = graph.add("Add", graph.add("Mul", r, c1), 1.0)
    high = graph.add("Mul", graph.add("Add", graph.add("Mul", r, c3), c2), graph.add("Mul", r, r))
    powers = np.exp2(np.arange(-_MOST_POWER, _MOST_POWER + 1).astype(np.longdouble) / 32).astype(np.float64)
    power = graph.add("Gather", powers, graph.cast(graph.add("Add", k, float(_MOST_POWER)), np.int64))
    return graph.cast(graph.add("Mul", graph.add("Add", high, low), power), np.float32)


def lightgbm_probability(graph: Graph, table: str, boosters: Sequence[Any], *, averaged: bool = False) -> str:
    """P(signal) of LightGBM boosters, whose margins add up."""
    if not boosters:
        raise InputError("a LightGBM model without any tree cannot be exported: all events have the same score")
    forests = [lightgbm_forest(booster, averaged=averaged)[0] for booster in boosters]
    return graph.add("Sigmoid", graph.total([add_forest(graph, table, forest, exact=True) for forest in forests]))


def regression(graph: Graph, table: str, regressor: Any) -> str:
    """Prediction of a regressor of XGBoost or LightGBM."""
    if type(regressor).__name__ == "XGBRegressor":
        forest, objective = xgboost_forest(XGBoostModel(regressor.get_booster()))
        out = add_forest(graph, _without(graph, table, regressor.missing), forest)
        if objective in _EXPONENTIAL:
            return graph.cast(_exponential(graph, out), np.float64)
    elif type(regressor).__name__ == "LGBMRegressor":
        forest, objective = lightgbm_forest(regressor.booster_, averaged=True)
        out = add_forest(graph, table, forest, exact=True)
    else:
        raise InputError(
            f"the weights are regressed by a {type(regressor).__name__}, which cannot be exported; use an XGBRegressor "
            "or an LGBMRegressor as weight_estimator"
        )
    out = graph.cast(out, np.float64)
    if objective in _EXPONENTIAL:
        return graph.add("Exp", out)
    if objective not in _IDENTITY:
        raise InputError(f"a regression of the weights with the objective {objective!r} cannot be exported")
    return out


def xgboost_forest(model: XGBoostModel) -> tuple[Forest, str]:
    """Trees of an XGBoost model and the name of its objective."""
    learner = json.loads(bytes(model.kept.save_raw("json")))["learner"]
    objective, boosted = str(learner["objective"]["name"]), learner["gradient_booster"]
    factors: list[float] = []
    if boosted["name"] == "dart":
        factors, boosted = boosted["weight_drop"], boosted["gbtree"]
    elif boosted["name"] != "gbtree":
        raise InputError(f"an XGBoost model of the kind {boosted['name']} cannot be exported: only trees can")
    forest = Forest(np.float32, "BRANCH_LT", bool(factors))
    # A tree of its own, as XGBoost too starts from it: sums round alike.
    forest.grow(0, _xgboost_base(learner, objective), lambda base: base)
    for t, tree in enumerate(boosted["model"]["trees"], start=1):
        if any(tree["split_type"]) or int(tree["tree_param"]["size_leaf_vector"]) > 1:
            raise InputError("an XGBoost model with categorical features or vectors in its leaves cannot be exported")
        factor = np.float32(factors[t - 1]) if factors else np.float32(1)
        forest.grow(t, 0, partial(_xgboost_node, tree, factor))
    return forest, objective


def _xgboost_node(tree: dict[str, Any], factor: np.float32, node: int) -> float | tuple[int, float, bool, int, int]:
    """Leaf or split of a tree in XGBoost's JSON."""
    value, left = np.float32(tree["split_conditions"][node]), tree["left_children"][node]
    if left < 0:
        return float(value * factor)
    nan = bool(tree["default_left"][node])
    return tree["split_indices"][node], float(value), nan, left, tree["right_children"][node]


def _xgboost_base(learner: dict[str, Any], objective: str) -> float:
    """Margin that the trees start from; the file has it on the scale of the prediction."""
    text = learner["learner_model_param"]["base_score"].strip("[]")  # in brackets since 3.1
    if "," in text:
        raise InputError("an XGBoost model with several targets cannot be exported")
    base = np.float32(text)
    if objective == "binary:logistic":  # step by step as XGBoost computes it
        return -float(np.log(np.float64(np.float32(1) / base - np.float32(1))))
    return float(np.log(np.float64(base))) if objective in _EXPONENTIAL else float(base)


def _without(graph: Graph, table: str, missing: float) -> str:
    """Table in which a number that stands for a missing value is NaN."""
    if np.isnan(missing):
        return table
    is_missing = graph.add("Equal", graph.cast(table, np.float32), np.float32(missing))  # type: ignore[arg-type]  # a constant
    for k in range(graph.n_features):
        graph.note(table, k, np.array([missing]))
    return graph.same_columns(table, graph.add("Where", is_missing, np.nan, table))


def lightgbm_forest(booster: Any, *, averaged: bool = False) -> tuple[Forest, str]:
    """Trees of a LightGBM booster and the name of its objective.

    A random forest of LightGBM is `averaged` in a prediction and a sum in a margin.
    """
    dump = booster.dump_model()
    objective = str(dump.get("objective", "")).strip()
    if dump["num_tree_per_iteration"] != 1:
        raise InputError("a LightGBM model with several classes cannot be exported")
    trees = dump["tree_info"]
    share = 1.0 / max(len(trees), 1) if averaged and dump.get("average_output") else 1.0
    forest = Forest(np.float64, "BRANCH_LEQ")
    for t, tree in enumerate(trees):
        forest.grow(t, tree["tree_structure"], partial(_lightgbm_node, share))
    return forest, objective.partition(" ")[0]


def _lightgbm_node(share: float, node: dict[str, Any]) -> float | tuple[int, float, bool, Any, Any]:
    """Leaf or split of a dumped tree; without missing values in training NaN is taken for zero."""
    if "leaf_coeff" in node:
        raise InputError("a LightGBM model with linear_tree=True cannot be exported: its leaves are not numbers")
    if "leaf_value" in node:
        return float(share * node["leaf_value"])
    if node["decision_type"] != "<=":
        raise InputError("a LightGBM model with categorical features cannot be exported")
    if node["missing_type"] == "Zero":
        raise InputError("a LightGBM model with zero_as_missing=True cannot be exported: no operator does that")
    threshold = float(node["threshold"])
    nan = bool(node["default_left"]) if node["missing_type"] == "NaN" else threshold >= 0.0
    if abs(threshold) >= _INFINITE:
        threshold = float(np.copysign(np.inf, threshold))
    if abs(threshold) <= _ZERO:  # what lies so close to zero is read as zero, so it stays on one side with it
        threshold = _ZERO if threshold >= 0.0 else float(np.nextafter(-_ZERO, -np.inf))
    return node["split_feature"], threshold, nan, node["left_child"], node["right_child"]


def staircase(steps: Array) -> Forest:
    """Tree that counts the steps at or below the only column of its table: a binary search as an operator."""

    def look(between: tuple[int, int]) -> float | tuple[int, float, bool, tuple[int, int], tuple[int, int]]:
        low, high = between
        middle = (low + high) // 2
        return float(low) if low == high else (0, float(steps[middle]), False, (low, middle), (middle + 1, high))

    forest = Forest(np.float64, "BRANCH_LT")
    forest.grow(0, (0, len(steps)), look)
    return forest
