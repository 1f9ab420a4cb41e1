"""Codecs of our own estimators: their parameters, and what `fit` left behind; arrays of nets by safetensors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

import fivesigma
from fivesigma._tools.extras import need
from fivesigma.errors import StoreError, did_you_mean
from fivesigma.learners.net.inputs import Inputs
from fivesigma.store.packing import Codec, Packer, Unpacker, one_line

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
    name = unpacker.typed(fields, "class", str, where)
    if name not in ESTIMATORS:
        raise StoreError(f"{where} in the manifest is a {name[:40]!r}; known are {', '.join(ESTIMATORS)}")
    model = getattr(fivesigma, name)()
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
    if model.n_jobs is not None and (not isinstance(model.n_jobs, int) or isinstance(model.n_jobs, bool)):
        raise StoreError(f"{where}.parameters.n_jobs in the manifest should be an int, not {str(model.n_jobs)[:40]!r}")


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


CODECS = (
    Codec("pipeline", ends_in_ours, _pack_pipeline, _unpack_pipeline, "sklearn"),
    Codec("estimator", lambda value: _is_ours(_stored_form(value), ESTIMATORS), _pack, _unpack),
    Codec("net", lambda value: _is_ours(value, (NET,)), _pack_net, _unpack_net, "torch"),
)
