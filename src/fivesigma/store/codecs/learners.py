"""Codecs of what was trained: boosters in their libraries' own formats, and what is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from fivesigma._tools.extras import need
from fivesigma.blend import Blend
from fivesigma.errors import InputError, StoreError
from fivesigma.learners.density_ratios import MeanWeight, RatioModel
from fivesigma.learners.libraries import LIBRARIES, library_of
from fivesigma.learners.protocols import Library
from fivesigma.learners.sklearn import SklearnModel
from fivesigma.store.packing import Codec, Packer, Unpacker

MODELS = (*(library.model for library in LIBRARIES.values()), SklearnModel, RatioModel)
# Learners that are stored by their parameters as long as they are not fitted.
LEARNERS = {name: library for library in LIBRARIES.values() for name in library.learners}


def _is_unfitted_learner(value: Any) -> bool:
    return library_of(value) is not None and type(value).__name__ in LEARNERS and not _is_fitted(value)


def _is_fitted(value: Any) -> bool:
    try:
        check_is_fitted(value)
    except NotFittedError:
        return False
    return True


def _unpack_learner(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Any:
    name = unpacker.typed(fields, "class", str, where)
    if name not in LEARNERS:
        raise StoreError(f"{where} in the manifest is the learner {name[:40]!r}; known are {', '.join(LEARNERS)}")
    return getattr(need(LEARNERS[name].name), name)(**unpacker.typed(fields, "parameters", dict, where))


def _codec_of(library: Library) -> Codec:
    """The boosters of a library, in its own format."""

    def pack(packer: Packer, value: Any, where: str) -> dict[str, Any]:
        return {name: packer.pack(part, where) for name, part in library.dump(value, packer.add_file).items()}

    def unpack(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Any:
        def take(name: str, kind: Any) -> Any:
            return unpacker.typed(fields, name, kind, where)

        try:
            return library.load(take, lambda name: _not_empty(unpacker.file({"file": name}, where), where))
        except StoreError:
            raise
        except InputError as err:
            raise StoreError(f"{where} in the manifest cannot be a model of {library.name}: {err}") from err

    return Codec(library.name, lambda value: type(value) is library.model, pack, unpack, library.name)


def _not_empty(content: bytes, where: str) -> bytes:
    """Refuse an empty booster, at which XGBoost ends the process."""
    if not content:
        raise StoreError(f"{where} names an empty file")
    return content


def _unpack_ratio(unpacker: Unpacker, fields: dict[str, Any], where: str) -> RatioModel:
    parts = [unpacker.typed(fields, name, MeanWeight, where) for name in ("signal", "background")]
    classifier = unpacker.typed(fields, "classifier", MODELS[:-1], where)
    return RatioModel(classifier, parts[0], parts[1], unpacker.typed(fields, "log_balance", float, where))


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
        load(regressor, _not_empty(unpacker.file(fields, where), where))
    else:
        regressor = unpacker.unpack(fields.get("regressor"), where)
    return MeanWeight(regressor, unpacker.typed(fields, "scale", float, where), (low, high))


def _unpack_blend(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Blend:
    kinds = {"kind": str, "weights": np.ndarray, "knots": list}
    return Blend(*(unpacker.typed(fields, name, kind, where) for name, kind in kinds.items()))


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
    *map(_codec_of, LIBRARIES.values()),
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
        lambda unpacker, fields, where: SklearnModel(unpacker.typed(fields, "estimator", object, where)),
    ),
)
