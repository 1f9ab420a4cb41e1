"""Codecs of what was trained: boosters in their libraries' own formats, estimators of ours, and all others by skops."""

from __future__ import annotations

import importlib
import pickle
import re
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from fivesigma._extras import need
from fivesigma.cascade import History
from fivesigma.errors import StoreError
from fivesigma.estimators.blend import Blend
from fivesigma.learners.lightgbm import LightGBMModel
from fivesigma.learners.ratio import RatioModel
from fivesigma.learners.regression import MeanWeight
from fivesigma.learners.sklearn import SklearnModel
from fivesigma.learners.xgboost import XGBoostModel
from fivesigma.significance import Utility
from fivesigma.store.nets import NET
from fivesigma.store.packing import Codec, Packer, Unpacker, one_line

MODELS = (XGBoostModel, LightGBMModel, SklearnModel, RatioModel)


class _Fitted(NamedTuple):
    """Where an estimator of ours is defined, and what `fit` must have left behind."""

    module: str
    attributes: dict[str, type | tuple[type, ...]]


_SHARED: dict[str, type | tuple[type, ...]] = {
    "classes_": np.ndarray,
    "cut_": float,
    "selected_fraction_": float,
    "utility_": Utility,
    "n_features_in_": int,
}

# To store another estimator, add a line; the values of its attributes may nest as deep as they like.
ESTIMATORS = {
    "CascadeClassifier": _Fitted(
        "fivesigma.estimators.retrained", {**_SHARED, "history_": History, "kept_": list, "models_": list}
    ),
    "GrownCascadeClassifier": _Fitted(
        "fivesigma.estimators.grown", {**_SHARED, "history_": History, "n_trees_": int, "models_": list}
    ),
    "DecomposedClassifier": _Fitted(
        "fivesigma.estimators.decomposed", {**_SHARED, "history_": History, "models_": list}
    ),
    "CascadePool": _Fitted(
        "fivesigma.estimators.pool",
        {**_SHARED, "history_": History, "members_": list, "blend_": Blend, "member_significance_": dict},
    ),
}

# Learners that are stored by their parameters as long as they are not fitted.
LEARNERS = {
    "XGBClassifier": "xgboost",
    "XGBRegressor": "xgboost",
    "LGBMClassifier": "lightgbm",
    "LGBMRegressor": "lightgbm",
}

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

_FITTED_NAME = re.compile(r"[a-z][a-z0-9_]*_")


def _pack_estimator(packer: Packer, value: Any, where: str) -> dict[str, Any]:
    name = type(value).__name__
    found = {k: v for k, v in sorted(vars(value).items()) if _FITTED_NAME.fullmatch(k)}
    absent = [k for k in ESTIMATORS[name].attributes if k not in found]
    if absent and (found or where == "model"):  # only as a parameter of another may one be unfitted
        raise StoreError(f"{where} is a {name} that is not fitted (it has no {absent[0]}); fit it before it is saved")
    parameters = value.get_params(deep=False)
    return {
        "class": name,
        "parameters": {k: packer.pack(v, f"{where}.{k}") for k, v in parameters.items()},
        "fitted": {k: packer.pack(v, f"{where}.{k}") for k, v in found.items()},
    }


def _unpack_estimator(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Any:
    name = unpacker.typed(fields, "class", str, where)
    if name not in ESTIMATORS:
        raise StoreError(f"{where} in the manifest is a {name[:40]!r}; known are {', '.join(ESTIMATORS)}")
    spec = ESTIMATORS[name]
    model = getattr(importlib.import_module(spec.module), name)()
    parameters = unpacker.typed(fields, "parameters", dict, where)
    if set(parameters) != set(model.get_params(deep=False)):
        raise StoreError(f"{where}.parameters in the manifest are not those of {name}")
    fitted = fields.get("fitted")
    if not isinstance(fitted, dict) or not all(_FITTED_NAME.fullmatch(k) for k in fitted):
        raise StoreError(f"{where}.fitted in the manifest does not hold fitted attributes")
    if not fitted and where != "model":
        vars(model).update(parameters)
        return model
    place = f"{where}.fitted"
    values = {k: unpacker.typed(fitted, k, kind, place) for k, kind in spec.attributes.items()}
    values |= {k: unpacker.unpack(v, f"{place}.{k}") for k, v in fitted.items() if k not in values}
    _check_meaning(values, place)
    vars(model).update(parameters | values)
    return model


def _check_meaning(values: dict[str, Any], where: str) -> None:
    """Refuse values of the right type with which a model could not score."""
    n_features, names = values["n_features_in_"], values.get("feature_names_in_")
    wrong = {
        "classes_": values["classes_"].shape != (2,),
        "cut_": not np.isfinite(values["cut_"]),
        "n_features_in_": n_features < 1,
        "feature_names_in_": names is not None and np.shape(names) != (n_features,),
        "models_": values.get("models_") == [] or not all(isinstance(m, MODELS) for m in values.get("models_", [])),
        "members_": values.get("members_") == [] or not all(map(_is_member, values.get("members_", []))),
    }
    for name, is_wrong in wrong.items():
        if is_wrong:
            raise StoreError(f"{where}.{name} in the manifest cannot belong to a fitted model")


def _is_member(pair: Any) -> bool:
    """Whether something is the name and the fitted classifier of a member of a pool."""
    return isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and hasattr(pair[1], "classes_")


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


def _unpack_xgboost(unpacker: Unpacker, fields: dict[str, Any], where: str) -> XGBoostModel:
    booster = need("xgboost").Booster(model_file=bytearray(unpacker.file(fields, where)))
    missing = unpacker.typed(fields, "missing", (float, int), where)
    categorical = unpacker.typed(fields, "categorical", bool, where)
    return XGBoostModel(booster, missing, categorical, unpacker.typed(fields, "n_trees", int, where))


def _pack_lightgbm(packer: Packer, value: LightGBMModel, _where: str) -> dict[str, Any]:
    files = [packer.add_file(booster.model_to_string().encode(), ".txt") for booster in value.boosters]
    return {"files": files, "n_threads": value.n_threads}


def _unpack_lightgbm(unpacker: Unpacker, fields: dict[str, Any], where: str) -> LightGBMModel:
    names = unpacker.typed(fields, "files", list, where)
    texts = [unpacker.file({"file": name}, where).decode() for name in names]
    boosters = tuple(need("lightgbm").Booster(model_str=text) for text in texts)
    return LightGBMModel(boosters, unpacker.typed(fields, "n_threads", int, where))


def _unpack_classifier(unpacker: Unpacker, fields: dict[str, Any], where: str) -> SklearnModel:
    estimator = unpacker.typed(fields, "estimator", object, where)
    if not hasattr(estimator, "predict_proba") and not hasattr(estimator, "decision_function"):
        raise StoreError(f"{where}.estimator in the manifest is a {type(estimator).__name__}, which gives no score")
    return SklearnModel(estimator)


def _unpack_ratio(unpacker: Unpacker, fields: dict[str, Any], where: str) -> RatioModel:
    parts = [unpacker.typed(fields, name, MeanWeight, where) for name in ("signal", "background")]
    classifier = unpacker.typed(fields, "classifier", MODELS[:-1], where)
    return RatioModel(classifier, parts[0], parts[1], unpacker.typed(fields, "log_balance", float, where))


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
    if not 0 < low <= scale <= high:
        raise StoreError(f"{where} in the manifest has a mean weight outside of its bounds")
    if "file" in fields:
        regressor = _unpack_learner(unpacker, fields, where)
        regressor.load_model(bytearray(unpacker.file(fields, where)))
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


CODECS = (
    Codec(
        "estimator",
        lambda value: (
            type(value).__name__ in ESTIMATORS and type(value).__module__ == ESTIMATORS[type(value).__name__].module
        ),
        _pack_estimator,
        _unpack_estimator,
    ),
    Codec(
        "learner",
        _is_unfitted_learner,
        lambda packer, value, where: {
            "class": type(value).__name__,
            "parameters": packer.pack(value.get_params(deep=False), where),
        },
        _unpack_learner,
    ),
    Codec("xgboost", lambda value: type(value) is XGBoostModel, _pack_xgboost, _unpack_xgboost),
    Codec("lightgbm", lambda value: type(value) is LightGBMModel, _pack_lightgbm, _unpack_lightgbm),
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
    Codec("mean-weight", lambda value: type(value) is MeanWeight, _pack_mean_weight, _unpack_mean_weight),
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
    NET,
    Codec(
        "skops",
        _is_scikit_learn,
        _pack_skops,
        lambda unpacker, fields, where: need("skops.io").loads(unpacker.file(fields, where), trusted=list(TRUSTED)),
    ),
    Codec("pickle", lambda _: True, _pack_pickle, _unpack_pickle),
)
