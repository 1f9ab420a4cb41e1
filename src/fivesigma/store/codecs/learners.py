"""Codecs of what was trained: boosters in their libraries' own formats, and what is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.threads import available_cores, note_threads
from fivesigma.blend import Blend
from fivesigma.errors import StoreError
from fivesigma.learners.decomposition import MeanWeight, RatioModel
from fivesigma.learners.lightgbm import LightGBMModel
from fivesigma.learners.sklearn import SklearnModel
from fivesigma.learners.xgboost import XGBoostModel
from fivesigma.store.codecs.fitted import MODELS
from fivesigma.store.packing import Codec, Packer, Unpacker

# Learners that are stored by their parameters as long as they are not fitted.
LEARNERS = {
    "XGBClassifier": "xgboost",
    "XGBRegressor": "xgboost",
    "LGBMClassifier": "lightgbm",
    "LGBMRegressor": "lightgbm",
}


def _is_unfitted_learner(value: Any) -> bool:
    library = LEARNERS.get(type(value).__name__)
    return library == type(value).__module__.partition(".")[0] and not value.__sklearn_is_fitted__()


def _unpack_learner(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Any:
    name = unpacker.typed(fields, "class", str, where)
    if name not in LEARNERS:
        raise StoreError(f"{where} in the manifest is the learner {name[:40]!r}; known are {', '.join(LEARNERS)}")
    return getattr(need(LEARNERS[name]), name)(**unpacker.typed(fields, "parameters", dict, where))


def _pack_xgboost(packer: Packer, value: XGBoostModel, where: str) -> dict[str, Any]:
    return {
        "file": packer.add_file(bytes(value.booster.save_raw("ubj")), ".ubj"),
        "missing": packer.pack(float(value.missing), where),
        "categorical": value.categorical,
        "n_trees": value.n_trees,
    }


def _not_empty(content: bytes, where: str) -> bytes:
    """Refuse an empty booster, at which XGBoost ends the process."""
    if not content:
        raise StoreError(f"{where} names an empty file")
    return content


def _unpack_xgboost(unpacker: Unpacker, fields: dict[str, Any], where: str) -> XGBoostModel:
    booster = need("xgboost").Booster(model_file=bytearray(_not_empty(unpacker.file(fields, where), where)))
    note_threads(0)  # it will score with all
    missing = unpacker.typed(fields, "missing", (float, int), where)
    categorical = unpacker.typed(fields, "categorical", bool, where)
    n_trees, most = unpacker.typed(fields, "n_trees", int, where), booster.num_boosted_rounds()
    if not 0 <= n_trees <= most:
        raise StoreError(f"{where}.n_trees in the manifest is {n_trees}, and the booster has {most}")
    return XGBoostModel(booster, missing, categorical, n_trees)


def _pack_lightgbm(packer: Packer, value: LightGBMModel, _where: str) -> dict[str, Any]:
    files = [packer.add_file(booster.model_to_string().encode(), ".txt") for booster in value.boosters]
    return {"files": files, "n_threads": value.n_threads}


def _unpack_lightgbm(unpacker: Unpacker, fields: dict[str, Any], where: str) -> LightGBMModel:
    names = unpacker.typed(fields, "files", list, where)
    texts = [unpacker.file({"file": name}, where) for name in names]
    n_threads = unpacker.typed(fields, "n_threads", int, where)
    boosters = tuple(need("lightgbm").Booster(model_str=_not_empty(text, where).decode()) for text in texts)
    if not boosters:
        raise StoreError(f"{where} in the manifest names no booster")
    return LightGBMModel(boosters, max(1, min(n_threads, available_cores())))


def _unpack_classifier(unpacker: Unpacker, fields: dict[str, Any], where: str) -> SklearnModel:
    estimator = unpacker.typed(fields, "estimator", object, where)
    if not hasattr(estimator, "predict_proba") and not hasattr(estimator, "decision_function"):
        raise StoreError(f"{where}.estimator in the manifest is a {type(estimator).__name__}, which gives no score")
    return SklearnModel(estimator)


def _unpack_ratio(unpacker: Unpacker, fields: dict[str, Any], where: str) -> RatioModel:
    parts = [unpacker.typed(fields, name, MeanWeight, where) for name in ("signal", "background")]
    classifier = unpacker.typed(fields, "classifier", MODELS[:-1], where)
    balance = unpacker.typed(fields, "log_balance", float, where)
    if not np.isfinite(balance):
        raise StoreError(f"{where}.log_balance in the manifest is {balance}")
    return RatioModel(classifier, parts[0], parts[1], balance)


def _pack_mean_weight(packer: Packer, value: MeanWeight, where: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"scale": value.scale, "bounds": list(value.bounds)}
    if LEARNERS.get(type(value.regressor).__name__) == "xgboost":
        file = packer.add_file(bytes(value.regressor.get_booster().save_raw("ubj")), ".ubj")
        parameters = packer.pack(value.regressor.get_params(), where)
        return {**fields, "class": type(value.regressor).__name__, "parameters": parameters, "file": file}
    return {**fields, "regressor": packer.pack(value.regressor, where)}


def _unpack_mean_weight(unpacker: Unpacker, fields: dict[str, Any], where: str) -> MeanWeight:
    low, high = unpacker.typed(fields, "bounds", list, where)
    scale = unpacker.typed(fields, "scale", float, where)
    if not 0 < low <= scale <= high < np.inf:
        raise StoreError(f"{where} in the manifest has a mean weight outside of its bounds")
    if "file" in fields:
        regressor = _unpack_learner(unpacker, fields, where)
        if LEARNERS[type(regressor).__name__] != "xgboost":
            raise StoreError(f"{where}.class in the manifest is a {type(regressor).__name__}, not one of XGBoost")
        regressor.load_model(bytearray(_not_empty(unpacker.file(fields, where), where)))
    else:
        regressor = unpacker.unpack(fields.get("regressor"), where)
    if regressor is not None and not hasattr(regressor, "predict"):
        raise StoreError(f"{where}.regressor in the manifest is a {type(regressor).__name__}, which predicts nothing")
    return MeanWeight(regressor, scale, (low, high))


def _unpack_blend(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Blend:
    weights = unpacker.typed(fields, "weights", np.ndarray, where)
    knots = unpacker.typed(fields, "knots", list, where)
    if len(knots) != weights.size or not all(isinstance(k, np.ndarray) and k.size for k in knots):
        raise StoreError(f"{where} in the manifest does not have quantiles for each of its {weights.size} members")
    return Blend(unpacker.typed(fields, "kind", str, where), weights, knots)


CODECS = (
    Codec(
        "learner",
        _is_unfitted_learner,
        lambda packer, value, where: {
            "class": type(value).__name__,
            "parameters": packer.pack(value.get_params(deep=False), where),
        },
        _unpack_learner,
    ),
    Codec("xgboost", lambda value: type(value) is XGBoostModel, _pack_xgboost, _unpack_xgboost, "xgboost"),
    Codec("lightgbm", lambda value: type(value) is LightGBMModel, _pack_lightgbm, _unpack_lightgbm, "lightgbm"),
    Codec(
        "ratio",
        lambda value: type(value) is RatioModel,
        lambda packer, value, where: {
            "classifier": packer.pack(value.classifier, where),
            "signal": packer.pack(value.signal, where),
            "background": packer.pack(value.background, where),
            "log_balance": value.log_balance,
        },
        _unpack_ratio,
    ),
    Codec("mean-weight", lambda value: type(value) is MeanWeight, _pack_mean_weight, _unpack_mean_weight, "xgboost"),
    Codec(
        "blend",
        lambda value: type(value) is Blend,
        lambda packer, value, where: {
            "kind": value.kind,
            "weights": packer.pack(value.weights, where),
            "knots": packer.pack(list(value.knots), where),
        },
        _unpack_blend,
    ),
    Codec(
        "classifier",
        lambda value: type(value) is SklearnModel,
        lambda packer, value, where: {"estimator": packer.pack(value.estimator, where)},
        _unpack_classifier,
    ),
)
