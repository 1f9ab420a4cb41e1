"""Codecs of scikit-learn's estimators, by skops, and of what has no other format, by pickle if that is allowed."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from typing import Any

from sklearn.base import BaseEstimator

from fivesigma._tools.extras import need
from fivesigma.errors import StoreError
from fivesigma.store.packing import Codec, Packer, Unpacker, one_line

# What skops may make beside the types that it trusts itself. None of them runs code when it is made.
TRUSTED = (
    "collections.OrderedDict",
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMClassifier",
    "lightgbm.sklearn.LGBMRegressor",
    "numpy.dtype",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.model_selection._split.KFold",
    "sklearn.model_selection._split.ShuffleSplit",
    "sklearn.model_selection._split.StratifiedKFold",
    "sklearn.model_selection._split.StratifiedShuffleSplit",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._bunch.Bunch",
    "xgboost.core.Booster",
    "xgboost.sklearn.XGBClassifier",
    "xgboost.sklearn.XGBRegressor",
)
_BOOSTERS = tuple(name for name in TRUSTED if name.startswith(("lightgbm.", "xgboost.")))


def _is_scikit_learn(value: Any) -> bool:
    return isinstance(value, BaseEstimator) or type(value).__module__.startswith("sklearn.")


def _pack_skops(packer: Packer, value: Any, where: str) -> dict[str, Any] | None:
    skops = need("skops.io")
    content = skops.dumps(value)
    unknown = [name for name in skops.get_untrusted_types(data=content) if name not in TRUSTED]
    if not unknown:
        return {"file": packer.add_file(content, ".skops")}
    if packer.allow_pickle:
        return None
    raise StoreError(
        f"{where} contains {', '.join(unknown[:3])}, which is not on the list of types that load without running code; "
        "pass allow_pickle=True to save and load if whoever loads it trusts you"
    )


def _unpack_skops(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Any:
    content = unpacker.file(fields, where)
    _check_loaders(content, where)
    return need("skops.io").loads(content, trusted=list(TRUSTED))


def _check_loaders(content: bytes, where: str) -> None:
    """Refuse a file that calls a booster's type with arguments of its own, which could name any file on the disk.

    skops calls whatever type is trusted if the file says so; for boosters `dumps` never does.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        if sum(info.file_size for info in file.infolist()) > len(content):
            raise StoreError(f"{where} names a file that is compressed, as fivesigma.save does not")
        pending: list[Any] = [json.loads(file.read("schema.json"))]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            name, loader = f"{node.get('__module__')}.{node.get('__class__')}", node.get("__loader__")
            if name in _BOOSTERS and loader != "ObjectNode":
                raise StoreError(f"{where} names a file that makes a {name} by {str(loader)[:40]}, as skops does not")
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def _pack_pickle(packer: Packer, value: Any, where: str) -> dict[str, Any] | None:
    if not packer.allow_pickle:
        return None
    try:
        return {"file": packer.add_file(pickle.dumps(value), ".pickle")}
    except Exception as err:
        raise StoreError(
            f"{where} is a {type(value).__name__} that cannot be pickled ({one_line(err)}); functions must be defined "
            "with def in a module that can be imported"
        ) from err


def _unpack_pickle(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Any:
    content = unpacker.file(fields, where)
    if not unpacker.allow_pickle:
        raise StoreError(
            f"{where} is a pickle, which runs code when it is loaded; pass allow_pickle=True if you trust its author"
        )
    return pickle.loads(content)


SCIKIT_CODECS = (
    Codec("skops", _is_scikit_learn, _pack_skops, _unpack_skops, "sklearn"),
    Codec("pickle", lambda _: True, _pack_pickle, _unpack_pickle),
)
