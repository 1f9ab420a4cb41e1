"""Codecs of what was trained, of estimators with their parameters and what `fit` left behind, and of categories.

Boosters are in their libraries' own formats, nets by safetensors, scikit-learn's estimators by skops, and what has no
other format is pickled if that is allowed. The first codec that takes a value packs it.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

import fivesigma
from fivesigma._tools.extras import need
from fivesigma.blend import Blend
from fivesigma.categories import Categories
from fivesigma.categories.class_ratios import Ratios
from fivesigma.categories.class_sample import Roles
from fivesigma.categories.floors import Floors
from fivesigma.categories.several_signals.goal import Goal, Settings
from fivesigma.categories.several_signals.region_result import Bound, Judged, ScoreCategories
from fivesigma.categories.several_signals.region_rules import ArgmaxRule, LinearRule
from fivesigma.errors import StoreError, did_you_mean
from fivesigma.learners.density_ratios import MeanWeight, RatioModel
from fivesigma.learners.libraries import LIBRARIES, library_of
from fivesigma.learners.net.inputs import Inputs
from fivesigma.learners.protocols import Library
from fivesigma.learners.sklearn import SklearnModel
from fivesigma.likelihood.shifts import YieldShifts
from fivesigma.store.packing import PLAIN_CODECS, TAG, Codec, Packer, Unpacker, one_line
from fivesigma.yields import ProcessYields

# Learners that are stored by their parameters as long as they are not fitted.
LEARNERS = {name: library for library in LIBRARIES.values() for name in library.learners}


def _is_unfitted_learner(value: Any) -> bool:
    if library_of(value) is None or type(value).__name__ not in LEARNERS:
        return False
    try:
        check_is_fitted(value)
    except NotFittedError:
        return True
    return False


def _unpack_learner(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Any:
    library = unpacker.named(fields, LEARNERS, where)
    return getattr(need(library.name), fields["class"])(**unpacker.typed(fields, "parameters", dict, where))


def _codec_of(library: Library) -> Codec:
    """The boosters of a library, in its own format."""

    def pack(packer: Packer, value: Any, where: str) -> dict[str, Any]:
        return {name: packer.pack(part, where) for name, part in library.dump(value, packer.add_file).items()}

    def unpack(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Any:
        return library.load(
            lambda name, kind: unpacker.typed(fields, name, kind, where),
            lambda name: unpacker.file({"file": name}, where),
        )

    return Codec(library.name, lambda value: type(value) is library.model, pack, unpack, library.name)


def _pack_mean_weight(packer: Packer, value: MeanWeight, where: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"scale": value.scale, "bounds": list(value.bounds)}
    library = library_of(value.regressor)
    if library is not None and library.dump_learner is not None:
        file = packer.add_file(library.dump_learner(value.regressor), library.ending)
        parameters = packer.pack(value.regressor.get_params(), where)
        return {**fields, "class": type(value.regressor).__name__, "parameters": parameters, "file": file}
    return {**fields, "regressor": packer.pack(value.regressor, where)}


def _unpack_mean_weight(unpacker: Unpacker, fields: dict[str, Any], where: str) -> MeanWeight:
    low, high = unpacker.typed(fields, "bounds", list, where)
    if "file" in fields:
        regressor = _unpack_learner(unpacker, fields, where)
        load = LEARNERS[type(regressor).__name__].load_learner
        assert load is not None  # else it is made a StoreError
        load(regressor, unpacker.file(fields, where))
    else:
        regressor = unpacker.unpack(fields.get("regressor"), where)
    return MeanWeight(regressor, unpacker.typed(fields, "scale", float, where), (low, high))


def _record(tag: str, kind: type[Any], /, **types: Any) -> Codec:
    """A class that is stored by its fields, each of which has a type."""
    return Codec(
        tag,
        lambda value: type(value) is kind,
        lambda packer, value, where: {name: packer.pack(getattr(value, name), where) for name in types},
        lambda unpacker, given, where: kind(*(unpacker.typed(given, *field, where) for field in types.items())),
    )


# Public classes that may be made. Each says in `_stored` what `fit` must have left behind, and of which type.
ESTIMATORS = (
    "CascadeClassifier",
    "GrownCascadeClassifier",
    "DecomposedClassifier",
    "CascadePool",
    "AutoClassifier",
    "ProfiledClassifier",
)

NET = "NetClassifier"
_LAYER = "layer-{:03d}"
_INPUTS = {
    **dict.fromkeys(("columns", "flags", "momenta"), np.int64),
    **dict.fromkeys(("units", "means", "factors", "momentum_units", "momentum_factors"), np.float64),
}
_FITTED_NAME = re.compile(r"[a-z][a-z0-9_]*_")


def _is_ours(value: Any, names: tuple[str, ...]) -> bool:
    """Whether a value is of one of the public classes of these names, and not of a subclass."""
    name = type(value).__name__
    return name in names and type(value) is getattr(fivesigma, name)


def _set_parameters(model: Any, unpacker: Unpacker, fields: dict[str, Any], where: str) -> None:
    """Set stored parameters; those that a later version added keep their defaults."""
    given, known = unpacker.typed(fields, "parameters", dict, where), model.get_params(deep=False)
    for name in given:
        if name not in known:
            writer = unpacker.versions.get("fivesigma", "another version")
            raise StoreError(
                f"{where}.parameters in the manifest has {name[:40]!r}, which {type(model).__name__} of fivesigma "
                f"{fivesigma.__version__} does not know; the model was saved by {writer}{did_you_mean(name, known)}"
            )
    vars(model).update(given)


def _stored_form(value: Any) -> Any:
    """An estimator that was trained on a cluster is stored as the ordinary one."""
    return value.ordinary() if hasattr(type(value), "ordinary") else value


def _pack(packer: Packer, value: Any, where: str) -> dict[str, Any]:
    value = _stored_form(value)
    name = type(value).__name__
    found = {k: v for k, v in sorted(vars(value).items()) if _FITTED_NAME.fullmatch(k)}
    absent = [k for k in value._stored if k not in found]
    if absent and (found or where == "model"):  # only as a parameter of another may one be unfitted
        raise StoreError(f"{where} is a {name} that is not fitted (it has no {absent[0]}); fit it before it is saved")
    parameters = value.get_params(deep=False)
    return {
        "class": name,
        "parameters": {k: packer.pack(v, f"{where}.{k}") for k, v in parameters.items()},
        "fitted": {k: packer.pack(v, f"{where}.{k}") for k, v in found.items()},
    }


def _unpack(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Any:
    model = getattr(fivesigma, unpacker.named(fields, dict(zip(ESTIMATORS, ESTIMATORS, strict=True)), where))()
    _set_parameters(model, unpacker, fields, where)
    fitted = fields.get("fitted")
    if not isinstance(fitted, dict) or not all(_FITTED_NAME.fullmatch(k) for k in fitted):
        raise StoreError(f"{where}.fitted in the manifest does not hold fitted attributes")
    if not fitted and where != "model":
        return model
    place = f"{where}.fitted"
    values = {k: unpacker.typed(fitted, k, kind, place) for k, kind in model._stored.items()}
    values |= {k: unpacker.unpack(v, f"{place}.{k}") for k, v in fitted.items() if k not in values}
    vars(model).update(values)
    _check_use(model, where)
    return model


def _check_use(model: Any, where: str) -> None:
    """Refuse parameters with which a model could not be used, though it was fitted."""
    try:
        model.__fivesigma_check__()
        model.__sklearn_tags__()
        repr(model)
    except Exception as err:
        raise StoreError(
            f"{where}.parameters in the manifest cannot belong to a fitted model: {one_line(err)}"
        ) from err


def _pack_net(packer: Packer, value: Any, where: str) -> dict[str, Any]:
    safetensors = need("safetensors.numpy")  # for a net without weights too: a checkpoint asks before training
    packed = {"parameters": packer.pack(value.get_params(deep=False), where)}
    if not hasattr(value, "weights_"):
        if where == "model":
            raise StoreError(f"{where} is a {NET} that is not fitted; fit it before it is saved")
        return packed
    arrays = {_LAYER.format(k): layer for k, layer in enumerate(value.weights_)}
    arrays |= {name: getattr(value.inputs_, name).astype(dtype) for name, dtype in _INPUTS.items()}
    names = ("classes_", "n_features_in_", "feature_names_in_", "loss_", "training_rows_")
    fitted = {name: getattr(value, name) for name in names if hasattr(value, name)}
    file = packer.add_file(safetensors.save(arrays), ".safetensors")
    return {**packed, "fitted": packer.pack(fitted, where), "file": file}


def _unpack_net(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Any:
    model = getattr(fivesigma, NET)()
    _set_parameters(model, unpacker, fields, where)
    if "file" not in fields and where != "model":
        return model
    _check_use(model, where)
    fitted, kinds = unpacker.typed(fields, "fitted", dict, where), {"classes_": np.ndarray, "n_features_in_": int}
    values = fitted | {name: unpacker.typed(fitted, name, kind, f"{where}.fitted") for name, kind in kinds.items()}
    arrays = need("safetensors.numpy").load(unpacker.file(fields, where))
    inputs = {name: arrays.pop(name) for name in _INPUTS}
    indices = {name: array.astype(np.intp) for name, array in inputs.items() if array.dtype == np.int64}
    values["inputs_"], values["weights_"] = Inputs(**inputs | indices), [arrays[name] for name in sorted(arrays)]
    vars(model).update(values)
    return model


def ends_in_ours(value: Any) -> bool:
    """Whether a value is a Pipeline whose last step is an estimator of ours."""
    return type(value) is Pipeline and _is_ours(_stored_form(value.steps[-1][1]), (*ESTIMATORS, NET))


def _pack_pipeline(packer: Packer, value: Pipeline, where: str) -> dict[str, Any]:
    last = packer.pack(value.steps[-1][1], where)  # as a model of its own: it must be fitted
    return {"names": [name for name, _ in value.steps], "before": packer.pack([*value[:-1]], where), "last": last}


def _unpack_pipeline(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Pipeline:
    names, before = (unpacker.typed(fields, name, list, where) for name in ("names", "before"))
    last = unpacker.unpack(fields.get("last"), where)
    model = Pipeline(list(zip(names, [*before, last], strict=True)))
    if not ends_in_ours(model):
        raise StoreError(f"{where} in the manifest is a Pipeline whose last step is no estimator of fivesigma")
    return model


_KINDS: tuple[Any, ...] = (
    *(Categories, Floors, YieldShifts, ProcessYields),
    *(ScoreCategories, Ratios, Roles, Goal, Settings, Bound, Judged, LinearRule, ArgmaxRule),
)
RECORDS = MappingProxyType({kind.__name__: kind for kind in _KINDS})
STORABLE_RECORDS = (Categories.__name__, ScoreCategories.__name__)


def _names(kind: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind) if one.init) if is_dataclass(kind) else tuple(kind._fields)


def _pack_categories(packer: Packer, value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, Goal) and callable(value.kind):
        raise StoreError("categories whose goal is a function cannot be saved; a file holds no code")
    parts = {name: _ordered(packer, getattr(value, name), f"{where}.{name}") for name in _names(type(value))}
    return {"class": type(value).__name__, "fields": parts}


def _ordered(packer: Packer, value: Any, where: str) -> Any:
    """Pack a value; mappings keep their order, which the manifest's own objects do not."""
    if not isinstance(value, Mapping):
        return packer.pack(value, where)
    return {TAG: "mapping", "items": [[key, _ordered(packer, item, f"{where}.{key}")] for key, item in value.items()]}


def _unpack_categories(unpacker: Unpacker, given: dict[str, Any], where: str) -> Any:
    kind, parts = unpacker.named(given, RECORDS, where), unpacker.typed(given, "fields", dict, where)
    if set(parts) != set(_names(kind)):
        raise StoreError(f"{where} in the manifest has not the fields of a {kind.__name__}")
    return kind(**parts)


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


CODECS = (
    *PLAIN_CODECS,
    Codec("pipeline", ends_in_ours, _pack_pipeline, _unpack_pipeline, "sklearn"),
    Codec("estimator", lambda value: _is_ours(_stored_form(value), ESTIMATORS), _pack, _unpack),
    Codec("net", lambda value: _is_ours(value, (NET,)), _pack_net, _unpack_net, "torch"),
    Codec(
        "learner",
        _is_unfitted_learner,
        lambda packer, value, where: {
            "class": type(value).__name__,
            "parameters": packer.pack(value.get_params(deep=False), where),
        },
        _unpack_learner,
    ),
    *map(_codec_of, LIBRARIES.values()),
    Codec("mean-weight", lambda value: type(value) is MeanWeight, _pack_mean_weight, _unpack_mean_weight, "xgboost"),
    _record("ratio", RatioModel, classifier=object, signal=MeanWeight, background=MeanWeight, log_balance=float),
    _record("blend", Blend, kind=str, weights=np.ndarray, knots=list),
    _record("classifier", SklearnModel, estimator=object),
    Codec("record", lambda value: type(value) in _KINDS, _pack_categories, _unpack_categories),
    Codec("skops", _is_scikit_learn, _pack_skops, _unpack_skops, "sklearn"),
    Codec("pickle", lambda _: True, _pack_pickle, _unpack_pickle),
)
STORABLE = (*ESTIMATORS, NET, *STORABLE_RECORDS)
