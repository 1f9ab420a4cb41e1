"""The codec of nets: arrays by safetensors, all else in the manifest."""

from __future__ import annotations

from typing import Any

import numpy as np

import fivesigma
from fivesigma._tools.extras import need
from fivesigma._types import AnyArray
from fivesigma.errors import StoreError
from fivesigma.learners.net.inputs import NO_COLUMN, Inputs
from fivesigma.store.codecs.estimators import check_use, is_ours, set_parameters
from fivesigma.store.codecs.fitted import are_labels, are_names
from fivesigma.store.packing import Codec, Packer, Unpacker

NAME = "NetClassifier"
_LAYER = "layer-{:03d}"
_INPUTS = {
    **dict.fromkeys(("columns", "flags", "momenta"), np.int64),
    **dict.fromkeys(("units", "means", "factors", "momentum_units", "momentum_factors"), np.float64),
}


def _pack_net(packer: Packer, value: Any, where: str) -> dict[str, Any]:
    safetensors = need("safetensors.numpy")  # for a net without weights too: a checkpoint asks before training
    packed = {"parameters": packer.pack(value.get_params(deep=False), where)}
    if not hasattr(value, "weights_"):
        if where == "model":
            raise StoreError(f"{where} is a {NAME} that is not fitted; fit it before it is saved")
        return packed
    arrays = {_LAYER.format(k): layer for k, layer in enumerate(value.weights_)}
    arrays |= {name: getattr(value.inputs_, name).astype(dtype) for name, dtype in _INPUTS.items()}
    names = ("classes_", "n_features_in_", "feature_names_in_", "loss_")
    fitted = {name: getattr(value, name) for name in names if hasattr(value, name)}
    file = packer.add_file(safetensors.save(arrays), ".safetensors")
    return {**packed, "fitted": packer.pack(fitted, where), "file": file}


def _unpack_net(unpacker: Unpacker, fields: dict[str, Any], where: str) -> Any:
    model = getattr(fivesigma, NAME)()
    set_parameters(model, unpacker, fields, where)
    if "file" not in fields and where != "model":
        return model
    model.__fivesigma_check__()
    fitted = unpacker.typed(fields, "fitted", dict, where)
    place = f"{where}.fitted"
    kinds = {"classes_": np.ndarray, "n_features_in_": int, "loss_": np.ndarray}
    values = {name: unpacker.typed(fitted, name, kind, place) for name, kind in kinds.items()}
    if "feature_names_in_" in fitted:
        values["feature_names_in_"] = unpacker.typed(fitted, "feature_names_in_", np.ndarray, place)
    n_features = values["n_features_in_"]
    names = values.get("feature_names_in_")
    if not are_labels(values["classes_"]) or not (names is None or are_names(names, n_features)):
        raise StoreError(f"{place} in the manifest cannot belong to a fitted net")
    check_use(model, where)
    arrays = need("safetensors.numpy").load(unpacker.file(fields, where))
    inputs = _inputs(arrays, n_features, where)
    values["inputs_"], values["weights_"] = inputs, _layers(arrays, inputs.n_inputs, where)
    vars(model).update(values)
    return model


def _inputs(arrays: dict[str, AnyArray], n_features: int, where: str) -> Inputs:
    """Take what the columns became, if it fits the table."""
    found = {name: arrays.pop(name, np.empty(0)) for name in _INPUTS}
    n, n_momenta = found["columns"].size, len(found["momenta"])
    shapes = {
        **dict.fromkeys(("columns", "units", "means", "factors"), (n,)),
        "flags": (found["flags"].size,),
        "momenta": (n_momenta, 3),
        **dict.fromkeys(("momentum_units", "momentum_factors"), (n_momenta, 2)),
    }
    for name, array in found.items():
        if array.dtype != _INPUTS[name] or array.shape != shapes[name] or not np.isfinite(array).all():
            raise StoreError(f"{where} names a file whose {name} cannot belong to a net")
    for name, least in (("columns", 0), ("flags", 0), ("momenta", NO_COLUMN)):
        if found[name].size and not (least <= found[name].min() and found[name].max() < n_features):
            raise StoreError(f"{where} names a file whose {name} are not among {n_features} columns")
    indices = {name: array.astype(np.intp) for name, array in found.items() if array.dtype == np.int64}
    return Inputs(**{**found, **indices})


def _layers(arrays: dict[str, AnyArray], n_inputs: int, where: str) -> list[AnyArray]:
    """Take the layers, if each sees the inputs and all layers before it."""
    layers = [arrays.pop(name) for name in sorted(arrays)]
    ok = len(layers) >= 4 and len(layers) % 2 == 0
    seen = n_inputs
    for k, (weight, offset) in enumerate(zip(layers[::2], layers[1::2], strict=False)):
        n_out = 1 if 2 * k + 2 == len(layers) else offset.size
        ok &= weight.shape == (n_out, seen) and offset.shape == (n_out,)
        ok &= weight.dtype == offset.dtype == np.float32
        ok = ok and bool(np.isfinite(weight).all() and np.isfinite(offset).all())
        seen += n_out
    if not ok:
        raise StoreError(f"{where} names a file whose layers do not fit each other or are not finite")
    return layers


CODECS = (Codec("net", lambda value: is_ours(value, (NAME,)), _pack_net, _unpack_net, "torch"),)
