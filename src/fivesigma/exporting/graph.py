"""An ONNX graph under construction.

Values are known by their names. The table of features and all scores are float64, scores of shape (n_events, 1); only
what goes in and comes out may be float32.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

import fivesigma
from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, Array
from fivesigma.errors import InputError

FEATURES, SCORE, SELECTED = "features", "score", "selected"  # input and outputs of the graph
ML = "ai.onnx.ml"  # the domain of the tree operators

# Old enough for the runtimes in use: onnxruntime reads all of them since 1.14.
_OPSETS = {"": 18, ML: 3}
_IR_VERSION = 8
_MOST_BYTES = 2**31 - 1  # protobuf holds no more in one message


class Graph:
    """Nodes and constants of a graph; `add` returns the name of what it computes."""

    def __init__(self, n_features: int, precision: str = "float64") -> None:
        self.n_features = n_features
        self.precision = precision  # of the input and of the score
        # Values of each feature at which the model changes its mind, for the simulation of events.
        self.landmarks: defaultdict[int, list[Array]] = defaultdict(list)
        self._nodes: list[Any] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._initializers: list[Any] = []
        self.table = FEATURES if precision == "float64" else self.cast(FEATURES, np.float64)
        self._tables = {self.table}  # whose columns are the features

    def add(self, operator: str, *inputs: str | float | AnyArray, domain: str = "", **attributes: Any) -> str:
        """Add a node; numbers and arrays among its inputs become constants."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        output = f"{operator}_{len(self._nodes)}"
        self._nodes.append(need("onnx.helper").make_node(operator, names, [output], domain=domain, **attributes))
        return output

    def constant(self, value: float | AnyArray) -> str:
        """Add a constant, once; a plain number is float64."""
        array = np.ascontiguousarray(value)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = f"constant_{len(self._constants)}"
            self._initializers.append(need("onnx.numpy_helper").from_array(array, self._constants[key]))
        return self._constants[key]

    def cast(self, value: str, dtype: type[np.generic]) -> str:
        """Convert to another type."""
        return self.add("Cast", value, to=need("onnx.helper").np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def columns(self, table: str, which: Any) -> str:
        """Some columns of a table, as a table."""
        return self.add("Gather", table, np.asarray(which, dtype=np.int64).reshape(-1), axis=1)

    def mean(self, values: list[str]) -> str:
        """Mean of several scores."""
        return values[0] if len(values) == 1 else self.add("Div", self.total(values), float(len(values)))

    def total(self, values: list[str]) -> str:
        """Sum of several scores, from left to right."""
        out = values[0]
        for value in values[1:]:
            out = self.add("Add", out, value)
        return out

    def same_columns(self, table: str, out: str) -> str:
        """Remember that the columns of `out` are features if those of `table` are, but for missing values."""
        if table in self._tables:
            self._tables.add(out)
        return out

    def note(self, table: str, feature: int, values: AnyArray) -> None:
        """Remember landmarks of a feature, unless the columns of the table are something else."""
        if table in self._tables:
            found = np.asarray(values, dtype=np.float64).reshape(-1)
            if np.isfinite(found).any():
                self.landmarks[feature].append(found[np.isfinite(found)])

    def model(self, score: str, cut: float, metadata: Mapping[str, str]) -> bytes:
        """Finish the graph: the score, and whether it reaches the cut."""
        helper, types = need("onnx.helper"), need("onnx").TensorProto
        flat = self.add("Squeeze", score, np.array([1]))
        number = types.DOUBLE if self.precision == "float64" else types.FLOAT
        ends = [
            helper.make_node("Cast", [flat], [SCORE], to=number),
            helper.make_node("GreaterOrEqual", [flat, self.constant(cut)], [SELECTED]),
        ]
        graph = helper.make_graph(
            [*self._nodes, *ends],
            "fivesigma",
            [helper.make_tensor_value_info(FEATURES, number, ["n_events", self.n_features])],
            [
                helper.make_tensor_value_info(SCORE, number, ["n_events"]),
                helper.make_tensor_value_info(SELECTED, types.BOOL, ["n_events"]),
            ],
            self._initializers,
        )
        opsets = [helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="fivesigma")
        model.producer_version = fivesigma.__version__
        helper.set_model_props(model, dict(metadata))
        if (size := model.ByteSize()) > _MOST_BYTES:
            raise InputError(
                f"the graph has {size / 1e9:.1f} GB and an ONNX file holds at most 2.1: export fewer members"
            )
        need("onnx.checker").check_model(model)
        return bytes(model.SerializeToString())
